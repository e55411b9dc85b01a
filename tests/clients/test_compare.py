"""``msprof-analyze compare``: our results with themselves, with a slower run, with an Ascend capture and with CUDA traces."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import steplens
from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.analysis.steps.device_work import computing_tasks
from steplens.analysis.tools.overlap import merged, subtract
from steplens.run import open_run
from steplens.trace.trace import Trace
from steplens.writers.exports.export import export

from ..shared_data import shared
from . import msprof, runs
from .conftest import SLOW_RANK
from .jobs import train

pytestmark = pytest.mark.slow


SHEETS = {
    "OverallMetrics",
    "OperatorCompareStatistic",
    "OperatorCompare",
    "MemoryCompareStatistic",
    "MemoryCompare",
    "ApiCompare",
}
OPERATORS = {"OperatorCompareStatistic", "OperatorCompare"}
PARTS = TOTAL, COMPUTING, COMMUNICATION, FREE = "E2E Time", "Computing Time", "Uncovered Communication Time", "Free Time"


def extent_ms(trace: Trace) -> float:
    """From the first start to the last end of what the device computes or communicates."""
    ends = []
    for table in ("kernels", "communication"):
        frame = trace.required(table).select("start_ns", "end_ns").collect()
        ends.append((frame["start_ns"].min(), frame["end_ns"].max()))
    return (max(end for _, end in ends) - min(start for start, _ in ends)) / 1e6  # type: ignore[operator]


def parts_ms(trace: Trace) -> dict[str, float]:
    """What of the extent is computing, communication that nothing computes beside, and neither."""
    times = ("start_ns", "end_ns")
    computing = merged(computing_tasks(trace).select(times).collect())
    alone = subtract(merged(trace.required("communication").select(times).collect()), computing)
    computed, communicated, whole = computing.length_ns / 1e6, alone.length_ns / 1e6, extent_ms(trace)
    return {TOTAL: whole, COMPUTING: computed, COMMUNICATION: communicated, FREE: whole - computed - communicated}


def checked(ran: msprof.Ran, *more: str) -> dict[str, list[list[str]]]:
    assert ran.errors == []
    book = msprof.sheets(ran.output)
    assert set(book) >= SHEETS | set(more)
    return book


@pytest.mark.parametrize(("form", "more"), [("text", {"CommunicationCompare", "KernelCompare"}), ("db", {"KernelCompare"})])
def test_a_result_equals_itself(job: Callable[[int], Path], tmp_path: Path, form: str, more: set[str]) -> None:
    (run,) = runs.run_directories(job(1) / form)
    book = checked(msprof.compare(run, run, tmp_path), *more)
    ours, again = msprof.overall(book)
    assert ours == pytest.approx(again, abs=1e-9)
    (times,) = ascend_step_times(steplens.open(run).trace()).to_dicts()
    # a result of one step: the parts of the step, and the step
    assert ours[COMPUTING] == pytest.approx(times["computing_ns"] / 1e6)
    # of text results it leaves out what takes no time
    assert ours.get(COMMUNICATION, 0.0) == pytest.approx(times["communication_not_overlapped_ns"] / 1e6)
    assert ours[FREE] == pytest.approx(times["free_ns"] / 1e6)
    assert ours[TOTAL] == pytest.approx((times["stage_ns"] + times["bubble_ns"]) / 1e6, rel=1e-3)
    # every sheet with rows has them on both sides
    assert len(book["OperatorCompare"]) > 10
    assert len(book["KernelCompare"]) > 5


@pytest.mark.parametrize("form", ["text", "db"])
def test_a_slower_run(job: Callable[[int], Path], tmp_path: Path, form: str) -> None:
    """Two ranks of a job: the parts of both extents, and the rank that makes the others wait itself waits least."""
    found = runs.run_directories(job(4) / form)
    slow, waiting = found[SLOW_RANK], found[0]
    base, comparison = msprof.overall(checked(msprof.compare(waiting, slow, tmp_path)))
    for side, run in ((base, slow), (comparison, waiting)):
        (trace,) = steplens.open(run).traces
        assert {part: side[part] for part in PARTS} == pytest.approx(parts_ms(trace), rel=1e-3, abs=1e-3)
        assert side[TOTAL] == pytest.approx(side[COMPUTING] + side[COMMUNICATION] + side[FREE], rel=1e-6)
    # The two take part in the same operations, so however long a busy machine takes for these, what one waits longer is what
    # the other comes late; the sleeps before the second and the third step lie within its extent.
    assert comparison[COMMUNICATION] > base[COMMUNICATION]
    assert comparison[FREE] < base[FREE]
    assert base[FREE] >= 1000 * train.SLEEP_S * (len(runs.steps_of(4)) - 1)


def test_an_ascend_capture(job: Callable[[int], Path], tmp_path: Path) -> None:
    original = shared("ascend_pytorch", "text_level1", "rank0_ascend_pt")
    (run,) = runs.run_directories(job(1) / "text")
    # the tool refuses nothing but writes into what it reads, which is not to be changed
    capture = shutil.copytree(original, tmp_path / original.name, copy_function=shutil.copyfile)
    book = checked(msprof.compare(run, capture, tmp_path / "out"), "CommunicationCompare", "KernelCompare")
    base, ours = msprof.overall(book)
    with (capture / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").open(newline="") as file:
        (times,) = csv.DictReader(file)
    assert base[COMPUTING] == pytest.approx(float(times["Computing"]) / 1000, rel=1e-3)
    assert base[TOTAL] == pytest.approx(float(times["Stage"]) / 1000, rel=1e-3)
    (own,) = ascend_step_times(steplens.open(run).trace()).to_dicts()
    assert ours[TOTAL] == pytest.approx(own["stage_ns"] / 1e6, rel=1e-3)


@pytest.mark.parametrize("form", ["text", "db"])
def test_a_cuda_trace_and_our_result_of_it(cuda: Path, tmp_path: Path, form: str) -> None:
    """What the tool reads from PyTorch's own file is what it reads from the result that we make of that."""
    (run,) = [run for run in runs.run_directories(cuda / form) if runs.rank_of(run) == 0]
    book = checked(msprof.compare(run, cuda / "original" / "cuda_sampled_rank0.json", tmp_path))
    original, ours = msprof.overall(book)
    for part in PARTS:
        assert ours[part] == pytest.approx(original[part], rel=1e-3), part
    if form == "text":
        # it finds the rows of kernel_details.csv in the timeline, by their start: both have to count from the same time
        assert sum("[input shapes:" in cell for row in book["OperatorCompare"] for cell in row) > 10


def test_a_cuda_trace_and_a_run_on_the_cpu(job: Callable[[int], Path], cuda: Path, tmp_path: Path) -> None:
    (run,) = runs.run_directories(job(1) / "text")
    base, ours = msprof.overall(checked(msprof.compare(run, cuda / "original" / "cuda_sampled_rank0.json", tmp_path)))
    (own,) = ascend_step_times(steplens.open(run).trace()).to_dicts()
    assert ours[TOTAL] == pytest.approx(own["stage_ns"] / 1e6, rel=1e-3)
    assert base[TOTAL] == pytest.approx(extent_ms(open_run(cuda / "original" / "cuda_sampled_rank0.json").trace()), rel=1e-3)


def test_an_ascend_capture_and_our_result_of_it(tmp_path: Path) -> None:
    original = shared("ascend_pytorch", "text_level1", "rank0_ascend_pt")
    capture = shutil.copytree(original, tmp_path / original.name, copy_function=shutil.copyfile)
    (ours,) = export(open_run(capture), "text", tmp_path / "ours")
    ran = msprof.compare(ours, capture, tmp_path / "out")
    assert ran.errors == []
    book = msprof.sheets(ran.output)
    # both have Python functions: modules take the place of operators
    assert (
        set(book) >= (SHEETS | {"ModuleCompareStatistic", "ModuleCompare", "KernelCompare", "CommunicationCompare"}) - OPERATORS
    )
    base, again = msprof.overall(book)
    for part in PARTS:
        assert again[part] == pytest.approx(base[part], rel=1e-3), part
