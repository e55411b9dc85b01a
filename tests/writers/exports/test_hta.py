"""What HolisticTraceAnalysis says of traces in Kineto's form, against what it says of the originals.

The peer runs in an environment of its own (``.bench/hta``; ``make test`` makes it).
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from steplens.analysis.steps.times import step_times
from steplens.run import open_run
from steplens.writers.exports.export import export

from ...shared_data import shared

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".bench" / "hta" / "bin" / "python"
KINETO = ("cuda_alexnet", "cuda_nccl_distributed", "cuda_ns_resolution_rank0", "rocm_mi250_minitoy", "cuda_sampled")
#: expected computing time of step 50, us: the captures' own step_trace_time
ASCEND = {"text_level0": 8827.473, "text_level1": 8873.756, "db_level0": 8843.91, "db_level2": 8900.456}
CPU = "cpu_only_rank34"
#: of a job on GPUs, recorded without its device: there is nothing to show
HOST_ALONE = "cuda_rank_missing"

pytestmark = pytest.mark.slow


def without_waits(source: Path, target: Path) -> None:
    """A copy without the host's waits for the device, which the tables keep as calls and the peer counts as device work."""
    data = json.loads(gzip.decompress(source.read_bytes()))
    data["traceEvents"] = [event for event in data["traceEvents"] if event.get("cat") != "cuda_sync"]
    target.write_text(json.dumps(data))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the peer says of each original and each twin, from one run of it."""
    if not PYTHON.exists():
        pytest.skip("HolisticTraceAnalysis is not installed beside this checkout (make .bench/hta/.setup-done)")
    folder = tmp_path_factory.mktemp("hta")
    for name in (*KINETO, CPU, HOST_ALONE):
        original = folder / f"original_{name}"
        original.mkdir()
        for source in shared("kineto").glob(f"{name}*.json.gz"):
            if name == "cuda_alexnet":
                without_waits(source, original / "trace.json")
            else:
                shutil.copy(source, original)
            shutil.copy(source, folder)
            export(folder / source.name, "kineto", folder / f"twin_{name}" / source.name)
    for name in ASCEND:
        shutil.copytree(shared("ascend_pytorch", name, "rank0_ascend_pt"), folder / "ascend" / name / "rank0_ascend_pt")
        export(folder / "ascend" / name, "kineto", folder / f"twin_{name}" / "trace.json")
    folders = sorted(path for path in folder.iterdir() if path.name.startswith(("twin", "original")))
    command = [PYTHON, Path(__file__).with_name("hta_load.py"), *folders]
    environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1", "PYTHONPATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip([path.name for path in folders], said, strict=True))


@pytest.mark.parametrize("name", KINETO)
def test_traces_of_gpus_give_the_same_answers(found: dict[str, dict[str, Any]], name: str) -> None:
    original, twin = found[f"original_{name}"], found[f"twin_{name}"]
    assert twin["ranks"] == original["ranks"] == ([0, 1] if name == "cuda_sampled" else [0])
    # a start as microseconds since the epoch is a double to a quarter of a microsecond
    slack = 0.5 if name == "cuda_ns_resolution_rank0" else 1e-6
    for theirs, ours in zip(original["temporal"], twin["temporal"], strict=True):
        for column, value in theirs.items():
            assert ours[column] == pytest.approx(value, abs=slack), column
    assert theirs["kernel_time(us)"] > 100
    for question in ("overlap", "kinds", "launches", "queue", "critical_path"):
        assert twin[question] == original[question], question
    idle = [{(row["stream"], row["idle_category"]): row["idle_time"] for row in said["idle"]} for said in (twin, original)]
    if name != "cuda_ns_resolution_rank0":
        assert idle[0] == idle[1]
    else:
        # some launches lie within a quarter of a microsecond of the gap they decide about
        assert idle[0] == pytest.approx(idle[1], rel=0.05)


@pytest.mark.parametrize("name", ASCEND)
def test_captures_of_an_npu_can_be_analysed(found: dict[str, dict[str, Any]], name: str) -> None:
    twin = found[f"twin_{name}"]
    assert twin["ranks"] == [0]
    (temporal,) = twin["temporal"]
    assert temporal["compute_time(us)"] == pytest.approx(ASCEND[name], abs=0.001)
    kinds = {row["kernel_type"] for row in twin["kinds"]}
    assert {"COMPUTATION", "COMMUNICATION", "MEMORY", "COMPUTATION overlapping COMMUNICATION"} <= kinds
    if name == "text_level0":
        # no runtime calls were recorded, which the peer needs for its queues
        assert twin["launches"] == 0
    else:
        assert twin["launches"] > 200
        # one per stream
        assert twin["queue"] == 3


def test_runs_on_a_cpu_load_and_show_its_tasks(found: dict[str, dict[str, Any]]) -> None:
    original, twin = found[f"original_{CPU}"], found[f"twin_{CPU}"]
    assert twin["ranks"] == original["ranks"]
    # of the trace as it was recorded the peer can tell nothing
    assert original["temporal"] == "IndexError"
    (temporal,) = twin["temporal"]
    assert temporal["compute_time(us)"] > 0


def test_a_device_that_was_not_recorded_is_not_made_up(found: dict[str, dict[str, Any]]) -> None:
    original, twin = found[f"original_{HOST_ALONE}"], found[f"twin_{HOST_ALONE}"]
    assert twin["ranks"] == original["ranks"]
    assert twin["rows"] == original["rows"]
    assert twin["temporal"] == original["temporal"] == "IndexError"


def test_a_run_on_this_machine(found: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import steplens

    layer = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with steplens.profile(
        schedule=steplens.schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "result"), analyse_flag=False),
    ) as prof:
        for _ in range(5):
            layer(torch.ones(256, 64)).sum().backward()
            optimizer.step()
            prof.step()
    export(tmp_path / "result", "kineto", tmp_path / "twin" / "trace.json.gz")
    environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1", "PYTHONPATH": ""}
    command = [PYTHON, Path(__file__).with_name("hta_load.py"), tmp_path / "twin"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["ranks"] == [0]
    (temporal,) = said["temporal"]
    trace = open_run(tmp_path / "result").trace()
    computing = step_times(trace)["computing_ns"].sum()
    inside = trace.kernels.filter(trace.kernels["step"].is_not_null())
    assert inside.height > 20
    # tasks outside every step are in the peer's sum too; starts and lengths are doubles to it, so that between two tasks of
    # which one follows the other there is a fraction of a ns
    rounding = trace.kernels.height
    assert temporal["compute_time(us)"] * 1000 >= computing - rounding
    assert temporal["compute_time(us)"] * 1000 <= trace.kernels["self_ns"].sum() + rounding
