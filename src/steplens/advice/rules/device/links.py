"""How fast communication is: beside matrix products, over RDMA, and in one group against the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import HIGH, Evidence, Finding, Saving
from steplens.advice.rule import rule, run_rule
from steplens.advice.rules.tools.ranks import CLOCKS_DIFFER
from steplens.advice.rules.tools.tasks import has_communication, per_step, steps_of, with_top_values
from steplens.analysis.cluster import arrivals
from steplens.analysis.tools.overlap import length_inside, merged
from steplens.run import Run
from steplens.trace.building.devices import NPU
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, KERNEL_TIMES, RANK_COMPARISON

_TRANSPORTS = ("SDMA", "HCCS")
_SLOWER = 0.8
#: operations without a product beside them that must tell how fast it goes undisturbed, within a factor of the size
_LEAST_UNDISTURBED = 3
_COMPARABLE = 4.0


@rule(rests_on=(COMMUNICATION_TIMES, COMMUNICATION_VOLUME, KERNEL_TIMES), devices=(NPU,))
def bandwidth_contention(facts: Facts) -> Iterator[Finding]:
    """Transfers that are slower while matrices are multiplied: both want the device's memory.

    Operations with a matrix product beside them that reach less than 80 % of what similar ones reach without.

    Where fewer than three of similar size run without one, the peak of the link takes their place if it is known. The price
    is their transfers' time times 1 - bandwidth / reference.
    """
    operations = _measured_operations(facts)
    products = facts.computing.filter(
        pl.col("type").cast(pl.String).str.contains("(?i)matmul") | (pl.col("category") == "matmul")
    )
    if operations.is_empty() or products.is_empty():
        return
    beside = merged(products)
    shared = length_inside(beside, operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy())
    operations = operations.with_columns(shared_ns=pl.Series(shared))
    alone = operations.filter(pl.col("shared_ns") == 0)
    peak = facts.profile.link_gbps("HCCS")
    references = []
    for size in operations["size_mb"]:
        near = alone.filter(pl.col("size_mb").is_between(size / _COMPARABLE, size * _COMPARABLE))
        references.append(near["bandwidth_gbps"].median() if near.height >= _LEAST_UNDISTURBED else peak)
    slow = operations.with_columns(reference=pl.Series(references, dtype=pl.Float64)).filter(
        (pl.col("shared_ns") > 0) & (pl.col("bandwidth_gbps") < _SLOWER * pl.col("reference"))
    )
    if slow.is_empty():
        return
    slow = slow.with_columns(lost_ns=1e6 * pl.col("transit_ms") * (1 - pl.col("bandwidth_gbps") / pl.col("reference")))
    steps = max(facts.steps.height, 1)
    evidence = [
        with_top_values(Evidence("slowed_operations", slow.height / steps, "count", steps_of(slow)), slow, "name", "lost_ns"),
        Evidence("slowed_bandwidth", float(slow["bandwidth_gbps"].mean() or 0), "GB/s", per_step=False),  # type: ignore[arg-type]
        Evidence("undisturbed_bandwidth", float(slow["reference"].mean() or 0), "GB/s", per_step=False),  # type: ignore[arg-type]
    ]
    saving = Saving.up_to(per_step(facts, slow, "lost_ns"))
    yield facts.make_finding(
        bandwidth_contention.name,
        evidence,
        saving,
        confidence=0.7 if alone.height >= _LEAST_UNDISTURBED else 0.5,
        part="exposed_communication_ns",
    )


def _measured_operations(facts: Facts) -> pl.DataFrame:
    """The operations with what was measured of their transfers inside the machine: one row each."""
    in_steps = pl.col("step").is_in(list(facts.numbers))
    measured = facts.trace.required("communication_bandwidth").filter(
        in_steps
        & pl.col("transport").is_in(_TRANSPORTS)
        & pl.all_horizontal(pl.col("bandwidth_gbps", "size_mb") > 0, pl.col("bandwidth_gbps", "size_mb").is_finite())
    )
    # "SDMA" is the sum of the transports inside the machine and stands before them in no order that can be relied on
    measured = measured.select("name", "step", "size_mb", "bandwidth_gbps", sdma=pl.col("transport") == "SDMA")
    measured = measured.sort("sdma", descending=True, maintain_order=True).unique(
        ["name", "step"], keep="first", maintain_order=True
    )
    times = (
        facts.trace.required("communication_times")
        .filter(in_steps & pl.col("transit_ms").is_finite())
        .select("name", "step", "transit_ms")
        .unique(["name", "step"])
    )
    operations = facts.trace.required("communication").filter(in_steps).select("name", "step", "start_ns", "end_ns").drop_nulls()
    key = ["name", "step"]
    return operations.join(measured, on=key).collect().join(times.collect(), on=key)


_TRANSPORT = "RDMA"
#: a card's time until it sends again
_TIMEOUT_MS = 4000.0


@run_rule(rests_on=(COMMUNICATION_TIMES,), devices=(NPU,))
def retransmission(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """Operations over RDMA that take as long as a network card waits before it sends again.

    Operations of which every rank that is here took 4 s and more, and some rank's transfers over RDMA did.

    Waiting for a late rank makes operations long as well, but not transfers. At least the 4 s of one time-out go.
    """
    frames = []
    for part in facts:
        in_steps = pl.col("step").is_in(list(part.numbers))
        transit = part.trace.required("communication_bandwidth").filter(
            in_steps & (pl.col("transport") == _TRANSPORT) & pl.col("transit_ms").is_finite()
        )
        transit = transit.group_by("name", "group", "step").agg(rdma_ms=pl.col("transit_ms").max())
        times = part.trace.required("communication_times").filter(in_steps).select("name", "group", "step", "elapse_ms")
        texts = [pl.col(name).cast(pl.String) for name in ("name", "group")]
        joined = times.join(transit, on=["name", "group", "step"], how="left").with_columns(*texts)
        frames.append(joined.collect())
    if not frames:
        return
    each = (
        pl.concat(frames)
        .group_by("name", "group", "step")
        .agg(least_ms=pl.col("elapse_ms").min(), rdma_ms=pl.col("rdma_ms").max())
    )
    again = each.filter((pl.col("least_ms") >= _TIMEOUT_MS) & (pl.col("rdma_ms") > _TIMEOUT_MS)).sort(
        "rdma_ms", "name", descending=[True, False]
    )
    if again.is_empty():
        return
    steps = max(max(part.steps.height for part in facts), 1)
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    sent_ns = 1e6 * float(again["rdma_ms"].sum()) / steps
    timeouts_ns = 1e6 * _TIMEOUT_MS * again.height / steps
    yield Finding(
        rule=retransmission.name,
        confidence=0.8,
        evidence=(
            with_top_values(Evidence("long_rdma", sent_ns, "ns", steps_of(again), of_mean=True), again, "name", "rdma_ms"),
            Evidence("long_rdma_operations", again.height, "count", per_step=False),
        ),
        saving=Saving(timeouts_ns, timeouts_ns, sent_ns),
        step_ns=sum(lengths) / len(lengths) if lengths else 0.0,
        urgency=HIGH,
    )


_DEVIATIONS = 3.0
#: a deviation is at least this share of the median: groups that are all alike deviate by nothing
_LEAST_DEVIATION = 0.02
_TO_SIGMA = 1.4826
_LEAST_GROUPS = 4


@run_rule(rests_on=(COMMUNICATION_VOLUME, COMMUNICATION_TIMES, RANK_COMPARISON), despite=CLOCKS_DIFFER, applies=has_communication)
def slow_group(run: Run, facts: Sequence[Facts], *, least_share: float = 0.01) -> Iterator[Finding]:
    """The collectives of one group of ranks are slower than those of all other groups like it: a slow link is among its ranks.

    Groups of one size are compared, by bytes over time of one operation; the last rank to arrive waits for nobody.

    A group is named when its bandwidth is below 80 % of their median and three deviations (median of distances, times 1.48)
    below it, of four groups or more. The price is its time times 1 - bandwidth / median. Where the library measured each
    link, ``slow_link`` names the link itself.
    """
    steps = len({number for part in facts for number in part.numbers})
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    if not steps or not lengths:
        return
    step_ns = sum(lengths) / len(lengths)
    for group in _slow_groups(_traffic_by_group(run, facts, steps)).iter_rows(named=True):
        lost = group["usual_ns"] * (1 - group["gbps"] / group["median"])
        if lost < least_share * step_ns:
            continue
        yield Finding(
            rule=slow_group.name,
            subject=group["ranks"],
            confidence=0.8,
            evidence=(
                Evidence("in_slow_group", group["usual_ns"], "ns", places=(group["operation"],)),
                Evidence("group_bandwidth", group["gbps"], "GB/s", per_step=False),
                Evidence("median_bandwidth", group["median"], "GB/s", per_step=False),
                Evidence("compared_groups", group["groups"], "count", per_step=False),
            ),
            saving=Saving(lost / 2, lost, lost),
            step_ns=step_ns,
            part="exposed_communication_ns",
            values={"ranks": group["ranks"]},
        )


def _traffic_by_group(run: Run, facts: Sequence[Facts], of_steps: int) -> pl.DataFrame:
    """What the collectives of each group carried: ranks, size, operation, bytes, time_ns, usual_ns (in a step, see facts)."""
    rows = analyse_once(arrivals.arrivals, facts, run.traces)
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


def _slow_groups(groups: pl.DataFrame) -> pl.DataFrame:
    """The groups that are slow among those of their size, slowest first, with gbps, median and groups (how many)."""
    alike = ["operation", "size"]
    rated = groups.filter(pl.col("time_ns") > 0).with_columns(gbps=pl.col("bytes") / pl.col("time_ns"))
    rated = rated.with_columns(median=pl.col("gbps").median().over(alike), groups=pl.len().over(alike))
    deviation = (pl.col("gbps") - pl.col("median")).abs().median().over(alike) * _TO_SIGMA
    least = pl.max_horizontal(deviation, _LEAST_DEVIATION * pl.col("median"))
    low = (pl.col("gbps") < _SLOWER * pl.col("median")) & (pl.col("median") - pl.col("gbps") > _DEVIATIONS * least)
    return rated.filter(low & (pl.col("groups") >= _LEAST_GROUPS)).sort("gbps", "ranks")
