"""A rank waits longer for its data than the others do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from steplens.advice.facts import Facts, together
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.cluster.comparison import (
    DEVIATION,
    beside_mean,
    comparable,
    job_of,
    missing,
    several_ranks,
    traces_of,
)
from steplens.analysis.cluster.cluster_steps import rank_means
from steplens.analysis.data_loading.data_wait import data_wait
from steplens.analysis.tools.parallel import by_rank
from steplens.trace.health import STEP_TIMES
from steplens.trace.run import Run


def judge(run: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """Ranks whose interval is by more than 20 % longer than the mean of all; waiting as long as the mean is what is saved.

    The interval is the device's (means that the source keeps count, see ``cluster_steps.rank_means``), else the wait for data.

    Args:
        run: the run.
        facts: of the ranks.
        threshold: share of the mean.
    """
    if not comparable(run):
        return
    job = job_of(facts)
    intervals, lengths = _intervals(facts)
    if len(intervals) < 2 or not (mean := fmean(intervals.values())) > 0:
        return
    step_ns = fmean(lengths.values())
    for rank, interval in intervals.items():
        if interval / mean - 1 <= threshold:
            continue
        more = interval - mean
        yield Finding(
            rule=RULE.name,
            subject=f"rank{rank}",
            confidence=0.6,
            evidence=(
                Evidence("interval", interval, "ns", places=(f"rank {rank}",)),
                Evidence("above_mean", 100 * more / mean, "%", per_step=False),
                *beside_mean(intervals.values(), "ns"),
                *missing(job),
            ),
            saving=Saving(0, more, more * 1.2),
            step_ns=step_ns,
            values={"rank": rank, "percent": f"{100 * more / mean:.2f}", "interval": f"{interval / 1e6:.4f}"},
        )


def _intervals(facts: Sequence[Facts]) -> tuple[dict[int, float], dict[int, float]]:
    """Mean interval and length of a step of every rank of which they are known, ns."""
    ranks = by_rank(traces_of(facts))
    means = {}
    if any(windows[0].step_points is not None for windows in ranks.values()):
        means = {row["rank"]: row for row in together(rank_means, facts, traces_of(facts)).iter_rows(named=True)}
    intervals, lengths = {}, {}
    for rank, windows in ranks.items():
        row = means.get(rank)
        if windows[0].step_points is not None and row is not None and row["interval_ns"] is not None:
            intervals[rank], lengths[rank] = row["interval_ns"], row["total_ns"]
        elif (waited := data_wait(windows[0])) is not None:
            intervals[rank], lengths[rank] = waited.wait_ns, waited.step_ns
    return intervals, lengths


RULE = Rule("slow_interval", rests_on=(STEP_TIMES,), judge_run=judge, applies=several_ranks, explains=("slow_rank",))
