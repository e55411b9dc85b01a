"""Transfers between devices whose size is no multiple of 512 bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import per_step, steps_of, top
from steplens.trace.building.devices import NPU
from steplens.trace.health import COMMUNICATION_VOLUME, KERNEL_TIMES

_TABLE = "COMMUNICATION_TASK_INFO"
_COLUMNS = ("kernel", "taskType", "transportType", "linkType", "size")
_TASKS = ("Memcpy", "Reduce_Inline")
_UNIT = 512
#: shares of the transfers' time
_FEW, _MANY = 0.2, 0.7
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """Copies and reductions over SDMA that leave the chip and are larger than 512 bytes.

    The price is what they took longer than aligned transfers of the same kind would have at their bandwidth; where they are
    no slower, or there are none to compare with, there is none, and how much they are of all transfers tells how much it
    matters.
    """
    transfers = _transfers(facts)
    odd = transfers.filter(pl.col("size") % _UNIT != 0)
    if odd.is_empty():
        return
    even = transfers.filter(pl.col("size") % _UNIT == 0)
    rate = even.group_by("taskType").agg(even_gbps=pl.col("size").sum() / pl.col("duration_ns").sum())
    priced = odd.join(rate, on="taskType").select("step", lost=pl.col("duration_ns") - pl.col("size") / pl.col("even_gbps"))
    lost = per_step(facts, priced, "lost")
    share = float(odd["duration_ns"].sum()) / max(float(transfers["duration_ns"].sum()), 1)
    evidence = [
        Evidence("odd_transfers", per_step(facts, odd), "ns", steps_of(odd), top(odd, "operation")),
        Evidence("operations_with_odd_transfers", odd.select("operation", "step").n_unique(), "count", per_step=False),
        Evidence("odd_bandwidth", float(odd["size"].sum()) / max(float(odd["duration_ns"].sum()), 1), "GB/s", per_step=False),
    ]
    if even.height:
        bandwidth = float(even["size"].sum()) / max(float(even["duration_ns"].sum()), 1)
        evidence.append(Evidence("even_bandwidth", bandwidth, "GB/s", per_step=False))
    worth = lost >= _LEAST_SHARE * facts.step_ns > 0
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=tuple(evidence),
        saving=Saving(0, lost, per_step(facts, odd)) if worth else None,
        step_ns=facts.step_ns,
        part="exposed_communication_ns",
        values={"unit": _UNIT},
        urgency=LOW if share < _FEW or lost <= 0 < even.height else HIGH if share >= _MANY else MEDIUM,
    )


def _transfers(facts: Facts) -> pl.DataFrame:
    """The transfers of these steps with taskType, size, duration_ns, step and operation, the collective around them."""
    schema = {"taskType": pl.String, "size": pl.Int64, "duration_ns": pl.Int64, "step": pl.Int64, "operation": pl.String}
    table = facts.trace.source_table(_TABLE)
    if table is None or not set(_COLUMNS) <= set(table.columns):
        return pl.DataFrame(schema=schema)
    wanted = table.select(
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
    rows = wanted.join(tasks.collect(), left_on="kernel", right_on="id").filter(pl.col("duration_ns") > 0)
    operations = (
        facts.trace.required("communication").select("name", "start_ns", "end_ns", op_step="step").sort("start_ns").collect()
    )
    if operations.is_empty() or rows.is_empty():
        return pl.DataFrame(schema=schema)
    around = np.searchsorted(operations["start_ns"].to_numpy(), rows["start_ns"].to_numpy(), side="right") - 1
    known = operations[np.maximum(around, 0)]
    rows = rows.with_columns(
        operation=pl.when(pl.Series(around >= 0)).then(known["name"].cast(pl.String)),
        step=pl.coalesce(pl.col("step"), known["op_step"]),
    )
    return rows.filter(pl.col("step").is_in(list(facts.numbers))).select(list(schema))


RULE = Rule("byte_alignment", judge, (COMMUNICATION_VOLUME, KERNEL_TIMES), devices=(NPU,))
