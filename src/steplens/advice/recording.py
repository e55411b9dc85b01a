"""What recording the operators adds to the parts of a step. No cure saves it: training without the profiler does not have it."""

from __future__ import annotations

import dataclasses

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.analysis.operators.recording_cost import RecordingOfCall, cost_of_call
from steplens.analysis.steps.phases import BACKWARD, BETWEEN, DATA, FORWARD, OPTIMIZER, phase_of_calls
from steplens.analysis.tools.overlap import length_inside
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_FUNCTION

#: of a smaller share of a part nothing is said
_LEAST_SHARE = 0.05
#: phase of the host -> the column of step times
_PART_OF_PHASE = {
    DATA: "data_wait_ns",
    FORWARD: "forward_ns",
    BACKWARD: "backward_ns",
    OPTIMIZER: "optimizer_ns",
    BETWEEN: "between_ns",
}
_IDLE = "idle_ns"
#: what evidence calls it
RECORDING = "recording_taken_off"
_NOTHING = RecordingOfCall(0.0, 0.0, 0.0)


def recording_of_part(facts: Facts, part: str) -> RecordingOfCall:
    """What recording adds to a part of a step of a trace, ns; 0 where nothing tells, and where it is little of the part.

    Of a phase of the host that of the operator calls which begin in it, of an idle device that of those which begin meanwhile.

    Args:
        facts: of the trace.
        part: a column of step times.
    """
    return facts.once(_recording_of_parts).get(part, _NOTHING)


def _recording_of_parts(facts: Facts) -> dict[str, RecordingOfCall]:
    cost = cost_of_call(facts.trace)
    if cost is None or not facts.numbers:
        return {}
    ops = facts.trace.required("ops").select("start_ns", "scope", "step").collect().with_columns(phase_of_calls(facts.trace))
    is_operator = pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    ops = ops.filter(is_operator & pl.col("step").is_in(list(facts.numbers))).with_columns(calls=pl.lit(1.0))
    calls = {part: facts.typical_ns(ops.filter(pl.col("phase") == phase), "calls") for phase, part in _PART_OF_PHASE.items()}
    if facts.trace.has_accelerator:
        start = ops["start_ns"].to_numpy()
        calls[_IDLE] = facts.typical_ns(ops.filter(pl.Series(length_inside(facts.gaps, start, start + 1) > 0)), "calls")
    of_parts = {part: cost.of_calls(count) for part, count in calls.items() if count}
    return {
        part: of_part
        for part, of_part in of_parts.items()
        if (length_ns := facts.most_ns(part)) and of_part.likely_ns >= _LEAST_SHARE * length_ns
    }


def without_recording(finding: Finding, facts: Facts) -> Finding:
    """A finding with its saving computed on the part that its cure shortens as it is without the profiler, and the reason.

    A rule that knows how much of what it saves is recording has taken that off itself (``Finding.recording_ns``). What the
    others would save goes in proportion: of a phase of which recording is a third, so much less.
    """
    if finding.saving is None:
        return finding
    cost = recording_of_part(facts, finding.part)
    length_ns = facts.most_ns(finding.part) if cost.likely_ns else None
    shown_ns = finding.recording_ns if finding.recording_ns is not None else cost.likely_ns
    left = finding.saving
    if length_ns:
        # a rule that knows what recording takes may say more where that is least
        cost_ns = cost.likely_ns if finding.recording_ns is None else cost.least_ns
        most_ns = max(length_ns - cost_ns, 0.0)
        share = most_ns / length_ns if finding.recording_ns is None else 1.0
        low, likely, high = (min(share * ns, most_ns) for ns in dataclasses.astuple(finding.saving))
        left = Saving(low, likely, high)
    if not shown_ns:
        return dataclasses.replace(finding, saving=left)
    return dataclasses.replace(finding, saving=left, evidence=(*finding.evidence, Evidence(RECORDING, shown_ns, "ns")))
