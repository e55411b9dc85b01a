"""Which rule judges a task of an AI core by its performance counters, and how much of its time nothing explains.

Every task is judged by one rule: matrix products, attention, vector operators or the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import rule
from steplens.advice.rules.tools.tasks import SHORT_NS, has_match, is_significant, per_step, timed_evidence, top_values
from steplens.analysis.device.core_utilization import UNITS
from steplens.trace.building.devices import NPU
from steplens.trace.health import KERNEL_DETAILS, KERNEL_TIMES

MATMUL, ATTENTION, VECTOR, OTHER = "matmul", "attention", "vector", "other"
_RESTS_ON = (KERNEL_DETAILS, KERNEL_TIMES)
_VECTOR_CORES = ("AI_VECTOR_CORE", "MIX_AIV")
#: an operator type counts from this share of the device's time on, or from this time on
_TYPE_SHARE, _TYPE_NS = 0.01, 1_000_000_000
_LARGE_BYTES = 100 << 20
_BYTES = {
    **dict.fromkeys(("INT8", "UINT8", "BOOL"), 1),
    **dict.fromkeys(("FLOAT", "FLOAT32", "INT32", "UINT32"), 4),
    **dict.fromkeys(("DOUBLE", "INT64", "UINT64"), 8),
}
#: float16, bfloat16 and whatever else is not listed
_OTHER_BYTES = 2
_LONGEST = 10_000


def tasks_of_rule(facts: Facts, rule: str) -> pl.DataFrame:
    """The measured tasks that ``rule`` judges."""
    return facts.once(_tasks_by_rule)[rule]


def _tasks_by_rule(facts: Facts) -> dict[str, pl.DataFrame]:
    tasks = facts.measured
    attention, product = (
        tasks.select(has_match(tasks, pattern, "type")).to_series() for pattern in ("(?i)flash_?attention", "(?i)matmul")
    )
    matmul = product & ~attention & (tasks["core"] == "AI_CORE").fill_null(False)
    large = tasks.filter(matmul)
    large = large.with_columns(large=_bytes_of(large) >= _LARGE_BYTES)
    computing_ns = max(int(facts.computing["duration_ns"].sum()), 1)
    sums = tasks.group_by("type").agg(pl.col("duration_ns").sum())
    long = sums.filter((pl.col("duration_ns") >= _TYPE_SHARE * computing_ns) | (pl.col("duration_ns") >= _TYPE_NS))["type"]
    vector = ~attention & ~product & tasks["core"].is_in(_VECTOR_CORES).fill_null(False) & tasks["type"].is_in(long.implode())
    other_tasks = tasks.filter(~attention & ~matmul & ~vector)
    small = large.filter(~pl.col("large")).drop("large")
    return {
        ATTENTION: tasks.filter(attention),
        MATMUL: large.filter("large").drop("large"),
        VECTOR: tasks.filter(vector),
        OTHER: pl.concat([other_tasks, small]),
    }


def tasks_below_limits(tasks: pl.DataFrame, limits: Mapping[str, float]) -> pl.DataFrame:
    """Those of ``tasks`` that none of its units limits, with ``nearness`` and ``lost_ns``.

    Args:
        tasks: rows of ``tasks_of_rule``.
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


def _unit_finding(
    facts: Facts, rule: str, looked_at: pl.DataFrame, slow: pl.DataFrame, *more: Evidence, confidence: float = 0.6
) -> Finding | None:
    """What is said of the tasks that no unit limits (``slow``, from ``tasks_below_limits``); None where it gains little."""
    lost = per_step(facts, slow, "lost_ns") if slow.height else 0.0
    if not is_significant(facts, lost):
        return None
    nearest = float((slow["nearness"] * slow["duration_ns"]).sum()) / max(float(slow["duration_ns"].sum()), 1)
    evidence = [
        timed_evidence(facts, "limited_by_nothing", slow, "type", weight="lost_ns"),
        Evidence("busiest_unit", 100 * nearest, "%", per_step=False),
        Evidence("judged_tasks", per_step(facts, looked_at), "ns"),
        *more,
    ]
    values = {"operators": ", ".join(top_values(slow, "type", "lost_ns"))}
    return facts.make_finding(rule, evidence, Saving.up_to(lost), confidence=confidence, part="computing_ns", values=values)


def _bytes_of(tasks: pl.DataFrame) -> pl.Series:
    """Bytes that all tasks of the same name, shapes and types read and write together; one entry per task."""
    key = ["name", "input_shapes", "output_shapes", "input_types"]
    distinct = tasks.group_by(key).len()
    sizes = [
        count * (_tensor_bytes(inputs, types) + _tensor_bytes(outputs, types))
        for _, inputs, outputs, types, count in distinct.select(
            *(pl.col(name).cast(pl.String) for name in key), "len"
        ).iter_rows()
    ]
    sized = distinct.select(key).with_columns(together=pl.Series(sizes, dtype=pl.Float64))
    return tasks.select(key).join(sized, on=key, how="left", nulls_equal=True, maintain_order="left")["together"]


def _tensor_bytes(shapes: str | None, types: str | None) -> float:
    """Bytes of the tensors of a text of shapes, ``2,3;4``; a float, since hostile shapes have no bound."""
    names = (types or "").split(";")
    total = 0.0
    for number, shape in enumerate((shapes or "")[:_LONGEST].split(";")):
        elements = 1.0
        for axis in axes_of_shape(shape):
            elements *= axis
        if shape.strip('" '):
            total += elements * _BYTES.get(names[min(number, len(names) - 1)].strip().upper(), _OTHER_BYTES)
    return total


def axes_of_shape(shape: str) -> list[int]:
    """The axes of one shape, ``2,3``; none where it is not a shape."""
    parts = [part.strip() for part in shape.strip('" ').split(",")]
    return [int(part) for part in parts] if all(part.isdecimal() and len(part) < 13 for part in parts) else []


#: from this share of a step on it matters although nothing tells what it costs
_MUCH = 0.1


def _slow_or_awkward(
    facts: Facts, rule: str, tasks: pl.DataFrame, slow: pl.DataFrame, is_awkward: Callable[[str], bool]
) -> Iterator[Finding]:
    """The slow tasks with their price; where they cost next to nothing, those with awkward shapes (``2,3;4``) without."""
    distinct = tasks.select("input_shapes").unique()
    flags = [is_awkward(shapes or "") for shapes in distinct["input_shapes"].cast(pl.String)]
    flagged = distinct.with_columns(awkward=pl.Series(flags, dtype=pl.Boolean))
    awkward = tasks.join(flagged, on="input_shapes", nulls_equal=True).filter("awkward")
    length = per_step(facts, awkward) if awkward.height else 0.0
    evidence = [timed_evidence(facts, "awkward_axes", awkward, "input_shapes")] if length else []
    finding = _unit_finding(facts, rule, tasks, slow, *evidence)
    if finding is not None:
        yield finding
    elif is_significant(facts, length):
        values = {"operators": ", ".join(top_values(awkward, "type"))}
        yield facts.make_finding(
            rule, evidence, confidence=0.5, values=values, urgency=MEDIUM if length >= _MUCH * facts.step_ns else LOW
        )


_FORWARD, _BACKWARD = {"aic_mte2": 0.8, "aiv_vec": 0.75}, {"aic_mte2": 0.8, "aic_fixpipe": 0.75}
_AXIS = 128


@rule(rests_on=_RESTS_ON, devices=(NPU,))
def attention_performance(facts: Facts) -> Iterator[Finding]:
    """Fused attention that no unit of its core limits, or whose head or sequence is of an awkward length.

    Below 80 % of reading and 75 % of vectors (forward) or of writing (backward); axes that are no multiple of 128.

    The head's axis is the last of the query, the sequence the longest of the others but the first.
    """
    tasks = tasks_of_rule(facts, ATTENTION)
    if tasks.is_empty():
        return
    backward = pl.col("type").cast(pl.String).str.contains("(?i)grad")
    slow = pl.concat(
        [tasks_below_limits(tasks.filter(~backward), _FORWARD), tasks_below_limits(tasks.filter(backward), _BACKWARD)]
    )
    yield from _slow_or_awkward(facts, attention_performance.name, tasks, slow, _is_awkward_attention)


def _is_awkward_attention(shapes: str) -> bool:
    query = axes_of_shape(shapes.partition(";")[0])
    return len(query) >= 3 and bool(query[-1] % _AXIS or max(query[1:-1]) % _AXIS)


_MATMUL_LIMITS = {"aic_mac": 0.8, "aic_mte2": 0.95}
_INNER_AXIS = 256


@rule(rests_on=_RESTS_ON, devices=(NPU,))
def matmul_performance(facts: Facts) -> Iterator[Finding]:
    """Large matrix products that neither their matrix unit nor their memory limits, or whose rows are of an awkward length.

    Products that move 100 MB in all: those below 80 % of the matrix unit and 95 % of reading, and those of which an operand's
    inner axis is no multiple of 256.
    """
    tasks = tasks_of_rule(facts, MATMUL)
    if tasks.is_empty():
        return
    yield from _slow_or_awkward(
        facts, matmul_performance.name, tasks, tasks_below_limits(tasks, _MATMUL_LIMITS), _is_awkward_product
    )


def _is_awkward_product(shapes: str) -> bool:
    """Whether one of the first two operands has an inner axis that is no multiple of 256."""
    inner = [axis[-1] for axis in map(axes_of_shape, shapes.split(";")[:2]) if axis]
    return any(axis % _INNER_AXIS for axis in inner)


UNIT_LIMITS = dict.fromkeys((unit for unit in UNITS if unit != "aic_fixpipe"), 0.8)


@rule(rests_on=_RESTS_ON, devices=(NPU,))
def unbound_operators(facts: Facts) -> Iterator[Finding]:
    """Operators of AI cores in which no unit is busy most of the time, other than those that have rules of their own.

    Tasks of 20 us and more in which no unit works 80 % of the time.
    """
    tasks = tasks_of_rule(facts, OTHER)
    if tasks.is_empty():
        return
    tasks = tasks.filter(pl.col("duration_ns") >= SHORT_NS)
    if tasks.height and (finding := _unit_finding(facts, unbound_operators.name, tasks, tasks_below_limits(tasks, UNIT_LIMITS))):
        yield finding


VECTOR_LIMITS = {"aiv_vec": 0.7, "aiv_mte2": 0.7, "aiv_mte3": 0.7, "aiv_vec+aiv_mte2+aiv_mte3": 0.9}


@rule(rests_on=_RESTS_ON, devices=(NPU,))
def vector_performance(facts: Facts) -> Iterator[Finding]:
    """Vector operators whose core neither computes nor moves data most of the time.

    Of the operator types that take 1 % of the device's time, the tasks in which no unit reaches 70 %, nor all 90 %.
    """
    tasks = tasks_of_rule(facts, VECTOR)
    if tasks.height and (
        finding := _unit_finding(facts, vector_performance.name, tasks, tasks_below_limits(tasks, VECTOR_LIMITS))
    ):
        yield finding
