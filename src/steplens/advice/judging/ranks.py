"""The same finding on several ranks: which of them speaks, what one rank has beyond the others, and what makes it late."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rules.tools.lateness import LEAST_SHARE

#: kinds of evidence of two findings that have one cause: of the late rank, and of what makes it late
SAME_CAUSE, MAKES_LATE = "same_cause", "makes_rank_late"


def merge_by_id(findings: Iterable[Finding]) -> list[Finding]:
    """One finding per id: that with the larger saving, with the range of both."""
    joined: dict[str, Finding] = {}
    for finding in findings:
        earlier = joined.get(finding.id)
        joined[finding.id] = finding if earlier is None else _merge_two_findings(earlier, finding)
    return list(joined.values())


def _merge_two_findings(finding: Finding, other: Finding) -> Finding:
    first, second = (finding, other) if finding.rank <= other.rank else (other, finding)
    saving = first.saving
    # what is worth nothing on a rank that waits for another one says nothing of what it is worth on that one
    if saving is not None and second.saving is not None and (second.saving.likely_ns > 0 or saving.likely_ns <= 0):
        high = max(saving.high_ns, min(second.saving.high_ns, first.step_ns))
        saving = Saving(min(saving.low_ns, second.saving.low_ns), saving.likely_ns, high)
    return dataclasses.replace(first, saving=saving)


class RankFindings:
    """What was found on each rank, as it is asked again and again about one of thousands.

    Args:
        of_traces: rank and findings of every trace.
    """

    def __init__(self, of_traces: Iterable[tuple[int, Sequence[Finding]]]) -> None:
        self._traces_of: dict[int, list[Sequence[Finding]]] = {}
        self._trace_count = 0
        self._weight_of: dict[str, float] = {}
        for rank, findings in of_traces:
            self._traces_of.setdefault(rank, []).append(findings)
            self._trace_count += 1
            for finding in findings:
                self._weight_of[finding.id] = self._weight_of.get(finding.id, 0.0) + finding.weight_ns

    def merge_everywhere(self) -> list[Finding]:
        """Those of all ranks, one per id."""
        return merge_by_id(finding for traces in self._traces_of.values() for findings in traces for finding in findings)

    def beyond_others(self, rank: int) -> Iterator[Finding]:
        """The findings on one rank, with what they save beyond the mean of the same on the others, which do not wait for that."""
        traces = self._traces_of.get(rank, [])
        mine = [finding for findings in traces for finding in findings]
        others = max(self._trace_count - len(traces), 1)
        for finding in merge_by_id(mine):
            if finding.saving is None:
                continue
            own_ns = sum(same.weight_ns for same in mine if same.id == finding.id)
            same_ns = max(self._weight_of[finding.id] - own_ns, 0.0) / others
            low, likely, high = (max(ns - same_ns, 0.0) for ns in dataclasses.astuple(finding.saving))
            if likely > 0:
                yield dataclasses.replace(finding, saving=Saving(low, likely, high))


def with_common_causes(findings: Sequence[Finding], of_rank: RankFindings) -> list[Finding]:
    """The findings; where one names a late rank and another one what makes it late, each says that both have one cause.

    That is a finding about the part of the step in which the late rank takes longer than the others, and that is worth so much
    more on it than on them.

    Args:
        findings: with their overlaps.
        of_rank: what was found on each rank.
    """
    of_id = {finding.id: finding for finding in findings}
    for late in [finding for finding in findings if finding.rule == "slow_rank" and finding.saving is not None]:
        assert late.saving is not None
        hold_up_ns = late.saving.high_ns
        for cause in of_rank.beyond_others(late.ranks[0]):
            if cause.id not in late.overlaps or cause.saving is None or cause.saving.likely_ns < LEAST_SHARE * hold_up_ns:
                continue
            common_ns = min(cause.saving.likely_ns, hold_up_ns)
            of_id[late.id] = _with_evidence(of_id[late.id], SAME_CAUSE, common_ns, cause.id)
            of_id[cause.id] = _with_evidence(of_id[cause.id], MAKES_LATE, common_ns, late.id)
    return list(of_id.values())


def _with_evidence(finding: Finding, what: str, length_ns: float, place: str) -> Finding:
    return dataclasses.replace(finding, evidence=(*finding.evidence, Evidence(what, length_ns, "ns", places=(place,))))
