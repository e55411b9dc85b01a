"""What is communicated: in small pieces, in odd sizes, in every layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import rule
from steplens.advice.rules.tools.tasks import (
    has_communication,
    matching_rows,
    per_step,
    steps_of,
    timed_evidence,
    with_top_values,
)
from steplens.trace.building.devices import NPU
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, KERNEL_TIMES, OPERATOR_CALLS
from steplens.trace.schema import COLLECTIVE

_TABLE = "COMMUNICATION_TASK_INFO"
_COLUMNS = ("kernel", "taskType", "transportType", "linkType", "size")
_TASKS = ("Memcpy", "Reduce_Inline")
_UNIT = 512
#: shares of the transfers' time
_FEW, _MANY = 0.2, 0.7


@rule(rests_on=(COMMUNICATION_VOLUME, KERNEL_TIMES), devices=(NPU,))
def byte_alignment(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Transfers between devices whose size is no multiple of 512 bytes.

    Copies and reductions over SDMA that leave the chip and are larger than 512 bytes.

    The price is what they took longer than aligned transfers of the same kind would have at their bandwidth; where they are
    no slower, or there are none to compare with, there is none, and how much they are of all transfers tells how much it
    matters.
    """
    transfers = _transfers_over_sdma(facts)
    odd = transfers.filter(pl.col("size") % _UNIT != 0)
    if odd.is_empty():
        return
    even = transfers.filter(pl.col("size") % _UNIT == 0)
    rate = even.group_by("taskType").agg(even_gbps=pl.col("size").sum() / pl.col("duration_ns").sum())
    priced = odd.join(rate, on="taskType").select("step", lost=pl.col("duration_ns") - pl.col("size") / pl.col("even_gbps"))
    lost = per_step(facts, priced, "lost")
    share = float(odd["duration_ns"].sum()) / max(float(transfers["duration_ns"].sum()), 1)
    evidence = [
        timed_evidence(facts, "odd_transfers", odd, "operation"),
        Evidence("operations_with_odd_transfers", odd.select("operation", "step").n_unique(), "count", per_step=False),
        Evidence("odd_bandwidth", float(odd["size"].sum()) / max(float(odd["duration_ns"].sum()), 1), "GB/s", per_step=False),
    ]
    if even.height:
        bandwidth = float(even["size"].sum()) / max(float(even["duration_ns"].sum()), 1)
        evidence.append(Evidence("even_bandwidth", bandwidth, "GB/s", per_step=False))
    worth = lost >= least_share * facts.step_ns > 0
    saving = Saving(0, lost, per_step(facts, odd)) if worth else None
    urgency = LOW if share < _FEW or lost <= 0 < even.height else HIGH if share >= _MANY else MEDIUM
    yield facts.make_finding(
        byte_alignment.name,
        evidence,
        saving,
        confidence=0.7,
        part="exposed_communication_ns",
        values={"unit": _UNIT},
        urgency=urgency,
    )


def _transfers_over_sdma(facts: Facts) -> pl.DataFrame:
    """The transfers of these steps with taskType, size, duration_ns, step and operation, the collective around them."""
    schema = {"taskType": pl.String, "size": pl.Int64, "duration_ns": pl.Int64, "step": pl.Int64, "operation": pl.String}
    table = facts.trace.source_table(_TABLE)
    if table is None or not set(_COLUMNS) <= set(table.columns):
        return pl.DataFrame(schema=schema)
    selected = table.select(
        pl.col("kernel").cast(pl.String).cast(pl.Int32, strict=False),
        pl.col("taskType", "transportType", "linkType").cast(pl.String),
        pl.col("size").cast(pl.String).cast(pl.Int64, strict=False),
    ).filter(
        pl.col("taskType").is_in(_TASKS)
        & (pl.col("transportType") == "SDMA")
        & (pl.col("linkType") != "ON_CHIP")
        & (pl.col("size") > _UNIT)
    )
    tasks = facts.trace.required("kernels").select("id", "start_ns", "step", duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    rows = selected.join(tasks.collect(), left_on="kernel", right_on="id").filter(pl.col("duration_ns") > 0)
    operations = (
        facts.trace.required("communication").select("name", "start_ns", "end_ns", op_step="step").sort("start_ns").collect()
    )
    if operations.is_empty() or rows.is_empty():
        return pl.DataFrame(schema=schema)
    around = np.searchsorted(operations["start_ns"].to_numpy(), rows["start_ns"].to_numpy(), side="right") - 1
    around_each = operations[np.maximum(around, 0)]
    rows = rows.with_columns(
        operation=pl.when(pl.Series(around >= 0)).then(around_each["name"].cast(pl.String)),
        step=pl.coalesce(pl.col("step"), around_each["op_step"]),
    )
    return rows.filter(pl.col("step").is_in(list(facts.numbers))).select(list(schema))


#: MB below which an operation of a transport is small
_SMALL_MB = {"SDMA": 16.0, "RDMA": 1.0}
#: bytes below which a collective is small where the library measures no transports
_SMALL_BYTES = 1 << 20
_SMALL_SHARE = 0.2
_LEAST_OPERATIONS = 5
_OF_A_STEP = 0.01


@rule(rests_on=(COMMUNICATION_VOLUME, COMMUNICATION_TIMES), applies=has_communication)
def small_packets(facts: Facts) -> Iterator[Finding]:
    """Communication in pieces so small that links do not reach their bandwidth.

    Where more than a fifth of the operations are small: below 16 MB over SDMA, 1 MB over RDMA, 1 MiB if not measured.

    The price is what the small ones' transfers took longer than at the bandwidth of the large ones, or of the link's peak
    where all are small. Without measured transfers a collective's time is mostly waiting for other ranks and tells no
    price.
    """
    if facts.device != NPU:
        yield from _find_small_collectives(facts)
        return
    rows = facts.trace.required("communication_bandwidth").filter(
        pl.col("step").is_in(list(facts.numbers))
        & (pl.col("size_mb") > 0)
        & pl.all_horizontal(pl.col("size_mb", "transit_ms").is_finite())
    )
    each = rows.unique(["name", "group", "step", "transport"], keep="first", maintain_order=True).collect()
    for transport, limit in _SMALL_MB.items():
        sent = each.filter(pl.col("transport") == transport)
        small = sent.filter(pl.col("size_mb") < limit)
        if small.height <= _SMALL_SHARE * sent.height:
            continue
        yield _small_operations_finding(facts, transport, limit, sent, small)


def _small_operations_finding(facts: Facts, transport: str, limit: float, sent: pl.DataFrame, small: pl.DataFrame) -> Finding:
    large = sent.filter(pl.col("size_mb") >= limit)
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
        with_top_values(
            Evidence("small_operations", 100 * small.height / sent.height, "%", steps_of(small), per_step=False),
            small,
            "name",
            "transit_ms",
        ),
        Evidence("small_operations_per_step", small.height / facts.steps.height, "count"),
    ]
    if length_ms:
        evidence.append(Evidence("small_bandwidth", float(small["size_mb"].sum()) / length_ms, "GB/s", per_step=False))
    if reference:
        evidence.append(Evidence("large_bandwidth", reference, "GB/s", per_step=False))
    saving = Saving.up_to(lost_ns) if priced else None
    values = {"limit": f"{transport} < {limit:.0f} MB"}
    return facts.make_finding(
        small_packets.name, evidence, saving, confidence=0.7, subject=transport, part="exposed_communication_ns", values=values
    )


def _find_small_collectives(facts: Facts) -> Iterator[Finding]:
    rows = facts.trace.required("communication").filter(
        pl.col("step").is_in(list(facts.numbers)) & (pl.col("kind") == COLLECTIVE) & (pl.col("bytes") > 0)
    )
    reduced = rows.with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns")).collect()
    small = reduced.filter(pl.col("bytes") < _SMALL_BYTES)
    if (
        not facts.steps.height
        or small.height < _LEAST_OPERATIONS * facts.steps.height
        or small.height <= _SMALL_SHARE * reduced.height
    ):
        return
    length = per_step(facts, small)
    if length < _OF_A_STEP * facts.step_ns:
        return
    evidence = [
        with_top_values(
            Evidence("small_operations", 100 * small.height / reduced.height, "%", steps_of(small), per_step=False),
            small,
            "operation",
        ),
        Evidence("small_operations_per_step", small.height / facts.steps.height, "count"),
        Evidence("in_small_operations", length, "ns"),
    ]
    urgency = MEDIUM if length >= 10 * _OF_A_STEP * facts.step_ns else LOW
    yield facts.make_finding(
        small_packets.name,
        evidence,
        confidence=0.5,
        part="exposed_communication_ns",
        values={"limit": "< 1 MiB"},
        urgency=urgency,
    )


_NAME = "SyncBatchNorm"


@rule(rests_on=(OPERATOR_CALLS, COMMUNICATION_TIMES), applies=has_communication)
def synchronized_batchnorm(facts: Facts, *, least_calls: int = 20, least_share: float = 0.01) -> Iterator[Finding]:
    """SyncBatchNorm: every such layer exchanges its statistics with all ranks, forward and backward.

    From 20 calls on in the recorded steps. At most the collectives go that were launched inside them.

    Backward calls are on autograd's thread; a name within one of the same name is the same call.
    """
    ops = facts.trace.required("ops").filter(pl.col("step").is_in(list(facts.numbers)))
    calls = matching_rows(ops.select("id", "name", "parent", "start_ns", "end_ns", "step").collect(), _NAME)
    calls = calls.filter(~pl.col("parent").is_in(calls["id"].implode()).fill_null(False)).sort("start_ns")
    if calls.height < least_calls:
        return
    operations = facts.trace.required("communication").filter(pl.col("step").is_in(list(facts.numbers)))
    in_batchnorm = operations.with_columns(
        at=pl.coalesce("launch_ns", "start_ns"), length=pl.col("end_ns") - pl.col("start_ns")
    ).collect()
    begins, ends = calls["start_ns"].to_numpy(), np.maximum.accumulate(calls["end_ns"].to_numpy())
    last = np.searchsorted(begins, in_batchnorm["at"].to_numpy(), side="right") - 1
    within = (last >= 0) & (in_batchnorm["at"].to_numpy() < ends[np.maximum(last, 0)])
    total = per_step(facts, in_batchnorm.filter(pl.Series(within)), "length")
    priced = total >= least_share * facts.step_ns > 0
    evidence = [
        Evidence("batchnorm_calls", calls.height / facts.steps.height, "count", steps_of(calls)),
        Evidence("batchnorm_collectives", total, "ns"),
    ]
    saving = Saving.up_to(total) if priced else None
    yield facts.make_finding(synchronized_batchnorm.name, evidence, saving, confidence=0.8, part="exposed_communication_ns")
