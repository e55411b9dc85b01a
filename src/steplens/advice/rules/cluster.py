"""Ranks and links that are slower than the others of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import run_rule
from steplens.advice.rules.tools.lateness import LEAST_SHARE, explain_lateness
from steplens.advice.rules.tools.ranks import (
    CLOCKS_DIFFER,
    DEVIATION,
    MANY_RANKS,
    are_ranks_comparable,
    beside_mean,
    job_of,
    missing_rank_evidence,
    outlying_ranks,
    several_ranks,
    traces_of,
)
from steplens.analysis.cluster.arrivals import SlowRank
from steplens.analysis.cluster.cluster_steps import rank_means
from steplens.analysis.cluster.late_work import with_peers
from steplens.analysis.cluster.links import link_means, links, slow_links
from steplens.analysis.cluster.rank_differences import rank_differences
from steplens.analysis.cluster.stragglers.slow_rank import name_slow_rank
from steplens.analysis.data_loading.data_wait import data_wait
from steplens.analysis.operators.rank_flops import work
from steplens.analysis.tools.parallel import by_rank
from steplens.run import Run
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, RANK_COMPARISON, STEP_TIMES

#: of many ranks, what takes less of a step is not said of one
_LEAST_SHARE_OF_MANY = 0.01
#: rules that see the wait for a slow rank as time of something else
_SYMPTOMS = ("slow_card", "slow_interval", "data_parallel_communication", "stage_waits")


@run_rule(rests_on=(COMMUNICATION_TIMES, RANK_COMPARISON), despite=CLOCKS_DIFFER, explains=_SYMPTOMS)
def slow_rank(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """One rank arrives late at the collectives, and all others wait for it.

    See ``analysis.cluster.stragglers.slow_rank.name_slow_rank``. Why it is late is the part of the step that takes it longer
    than the others by much of what it holds them up, and the function or operator there (``rules.tools.lateness``).
    """
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    if len(lengths) < 2:
        return
    step_ns = sum(lengths) / len(lengths)
    step_numbers = {number for part in facts for number in part.numbers}
    slow = name_slow_rank(run.traces, step_numbers, step_ns)
    if slow is None:
        return
    late = explain_lateness(facts, slow.rank, slow.hold_up_ns)
    evidence = [Evidence("holds_others_up", slow.hold_up_ns, "ns", slow.steps, (f"rank {slow.rank}",)), *late.evidence]
    line = largest_difference(rank_differences(with_peers(run.traces, slow.rank), slow.rank, by_line=True), slow)
    evidence += line
    values: dict[str, str | int] = {"rank": slow.rank, "times": len(slow.steps), "of": slow.of_steps}
    values |= {"case": late.words_case, "call": late.call}
    likely_ns = float(slow.hold_up_ns)
    if line:
        values |= {"case": "one_line", "line": line[0].places[1]}
        # without the line the rank is late by what it does beyond the others elsewhere
        likely_ns = min(likely_ns, line[0].value - line[1].value)
    yield Finding(
        rule=slow_rank.name,
        subject=f"rank{slow.rank}",
        confidence=1 - slow.chance,
        evidence=tuple(evidence),
        saving=Saving(min(likely_ns, slow.hold_up_ns / 2), likely_ns, slow.hold_up_ns),
        step_ns=step_ns,
        lies_in=late.parts,
        values=values,
    )


def largest_difference(lines: pl.DataFrame, slow: SlowRank) -> list[Evidence]:
    """The source line in which the rank spends most beyond what the others do there, where that is much of what it is late."""
    for row in lines.head(1).iter_rows(named=True):
        on_device = row["more_device_ns"] > row["more_ns"]
        mine, other_columns = ("device_self_ns", "other_device_self_ns") if on_device else ("self_ns", "other_self_ns")
        if row[mine] - row[other_columns] > LEAST_SHARE * slow.hold_up_ns:
            return [
                Evidence("in_one_line", row[mine], "ns", places=(f"rank {slow.rank}", row["line"]), of_mean=True),
                Evidence("others_in_that_line", row[other_columns], "ns", of_mean=True),
            ]
    return []


@run_rule(rests_on=(STEP_TIMES,), applies=several_ranks)
def slow_interval(run: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """A rank waits longer for its data than the others do.

    Ranks whose interval is by more than 20 % longer than the mean of all; waiting as long as the mean is what is saved. Of many
    ranks the farthest off (``outlying_ranks``), where that is 1 % of a step or more: some of hundreds are always off.

    The interval is the device's (means that the source keeps count, see ``cluster_steps.rank_means``), else the wait for data.
    """
    if not are_ranks_comparable(run):
        return
    job = job_of(facts)
    intervals, lengths = _intervals_and_step_lengths(facts)
    if len(intervals) < 2 or not (mean := fmean(intervals.values())) > 0:
        return
    step_ns = fmean(lengths.values())
    longer = {rank: interval / mean - 1 for rank, interval in intervals.items() if interval / mean - 1 > threshold}
    least_ns = _LEAST_SHARE_OF_MANY * step_ns if len(intervals) >= MANY_RANKS else 0.0
    for rank in outlying_ranks(longer, len(intervals)):
        interval = intervals[rank]
        more = interval - mean
        if more < least_ns:
            continue
        yield Finding(
            rule=slow_interval.name,
            subject=f"rank{rank}",
            confidence=0.6,
            evidence=(
                Evidence("interval", interval, "ns", places=(f"rank {rank}",)),
                Evidence("above_mean", 100 * more / mean, "%", per_step=False),
                *beside_mean(intervals.values(), "ns"),
                *missing_rank_evidence(job),
            ),
            saving=Saving(0, more, more * 1.2),
            step_ns=step_ns,
            values={"rank": rank, "percent": f"{100 * more / mean:.2f}", "interval": f"{interval / 1e6:.4f}"},
        )


def _intervals_and_step_lengths(facts: Sequence[Facts]) -> tuple[dict[int, float], dict[int, float]]:
    """Mean interval and length of a step of every rank of which they are known, ns."""
    ranks = by_rank(traces_of(facts))
    means = {}
    if any(windows[0].step_points is not None for windows in ranks.values()):
        means = {row["rank"]: row for row in analyse_once(rank_means, facts, traces_of(facts)).iter_rows(named=True)}
    intervals, lengths = {}, {}
    for rank, windows in ranks.items():
        row = means.get(rank)
        if windows[0].step_points is not None and row is not None and row["interval_ns"] is not None:
            intervals[rank], lengths[rank] = row["interval_ns"], row["total_ns"]
        elif (waited := data_wait(windows[0])) is not None:
            intervals[rank], lengths[rank] = waited.wait_ns, waited.step_ns
    return intervals, lengths


@run_rule(applies=several_ranks)
def slow_card(run: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """A rank does its arithmetic more slowly than the others.

    Ranks whose operations per second lie by more than 20 % below the mean; of many ranks the farthest off (``outlying_ranks``).

    At the mean speed a rank would compute in that share of its time; whether others wait for it is ``slow_rank``'s to say, so
    the low end is nothing.
    """
    if not are_ranks_comparable(run):
        return
    table = analyse_once(work, facts, traces_of(facts))
    if table["source"].n_unique() != 1:
        return
    speeds = {rank: speed for rank, speed in table.select("rank", "flops_per_s").drop_nulls().iter_rows() if speed > 0}
    if len(speeds) < 2:
        return
    mean = fmean(speeds.values())
    slow = {rank: 1 - speed / mean for rank, speed in speeds.items() if 1 - speed / mean > threshold}
    if not outlying_ranks(slow, len(speeds)):
        return
    means = {row["rank"]: row for row in analyse_once(rank_means, facts, traces_of(facts)).iter_rows(named=True)}
    for rank in outlying_ranks(slow, len(speeds)):
        slower_rates = slow[rank]
        speed, row = speeds[rank], means.get(rank, {})
        computation, total = row.get("computation_ns"), row.get("total_ns")
        priced = computation is not None and total
        yield Finding(
            rule=slow_card.name,
            subject=f"rank{rank}",
            confidence=0.6,
            evidence=(
                Evidence("work_rate", speed / 1e9, "GFLOP/s", places=(f"rank {rank}",), per_step=False),
                Evidence("below_mean", 100 * slower_rates, "%", per_step=False),
                *beside_mean(speeds.values(), "GFLOP/s", 1e-9),
                *missing_rank_evidence(job_of(facts)),
            ),
            saving=Saving(0, slower_rates * computation / 2, slower_rates * computation)
            if priced and computation is not None
            else None,
            step_ns=float(total or 0),
            part="computing_ns",
            values={"rank": rank, "percent": f"{100 * slower_rates:.2f}"},
            urgency=MEDIUM,
        )


@run_rule(rests_on=(COMMUNICATION_VOLUME,), applies=several_ranks)
def slow_link(_: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """A link between two ranks moves data more slowly than the other links of its kind.

    Links whose bandwidth (bytes / time) lies by more than 20 % below the mean of their transport.

    At the mean bandwidth the transfer would take that share less; where computing covers it, nothing is saved, so the low end
    is nothing.
    """
    traces = traces_of(facts)
    transfers = links(traces)
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    for row in slow_links(link_means(transfers), threshold=threshold).iter_rows(named=True):
        source, target, transport = row["source"], row["destination"], row["transport"] or "?"
        same = (pl.col("source") == source) & (pl.col("destination") == target)
        steps = tuple(transfers.filter(same)["step"].unique().sort().to_list())
        more = row["time_ns"] * row["below"]
        ends = (f"rank {source} -> rank {target}",)
        yield Finding(
            rule=slow_link.name,
            subject=f"{source}-{target}-{transport}",
            confidence=0.6,
            evidence=(
                Evidence("bandwidth", row["bytes_per_s"] / 1e9, "GB/s", steps, ends, per_step=False),
                Evidence("below_mean", 100 * row["below"], "%", per_step=False),
                Evidence("mean_of_all", row["mean_bytes_per_s"] / 1e9, "GB/s", per_step=False),
                Evidence("median_of_all", row["median_bytes_per_s"] / 1e9, "GB/s", per_step=False),
                Evidence("deviation_of_all", row["deviation_bytes_per_s"] / 1e9, "GB/s", per_step=False),
                Evidence("moved_bytes", row["bytes"], "bytes"),
                *missing_rank_evidence(job_of(facts)),
            ),
            saving=Saving(0, more / 2, more) if lengths else None,
            step_ns=fmean(lengths) if lengths else 0.0,
            part="exposed_communication_ns",
            values={"source": source, "target": target, "transport": transport, "percent": f"{100 * row['below']:.2f}"},
            urgency=LOW,
        )
