"""What no finding may promise: more than its part of the chosen steps takes, or more than these steps take."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from steplens.advice import Advice, Finding, advise
from steplens.analysis.steps.summary import summarize_steps
from steplens.analysis.steps.times import COLUMNS, step_times
from steplens.run import Run, Source
from steplens.trace.trace import Trace

#: rounding of a sum of floats
_NS = 1.0


def check(traces: Sequence[Trace]) -> Advice:
    """The advice about traces of one run, of which every promise lies within its bounds."""
    sources = [(Source(Path("run") / str(number)), trace) for number, trace in enumerate(traces)]
    advice = advise(Run(Path("run"), sources, []))
    for finding in advice.findings:
        check_finding(finding, traces)
    return advice


def check_finding(finding: Finding, traces: Sequence[Trace]) -> None:
    """No saving above what the part takes, worked out here from the table of step times, and none above the step."""
    assert not finding.part or finding.part in COLUMNS
    if finding.saving is None:
        return
    assert 0 <= finding.saving.low_ns <= finding.saving.likely_ns <= finding.saving.high_ns, finding
    steps = most(traces, "step_time_ns")
    if steps is not None:
        assert finding.saving.high_ns <= steps + _NS, (finding, steps)
    if finding.step_ns > 0:
        assert finding.saving.high_ns <= finding.step_ns + _NS, finding
    part = most(traces, finding.part) if finding.part else None
    if part is not None:
        assert finding.saving.high_ns <= part + _NS, (finding, part)


def check_shown(finding: Finding, run: Run) -> None:
    """The share is of the run's step, and no saving is above what the pages show of its part on its ranks."""
    step_ns = run.step_summary().step_time_ns
    if step_ns:
        assert finding.step_ns == step_ns
    if finding.saving is None or not finding.part:
        return
    groups = [[trace] for trace in run.traces if trace.rank in finding.ranks] or [run.traces]
    summaries = [summarize_steps(group) for group in groups]
    parts = [{**each.host, **each.device, "gradient_sync_ns": each.gradient_sync_ns}.get(finding.part) for each in summaries]
    known_ns = [part for part in parts if part is not None]
    assert not known_ns or finding.saving.high_ns <= max(known_ns) + _NS, (finding, known_ns)


def check_together(advice: Advice) -> None:
    """Findings save at least what one of them does together, at most all or a step; what is at stake none of them saves."""
    most_ns = [finding.saving.high_ns for finding in advice.findings if finding.saving is not None and not finding.at_stake]
    assert max(most_ns, default=0.0) - _NS <= advice.together_ns <= sum(most_ns) + _NS
    assert not advice.step_ns or advice.together_ns <= advice.step_ns + _NS
    ids = {finding.id: finding for finding in advice.findings}
    for finding in advice.findings:
        assert all(finding.id in ids[other].overlaps for other in finding.overlaps)


def most(traces: Sequence[Trace], column: str) -> float | None:
    """The median of a column over the chosen steps, of the trace in which it is largest; waiting for data comes in turns."""
    found = []
    for trace in traces:
        values = sorted(step_times(trace).filter(pl.col("chosen") & pl.col("start_ns").is_not_null())[column].drop_nulls())
        if not values:
            continue
        found.append(float(statistics.median(values)))
        if column == "data_wait_ns":
            # of several workers: what the pages show, a share of all of these steps
            found.append(statistics.fmean(values))
    return max(found, default=None)
