"""Transfers that are slower while matrices are multiplied: both want the device's memory."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import per_step, steps_of, top
from steplens.analysis.tools.overlap import length_inside, merged
from steplens.trace.building.devices import NPU
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, KERNEL_TIMES

_TRANSPORTS = ("SDMA", "HCCS")
_SLOWER = 0.8
#: operations without a product beside them that must tell how fast it goes undisturbed, within a factor of the size
_LEAST_UNDISTURBED = 3
_COMPARABLE = 4.0


def judge(facts: Facts) -> Iterator[Finding]:
    """Operations with a matrix product beside them that reach less than 80 % of what similar ones reach without.

    Where fewer than three of similar size run without one, the peak of the link takes their place if it is known. The price
    is their transfers' time times 1 - bandwidth / reference.
    """
    operations = _operations(facts)
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
    yield Finding(
        rule=RULE.name,
        confidence=0.7 if alone.height >= _LEAST_UNDISTURBED else 0.5,
        evidence=(
            Evidence("slowed_operations", slow.height / steps, "count", steps_of(slow), top(slow, "name", "lost_ns")),
            Evidence("slowed_bandwidth", float(slow["bandwidth_gbps"].mean() or 0), "GB/s", per_step=False),  # type: ignore[arg-type]
            Evidence("undisturbed_bandwidth", float(slow["reference"].mean() or 0), "GB/s", per_step=False),  # type: ignore[arg-type]
        ),
        saving=Saving.up_to(per_step(facts, slow, "lost_ns")),
        step_ns=facts.step_ns,
        part="exposed_communication_ns",
    )


def _operations(facts: Facts) -> pl.DataFrame:
    """The operations with what was measured of their transfers inside the machine: one row each."""
    own = pl.col("step").is_in(list(facts.numbers))
    measured = facts.trace.required("communication_bandwidth").filter(
        own
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
        .filter(own & pl.col("transit_ms").is_finite())
        .select("name", "step", "transit_ms")
        .unique(["name", "step"])
    )
    operations = facts.trace.required("communication").filter(own).select("name", "step", "start_ns", "end_ns").drop_nulls()
    key = ["name", "step"]
    return operations.join(measured, on=key).join(times, on=key).collect()


RULE = Rule("bandwidth_contention", judge, (COMMUNICATION_TIMES, COMMUNICATION_VOLUME, KERNEL_TIMES), devices=(NPU,))
