"""Whether advice helped: the findings of two runs of a program side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from steplens.advice.advice import Advice
from steplens.advice.finding import Finding
from steplens.advice.rules.next_steps import NEXT_STEPS
from steplens.analysis.operators.common_calls import are_unlike, common_share
from steplens.run import Run
from steplens.trace.building.devices import device_kind


@dataclass(frozen=True)
class Change:
    """What became of the findings.

    Attributes:
        cured: findings of the earlier run that the later one has not.
        remaining: findings of both, as they are now.
        new: findings of the later run alone.
        before_ns, after_ns: how long a step took and takes; 0 where a run has no complete steps.
        together_ns: what all findings of the earlier run were likely to save together (``Advice``); 0 where that is not known.
        common_share: the share of their operator calls that both runs have in common, 0 to 1; None where that is not known.
        is_unlike: whether the runs are of two programs, so that something else than a cure may have made findings come and go.
        ran_alike: whether they ran on the same devices and on as many ranks.
    """

    cured: tuple[Finding, ...]
    remaining: tuple[Finding, ...]
    new: tuple[Finding, ...]
    before_ns: float
    after_ns: float
    together_ns: float = 0.0
    common_share: float | None = None
    is_unlike: bool = False
    ran_alike: bool = True

    @property
    def comparable(self) -> bool:
        """Whether both have complete steps, or neither has: most causes cannot be judged without."""
        return (self.before_ns > 0) == (self.after_ns > 0)

    @property
    def saved_ns(self) -> float:
        """How much shorter a step became; negative where it became longer, 0 where only one of them has steps."""
        return self.before_ns - self.after_ns if self.comparable else 0.0

    @property
    def promised_ns(self) -> float:
        """What the cured findings were expected to save: their sum, and no more than all findings together, and the step.

        0 where something else than a cure made findings come and go: of runs of two programs, or on other devices or ranks.
        """
        if self.is_unlike or not self.ran_alike:
            return 0.0
        sum_ns = sum(finding.saving.likely_ns for finding in self.cured if finding.saving)
        # of findings that overlap the sum counts some time twice
        return min(sum_ns, self.together_ns or sum_ns, self.before_ns)


def compare(before: Advice, after: Advice, runs: tuple[Run, Run] | None = None) -> Change:
    """The findings of ``before`` and ``after``, matched by id. A rule that one of them could not judge says nothing.

    Without steps hardly any rule can: where only one of them has steps, nothing is called cured or new.

    Args:
        before: of the earlier run.
        after: of the later one.
        runs: both, to tell whether they are alike.
    """
    # what to do next is no cause that was cured, or came anew
    unknown = NEXT_STEPS | {silenced.rule for advice in (before, after) for silenced in advice.silenced}
    old = {finding.id: finding for finding in before.findings if finding.rule not in unknown}
    new = {finding.id: finding for finding in after.findings if finding.rule not in unknown}
    remaining = tuple(finding for key, finding in new.items() if key in old)
    change = Change((), remaining, (), before.step_ns, after.step_ns, before.likely_together_ns)
    if runs is not None:
        calls, ran_alike = _join_calls(*runs), _how_it_ran(runs[0]) == _how_it_ran(runs[1])
        change = replace(change, common_share=common_share(calls), is_unlike=are_unlike(calls), ran_alike=ran_alike)
    if not change.comparable:
        return change
    cured = tuple(finding for key, finding in old.items() if key not in new)
    return replace(change, cured=cured, new=tuple(finding for key, finding in new.items() if key not in old))


def _join_calls(before: Run, after: Run) -> pl.DataFrame:
    """A row per name of an operator, with ``before_calls`` and ``after_calls`` of a step."""
    first, second = (run.table("operators", "name", per_step=True).select("name", "calls") for run in (before, after))
    names = [frame.with_columns(pl.col("name").cast(pl.String)) for frame in (first, second)]
    return names[0].rename({"calls": "before_calls"}).join(names[1].rename({"calls": "after_calls"}), on="name", how="full")


def _how_it_ran(run: Run) -> tuple[int, list[str]]:
    """On how many ranks, and on which kinds of devices."""
    return len(run.traces), sorted({device_kind(trace) for trace in run.traces})
