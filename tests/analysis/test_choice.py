"""One choice of steps for a run: what recording cut, what was warm-up, and that all ranks leave out the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.analysis.device.idle import idle_causes
from steplens.analysis.steps.choice import (
    CUT,
    HOST_DURATION,
    LEAST_STEPS,
    WARM_UP,
    WORK_DONE,
    ChosenSteps,
    choose_steps,
    chosen_steps,
    is_unusual,
    number_ranges,
)
from steplens.analysis.steps.summary import summarize_steps
from steplens.analysis.steps.times import step_times
from steplens.run import Run, Source
from steplens.trace.schema import PARTIAL_STEPS, SCOPE_USER
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, MAIN, PID, build, op

MS = 1_000_000


def run(
    lengths: Sequence[float], *, rank: int = 0, first: int = 1, after: float = 0.0, calls: Sequence[int] = (), **meta: object
) -> Trace:
    """A trace with steps of the given lengths in ms, which begin so many ms after the time 0, each with some calls of 10 us."""
    ops, steps, begin = [], [], after * 1000
    for number, length in enumerate(lengths):
        step, end = first + number, begin + length * 1000
        ops.append(op(f"ProfilerStep#{step}", begin, end, step=step, scope=SCOPE_USER))
        for call in range(calls[number] if calls else 4):
            at = begin + 20 * (call + 1)
            ops.append(op("aten::mm", at, at + 10, step=step, parent=len(ops) - 1 - call, depth=1))
        times = {"start_ns": BASE_NS + round(begin * 1000), "end_ns": BASE_NS + round(end * 1000)}
        steps.append({"id": step, **times, "pid": PID, "tid": MAIN})
        begin = end
    return build(meta={"rank": rank, **meta}, ops=ops, steps=steps)


def together(*traces: Trace) -> tuple[ChosenSteps, ...]:
    for trace in traces:
        trace.companions = traces
    chosen = choose_steps(traces)
    # whoever asks about one trace alone is told the same
    assert chosen == tuple(chosen_steps(trace) for trace in traces)
    return chosen


def left_out(choice: ChosenSteps) -> list[tuple[int, str, str]]:
    return [(entry.step, entry.reason, entry.differs_in) for entry in choice.left_out]


def test_leading_steps_that_differ_are_warm_up() -> None:
    (choice,) = together(run([663, 60, 10, 10.2, 9.9, 10.1, 10]))
    assert choice.steps == (3, 4, 5, 6, 7) and not choice.few
    assert left_out(choice) == [(1, WARM_UP, HOST_DURATION), (2, WARM_UP, HOST_DURATION)]
    assert choice.left_out[0].value == 663 * MS and choice.left_out[0].usual == pytest.approx(10.05 * MS)
    assert choice.sentence() == "median of steps 3-7; left out: 1, 2 (warm-up)"


def test_a_slow_step_in_the_middle_stays() -> None:
    """It is not warm-up; the median does without it."""
    trace = run([10, 10.1, 80, 9.9, 10])
    (choice,) = together(trace)
    assert choice.steps == (1, 2, 3, 4, 5) and choice.left_out == ()
    assert summarize_steps([trace]).step_time_ns == 10 * MS


def test_a_first_step_that_does_other_work_is_warm_up() -> None:
    (choice,) = together(run([10, 10, 10, 10, 10], calls=[40, 4, 4, 4, 4]))
    assert left_out(choice) == [(1, WARM_UP, WORK_DONE)]
    (same,) = together(run([10.5, 10, 10.2, 9.9, 10], calls=[4, 4, 4, 4, 4]))
    assert same.left_out == ()


@pytest.mark.parametrize("lengths", [[100.0, 10.0, 10.0], [100.0, 10.0], [100.0], [100.0, 50.0, 10.0, 10.0]])
def test_with_few_steps_none_is_left_out(lengths: list[float]) -> None:
    (choice,) = together(run(lengths))
    assert len(choice.steps) == len(lengths)
    assert choice.few == (len(lengths) < LEAST_STEPS)
    assert choice.sentence().endswith("few steps") == choice.few


def test_what_recording_cut_is_left_out_however_few_are_left() -> None:
    (choice,) = together(run([10, 10, 10], **{PARTIAL_STEPS: [1, 3]}))
    assert choice.steps == (2,) and choice.few
    assert left_out(choice) == [(1, CUT, ""), (3, CUT, "")]
    assert choice.sentence() == "step 2 alone; left out: 1, 3 (cut by recording); few steps"
    # nothing else is there to show
    (all_cut,) = together(run([10, 10], **{PARTIAL_STEPS: [1, 2]}))
    assert all_cut.steps == (1, 2) and all_cut.few


def test_a_step_that_one_rank_leaves_out_is_left_out_on_all() -> None:
    slow, usual = run([300, 10, 10, 10, 10], rank=1), run([50] * 5, rank=0)
    alone = choose_steps([run([50] * 5, rank=0)])[0]
    assert alone.steps == (1, 2, 3, 4, 5)
    chosen = together(usual, slow)
    assert [choice.steps for choice in chosen] == [(2, 3, 4, 5)] * 2
    assert left_out(chosen[0]) == [(1, WARM_UP, "")]
    assert left_out(chosen[1]) == [(1, WARM_UP, HOST_DURATION)]
    summary = summarize_steps([usual, slow])
    assert summary.steps == 8 and {choice.steps for choice in summary.chosen} == {(2, 3, 4, 5)}
    # every table that says which steps count says the same ones
    for trace in (usual, slow):
        assert step_times(trace).filter("chosen")["step"].to_list() == [2, 3, 4, 5]


def test_a_question_about_one_rank_of_a_run_is_of_the_steps_of_the_run() -> None:
    traces = [run([50] * 5, rank=0), run([300, 10, 10, 10, 10], rank=1)]
    both = Run(Path(), [(Source(trace.source), trace) for trace in traces], [])
    alone = Run(Path(), [(Source(traces[0].source), traces[0])], [])
    assert chosen_steps(alone.traces[0]).steps == chosen_steps(both.traces[0]).steps == (2, 3, 4, 5)


def test_steps_of_another_time_are_other_steps() -> None:
    """Two windows number their steps alike, and a rank that was recorded later shares no step with the first."""
    early, late = run([300, 10, 10, 10, 10], rank=0), run([10] * 5, rank=1, after=10_000)
    assert [choice.steps for choice in together(early, late)] == [(2, 3, 4, 5), (1, 2, 3, 4, 5)]
    windows = run([300, 10, 10, 10, 10]), run([10] * 5)
    assert [choice.steps for choice in together(*windows)] == [(2, 3, 4, 5), (1, 2, 3, 4, 5)]


def test_ranks_keep_their_own_steps_where_few_would_be_left() -> None:
    slow, short = run([300, 200, 10, 10, 10], rank=1), run([100, 100, 100], rank=0)
    chosen = together(short, slow)
    assert chosen[1].steps == (3, 4, 5)
    assert chosen[0].steps == (1, 2, 3) and chosen[0].left_out == ()


def test_a_run_without_steps_chooses_none() -> None:
    (choice,) = together(build())
    assert choice.steps == () and choice.sentence() == "no steps"
    assert summarize_steps([build()]).step_time_ns is None
    assert choose_steps([]) == ()
    assert idle_causes(build()).is_empty()


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([3], "3"), ([3, 4], "3, 4"), ([5, 3, 4, 4], "3-5"), ([1, 3, 4, 5, 9, 10], "1, 3-5, 9, 10"), ([], "")],
)
def test_numbers_as_ranges(numbers: list[int], text: str) -> None:
    assert number_ranges(numbers) == text


@given(st.floats(0, 1e9), st.lists(st.floats(0, 1e9), min_size=2, max_size=20))
def test_what_differs_lies_far_outside_of_the_rest(value: float, rest: list[float]) -> None:
    """By the words of the definition, in plain Python."""
    ordered = sorted(rest)

    def median(values: list[float]) -> float:
        values, middle = sorted(values), len(values) // 2
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2

    usual = median(ordered)
    spread = 1.4826 * median([abs(one - usual) for one in ordered])
    away = abs(value - usual)
    far = not ordered[0] <= value <= ordered[-1] and away > 5 * spread and away > 0.1 * usual
    assert is_unusual(value, np.array(rest)) == far
    # what is not known is not compared
    assert is_unusual(value, np.array([*rest, float("nan")])) == far
    assert not is_unusual(float("nan"), np.array(rest))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=10), st.lists(st.integers(1, 400), min_size=1, max_size=10))
def test_every_step_is_chosen_or_left_out_once(first: list[int], second: list[int]) -> None:
    traces = run([float(one) for one in first], rank=0), run([float(one) for one in second], rank=1)
    for trace, choice in zip(traces, together(*traces), strict=True):
        steps = trace.required("steps").sort("start_ns").collect()["id"].to_list()
        assert sorted([*choice.steps, *(entry.step for entry in choice.left_out)]) == steps
        assert list(choice.steps) == [step for step in steps if step in choice.steps]
        # one that is much shorter than the others at an end was cut by recording
        whole = len(steps) - sum(entry.reason == CUT for entry in choice.left_out)
        assert len(choice.steps) >= min(LEAST_STEPS, whole) and choice.few == (len(choice.steps) < LEAST_STEPS)
        assert step_times(trace).filter(pl.col("chosen"))["step"].to_list() == list(choice.steps)
