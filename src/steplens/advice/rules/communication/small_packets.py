"""Communication in pieces so small that links do not reach their bandwidth."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import communicates, per_step, steps_of, top
from steplens.trace.building.devices import NPU
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME
from steplens.trace.schema import COLLECTIVE

#: MB below which an operation of a transport is small
_SMALL_MB = {"SDMA": 16.0, "RDMA": 1.0}
#: bytes below which a collective is small where the library measures no transports
_SMALL_BYTES = 1 << 20
_LEAST_SHARE = 0.2
_LEAST_OPERATIONS = 5
_OF_A_STEP = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """Where more than a fifth of the operations are small: below 16 MB over SDMA, 1 MB over RDMA, 1 MiB if not measured.

    The price is what the small ones' transfers took longer than at the bandwidth of the large ones, or of the link's peak
    where all are small. Without measured transfers a collective's time is mostly waiting for other ranks and tells no
    price.
    """
    if facts.device != NPU:
        yield from _collectives(facts)
        return
    rows = facts.trace.required("communication_bandwidth").filter(
        pl.col("step").is_in(list(facts.numbers))
        & (pl.col("size_mb") > 0)
        & pl.all_horizontal(pl.col("size_mb", "transit_ms").is_finite())
    )
    each = rows.unique(["name", "group", "step", "transport"], keep="first", maintain_order=True).collect()
    for transport, limit in _SMALL_MB.items():
        own = each.filter(pl.col("transport") == transport)
        small = own.filter(pl.col("size_mb") < limit)
        if small.height <= _LEAST_SHARE * own.height:
            continue
        yield _finding(facts, transport, limit, own, small)


def _finding(facts: Facts, transport: str, limit: float, own: pl.DataFrame, small: pl.DataFrame) -> Finding:
    large = own.filter(pl.col("size_mb") >= limit)
    peak = facts.profile.link_gbps("HCCS" if transport == "SDMA" else transport)
    reference = float(large["size_mb"].sum()) / float(large["transit_ms"].sum()) if large["transit_ms"].sum() else peak
    length_ms = float(small["transit_ms"].sum())
    lost_ms = max(length_ms - float(small["size_mb"].sum()) / reference, 0.0) if reference else 0.0
    # transfers over several links at once are added up, and cannot take longer than the operations
    names = small.select("name", "step").unique()
    times = facts.trace.required("communication_times").select("name", "step", "transit_ms").unique().collect()
    elapsed_ms = float(names.join(times, on=["name", "step"])["transit_ms"].sum()) or length_ms
    share = lost_ms / length_ms * min(elapsed_ms / length_ms, 1.0) if length_ms else 0.0
    lost_ns = 1e6 * share * per_step(facts, small, "transit_ms")
    priced = lost_ns >= _OF_A_STEP * facts.step_ns > 0
    evidence = [
        Evidence(
            "small_operations", 100 * small.height / own.height, "%", steps_of(small), top(small, "name", "transit_ms"), False
        ),
        Evidence("small_operations_per_step", small.height / facts.steps.height, "count"),
    ]
    if length_ms:
        evidence.append(Evidence("small_bandwidth", float(small["size_mb"].sum()) / length_ms, "GB/s", per_step=False))
    if reference:
        evidence.append(Evidence("large_bandwidth", reference, "GB/s", per_step=False))
    return Finding(
        rule=RULE.name,
        subject=transport,
        confidence=0.7,
        evidence=tuple(evidence),
        saving=Saving.up_to(lost_ns) if priced else None,
        step_ns=facts.step_ns,
        part="exposed_communication_ns",
        values={"limit": f"{transport} < {limit:.0f} MB"},
        urgency=LOW,
    )


def _collectives(facts: Facts) -> Iterator[Finding]:
    rows = facts.trace.required("communication").filter(
        pl.col("step").is_in(list(facts.numbers)) & (pl.col("kind") == COLLECTIVE) & (pl.col("bytes") > 0)
    )
    own = rows.with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns")).collect()
    small = own.filter(pl.col("bytes") < _SMALL_BYTES)
    if (
        not facts.steps.height
        or small.height < _LEAST_OPERATIONS * facts.steps.height
        or small.height <= _LEAST_SHARE * own.height
    ):
        return
    length = per_step(facts, small)
    if length < _OF_A_STEP * facts.step_ns:
        return
    yield Finding(
        rule=RULE.name,
        confidence=0.5,
        evidence=(
            Evidence("small_operations", 100 * small.height / own.height, "%", steps_of(small), top(small, "operation"), False),
            Evidence("small_operations_per_step", small.height / facts.steps.height, "count"),
            Evidence("in_small_operations", length, "ns"),
        ),
        step_ns=facts.step_ns,
        part="exposed_communication_ns",
        values={"limit": "< 1 MiB"},
        urgency=MEDIUM if length >= 10 * _OF_A_STEP * facts.step_ns else LOW,
    )


RULE = Rule("small_packets", judge, (COMMUNICATION_VOLUME, COMMUNICATION_TIMES), applies=communicates)
