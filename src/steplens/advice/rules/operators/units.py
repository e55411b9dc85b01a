"""Which rule judges a task of an AI core by its performance counters, and how much of its time nothing explains.

Every task is judged by one rule: matrix products, attention, vector operators or the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rules.tools.common import has, matters, per_step, steps_of, top
from steplens.trace.health import KERNEL_DETAILS, KERNEL_TIMES

MATMUL, ATTENTION, VECTOR, OTHER = "matmul", "attention", "vector", "other"

RESTS_ON = (KERNEL_DETAILS, KERNEL_TIMES)

_VECTOR_CORES = ("AI_VECTOR_CORE", "MIX_AIV")
#: an operator type counts from this share of the device's time on, or from this time on
_TYPE_SHARE, _TYPE_NS = 0.01, 1_000_000_000
_LARGE_BYTES = 100 << 20

_BYTES = {
    "INT8": 1,
    "UINT8": 1,
    "BOOL": 1,
    "FLOAT": 4,
    "FLOAT32": 4,
    "INT32": 4,
    "UINT32": 4,
    "DOUBLE": 8,
    "INT64": 8,
    "UINT64": 8,
}
#: float16, bfloat16 and whatever else is not listed
_OTHER_BYTES = 2
_LONGEST = 10_000


def shares(facts: Facts, rule: str) -> pl.DataFrame:
    """The measured tasks that ``rule`` judges."""
    return facts.once(_judged)[rule]


def _judged(facts: Facts) -> dict[str, pl.DataFrame]:
    tasks = facts.measured
    attention, product = (
        tasks.select(has(tasks, pattern, "type")).to_series() for pattern in ("(?i)flash_?attention", "(?i)matmul")
    )
    matmul = product & ~attention & (tasks["core"] == "AI_CORE").fill_null(False)
    large = tasks.filter(matmul)
    large = large.with_columns(large=_bytes_of(large) >= _LARGE_BYTES)
    whole = max(int(facts.computing["duration_ns"].sum()), 1)
    sums = tasks.group_by("type").agg(pl.col("duration_ns").sum())
    long = sums.filter((pl.col("duration_ns") >= _TYPE_SHARE * whole) | (pl.col("duration_ns") >= _TYPE_NS))["type"]
    vector = ~attention & ~product & tasks["core"].is_in(_VECTOR_CORES).fill_null(False) & tasks["type"].is_in(long.implode())
    other = tasks.filter(~attention & ~matmul & ~vector)
    small = large.filter(~pl.col("large")).drop("large")
    return {
        ATTENTION: tasks.filter(attention),
        MATMUL: large.filter("large").drop("large"),
        VECTOR: tasks.filter(vector),
        OTHER: pl.concat([other, small]),
    }


def unexplained(tasks: pl.DataFrame, limits: Mapping[str, float]) -> pl.DataFrame:
    """Those of ``tasks`` that none of its units limits, with ``nearness`` and ``lost_ns``.

    Args:
        tasks: rows of ``shares``.
        limits: unit (or a sum of units, written ``a+b``) -> share from which on it is what limits a task.

    Returns:
        nearness: the largest share divided by its limit, below 1. lost_ns: what the task took longer than if that unit had
        worked up to its limit.
    """
    parts = [
        sum((pl.col(unit).fill_null(0.0) for unit in units.split("+")), pl.lit(0.0)) / limit for units, limit in limits.items()
    ]
    nearest = tasks.with_columns(nearness=pl.max_horizontal(parts).clip(0, 1))
    return nearest.filter(pl.col("nearness") < 1).with_columns(lost_ns=pl.col("duration_ns") * (1 - pl.col("nearness")))


def finding(
    facts: Facts, rule: str, looked_at: pl.DataFrame, slow: pl.DataFrame, *more: Evidence, confidence: float = 0.6
) -> Finding | None:
    """What is said of tasks that no unit limits; None where next to nothing would be gained.

    Args:
        facts: the trace.
        rule: name of the rule.
        looked_at: the tasks that it judges.
        slow: those that no unit limits, from ``unexplained``.
        more: further evidence.
        confidence: that the cause is named rightly.
    """
    lost = per_step(facts, slow, "lost_ns") if slow.height else 0.0
    if not matters(facts, lost):
        return None
    nearest = float((slow["nearness"] * slow["duration_ns"]).sum()) / max(float(slow["duration_ns"].sum()), 1)
    return Finding(
        rule=rule,
        confidence=confidence,
        evidence=(
            Evidence("limited_by_nothing", per_step(facts, slow), "ns", steps_of(slow), top(slow, "type", "lost_ns")),
            Evidence("busiest_unit", 100 * nearest, "%", per_step=False),
            Evidence("judged_tasks", per_step(facts, looked_at), "ns"),
            *more,
        ),
        saving=Saving.up_to(lost),
        step_ns=facts.step_ns,
        part="computing_ns",
        values={"operators": ", ".join(top(slow, "type", "lost_ns"))},
    )


def _bytes_of(tasks: pl.DataFrame) -> pl.Series:
    """Bytes that all tasks of the same name, shapes and types read and write together; one entry per task."""
    key = ["name", "input_shapes", "output_shapes", "input_types"]
    distinct = tasks.group_by(key).len()
    sizes = [
        count * (_size(inputs, types) + _size(outputs, types))
        for _, inputs, outputs, types, count in distinct.select(
            *(pl.col(name).cast(pl.String) for name in key), "len"
        ).iter_rows()
    ]
    known = distinct.select(key).with_columns(together=pl.Series(sizes, dtype=pl.Float64))
    return tasks.select(key).join(known, on=key, how="left", nulls_equal=True, maintain_order="left")["together"]


def _size(shapes: str | None, types: str | None) -> float:
    """Bytes of the tensors of a text of shapes, ``2,3;4``; a float, since hostile shapes have no bound."""
    names = (types or "").split(";")
    total = 0.0
    for number, shape in enumerate((shapes or "")[:_LONGEST].split(";")):
        elements = 1.0
        for axis in axes(shape):
            elements *= axis
        if shape.strip('" '):
            total += elements * _BYTES.get(names[min(number, len(names) - 1)].strip().upper(), _OTHER_BYTES)
    return total


def axes(shape: str) -> list[int]:
    """The axes of one shape, ``2,3``; none where it is not a shape."""
    parts = [part.strip() for part in shape.strip('" ').split(",")]
    return [int(part) for part in parts] if all(part.isdecimal() and len(part) < 13 for part in parts) else []
