"""What is recorded equals what MindSpore itself writes, and what was done to the training on purpose."""

from __future__ import annotations

import csv
import itertools
import json
import re
import shutil
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import steplens
from steplens.cli.main import app
from steplens.offline.mindspore.ranks import analyse_all_ranks
from steplens.offline.mindspore.settings import Options
from steplens.readers.ascend.text import ascend_text
from steplens.readers.mindspore.mindspore_find import WINDOWS, find_sources
from steplens.readers.mindspore.windows import mindspore_windows
from steplens.trace.trace import Trace

from .conftest import Run

pytestmark = pytest.mark.slow

_ENTRY = re.compile(r"(\d+),([0-9.e+-]+),\d+")


def trace_of(folder: Path) -> Trace:
    (source,) = find_sources(folder / "result" / "profiler")
    assert source.kind == WINDOWS
    return source.read()


def windows(folder: Path) -> list[Path]:
    return sorted((folder / "result" / "profiler" / "FRAMEWORK").glob("window_0_*"))


def own_launches(folder: Path) -> Counter[tuple[str, int, int]]:
    """Name, start and length (ns) of every launch in MindSpore's own files, parsed here."""
    found: Counter[tuple[str, int, int]] = Counter()
    for window in windows(folder):
        for line in (window / "cpu_op_execute_timestamp_0.txt").read_text().splitlines():
            name, _, entries = line.split(";")
            found.update((name, int(start), round(float(length) * 1e6)) for start, length in _ENTRY.findall(entries))
    return found


def test_launches_equal_those_of_mindspore(recorded: Path) -> None:
    kernels = trace_of(recorded).required("kernels").collect()
    columns = kernels.select(pl.col("name").cast(pl.String), "start_ns", length=pl.col("end_ns") - pl.col("start_ns"))
    assert Counter(columns.iter_rows()) == own_launches(recorded)
    assert columns.height > 100


def test_sums_equal_those_of_mindspore(recorded: Path) -> None:
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for window in windows(recorded):
        with (window / "cpu_op_detail_info_0.csv").open() as handle:
            for row in csv.DictReader(handle):
                counts[row["full_op_name"]] += int(row["op_occurrences"])
                totals[row["full_op_name"]] += float(row["op_total_time(ms)"])
    with (recorded / "result" / "profiler" / "cpu_op_detail_info_0.csv").open() as handle:
        own = {row["full_op_name"]: row for row in csv.DictReader(handle)}
    assert {name: int(row["op_occurrences"]) for name, row in own.items()} == counts
    for name, row in own.items():
        # MindSpore prints six digits of every launch and of every sum
        assert float(row["op_total_time(ms)"]) == pytest.approx(totals[name], rel=2e-5, abs=1e-6)
    assert sum(float(row["total_proportion"]) for row in own.values()) == pytest.approx(1, abs=1e-6)


def test_types_add_up(recorded: Path) -> None:
    with (recorded / "result" / "profiler" / "cpu_op_type_info_0.csv").open() as handle:
        own = {row["op_type"]: row for row in csv.DictReader(handle)}
    counts: Counter[str] = Counter()
    for window in windows(recorded):
        with (window / "cpu_op_type_info_0.csv").open() as handle:
            for row in csv.DictReader(handle):
                counts[row["op_type"]] += int(row["type_occurrences"])
    assert {name: int(row["type_occurrences"]) for name, row in own.items()} == counts
    assert all(
        float(row["execution_frequency(per-step)"]) == pytest.approx(counts[name] / 7, abs=1e-3) for name, row in own.items()
    )
    assert sum(float(row["percent"]) for row in own.values()) == pytest.approx(1, abs=1e-6)


def test_every_launch_lies_in_the_step_that_made_it(recorded: Path) -> None:
    trace = trace_of(recorded)
    assert trace.required("steps").sort("start_ns").collect()["id"].to_list() == [3, 4, 5, 6, 7, 10, 11]
    kernels = trace.required("kernels").collect()
    assert kernels["step"].null_count() == 0
    # each step of the training does the same
    per_step = kernels.group_by("step", pl.col("name").cast(pl.String)).len()
    for _, rows in per_step.partition_by("name", as_dict=True).items():
        assert rows["len"].n_unique() == 1 and rows.height == 7
    steps = trace.required("steps").collect()
    inside = kernels.join(steps, left_on="step", right_on="id")
    assert ((inside["start_ns"] >= inside["start_ns_right"]) & (inside["end_ns"] <= inside["end_ns_right"])).all()


def test_step_trace_of_a_graph(recorded: Path) -> None:
    """Its points are launches of MindSpore's own list: the first one of a step, and the end of the last backward one."""
    path = recorded / "result" / "profiler" / "step_trace_raw_0_detail_time.csv"
    steps = [row for window in windows(recorded) for row in json.loads((window / "window.json").read_text())["steps"]]
    if "graph" not in (windows(recorded)[0] / "window.json").read_text().split('"context_mode"')[1][:12]:
        assert not path.exists() and not path.with_name("step_trace_point_info_0.json").exists()
        return
    with path.open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["step_num"] for row in rows] == [*(str(step) for step, _, _ in steps), "-"]
    launches = list(own_launches(recorded))
    for row, (_, start, end) in zip(rows, steps, strict=False):
        inside = [(name, begin, begin + length) for name, begin, length in launches if start <= begin < end]
        forward = min(begin for _, begin, _ in inside)
        backward = max(stop for name, _, stop in inside if name.startswith("Gradients/"))
        expected = [time // 10 for time in (start, end, forward, backward)]
        assert [int(row[name]) for name in ("start_point", "end_point", "fp_point", "bp_point")] == expected
        parts = sum(int(row[name]) for name in ("iteration_interval", "fp_and_bp", "tail"))
        assert parts == int(row["total"]) == int(row["end_point"]) - int(row["start_point"])
    _, start, end = steps[0]
    inside = sorted((begin, begin + length, name) for name, begin, length in launches if start <= begin < end)
    last = max(stop for _, stop, name in inside if name.startswith("Gradients/"))
    points = json.loads(path.with_name("step_trace_point_info_0.json").read_text())
    assert points == {"fp_start": inside[0][2], "bp_end": next(name for _, stop, name in inside if stop == last)}
    totals = [int(row["total"]) for row in rows[:-1]]
    assert abs(int(rows[-1]["total"]) - sum(totals) / len(totals)) <= 1


def test_phases_of_a_graph(recorded: Path, tmp_path: Path) -> None:
    """They are those of MindSpore's own list of launches, also when only the results are left."""
    shutil.copytree(recorded / "result", tmp_path / "result")
    analyse_all_ranks(tmp_path / "result", Options())
    (output,) = (tmp_path / "result" / "profiler").glob("rank-0_*")
    names = ["step", "data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns"]
    rows = steplens.open(recorded).steps().select(names)
    for left in (tmp_path / "result", output):
        assert steplens.open(left).steps().select(names).rows() == rows.rows()
    steps = [row for window in windows(recorded) for row in json.loads((window / "window.json").read_text())["steps"]]
    launches = list(own_launches(recorded).elements())
    if not any(name.startswith("Gradients/") for name, _, _ in launches):
        assert rows["forward_ns"].sum() == rows["optimizer_ns"].sum() == 0
        return
    for row, (_, start, end) in zip(rows.iter_rows(named=True), steps, strict=True):
        inside = [(name, begin, begin + length) for name, begin, length in launches if start <= begin < end]
        expected = phases_of_launches(inside)
        assert {name: row[f"{name}_ns"] for name in expected} == expected
        assert all(time > 0 for time in expected.values())


def phases_of_launches(launches: list[tuple[str, int, int]]) -> dict[str, int]:
    """How long each phase of a step takes: from its first launch to the end of its last one, with the gaps between them.

    Forward reaches up to the first launch of backward: it begins with a launch that neither does a gradient nor belongs to the
    optimizer.
    """
    runs: list[tuple[str, int, int]] = []
    for kind, begin, end in kinds_of_time(launches):
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1], end)
        else:
            runs.append((kind, begin, end))
    found = dict.fromkeys(("forward", "backward", "optimizer"), 0)
    forward: int | None = None
    for number, (kind, begin, end) in enumerate(runs):
        if kind == "backward":
            found["forward"] += 0 if forward is None else begin - forward
            forward = None
        elif kind == "forward" and forward is None and "backward" in [later for later, _, _ in runs[number:]]:
            forward = begin
        if kind != "forward" and forward is None:
            found[kind] += end - begin
    return found


def kinds_of_time(launches: list[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    """What runs, in order of time: of launches side by side a gradient counts, then the optimizer."""
    borders = sorted({time for _, *span in launches for time in span})
    for begin, end in itertools.pairwise(borders):
        running = [name for name, start, stop in launches if start <= begin and end <= stop]
        if any(name.startswith("Gradients/") for name in running):
            yield "backward", begin, end
        elif any("/optimizer-" in name for name in running):
            yield "optimizer", begin, end
        elif any(name.startswith("Default/") for name in running):
            yield "forward", begin, end


def test_memory_is_that_of_the_windows(recorded: Path) -> None:
    memory = trace_of(recorded).required("memory").collect()
    states = [json.loads((window / "window.json").read_text()) for window in windows(recorded)]
    spans = [(state["begin_ns"], state["end_ns"]) for state in states]
    rows = (windows(recorded)[-1] / "cpu_ms_memory_record_0.txt").read_text().splitlines()[1:]
    times = [int(line.split(",")[0]) for line in rows]
    # MindSpore's last list has the pool's events since the first window
    expected = sorted(time for time in times if any(begin <= time <= end for begin, end in spans))
    assert sorted(memory["time_ns"].to_list()) == expected and expected
    assert not memory.is_duplicated().any()


def test_shapes(recorded: Path) -> None:
    trace = trace_of(recorded)
    kernels = trace.required("kernels").collect().with_columns(pl.col("name", "type", "input_shapes").cast(pl.String))
    if trace.meta_values()["context_mode"] == "graph":
        first = kernels.filter(pl.col("name").str.starts_with("Default") & pl.col("name").str.contains("first-Dense/MatMul"))
        assert first.height == 7 and set(first["input_shapes"]) == {"2,8;16,8;;"}
        assert kernels["input_shapes"].null_count() == 0
        return
    # MindSpore records no shapes of the operators that PyNative mode dispatches itself; these have no scope either
    without = kernels.filter(pl.col("input_shapes").is_null())
    assert not without["name"].str.contains("/").any() and (without["name"] == without["type"]).all()
    biases = kernels.filter(pl.col("type") == "BiasAdd")
    assert set(biases["input_shapes"]) == {"2,16;16;", "2,2;2;"}


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_waits_equal_the_delays_of_the_pipeline(run: Run, tmp_path: Path, mode: str) -> None:
    """One worker that sleeps once a batch is asked for: every batch is waited for as long as it takes to make."""
    delay = 0.4
    told = run(
        f"""
mode({mode!r})
import threading
from steplens.mindspore import Profiler
ds.config.set_prefetch_size(1)
step = stepper()
may_begin = threading.Semaphore(0)
class Samples:
    def __len__(self):
        return 16
    def __getitem__(self, number):
        if number % 2 == 0:
            may_begin.acquire()
        time.sleep({delay} / 2)
        if number % 2:
            made.append(time.time())
        return np.full([8], number, np.float32), np.array(number % 2, np.int32)
for batch in pipeline(2).create_dict_iterator(num_epochs=1):
    step(batch["data"], batch["label"])
profiler = Profiler(output_path="result", data_process=True, data_simplification=False)
made.clear()
asked, had = [], []
data = ds.GeneratorDataset(Samples(), ["data", "label"], shuffle=False, num_parallel_workers=1).batch(2)
batches = data.create_dict_iterator(num_epochs=1)
while True:
    asked.append(time.time_ns())
    may_begin.release()
    batch = next(batches, None)
    had.append(time.time_ns())
    if batch is None:
        break
    step(batch["data"], batch["label"])
print(json.dumps([asked[:8], had[:8], made]))
profiler.analyse()
"""
    )
    trace = trace_of(tmp_path)
    name = pl.col("name").cast(pl.String)
    waits = trace.required("ops").filter(name.str.starts_with("enumerate(DataLoader)#")).sort("start_ns").collect()
    steps = trace.required("steps").sort("start_ns").collect()
    assert waits.height == steps.height == 8
    asked, had, made = json.loads(told.stdout)
    # how long each batch really took to make, by the pipeline's own clock: on a busy machine a sleep lasts longer
    assert len(made) == 8 and min(later - earlier for earlier, later in itertools.pairwise(made)) >= delay
    # each wait lies within what the loop itself saw, and ends no sooner than its batch is there
    lengths = (waits["end_ns"] - waits["start_ns"]).to_list()
    for begin, end, before, after, ready in zip(waits["start_ns"], waits["end_ns"], asked, had, made, strict=True):
        # seconds in a double are exact to less than 1 us
        assert before <= begin < end <= after and end > ready * 1e9 - 1000
    # between two readings of the clock lie some us of Python, and at a few of them what a busy machine does instead
    outside = [after - before - took for before, after, took in zip(asked, had, lengths, strict=True)]
    assert statistics.median(outside) < 0.05 * delay * 1e9
    # MindSpore's own record of the same batches, in whole ms: within the waits, and most of each
    batches = trace.required("pipeline_batches").filter(pl.col("kind").cast(pl.String) == "iterate").sort("batch").collect()
    assert batches.height == 8
    for column in ("get_ns", "total_ns"):
        less = [took - own for took, own in zip(lengths, batches[column], strict=True)][1:]
        assert min(less) >= -1_000_000 and statistics.median(less) < 0.05 * delay * 1e9
    summary = json.loads((tmp_path / "result" / "profiler" / "minddata_pipeline_summary_0.json").read_text())
    assert summary["bottleneck_warning"] == [name for name in summary["pipeline_ops"] if name.startswith("Generator")]
    # the first batch also starts the pipeline
    assert summary["per_pipeline_time"][0] == pytest.approx(batches["get_ns"][1:].mean() / 1e6, abs=1e-3)
    assert summary["per_batch_time"][0] == pytest.approx(batches["total_ns"][1:].mean() / 1e6, abs=1e-3)


def test_step_list_cuts_steps(recorded: Path) -> None:
    whole = trace_of(recorded)
    part = mindspore_windows.read_trace(recorded / "result" / "profiler", 0, [2, 3])
    assert part.required("steps").collect()["id"].to_list() == [4, 5]
    expected = whole.required("kernels").filter(pl.col("step").is_in([4, 5])).collect()
    kernels = part.required("kernels").collect()
    assert kernels["step"].null_count() == 0
    assert Counter(kernels["start_ns"]) == Counter(expected["start_ns"])


def test_a_complete_result_is_left_alone(recorded: Path) -> None:
    info = recorded / "result" / "profiler" / "profiler_info_0.json"
    before = info.stat().st_mtime_ns
    shown = CliRunner().invoke(app, ["analyse", str(recorded)])
    assert shown.exit_code == 0 and "complete already" in shown.output
    assert info.stat().st_mtime_ns == before


def test_opens_and_sums_up(recorded: Path) -> None:
    run = steplens.open(recorded)
    assert [source.format for source in run.sources] == ["MindSpore run"]
    assert run.steps()["step"].to_list() == [3, 4, 5, 6, 7, 10, 11]
    operators = run.operators(annotations=True)
    every = {row["name"]: row["calls"] for row in operators.iter_rows(named=True)}
    assert every.pop("ProfilerStep*") == run.steps().height
    calls = {name: count for name, count in every.items() if not name.startswith("enumerate")}
    assert calls == Counter(name for name, _, _ in own_launches(recorded).elements())


def test_the_written_timeline_opens_with_every_launch_tied_to_its_call(recorded: Path) -> None:
    """It has no arrow from a launch to itself; whoever reads it finds the call by the time."""
    (output,) = (recorded / "result" / "profiler").glob("rank-0_*_ascend_ms/ASCEND_PROFILER_OUTPUT")
    assert "async_npu" not in {event.get("cat") for event in json.loads((output / "trace_view.json").read_bytes())}
    trace = ascend_text.read_trace(output, output.parent)
    columns = ("name", "start_ns", "end_ns")
    tied = trace.required("kernels").join(
        trace.required("ops").select("id", *columns), left_on="op", right_on="id", suffix="_of_call"
    )
    rows = tied.collect()
    assert rows.height == sum(own_launches(recorded).values())
    assert all(rows[column].to_list() == rows[f"{column}_of_call"].to_list() for column in columns)
