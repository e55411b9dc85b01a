"""Ranks and links that are slower than the others of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import run_rule
from steplens.advice.rules.tools.ranks import (
    DEVIATION,
    are_ranks_comparable,
    beside_mean,
    job_of,
    missing_rank_evidence,
    several_ranks,
    traces_of,
)
from steplens.advice.rules.tools.tasks import most_of_others, named_places
from steplens.analysis.cluster import arrivals
from steplens.analysis.cluster.cluster_steps import rank_means
from steplens.analysis.cluster.links import link_means, links, slow_links
from steplens.analysis.cluster.rank_differences import rank_differences
from steplens.analysis.data_loading.data_wait import data_wait
from steplens.analysis.operators.rank_flops import work
from steplens.analysis.steps.phases import BETWEEN, host_phase_names
from steplens.analysis.tools.parallel import by_rank
from steplens.run import Run
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, RANK_COMPARISON, STEP_TIMES

_PHASES = {
    "data_wait_ns": "data",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "device_wait_ns": "device_wait",
    "between_ns": "between",
    "python_ns": "python",
}
#: rules that see the wait for a slow rank as time of something else
_SYMPTOMS = ("slow_card", "data_parallel_communication")


@run_rule(rests_on=(COMMUNICATION_TIMES, RANK_COMPARISON), explains=_SYMPTOMS)
def slow_rank(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """One rank arrives late at the collectives, and all others wait for it.

    See ``analysis.cluster.arrivals.name_slow_rank``. What the rank spends more of than the others says where to look.
    """
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    if len(lengths) < 2:
        return
    step_ns = sum(lengths) / len(lengths)
    step_numbers = {number for part in facts for number in part.numbers}
    slow = arrivals.name_slow_rank(run.traces, step_numbers, step_ns)
    if slow is None:
        return
    slow_parts = [part for part in facts if part.trace.rank == slow.rank]
    other_ranks = [part for part in facts if part.trace.rank != slow.rank]
    more = {
        name: _mean_phase_time(slow_parts, column) - _mean_phase_time(other_ranks, column) for column, name in _PHASES.items()
    }
    phase = max(more, key=lambda name: more[name])
    evidence = [Evidence("holds_others_up", slow.hold_up_ns, "ns", slow.steps, (f"rank {slow.rank}",))]
    if more[phase] > slow.hold_up_ns / 3:
        more_evidence = Evidence(f"more_{phase}", more[phase], "ns", places=(f"rank {slow.rank}",), of_mean=True)
        evidence.append(_with_calls_between_phases(more_evidence, slow_parts) if phase == "between" else more_evidence)
    line = largest_difference(rank_differences(run.traces, slow.rank, by_line=True), slow)
    evidence += line
    values: dict[str, str | int] = {"rank": slow.rank, "times": len(slow.steps), "of": slow.of_steps}
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
        values=values,
    )


def largest_difference(lines: pl.DataFrame, slow: arrivals.SlowRank) -> list[Evidence]:
    """The source line in which the rank spends most beyond what the others do there, where that is much of what it is late."""
    for row in lines.head(1).iter_rows(named=True):
        on_device = row["more_device_ns"] > row["more_ns"]
        mine, other_columns = ("device_self_ns", "other_device_self_ns") if on_device else ("self_ns", "other_self_ns")
        if row[mine] - row[other_columns] > slow.hold_up_ns / 3:
            return [
                Evidence("in_one_line", row[mine], "ns", places=(f"rank {slow.rank}", row["line"]), of_mean=True),
                Evidence("others_in_that_line", row[other_columns], "ns", of_mean=True),
            ]
    return []


def _mean_phase_time(facts: Sequence[Facts], column: str) -> float:
    return sum(_phase_without_sync(part, column) for part in facts) / len(facts) if facts else 0.0


def _phase_without_sync(part: Facts, column: str) -> float:
    """A phase of a step of a rank, mean as in its bars, without what it waited for the others in it."""
    waited = part.mean_ns("gradient_sync_ns") if column == "backward_ns" else 0.0
    return part.mean_ns(column) - waited


def _with_calls_between_phases(evidence: Evidence, facts: Sequence[Facts]) -> Evidence:
    """Evidence about a rank with what all calls between the phases of its steps take, and those that take most of it."""
    steps = sum(len(part.numbers) for part in facts)
    frames = [part.trace.once(host_phase_names).filter(pl.col("step").is_in(list(part.numbers))) for part in facts]
    between = pl.concat(frames).filter(pl.col("phase") == BETWEEN).group_by("name").agg(pl.col("time_ns").sum())
    between = between.sort("time_ns", "name", descending=[True, False])
    lengths = [time_ns / max(steps, 1) for time_ns in between["time_ns"]]
    total_ns = sum(lengths)
    name_count = named_places(lengths, total_ns)
    return replace(
        evidence,
        places=(*evidence.places, *map(str, between["name"][:name_count])),
        places_ns=(total_ns, *lengths[:name_count]),
        other_places=len(lengths) - name_count,
        other_places_ns=sum(lengths[name_count:]),
        other_most=most_of_others(lengths, total_ns, name_count),
    )


@run_rule(rests_on=(STEP_TIMES,), applies=several_ranks, explains=("slow_rank",))
def slow_interval(run: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """A rank waits longer for its data than the others do.

    Ranks whose interval is by more than 20 % longer than the mean of all; waiting as long as the mean is what is saved.

    The interval is the device's (means that the source keeps count, see ``cluster_steps.rank_means``), else the wait for data.
    """
    if not are_ranks_comparable(run):
        return
    job = job_of(facts)
    intervals, lengths = _intervals_and_step_lengths(facts)
    if len(intervals) < 2 or not (mean := fmean(intervals.values())) > 0:
        return
    step_ns = fmean(lengths.values())
    for rank, interval in intervals.items():
        if interval / mean - 1 <= threshold:
            continue
        more = interval - mean
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

    Ranks whose operations per second lie by more than 20 % below the mean.

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
    if not slow:
        return
    means = {row["rank"]: row for row in analyse_once(rank_means, facts, traces_of(facts)).iter_rows(named=True)}
    for rank, slower_rates in slow.items():
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
