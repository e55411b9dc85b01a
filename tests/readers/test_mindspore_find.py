"""Finding MindSpore's data: every sample is one trace per rank or device, and everybody else's folders stay theirs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

import steplens
from steplens import offline
from steplens.cli.main import app
from steplens.common import partial
from steplens.common.errors import InputError
from steplens.offline.mindspore.ranks import analyse_all_ranks, analyse_source
from steplens.offline.mindspore.settings import Options
from steplens.offline.mindspore.sources import is_complete
from steplens.readers import detect
from steplens.readers.mindspore.folders import is_promising
from steplens.readers.mindspore.mindspore_find import FLAT, FORMATS, LEGACY, PROF, WINDOWS, find_sources
from steplens.readers.mindspore.windows import mindspore_windows

from .mindspore_data import shared

SAMPLES = [
    ("JOB1", LEGACY, [0]),
    ("JOB2", FLAT, [0]),
    ("JOB4", LEGACY, [0]),
    ("ERROR_JOB", LEGACY, [10]),
    ("run_2", FLAT, [1]),
    ("run_3", FLAT, [1]),
    ("run_4", FLAT, [1]),
    ("cluster_propose", FLAT, [0, 1, 2, 3]),
    ("parallel_strategy", FLAT, [0, 1]),
    ("minddata_pipeline", FLAT, [0, 1, 2, 3]),
]


@pytest.fixture
def sample(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A writable copy of a sample."""
    folder = tmp_path / "sample"
    shutil.copytree(shared(request.param), folder, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
    return folder


@pytest.mark.parametrize(("sample", "kind", "numbers"), SAMPLES, indirect=["sample"], ids=[name for name, _, _ in SAMPLES])
def test_every_sample_is_found_and_read(sample: Path, kind: str, numbers: list[int]) -> None:
    found = detect.find_traces(sample)
    assert [item.where.kind for item in found] == [kind] * len(numbers)
    run = steplens.open(sample)
    assert [trace.rank for trace in run.traces] == numbers
    # the second time from the cache, one for each rank
    assert {item.name for item in (found[0].path / ".steplens").iterdir()} == {
        f"{FORMATS[kind].replace(' ', '_').lower()}_{number}" for number in numbers
    }
    again = steplens.open(sample)
    assert [trace.rank for trace in again.traces] == numbers
    shown = CliRunner().invoke(app, ["open", str(sample)])
    assert shown.exit_code == 0 and f"{len(numbers)} trace" in shown.output


@pytest.mark.parametrize("sample", ["JOB_AICPU"], indirect=True)
def test_logs_do_not_hide_results_in_another_folder(sample: Path) -> None:
    found = [(item.path, item.where.kind) for item in detect.find_traces(sample)]
    assert found == [(sample, LEGACY), (sample / "expect", FLAT)]
    assert len(steplens.open(sample).traces) == 2


@pytest.mark.parametrize("sample", ["profiler"], indirect=True)
def test_device_data_hides_nothing_beside_it(sample: Path, tmp_path: Path) -> None:
    """Two captures of one rank, logs of a device, results of others: each is listed once."""
    captures = sorted(path.name for path in sample.glob("PROF_*"))
    top = tmp_path / "top"
    top.mkdir()
    for name in captures:
        shutil.copytree(sample / name, top / name)
    later = captures[0][:-1] + ("A" if captures[0][-1] != "A" else "B")
    shutil.copytree(sample / captures[0], top / later)
    for job in ("run_2", "JOB1"):
        shutil.copytree(shared(job), top / job)
    (top / "trace.json").write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}')
    found = [(str(item.path.relative_to(top)), item.part) for item in detect.find_traces(top)]
    alone, last = sorted([captures[0], later])
    assert sorted(found) == sorted(
        [(".", "0"), (".", "1"), (alone, "0"), ("JOB1", "0"), ("run_2/normal_run/profiler", "1"), ("trace.json", "")]
    )
    (given,) = detect.find_traces(top / last)
    assert given.path == top / last
    (trace,) = steplens.open(top / last).traces
    assert trace.rank == 0


@pytest.mark.parametrize("sample", ["profiler"], indirect=True)
def test_device_data_that_names_no_rank_is_of_the_rank_of_its_device(sample: Path) -> None:
    """What the reason says, the trace says as well."""
    path = sorted(sample.glob("PROF_*"))[1]
    info = path / "device_1" / "info.json.1"
    info.write_text(json.dumps({key: value for key, value in json.loads(info.read_text()).items() if key != "rank_id"}))
    run = steplens.open(path)
    assert (run.sources[0].reason, run.traces[0].rank) == ("it holds device data of rank 1, one file per iteration", 1)


@pytest.mark.parametrize("sample", ["profiler"], indirect=True)
def test_a_flat_directory_completes_device_data(sample: Path) -> None:
    """The device's own data gives tasks and steps, the flat files of the same rank the data pipeline."""
    assert [(source.kind, source.number, source.completed) for source in find_sources(sample)] == [
        (PROF, 0, True),
        (PROF, 1, True),
        (FLAT, 10, False),
    ]
    run = steplens.open(sample)
    device = run.trace(0)
    cores = device.required("kernels").collect()["core"].cast(str).value_counts()
    counts = dict(cores.iter_rows())
    assert (counts["AI_CORE"], counts["AI_CPU"]) == (3 * 137, 3 * 2)
    assert device.required("pipeline_ops").collect().height == 5
    types = run.trace(1).source_table("aicore_intermediate_type")
    assert types is not None and types.height == 5


@pytest.mark.parametrize("sample", ["minddata_pipeline"], indirect=True)
def test_summary_shows_what_holds_up_a_pipeline(sample: Path) -> None:
    """With the thresholds of the documents (0.8, 0.6). The incumbent adds the operations 2 and 3 to the first."""
    shown = CliRunner().invoke(app, ["summary", str(sample)])
    assert shown.exit_code == 0
    lines = [line.split(":")[0].split() for line in shown.output.splitlines() if "it holds up the others" in line]
    assert [(int(words[1]), words[2]) for words in lines] == [
        (0, "Shuffle_4"),
        (1, "Shuffle_1"),
        (2, "Batch_0"),
        (3, "TFReader_2"),
        (3, "TFReader_3"),
    ]


def test_several_ranks_are_no_single_trace() -> None:
    folder = shared("cluster_propose")
    with pytest.raises(InputError, match="holds 4 traces"):
        detect.find_one(folder)


def test_other_folders_stay_others(tmp_path: Path) -> None:
    """Names that look like MindSpore's do not make a folder theirs: a run directory of PyTorch, results, weak files alone."""
    run = tmp_path / "host_1_20260101000000000_ascend_pt"
    (run / "FRAMEWORK").mkdir(parents=True)
    (run / "FRAMEWORK" / "torch.op_range").write_bytes(b"")
    (run / "profiler_info_0.json").write_text("{}")
    assert find_sources(run) == []
    output = tmp_path / "ASCEND_PROFILER_OUTPUT"
    output.mkdir()
    (output / "minddata_pipeline_raw_0.csv").write_text("op_id\n")
    assert find_sources(output) == []
    (tmp_path / "weak").mkdir()
    (tmp_path / "weak" / "profiler_info_0.json").write_text("{}")
    assert find_sources(tmp_path / "weak") == []
    assert find_sources(tmp_path / "missing") == []


def window(folder: Path, number: int, state: dict[str, object], launches: str = "", rank: int = 0) -> Path:
    path = folder / "FRAMEWORK" / f"window_{rank}_{number}"
    path.mkdir(parents=True)
    (path / "window.json").write_text(json.dumps(state))
    if launches:
        (path / f"cpu_op_execute_timestamp_{rank}.txt").write_text(launches)
    return path


BASE = 1_795_000_000_000_000_000
STATE = {"state": "collected", "pid": 7, "tid": 9, "begin_ns": BASE, "end_ns": BASE + 10_000}


def test_the_description_of_a_recording_alone_is_no_reason_for_a_closer_look(tmp_path: Path) -> None:
    """The Ascend PyTorch Profiler calls it the same."""
    (tmp_path / "profiler_info_0.json").write_text("{}")
    assert not is_promising(tmp_path)
    (tmp_path / "minddata_pipeline_0.json").write_text("{}")
    assert is_promising(tmp_path)


def test_windows_become_one_trace(tmp_path: Path) -> None:
    first = {**STATE, "steps": [[1, BASE, BASE + 5000]], "waits": [[1, BASE, BASE + 100]]}
    later = {**STATE, "begin_ns": BASE + 20_000, "end_ns": BASE + 30_000, "steps": [[5, BASE + 20_000, BASE + 25_000]]}
    window(tmp_path, 0, first, f"Default/a/Add-op0;HostCpuOps;{BASE + 1000},0.002,0 \n")
    window(tmp_path, 1, later, f"Default/a/Add-op0;HostCpuOps;{BASE + 21_000},0.003,0 \n")
    (source,) = find_sources(tmp_path)
    assert source.kind == WINDOWS
    trace = source.read()
    kernels = trace.required("kernels").sort("start_ns").collect()
    assert kernels["step"].to_list() == [1, 5]
    assert (kernels["end_ns"] - kernels["start_ns"]).to_list() == [2000, 3000]
    ops = trace.required("ops").collect()
    steps = ["ProfilerStep#1", "ProfilerStep#5"]
    assert sorted(ops["name"].cast(str)) == ["Default/a/Add-op0"] * 2 + steps + ["enumerate(DataLoader)#Iterator.__next__"]
    assert trace.rank == 0


def test_steps_of_two_loops_are_numbered_anew(tmp_path: Path) -> None:
    for number in (0, 1):
        begin = BASE + number * 50_000
        state = {
            **STATE,
            "begin_ns": begin,
            "end_ns": begin + 9000,
            "steps": [[1, begin, begin + 4000], [2, begin + 4000, begin + 9000]],
        }
        window(tmp_path, number, state, f"Default/Add-op0;HostCpuOps;{begin + 1},0.001,0 \n")
    trace = find_sources(tmp_path)[0].read()
    assert trace.required("steps").collect()["id"].to_list() == [1, 2, 3, 4]
    assert trace.health is not None and "renumbered_steps" in trace.health["check"].to_list()


def test_a_cut_step_without_launches_is_none(tmp_path: Path) -> None:
    steps = [[1, BASE, BASE + 10], [2, BASE + 10, BASE + 5000], [3, BASE + 5000, BASE + 5010]]
    state = {**STATE, "steps": steps, "partial_steps": [1, 3]}
    window(tmp_path, 0, state, f"Default/Add-op0;HostCpuOps;{BASE + 1000},0.001,0 \n")
    assert find_sources(tmp_path)[0].read().required("steps").collect()["id"].to_list() == [2]


def test_a_step_without_a_known_end_counts_up_to_its_last_launch(tmp_path: Path) -> None:
    """Of two windows each ends inside a step: neither is complete, and both are named."""
    for number in (0, 1):
        begin = BASE + number * 50_000
        steps = [[2 * number + 1, begin, begin + 4000], [2 * number + 2, begin + 4000, begin + 9000]]
        unended = [2 * number + 2]
        state = {**STATE, "begin_ns": begin, "end_ns": begin + 9000, "steps": steps, "partial_steps": unended,
                 "unended_steps": [*unended, 1 << 70]}  # fmt: skip
        window(tmp_path, number, state, f"Default/Add-op0;HostCpuOps;{begin + 1},0.001,0 {begin + 5000},0.0005,0 \n")
    opened = steplens.open(tmp_path)
    steps = opened.steps()
    assert steps.select("step", "duration_ns", "complete").rows() == [
        (1, 4000, True), (2, 1500, False), (3, 4000, True), (4, 1500, False)]  # fmt: skip
    told = dict(opened.health().select("check", "message").iter_rows())
    assert "inside them: 2;" in told["incomplete_steps"] and "the last recorded step (4)" in told["stopped_inside_step"]
    (first,) = find_sources(tmp_path)
    cut = mindspore_windows.read_trace(first.path, 0, [1])
    assert cut.health is None or not {"incomplete_steps", "stopped_inside_step"} & set(cut.health["check"])


def cut_window(folder: Path, partial: list[int] | None, contract: str) -> None:
    """Four steps, the last of them short, with a launch in each."""
    ends = [0, 4000, 8000, 12_000, 12_100]
    steps = [[number, BASE + ends[number - 1], BASE + ends[number]] for number in (1, 2, 3, 4)]
    told = {"config": {"contract": contract}, **({} if partial is None else {"partial_steps": partial})}
    launches = " ".join(f"{BASE + end + 20},0.001,0" for end in ends[:-1])
    state = {**STATE, "begin_ns": BASE, "end_ns": BASE + 13_000, "steps": steps, **told}
    window(folder, 0, state, f"Default/Add-op0;HostCpuOps;{launches} \n")


@pytest.mark.parametrize("contract", ["r2.4", "r2.7"])
@pytest.mark.parametrize(("partial", "complete"), [([], [1, 2, 3, 4]), ([1], [2, 3, 4]), ([1, 4], [2, 3]), (None, [1, 2, 3])])
def test_the_recorder_knows_which_steps_are_cut(
    tmp_path: Path, partial: list[int] | None, complete: list[int], contract: str
) -> None:
    """A short step is a short step where the recorder says that it is whole; its results say the same as its windows."""
    cut_window(tmp_path, partial, contract)

    def of(run: steplens.Run) -> tuple[list[int], list[str]]:
        checks = [check for check in run.health()["check"] if "incomplete" in check]
        return run.steps().filter("complete")["step"].to_list(), checks

    whole, checks = of(steplens.open(tmp_path))
    assert whole == complete
    assert checks == ["incomplete_last_step"] * (partial is None) + ["incomplete_steps"] * bool(partial)
    (source,) = find_sources(tmp_path)
    made = analyse_source(source, Options(data_simplification=False))
    assert made.ok and made.written_to is not None
    written = tmp_path / "written"
    shutil.copytree(made.written_to, written, ignore=shutil.ignore_patterns("FRAMEWORK", ".steplens"))
    results = [folder.parent for folder in written.rglob("ASCEND_PROFILER_OUTPUT")]
    assert len(results) == 1
    for folder in {written, *results}:
        assert of(steplens.open(folder)) == (whole, checks)


@pytest.mark.parametrize("what", ["content", "seal", "source", "other machine"])
def test_forged_results_are_made_again(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    cut_window(folder, [], "r2.7")
    if what == "other machine":
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (source,) = find_sources(folder)
    options = Options(data_simplification=False)
    assert not is_complete(source)
    assert analyse_source(source, options).ok
    assert is_complete(source)
    monkeypatch.undo()
    results = next(iter(folder.rglob("ASCEND_PROFILER_OUTPUT")))
    table = results / "trace_view.json"
    true = table.read_bytes()
    (launches,) = (file for file in source.recorded() if file.suffix == ".txt")
    changed = {"content": table, "source": launches}.get(what)
    if changed is not None:
        status, raw = changed.stat(), changed.read_bytes()
        changed.write_bytes(raw.replace(b"Add-op0", b"Sub-op0") if what == "content" else raw[:-1] + b" ")
        os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert changed.read_bytes() != raw and changed.stat().st_size == status.st_size
    elif what == "seal":
        (seal,) = (folder / ".steplens").glob("results_*.seal")
        seal.write_bytes(bytes(len(seal.read_bytes())))
    assert not is_complete(source)
    (again,) = offline.analyse(folder)
    assert again.ok and not again.already_complete
    assert table.read_bytes() == true
    assert is_complete(source)


@pytest.mark.parametrize(
    ("state", "check"),
    [
        ({"state": "recording", "pid": 7}, "window_lost"),
        ({**STATE, "steps": [[1, BASE]]}, "damaged_side_file"),
        ({**STATE, "steps": [[1, BASE + 5, BASE]]}, "damaged_side_file"),
        ({**STATE, "waits": [["1", 2, 3]]}, "damaged_side_file"),
        ({**STATE, "marks": [["a", "b", 3, 2, 1]]}, "damaged_side_file"),
        ({**STATE, "memory": True}, "missing_file"),
        ({**STATE, "health": [{"check": "told", "severity": "warning", "message": "so", "unsafe": "memory"}]}, "told"),
    ],
)
def test_damage_is_a_finding(tmp_path: Path, state: dict[str, object], check: str) -> None:
    window(tmp_path, 0, state, f"Default/Add-op0;HostCpuOps;{BASE + 1000},0.001,0 \n")
    trace = find_sources(tmp_path)[0].read()
    assert trace.health is not None and check in trace.health["check"].to_list()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"steps": 3, "waits": {}, "marks": "x", "health": 1, "pid": "a"}',
        '{"pid": 11028096891665552364, "tid": -9223372036854775809, "steps": [[1, 5, 6]], "waits": [[1, 5, 6]]}',
    ],
)
def test_a_window_whose_side_file_is_unusable_still_has_its_launches(tmp_path: Path, text: str) -> None:
    path = window(tmp_path, 0, {}, f"Default/Add-op0;HostCpuOps;{BASE + 1000},0.001,0 \n")
    (path / "window.json").write_text(text)
    assert find_sources(tmp_path)[0].read().required("kernels").collect().height == 1


@pytest.mark.parametrize("state", [{**STATE, "empty": True}, {"state": "recording", "pid": 7}])
def test_an_empty_or_broken_later_window_takes_nothing_from_finished_results(tmp_path: Path, state: dict[str, object]) -> None:
    results = tmp_path / "profiler"
    shutil.copytree(shared("run_2", "normal_run", "profiler"), results, copy_function=shutil.copyfile)
    before = steplens.open(results)
    assert before.traces[0].kernels is not None
    window(results, 1, state, rank=1)
    after = steplens.open(results)
    assert [trace.rank for trace in after.traces] == [1] and after.traces[0].kernels is not None
    assert after.traces[0].kernels.height == before.traces[0].kernels.height
    assert "window_lost" in after.health()["check"].to_list()


@pytest.mark.parametrize("state", [{**STATE, "empty": True}, {"state": "recording", "pid": 7}])
@pytest.mark.parametrize("export", ["text", "db"])
def test_a_run_directory_of_the_newer_interface_keeps_its_results(tmp_path: Path, state: dict[str, object], export: str) -> None:
    """Its finished results, text or database, are read where a later window gives nothing, and analysing leaves them."""
    run = tmp_path / "host_1_20261121000000000_ascend_ms"
    recorded = {**STATE, "steps": [[1, BASE, BASE + 5000]], "config": {"contract": "2.10", "export_type": [export]}}
    folder = window(run, 0, recorded, f"Default/a/Add-op0;HostCpuOps;{BASE + 1000},0.002,0 \n")
    ((_, made),) = analyse_all_ranks(run, Options(data_simplification=False))
    assert made.ok
    shutil.rmtree(folder)
    before = steplens.open(run)
    assert before.trace().required("kernels").collect().height == 1
    window(run, 0, state)
    after = steplens.open(run)
    columns = ("name", "start_ns", "end_ns")
    kernels = [opened.trace().required("kernels").select(columns).collect() for opened in (before, after)]
    assert kernels[0].equals(kernels[1])
    assert "window_lost" in after.health()["check"].to_list()
    files = {path: path.read_bytes() for path in (run / "ASCEND_PROFILER_OUTPUT").iterdir()}
    shown = CliRunner().invoke(app, ["analyse", str(run)])
    assert shown.exit_code == 0 and "stay as they are" in shown.output
    assert {path: path.read_bytes() for path in (run / "ASCEND_PROFILER_OUTPUT").iterdir()} == files


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    gone = int(subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout)
    for number, (pid, machine, known) in enumerate(
        [
            (gone, partial.machine_identity(), "still open when its process ended"),
            (os.getpid(), partial.machine_identity(), "is open, or is being saved"),
            # it may run there: nobody here can tell
            (gone, "000000000000", f"whether process {gone} still runs cannot be told here"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        window(folder, 0, {"state": "recording", "pid": pid, "machine": machine})
        with pytest.raises(InputError, match=known):
            steplens.open(folder)


def test_mindspores_own_output_on_a_cpu_is_read(tmp_path: Path) -> None:
    """The files that MindSpore 2.10 leaves in FRAMEWORK are one window without steps."""
    run = tmp_path / "host_1_20261121000000000_ascend_ms"
    (run / "FRAMEWORK").mkdir(parents=True)
    (run / "FRAMEWORK" / "cpu_op_execute_timestamp_0.txt").write_text(
        f"Default/Add-op0;HostCpuOps;{BASE},0.5,0 {BASE + 900_000},0.25,0 \n"
    )
    (source,) = find_sources(run)
    assert (source.kind, source.number) == (WINDOWS, 0)
    kernels = steplens.open(run).trace().required("kernels").collect()
    assert (kernels["end_ns"] - kernels["start_ns"]).to_list() == [500_000, 250_000]
