"""Section 8.1 of the acceptance list: the parts of steps, and averages over them."""

from __future__ import annotations

import pytest

from steplens.analysis.step_trace.step_trace import averages, step_parts, step_trace

from .samples import opened, table


@pytest.mark.parametrize(
    ("job", "count", "total", "interval", "forward_backward", "tail"),
    [("JOB1", 20, 130.4561, 90.3536, 17.0945, 23.0080), ("ERROR_JOB", 40, 130.4972, 90.3735, 17.1141, 23.0096)],
)
def test_averages_of_raw_logs(job: str, count: int, total: float, interval: float, forward_backward: float, tail: float) -> None:
    """(T1, T4) without the first step, which the averages say."""
    run = opened(job)
    assert run.steps().height == count
    found = averages(run.trace())
    means = {part: round(mean / 1e6, 4) for part, mean in found.parts.select("part", "mean_ns").iter_rows()}
    # the stored counts are of 10 ns, ours are exact
    assert means["total_ns"] == pytest.approx(total, abs=1e-4)
    assert means["interval_ns"] == pytest.approx(interval, abs=1e-4)
    assert means["forward_backward_ns"] == pytest.approx(forward_backward, abs=1e-4)
    assert means["tail_ns"] == pytest.approx(tail, abs=1e-4)
    assert found.excluded == (1,)
    if job == "JOB1":
        shares = dict(found.parts.select("part", "share").iter_rows())
        percents = [round(100 * shares[part], 2) for part in ("interval_ns", "forward_backward_ns", "tail_ns")]
        assert percents == [69.26, 13.1, 17.64]


def test_average_collectives_of_raw_logs() -> None:
    """(T2) start and duration in ms from the start of the step; MindInsight averages stamps, which here comes to the same."""
    found = averages(opened("JOB1").trace()).collectives.sort("stream", "start_ns")
    shown = [
        (stream, round(start / 1e6, 4), round(duration / 1e6, 4))
        for stream, start, duration in found.select("stream", "start_ns", "duration_ns").iter_rows()
    ]
    expected = [(10, 90.4991, 0.2181), (10, 100.5027, 3.0058), (10, 112.6086, 1.9994), (11, 90.5095, 0.2986)]
    assert [stream for stream, _, _ in shown] == [stream for stream, _, _ in expected]
    for (_, *own), (_, *listed) in zip(shown, expected, strict=True):
        assert own == pytest.approx(listed, abs=1.01e-4)


def test_collectives_of_some_steps_have_an_average() -> None:
    """(T6) MindInsight averages absolute stamps with the zeros of the steps that lack them, and shows empty segments."""
    found = averages(opened("ERROR_JOB").trace()).collectives
    assert found.height == 4 and set(found["steps"]) == {19}
    assert found["start_ns"].min() > 0 and found["duration_ns"].min() > 0


def test_the_only_step_of_run_2() -> None:
    """(T7) the stored row of means has an interval of 12.4321 ms and nothing else: it is a reference, not the average."""
    run = opened("run_2")
    steps = step_trace(run.trace())
    assert steps.height == 1
    assert [round(value / 1e6, 4) for value in steps["forward_backward_ns"]] == [23.6681]
    stored = table(run, "step_trace_average").row(0, named=True)
    assert round(int(stored["iteration_interval"]) / 1e5, 4) == 12.4321
    assert averages(run.trace()).parts.filter(part="interval_ns")["mean_ns"][0] == 0
    with pytest.raises(ValueError, match="no step 10; the run has steps 1 to 1"):
        step_parts(run.trace(), 10)


@pytest.mark.parametrize(("job", "last"), [("JOB1", 20), ("ERROR_JOB", 40), ("run_3", 1)])
def test_steps_that_are_not_there(job: str, last: int) -> None:
    """(T8) MindInsight answers "step num must be in"; steps count from 1, so that 0, its word for the average, is none."""
    trace = opened(job).trace()
    for step in (-1, 0, last + 1):
        with pytest.raises(ValueError, match=f"no step {step}; the run has steps 1 to {last}"):
            step_parts(trace, step)
    assert step_parts(trace, last)["step"] == last
