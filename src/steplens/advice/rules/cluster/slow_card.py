"""A rank does its arithmetic more slowly than the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from steplens.advice.facts import Facts, together
from steplens.advice.finding import MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.cluster.comparison import DEVIATION, beside_mean, comparable, job_of, missing, several_ranks, traces_of
from steplens.analysis.cluster.cluster_steps import rank_means
from steplens.analysis.operators.work import work
from steplens.trace.run import Run


def judge(run: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """Ranks whose operations per second lie by more than 20 % below the mean.

    At the mean speed a rank would compute in that share of its time; whether others wait for it is ``slow_rank``'s to say, so
    the low end is nothing.

    Args:
        run: the run.
        facts: of the ranks.
        threshold: share of the mean.
    """
    if not comparable(run):
        return
    table = together(work, facts, traces_of(facts))
    if table["source"].n_unique() != 1:
        return
    speeds = {rank: speed for rank, speed in table.select("rank", "flops_per_s").drop_nulls().iter_rows() if speed > 0}
    if len(speeds) < 2:
        return
    mean = fmean(speeds.values())
    slow = {rank: 1 - speed / mean for rank, speed in speeds.items() if 1 - speed / mean > threshold}
    if not slow:
        return
    means = {row["rank"]: row for row in together(rank_means, facts, traces_of(facts)).iter_rows(named=True)}
    for rank, below in slow.items():
        speed, row = speeds[rank], means.get(rank, {})
        computation, total = row.get("computation_ns"), row.get("total_ns")
        known = computation is not None and total
        yield Finding(
            rule=RULE.name,
            subject=f"rank{rank}",
            confidence=0.6,
            evidence=(
                Evidence("work_rate", speed / 1e9, "GFLOP/s", places=(f"rank {rank}",), per_step=False),
                Evidence("below_mean", 100 * below, "%", per_step=False),
                *beside_mean(speeds.values(), "GFLOP/s", 1e-9),
                *missing(job_of(facts)),
            ),
            saving=Saving(0, below * computation / 2, below * computation) if known and computation is not None else None,
            step_ns=float(total or 0),
            part="computing_ns",
            values={"rank": rank, "percent": f"{100 * below:.2f}"},
            urgency=MEDIUM,
        )


RULE = Rule("slow_card", judge_run=judge, applies=several_ranks)
