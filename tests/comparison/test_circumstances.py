"""What makes a comparison unsafe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from steplens.comparison.circumstances import Circumstances, describe_means, find_doubts, measure_circumstances
from steplens.comparison.recordings import find_recordings
from steplens.run import Run, Source

from .programs import called, program

_NO_CALLS = pl.DataFrame(schema={"name": pl.String, "before_calls": pl.Float64, "after_calls": pl.Float64})


def circumstances() -> Circumstances:
    trace = program([called("aten::mm", 60.0)])
    run = Run(Path("run"), [(Source(Path("run")), trace)], [])
    return measure_circumstances(run, find_recordings(run.traces))


def doubts(before: Circumstances, after: Circumstances) -> list[str]:
    return find_doubts(before, replace(after, identities=("another",)), _NO_CALLS, None)


def test_more_calls_take_longer_to_record() -> None:
    plain = replace(circumstances(), steps_ns=(10e6, 10e6), recorded_calls=1000.0, recording_ns=0.3e6)
    more = replace(plain, steps_ns=(12e6, 12e6), recorded_calls=3000.0, recording_ns=0.9e6)
    (later,), (earlier,) = doubts(plain, more), doubts(more, plain)
    assert later == (
        "recording operators one by one takes about 600.00 us more of a step of the later side, which makes 2,000 more calls: "
        "at full speed (steplens bench) they cost less"
    )
    assert "of the earlier side, which makes 2,000 more calls" in earlier
    # nothing is said where it is little of the change, or of the step, or where the device runs behind and nothing is known
    assert doubts(plain, replace(more, steps_ns=(30e6, 30e6))) == []
    assert doubts(plain, replace(plain, steps_ns=(10.1e6,), recorded_calls=1010.0, recording_ns=0.303e6)) == []
    assert doubts(plain, replace(more, recording_ns=0.0)) == []
    assert doubts(plain, replace(more, steps_ns=())) == []


def test_nothing_differs() -> None:
    assert doubts(circumstances(), circumstances()) == []


def test_a_typical_step_and_a_mean_that_disagree() -> None:
    (said,) = describe_means([10e6, 14e6], [20e6, 15e6])
    assert (
        "the typical step changed by +40.0 %, and the mean of the usual steps, which parts and causes are of, by -25.0 %" in said
    )
    assert [*describe_means([10e6, 14e6], [10e6, 15e6])] == [*describe_means([10e6, 14e6], [10e6, 9.9e6])] == []
    assert [*describe_means([0.0, 14e6], [10e6, 5e6])] == []
