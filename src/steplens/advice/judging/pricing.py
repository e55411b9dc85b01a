"""What a finding may promise: no more than the part of the step that the pages show, and little on a rank that waits anyway."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.recording import recording_of_part
from steplens.advice.rules.tools.ranks import job_of, rank_range_text
from steplens.analysis.cluster.links import communication_costs
from steplens.analysis.steps.summary import StepSummary, summarize_steps
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS
from steplens.analysis.tools.once import once_per_trace
from steplens.run import Run
from steplens.trace.health import STEP_DEVICE_TIMES, STEP_PHASES
from steplens.trace.trace import Trace

#: confidence of a promise about a part of the step whose figures the capture contradicts or health doubts, at most
_DOUBTED = 0.3
#: what the columns of step times rest on, in the words of ``trace.health``
_RESTS_ON = {**dict.fromkeys(DEVICE_PARTS, STEP_DEVICE_TIMES), **dict.fromkeys(HOST_PARTS, STEP_PHASES)}
#: a rank that waits in collectives for this share of a step may do so whatever becomes quicker on it
_WAITS = 0.10
_COMMUNICATION = "exposed_communication_ns"
#: on what a saving of a rank rests that waits for others
_BEHIND_SLOW_RANK, _BEHIND_MISSING_RANKS = "behind_slow_rank", "behind_missing_ranks"


class Prices:
    """What parts of a step the pages show, of the run and of its ranks, and what a cure on a rank is worth.

    Args:
        run: the run.
        facts: of all its traces.
    """

    def __init__(self, run: Run, facts: Sequence[Facts]) -> None:
        self._run = run
        self._facts = facts
        self._of_rank: dict[int, list[Facts]] = {}
        self._shown_parts: dict[int, dict[str, float | None]] = {}
        self._curable: dict[tuple[str, tuple[int, ...]], float | None] = {}
        for part in facts:
            self._of_rank.setdefault(part.trace.rank, []).append(part)

    @property
    def step_ns(self) -> float:
        """The step time of the run, which all shares are of; 0 without steps."""
        return self._run.step_summary().step_time_ns or 0.0

    def shown_ns(self, part: str, ranks: Sequence[int] = ()) -> float | None:
        """What a part of a step takes as the pages show it; None where they do not show it.

        Args:
            part: a column of step times.
            ranks: of which of these ranks takes longest; of the run where there are none.
        """
        if not ranks:
            return shown_part(self._run.step_summary(), part)
        of_ranks = (facts for rank in set(ranks) for facts in self._of_rank.get(rank, ()))
        lengths = [length for facts in of_ranks if (length := self._parts_of(facts).get(part)) is not None]
        return max(lengths, default=None)

    def _parts_of(self, facts: Facts) -> dict[str, float | None]:
        """What the parts of a step take on one rank: each finding asks about all that have it, which may be thousands."""
        parts = self._shown_parts.get(id(facts))
        if parts is None:
            parts = self._shown_parts[id(facts)] = shown_parts(summary_of_trace(facts.trace))
        return parts

    def curable_ns(self, part: str, ranks: Sequence[int] = ()) -> float | None:
        """The same of the part as it is without the profiler: what recording it takes no cure saves (``recording``)."""
        # each pair of findings asks, mostly about the same ranks
        key = part, tuple(ranks)
        if key not in self._curable:
            length_ns = self.shown_ns(part, ranks)
            self._curable[key] = None if length_ns is None else max(length_ns - self._recording_ns(part, ranks), 0.0)
        return self._curable[key]

    def _recording_ns(self, part: str, ranks: Sequence[int]) -> float:
        """What recording a part of the step took at least on some ranks, on all where there are none."""
        of_ranks = [facts for rank in set(ranks) for facts in self._of_rank.get(rank, ())] if ranks else self._facts
        return min((recording_of_part(facts, part).likely_ns for facts in of_ranks), default=0.0)

    def cap_savings(self, findings: Iterable[Finding], facts: Sequence[Facts]) -> Iterator[Finding]:
        """The findings with savings of at most what their cure shortens: the part of the step that each names, and the step.

        The part as the pages show it of these traces, and where that is less its median over their steps. Where the part is
        not known of any of them, as of one without steps, the step alone bounds it. Of a part that takes nothing there is
        nothing to say, and of one whose figures are in doubt nothing is sure.
        """
        longest_ns = max((part.step_ns for part in facts), default=0.0)

        @functools.cache  # of thousands of ranks and findings
        def longest_of_part(name: str) -> tuple[float | None, float | None]:
            lengths = [part_ns for part in facts if (part_ns := part.most_ns(name)) is not None]
            shown_lengths = [ns for part in facts if (ns := self._parts_of(part).get(name)) is not None]
            return max(lengths, default=None), max(shown_lengths, default=None)

        @functools.cache
        def is_trusted(conclusion: str) -> bool:
            return all(part.trusts(conclusion) for part in facts)

        for finding in findings:
            if finding.saving is None:
                yield finding
                continue
            part_ns, shown_ns = longest_of_part(finding.part) if finding.part else (None, None)
            if part_ns is not None and part_ns <= 0:
                continue
            bounds = [ns for ns in (part_ns, shown_ns) if ns is not None]
            bounds += [ns for ns in (finding.step_ns, longest_ns) if ns > 0]
            conclusion = _RESTS_ON.get(finding.part)
            limited = _limit_saving(finding, bounds)
            yield limited if conclusion is None or is_trusted(conclusion) else _reduce_confidence(limited)

    def settle_finding(self, finding: Finding, slow: Finding | None = None) -> Finding | None:
        """A finding of the run as it is given: with shares of the run's step, and no more than is shown of its ranks.

        None where it is about a part that takes nothing there. What all ranks have saves what it does on the one that the others
        wait for.

        Args:
            finding: a finding of the run.
            slow: what says which rank the others wait for.
        """
        finding = dataclasses.replace(finding, step_ns=self.step_ns or finding.step_ns)
        if finding.saving is None:
            return finding
        ranks = finding.ranks or (slow.ranks if slow is not None and finding.part != _COMMUNICATION else ())
        most_ns = self.shown_ns(finding.part, ranks) if finding.part else None
        if most_ns is not None and most_ns <= 0:
            return None
        return _limit_saving(finding, [ns for ns in (most_ns, finding.step_ns) if ns])

    def price_on_path(self, finding: Finding, part: Facts, slow: Finding | None) -> Finding:
        """A finding about one rank with what it is worth where the rank waits for others: perhaps nothing.

        What a rank does sooner while the others wait for another one only lengthens its own wait. Where ranks are missing,
        nobody knows for whom it waits.

        Args:
            finding: what was found on the rank.
            part: the rank.
            slow: what says which rank the others wait for.
        """
        if finding.saving is None or finding.part == _COMMUNICATION:
            return finding
        if slow is not None and slow.saving is not None and slow.ranks:
            if part.trace.rank in slow.ranks:
                return finding
            rank_names = tuple(f"rank {rank}" for rank in slow.ranks)
            evidence = Evidence("waits_for_slow_rank", slow.saving.likely_ns, "ns", places=rank_names)
            behind = _with_saving(finding, Saving(0.0, 0.0, finding.saving.high_ns), evidence, _BEHIND_SLOW_RANK)
            return dataclasses.replace(behind, values={**finding.values, "slow": ", ".join(map(str, slow.ranks))})
        waits_ns = self._waits_for_nobody_knows_whom.get(id(part), 0.0)
        if waits_ns < _WAITS * part.step_ns or not waits_ns:
            return finding
        missing_ranks = (rank_range_text(job_of(self._facts).missing),)
        kind = "waits_for_missing_ranks" if part.once(_moving_ns) is not None else "communicates_with_missing_ranks"
        missing = Evidence(kind, waits_ns, "ns", places=missing_ranks)
        saving = Saving(0.0, finding.saving.likely_ns / 2, finding.saving.high_ns)
        return _with_saving(finding, saving, missing, _BEHIND_MISSING_RANKS)

    @cached_property
    def _waits_for_nobody_knows_whom(self) -> dict[int, float]:
        """What a step of each of our traces may wait for ranks of the job that are missing, ns; empty where none is.

        Exposed communication, without the time in which data moved where the communication library measured that.
        """
        if not job_of(self._facts).missing:
            return {}
        waits = {}
        for part in self._facts:
            alone_ns = max(part.median(_COMMUNICATION), part.median("gradient_sync_ns"))
            waits[id(part)] = max(alone_ns - (part.once(_moving_ns) or 0.0), 0.0)
        return waits


def _moving_ns(part: Facts) -> float | None:
    """How long a step of a trace moved data in collectives, ns; None where the communication library did not measure it."""
    costs = communication_costs([part.trace])
    moving_ns = costs.filter(costs["step"].is_in(list(part.numbers)))["transit_ns"].mean()
    return float(moving_ns) if isinstance(moving_ns, (int, float)) else None


def shown_part(summary: StepSummary, part: str) -> float | None:
    """What a column of step times is in a summary; None where it holds none."""
    return shown_parts(summary).get(part)


def shown_parts(summary: StepSummary) -> dict[str, float | None]:
    """The same of all columns that it has."""
    of_host = {"gradient_sync_ns": summary.gradient_sync_ns} if summary.host else {}
    return {**summary.host, **summary.device, **of_host}


def of_one_rank(finding: Finding) -> Finding:
    """A finding about a run with its rank, where it is about one."""
    rank = finding.values.get("rank")
    return dataclasses.replace(finding, ranks=(rank,)) if isinstance(rank, int) and not finding.ranks else finding


@once_per_trace
def summary_of_trace(trace: Trace) -> StepSummary:
    """The means over the steps of one trace, whatever other traces there are."""
    return summarize_steps([trace])


def _limit_saving(finding: Finding, bounds: Sequence[float]) -> Finding:
    assert finding.saving is not None
    low, likely, high = (min(ns, *bounds) if bounds else ns for ns in dataclasses.astuple(finding.saving))
    return dataclasses.replace(finding, saving=Saving(low, likely, high))


def _with_saving(finding: Finding, saving: Saving, evidence: Evidence, basis: str) -> Finding:
    return dataclasses.replace(finding, saving=saving, evidence=(*finding.evidence, evidence), basis=basis)


def _reduce_confidence(finding: Finding) -> Finding:
    """``finding`` with less confidence, since the figures of its part are not to be trusted, and with the reason as evidence."""
    evidence = (*finding.evidence, Evidence("doubted_part", 0, "", per_step=False))
    return dataclasses.replace(finding, confidence=min(finding.confidence, _DOUBTED), evidence=evidence)
