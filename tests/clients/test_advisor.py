"""``msprof-analyze advisor all`` on real jobs and on recorded CUDA traces: both reports, no error, the right times."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import steplens
from steplens.analysis.steps.ascend_step_times import ascend_step_times

from . import msprof, runs

pytestmark = pytest.mark.slow

_PARTS = re.compile(
    r"E2E Time is ([\d.]+)ms.*Computing Time is ([\d.]+)ms.*Uncovered Communication Time is ([\d.]+)ms.*Free Time is ([\d.]+)ms",
    re.DOTALL,
)


def overall_ms(ran: msprof.Ran) -> tuple[float, float, float, float]:
    """End-to-end, computing, uncovered communication and free time of the report's summary."""
    book = msprof.sheets(ran.output)
    (text,) = (row[1] for row in book["problems"] if row[0] == "Overall Summary")
    found = _PARTS.search(text)
    assert found, text
    total, computing, communication, free = map(float, found.groups())
    return total, computing, communication, free


def check(ran: msprof.Ran) -> None:
    assert ran.errors == []
    (page,) = ran.output.glob("mstt_advisor_*.html")
    assert page.stat().st_size > 10_000
    assert "problems" in msprof.sheets(ran.output / "log")


@pytest.mark.parametrize("form", ["text", "db"])
def test_one_step_of_one_rank(job: Callable[[int], Path], tmp_path: Path, form: str) -> None:
    (run,) = runs.run_directories(job(1) / form)
    ran = msprof.advisor(run, tmp_path)
    check(ran)
    total, computing, communication, free = overall_ms(ran)
    (times,) = ascend_step_times(steplens.open(run).trace()).to_dicts()
    assert total == pytest.approx((times["stage_ns"] + times["bubble_ns"]) / 1e6, rel=1e-3)
    assert computing == pytest.approx(times["computing_ns"] / 1e6, abs=1e-3)
    assert communication == pytest.approx(times["communication_not_overlapped_ns"] / 1e6, abs=1e-3)
    assert free == pytest.approx(times["free_ns"] / 1e6, abs=1e-3)


@pytest.mark.parametrize("form", ["text", "db"])
def test_a_job(job: Callable[[int], Path], tmp_path: Path, form: str) -> None:
    """In cluster mode the report is of the slowest rank and step: times of every rank and step are ours."""
    folder = job(4) / form
    ran = msprof.advisor(folder, tmp_path)
    check(ran)
    book = msprof.sheets(tmp_path)
    title, *rows = book["slow rank"]
    assert title == ["step", "rank_id", "compute(us)", "communication(us)", "free(us)"]
    found = {(int(rank), int(step)): tuple(map(float, times)) for step, rank, *times in rows}
    expected = {
        (trace.rank, row["step"]): (row["computing_ns"], row["communication_not_overlapped_ns"], row["free_ns"])
        for trace in steplens.open(folder).traces
        for row in ascend_step_times(trace).to_dicts()
    }
    assert set(found) == set(expected) and len(found) == 4 * 3
    for key, times in found.items():
        assert times == pytest.approx([time / 1000 for time in expected[key]], abs=1e-3), key
    assert any(row[0] == "slow rank" and "Communication" in row[1] for row in book["problems"])


@pytest.mark.parametrize("form", ["text", "db"])
def test_recorded_cuda_traces(cuda: Path, tmp_path: Path, form: str) -> None:
    check(msprof.advisor(cuda / form, tmp_path))
