"""The collectives of one group of ranks are slower than those of all other groups like it: a slow link is among its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from steplens.advice.facts import Facts, together
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import communicates
from steplens.analysis.cluster import arrivals
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, RANK_COMPARISON
from steplens.trace.run import Run

#: a slow group reaches less than this share of the median, and lies so many deviations below it
_SLOWER = 0.8
_DEVIATIONS = 3.0
#: a deviation is at least this share of the median: groups that are all alike deviate by nothing
_LEAST_DEVIATION = 0.02
_TO_SIGMA = 1.4826
_LEAST_GROUPS = 4
_LEAST_SHARE = 0.01


def judge(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """Groups of one size are compared, by bytes over time of one operation; the last rank to arrive waits for nobody.

    A group is named when its bandwidth is below 80 % of their median and three deviations (median of distances, times 1.48)
    below it, of four groups or more. The price is its time times 1 - bandwidth / median. Where the library measured each
    link, ``slow_link`` names the link itself.
    """
    steps = len({number for part in facts for number in part.numbers})
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    if not steps or not lengths:
        return
    step_ns = sum(lengths) / len(lengths)
    for found in _slow(_groups(run, facts, steps)).iter_rows(named=True):
        lost = found["usual_ns"] * (1 - found["gbps"] / found["median"])
        if lost < _LEAST_SHARE * step_ns:
            continue
        yield Finding(
            rule=RULE.name,
            subject=found["ranks"],
            confidence=0.8,
            evidence=(
                Evidence("in_slow_group", found["usual_ns"], "ns", places=(found["operation"],)),
                Evidence("group_bandwidth", found["gbps"], "GB/s", per_step=False),
                Evidence("median_bandwidth", found["median"], "GB/s", per_step=False),
                Evidence("compared_groups", found["groups"], "count", per_step=False),
            ),
            saving=Saving(lost / 2, lost, lost),
            step_ns=step_ns,
            part="exposed_communication_ns",
            values={"ranks": found["ranks"]},
        )


def _groups(run: Run, facts: Sequence[Facts], of_steps: int) -> pl.DataFrame:
    """What the collectives of each group carried: ranks, size, operation, bytes, time_ns, usual_ns (in a step, see facts)."""
    rows = together(arrivals.arrivals, facts, run.traces)
    steps = {number for part in facts for number in part.numbers}
    rows = rows.filter(pl.col("step").is_in(list(steps)))
    members = rows.group_by("group").agg(members=pl.col("rank").unique().sort())
    last = pl.col("place") == pl.col("place").max().over("step", "group", "operation", "number")
    carried = rows.filter(last & (pl.col("bytes") > 0))
    each = carried.group_by("group", "operation", "step").agg(pl.col("bytes", "transfer_ns").sum())
    usual = pl.col("transfer_ns").median() * pl.len() / of_steps
    sums = each.group_by("group", "operation").agg(pl.col("bytes", "transfer_ns").sum(), usual_ns=usual)
    return sums.join(members, on="group").select(
        "operation",
        "bytes",
        "usual_ns",
        time_ns="transfer_ns",
        size=pl.col("members").list.len(),
        ranks=pl.col("members").cast(pl.List(pl.String)).list.join(", "),
    )


def _slow(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups that are slow among those of their size, slowest first, with gbps, median and groups (how many)."""
    alike = ["operation", "size"]
    rated = groups.filter(pl.col("time_ns") > 0).with_columns(gbps=pl.col("bytes") / pl.col("time_ns"))
    rated = rated.with_columns(median=pl.col("gbps").median().over(alike), groups=pl.len().over(alike))
    deviation = (pl.col("gbps") - pl.col("median")).abs().median().over(alike) * _TO_SIGMA
    least = pl.max_horizontal(deviation, _LEAST_DEVIATION * pl.col("median"))
    low = (pl.col("gbps") < _SLOWER * pl.col("median")) & (pl.col("median") - pl.col("gbps") > _DEVIATIONS * least)
    return rated.filter(low & (pl.col("groups") >= _LEAST_GROUPS)).sort("gbps", "ranks")


RULE = Rule(
    "slow_group", rests_on=(COMMUNICATION_VOLUME, COMMUNICATION_TIMES, RANK_COMPARISON), judge_run=judge, applies=communicates
)
