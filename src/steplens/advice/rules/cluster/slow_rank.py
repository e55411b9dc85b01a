"""One rank arrives late at the collectives, and all others wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from steplens.advice.facts import Facts, together
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.analysis.cluster import arrivals
from steplens.analysis.steps.phases import BETWEEN, host_phase_names
from steplens.trace.health import COMMUNICATION_TIMES, RANK_COMPARISON
from steplens.trace.run import Run

_PHASES = {
    "data_wait_ns": "data",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "device_wait_ns": "device_wait",
    "between_ns": "between",
    "python_ns": "python",
}

#: calls that are named
_NAMED = 3

#: rules that see the wait for a slow rank as time of something else
_SYMPTOMS = ("slow_card", "data_parallel_communication")


def judge(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """See ``analysis.cluster.arrivals.slow_rank``. What the rank spends more of than the others says where to look."""
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    if len(lengths) < 2:
        return
    step_ns = sum(lengths) / len(lengths)
    whole = {number for part in facts for number in part.numbers}
    slow = arrivals.slow_rank(together(arrivals.arrivals, facts, run.traces).filter(pl.col("step").is_in(list(whole))), step_ns)
    if slow is None:
        return
    own = [part for part in facts if part.trace.rank == slow.rank]
    others = [part for part in facts if part.trace.rank != slow.rank]
    more = {name: _mean(own, column) - _mean(others, column) for column, name in _PHASES.items()}
    phase = max(more, key=lambda name: more[name])
    evidence = [Evidence("holds_others_up", slow.hold_up_ns, "ns", slow.steps, (f"rank {slow.rank}",))]
    if more[phase] > slow.hold_up_ns / 3:
        evidence.append(Evidence(f"more_{phase}", more[phase], "ns", places=(f"rank {slow.rank}", *_called(own, phase))))
    yield Finding(
        rule=RULE.name,
        subject=f"rank{slow.rank}",
        confidence=1 - slow.chance,
        evidence=tuple(evidence),
        saving=Saving(slow.hold_up_ns / 2, slow.hold_up_ns, slow.hold_up_ns * 1.2),
        step_ns=step_ns,
        values={"rank": slow.rank, "times": len(slow.steps), "of": slow.of_steps},
    )


def _mean(facts: Sequence[Facts], column: str) -> float:
    return sum(_own(part, column) for part in facts) / len(facts) if facts else 0.0


def _own(part: Facts, column: str) -> float:
    """A phase of a step of a rank, without what it waited for the others in it."""
    waited = part.median("gradient_sync_ns") if column == "backward_ns" else 0.0
    return part.median(column) - waited


def _called(facts: Sequence[Facts], phase: str) -> tuple[str, ...]:
    """What a rank called most between the phases of its steps."""
    if phase != "between":
        return ()
    frames = [part.trace.once(host_phase_names).filter(pl.col("step").is_in(list(part.numbers))) for part in facts]
    between = pl.concat(frames).filter(pl.col("phase") == BETWEEN).group_by("name").agg(pl.col("time_ns").sum())
    return tuple(between.sort("time_ns", "name", descending=[True, False]).head(_NAMED)["name"].to_list())


RULE = Rule("slow_rank", rests_on=(COMMUNICATION_TIMES, RANK_COMPARISON), judge_run=judge, explains=_SYMPTOMS)
