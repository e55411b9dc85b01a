"""What steplens says of recorded GPU traces, against HolisticTraceAnalysis on the same files.

The peer runs in an environment of its own (``.bench/hta``; ``make test`` makes it). docs/peers.md explains the
differences that are left.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.device import breakdown, queue
from steplens.analysis.device.kernels import kernel_statistics
from steplens.run import open_run
from steplens.trace.trace import Trace

from ..once import once
from ..shared_data import shared

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".bench" / "hta" / "bin" / "python"
#: sample -> its rank
SAMPLES = {
    "cuda_alexnet": 0,
    "cuda_nccl_distributed": 0,
    "cuda_ns_resolution_rank0": 0,
    "cuda_sampled_rank0": 0,
    "cuda_sampled_rank1": 1,
    "rocm_mi250_minitoy": 0,
}
#: the peer adds doubles of microseconds: the error of a sum of thousands of times of this size, us
DOUBLES_US = 0.01

pytestmark = pytest.mark.slow


Peer = Callable[..., dict[str, Any]]


def ask_peer(samples: Sequence[str], *options: str, exact: bool) -> dict[str, Any]:
    """The numbers of the peer about some recorded traces, by their names; what it imports takes longer than a trace."""
    if not PYTHON.exists():
        pytest.skip("HolisticTraceAnalysis is not installed beside this checkout (make .bench/hta/.setup-done)")
    traces = [text for sample in samples for text in (str(SAMPLES[sample]), shared("kineto", f"{sample}.json.gz"))]
    command = [PYTHON, ROOT / "tests" / "peers" / "hta_numbers.py", *options, *traces]
    environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": str(int(exact)), "PYTHONPATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("numbers: ")]
    return dict(zip(samples, (json.loads(line.removeprefix("numbers: ")) for line in lines), strict=True))


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Peer:
    """Gives the numbers of the peer about a sample, in whole nanoseconds and of all steps or as it gives them by default."""

    def numbers(sample: str, *, default: bool = False) -> dict[str, Any]:
        def make(folder: Path) -> None:
            answers = ask_peer([sample], exact=False) if default else ask_peer(list(SAMPLES), "--all-steps", exact=True)
            (folder / "numbers.json").write_text(json.dumps(answers))

        folder = once(tmp_path_factory, "hta-default" if default else "hta", make)
        found: dict[str, Any] = json.loads((folder / "numbers.json").read_text())[sample]
        return found

    return numbers


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trace]:
    """Opens a sample once, outside the shared folder, since its cache lies beside it."""

    @functools.cache
    def open_sample(sample: str) -> Trace:
        source = shared("kineto", f"{sample}.json.gz")
        copy = shutil.copy(source, tmp_path_factory.mktemp("peer"))
        return open_run(Path(copy)).trace()

    return open_sample


def with_kernels(trace: Trace, kernels: pl.DataFrame) -> Trace:
    """``trace`` with other device tasks."""
    return Trace(trace.source, {**{name: trace.table(name) for name in trace}, "kernels": kernels})


def with_waits(trace: Trace) -> Trace:
    """``trace`` with the host's waits for the device as device tasks, as the peer sees them.

    It calls them neither computing nor memory when their name has "Sync" in it, else computing.
    """
    waits = trace.api.filter(pl.col("layer").cast(pl.String) == "cuda_sync")
    computes = ~pl.col("name").cast(pl.String).str.contains("Sync")
    rows = waits.select(
        "name",
        "start_ns",
        "end_ns",
        kind=pl.when(computes).then(pl.lit("compute")).otherwise(pl.lit("copy")).cast(trace.kernels["kind"].dtype),
    )
    return with_kernels(trace, pl.concat([trace.kernels, rows], how="diagonal"))


@pytest.mark.parametrize("sample", SAMPLES)
def test_temporal_breakdown(peer: Peer, ours: Callable[[str], Trace], sample: str) -> None:
    trace = ours(sample)
    found = breakdown.temporal_breakdown(with_waits(trace)).row(0, named=True)
    expected = peer(sample)["temporal"]
    for name, theirs in (("total", "kernel"), ("idle", "idle"), ("compute", "compute"), ("non_compute", "non_compute")):
        # a start as microseconds since the epoch is a double to a quarter of a microsecond
        slack = 0.5 if sample == "cuda_ns_resolution_rank0" else DOUBLES_US
        assert found[f"{name}_ns"] / 1000 == pytest.approx(expected[f"{theirs}_time(us)"], abs=slack)
        if name != "total":
            assert found[f"{name}_percent"] == pytest.approx(expected[f"{theirs}_time_pctg"], abs=0.0051)
    waits = trace.api.filter(pl.col("layer").cast(pl.String) == "cuda_sync").height
    assert (waits > 0) == (sample == "cuda_alexnet")


def test_temporal_breakdown_of_the_peers_default(peer: Peer, ours: Callable[[str], Trace]) -> None:
    sample = "cuda_nccl_distributed"
    trace = ours(sample)
    before = with_kernels(trace, trace.kernels.filter(pl.col("launch_ns") < trace.steps["start_ns"].max()))
    found = breakdown.temporal_breakdown(before).row(0, named=True)
    expected = peer(sample, default=True)["temporal"]
    # every task loses up to a microsecond at each end
    slack = 2 * before.kernels.height
    assert 0 < before.kernels.height < trace.kernels.height
    assert found["total_ns"] / 1000 == pytest.approx(expected["kernel_time(us)"], abs=2)
    assert 0 <= found["compute_ns"] / 1000 - expected["compute_time(us)"] <= slack
    assert 0 <= expected["idle_time(us)"] - found["idle_ns"] / 1000 <= slack


@pytest.mark.parametrize("sample", SAMPLES)
def test_communication_overlap(peer: Peer, ours: Callable[[str], Trace], sample: str) -> None:
    found = breakdown.communication_overlap(ours(sample))["overlap_percent"].item()
    expected = peer(sample)["overlap"]["comp_comm_overlap_pctg"]
    if expected is None:
        assert found is None
    else:
        assert found == pytest.approx(expected, abs=0.0051)
        assert found > 10


def pieces(trace: Trace) -> dict[str, list[int]]:
    """Lengths (ns) of the pieces of the time line between any begin and end, by the kinds of task that run, the plain way."""
    changes = []
    kinds = ("compute", "communication", "copy")
    for kind in kinds:
        tasks = trace.kernels.filter(pl.col("kind").cast(pl.String) == kind).select("start_ns", "end_ns").sort("start_ns").rows()
        merged: list[list[int]] = []
        for start, end in tasks:
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        changes += [(time, kind, entering) for one in merged for time, entering in zip(one, (True, False), strict=True)]
    found: dict[str, list[int]] = {}
    running: set[str] = set()
    before = 0
    for time, kind, entering in sorted(changes):
        if running and time > before:
            found.setdefault(" + ".join(name for name in kinds if name in running), []).append(time - before)
        (running.add if entering else running.discard)(kind)
        before = time
    return found


@pytest.mark.parametrize("sample", SAMPLES)
def test_kind_breakdown(peer: Peer, ours: Callable[[str], Trace], sample: str) -> None:
    trace = with_waits(ours(sample))
    trace = with_kernels(trace, trace.kernels.filter(~pl.col("name").cast(pl.String).str.contains("Sync")))
    found = {row["kinds"]: row["time_ns"] for row in breakdown.kind_breakdown(trace).iter_rows(named=True)}
    plain = pieces(trace)
    assert found == {kinds: sum(lengths) for kinds, lengths in plain.items()}
    words = {"compute": "COMPUTATION", "communication": "COMMUNICATION", "copy": "MEMORY"}
    expected = {row["kernel_type"]: row["sum"] for row in peer(sample)["kinds_with_memory"] if row["sum"]}
    # the peer cuts every piece to whole microseconds before it adds them; its doubles may fall short of a whole one
    cut = {
        " overlapping ".join(words[kind] for kind in kinds.split(" + ")): sum(length // 1000 for length in lengths)
        for kinds, lengths in plain.items()
    }
    assert cut == pytest.approx(expected, rel=1e-3 if sample == "cuda_ns_resolution_rank0" else 0, abs=3)


@pytest.mark.parametrize("sample", SAMPLES)
def test_kernel_statistics(peer: Peer, ours: Callable[[str], Trace], sample: str) -> None:
    found = {row["name"]: row for row in kernel_statistics(ours(sample)).iter_rows(named=True)}
    expected = {row["name"]: row for row in peer(sample)["kernels"] if "Wait Event" not in row["name"]}
    assert set(found) == set(expected)
    types = {"compute": "COMPUTATION", "communication": "COMMUNICATION", "copy": "MEMORY"}
    for name, row in found.items():
        other = expected[name]
        assert types[row["kind"]] == other["kernel_type"]
        for ours_name, theirs in (
            ("total_ns", "sum (us)"),
            ("min_ns", "min (us)"),
            ("max_ns", "max (us)"),
            ("mean_ns", "mean (us)"),
        ):
            assert row[ours_name] / 1000 == pytest.approx(other[theirs], rel=1e-9, abs=1e-6)
        assert row["std_ns"] / 1000 == pytest.approx(other["stddev"], rel=1e-6, abs=1e-4)


@pytest.mark.parametrize("sample", SAMPLES)
def test_queue_length(peer: Peer, ours: Callable[[str], Trace], sample: str) -> None:
    found = {row["stream"]: row for row in queue.queue_summary(ours(sample)).iter_rows(named=True)}
    expected = {row["stream"]: row for row in peer(sample)["queue"]}
    assert set(found) == set(expected)
    for stream, row in found.items():
        other = expected[stream]
        assert (row["changes"], row["min"], row["max"], row["median"]) == (
            other["count"],
            other["min"],
            other["max"],
            other["50%"],
        )
        # launches and starts at the same time count in another order where the peer's doubles cannot tell them apart
        slack = 0.01 if sample == "cuda_ns_resolution_rank0" else 1e-9
        assert row["mean"] == pytest.approx(other["mean"], abs=slack)
        assert row["std"] == pytest.approx(other["std"], abs=slack)


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name.startswith("cuda")])
def test_launches(peer: Peer, ours: Callable[[str], Trace], sample: str) -> None:
    found = queue.launches(ours(sample))
    expected = {row["correlation"]: row for row in peer(sample)["launches"]}
    assert set(found["correlation"]) == set(expected)
    slack = 0.51 if sample == "cuda_ns_resolution_rank0" else DOUBLES_US
    for row in found.iter_rows(named=True):
        other = expected[row["correlation"]]
        assert row["launch_duration_ns"] / 1000 == pytest.approx(other["cpu_duration"], abs=1e-6)
        assert row["task_duration_ns"] / 1000 == pytest.approx(other["gpu_duration"], abs=1e-6)
        assert max(row["delay_ns"], 0) / 1000 == pytest.approx(other["launch_delay"], abs=slack)


@pytest.mark.parametrize("sample", SAMPLES)
def test_idle_breakdown(peer: Peer, ours: Callable[[str], Trace], sample: str) -> None:
    found = {
        (row["stream"], row["cause"]): row["idle_ns"] / 1000
        for row in breakdown.idle_breakdown(ours(sample)).iter_rows(named=True)
    }
    expected = {(row["stream"], row["idle_category"]): row["idle_time"] for row in peer(sample)["idle"] if row["idle_time"]}
    if sample == "cuda_ns_resolution_rank0":
        # some launches lie within a quarter of a microsecond of the gap they decide about
        assert sum(found.values()) == pytest.approx(sum(expected.values()), abs=0.5)
        assert found == pytest.approx(expected, rel=0.05)
    else:
        assert found == pytest.approx(expected, abs=0.0051)
