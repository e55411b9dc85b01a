"""What a step works on longest: operators, collectives and kernels by device time, on a CPU operators by self time; per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from steplens.analysis.steps.basis import step_basis
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY, SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

#: kind of a row that is no task of a device
OPERATOR = "operator"
#: kind of a row that has the tasks which the calls of one operator launched, its copies and memory sets with its kernels
LAUNCHED = "launched"
#: the same of an operator that only copies
LAUNCHED_COPY = "launched copy"
#: this share of a device's computing is known to be launched by operators; where it is less, kernels go by their own names
_LEAST_LAUNCHED = 0.9

COLUMNS = table_schema(
    "name: String, kind: String, step_ns: Float64, calls: Float64, calls_least: Int64, calls_most: Int64, ratio: Float64, "
    "steps: Int64"
)
_KEYS = ["name", "kind"]


def step_work(traces: Sequence[Trace]) -> pl.DataFrame:
    """What takes the most time of a step, the longest first: of each trace the mean over its chosen steps, and their mean.

    On a device: what it computes, copies and sets by the operator that launched it, as ``device_self_ns`` of ``operators`` (where
    90 % of the computing has one; else, and where it has none, by the names of the tasks), and its collectives by operation. What
    one call launched as a graph keeps the names of its kernels. On a CPU, and where a device's tasks were not recorded: the self
    time of operators; user annotations are no operators.

    Work belongs to the step that launched it; work that ran at the same time on two streams counts twice. Traces without any
    such work do not count. Without steps the rows are sums of the whole recording, and ``steps`` is 0.

    Source: ``kernels``, ``communication``; or ``ops``.

    Args:
        traces: of one run.

    Returns:
        name, kind (LAUNCHED, LAUNCHED_COPY, OPERATOR, KIND_COMPUTE, KIND_COPY or KIND_COMMUNICATION), step_ns,
        calls (of OPERATOR; else of tasks, of LAUNCHED of kernels alone),
        calls_least and calls_most (in one step of one trace, whole numbers; 0 where a step has none of the name),
        ratio (of all such work of a step, 0 to 1) and steps (of how many steps of all traces the figures are).
    """
    counted = [mean for trace in traces if (mean := mean_work(trace)).total_ns > 0]
    steps_counted = sum(mean.steps for mean in counted)
    if counted:
        rows = (
            join_rows(mean.rows for mean in counted)
            .group_by(_KEYS)
            .agg(
                pl.col("step_ns", "calls").sum() / len(counted),
                # a step without any of the name has no row
                calls_least=pl.when(pl.col("steps").sum() == steps_counted).then(pl.col("calls_least").min()).otherwise(0),
                calls_most=pl.col("calls_most").max(),
            )
        )
        whole_ns = sum(mean.total_ns for mean in counted) / len(counted)
    else:
        sums = join_rows(_sum_work(_work_pieces(trace)) for trace in traces) if traces else pl.DataFrame(schema=COLUMNS)
        rows = sums.group_by(_KEYS).agg(pl.col("step_ns", "calls").sum())
        rows = rows.with_columns(calls_least="calls", calls_most="calls")
        whole_ns = float(sums["step_ns"].sum())
    return (
        rows.filter(pl.col("step_ns") > 0)
        .with_columns(ratio=pl.col("step_ns") / whole_ns, steps=pl.lit(steps_counted))
        .sort("step_ns", *_KEYS, descending=[True, False, False])
        .select(cast_columns(COLUMNS))
    )


def _work_pieces(trace: Trace) -> pl.LazyFrame:
    """Every piece of work: name, kind, step, length, and counted, 0 for what is no call of its row."""
    if trace.required("kernels").select(pl.len()).collect().item() and not cpu_is_device(trace):
        operation = pl.coalesce(pl.col("operation").cast(pl.String), pl.col("name").cast(pl.String))
        return pl.concat(
            [
                _task_pieces(trace),
                trace.required("communication").select(
                    operation.alias("name"),
                    pl.lit(KIND_COMMUNICATION).alias("kind"),
                    "step",
                    length=pl.col("end_ns") - pl.col("start_ns"),
                    counted=pl.lit(1),
                ),
            ]
        )
    calls = trace.required("ops").filter(pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]))
    return calls.select(
        pl.col("name").cast(pl.String), pl.lit(OPERATOR).alias("kind"), "step", length="self_ns", counted=pl.lit(1)
    )


def _task_pieces(trace: Trace) -> pl.LazyFrame:
    """Every task of a device that computes or copies: its operator's name or its own, kind, step, length and counted."""
    tasks = (
        trace.required("kernels")
        .filter(pl.col("kind").cast(pl.String).is_in([KIND_COMPUTE, KIND_COPY]))
        .select(pl.col("name", "kind").cast(pl.String), "step", "op", "correlation", length="self_ns")
    )
    calls = trace.required("ops").filter(pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]))
    alone = pl.col("correlation").is_null() | ~pl.col("correlation").is_duplicated()
    launched = (
        tasks.join(calls.select(op="id", operator=pl.col("name").cast(pl.String)), on="op", how="left")
        .with_columns(operator=pl.when(alone).then("operator"))
        .collect()
    )
    computing = launched.filter(pl.col("kind") == KIND_COMPUTE)
    if float(computing.drop_nulls("operator")["length"].sum()) < _LEAST_LAUNCHED * float(computing["length"].sum()):
        launched = launched.with_columns(operator=pl.lit(None, pl.String))
    computes = (pl.col("kind") == KIND_COMPUTE).any().over("operator")
    of_operator = pl.when(computes).then(pl.lit(LAUNCHED)).otherwise(pl.lit(LAUNCHED_COPY))
    kind = pl.when(pl.col("operator").is_not_null()).then(of_operator).otherwise("kind")
    # a memory set beside the kernels of its operator is none of them
    counted = ((pl.col("kind") == KIND_COMPUTE) | ~computes | pl.col("operator").is_null()).cast(pl.Int32)
    pieces = launched.select(pl.coalesce("operator", "name").alias("name"), kind.alias("kind"), "step", "length", counted=counted)
    return pieces.lazy()


def _steps_of(trace: Trace) -> tuple[int, ...]:
    """The chosen steps; on a device those of which its work was recorded."""
    return step_basis(trace).device_steps


def _sum_work(work: pl.LazyFrame) -> pl.DataFrame:
    sums = work.drop_nulls("length").group_by(*_KEYS)
    return sums.agg(step_ns=pl.col("length").sum().cast(pl.Float64), calls=pl.col("counted").sum().cast(pl.Float64)).collect()


class MeanWork(NamedTuple):
    """The work of a step of one trace.

    Attributes:
        rows: of each name the mean time and calls of a step, the fewest and most calls of the steps that have any, and how many
            have.
        steps: of how many steps they are means.
        total_ns: how long all work of a step takes.
    """

    rows: pl.DataFrame
    steps: int
    total_ns: float


@once_per_trace
def mean_work(trace: Trace) -> MeanWork:
    """The work of a step of one trace, over its chosen steps."""
    steps = _steps_of(trace)
    in_steps = _work_pieces(trace).filter(pl.col("step").is_in(list(steps))).drop_nulls("length").group_by(*_KEYS, "step")
    by_step = in_steps.agg(
        step_ns=pl.col("length").sum().cast(pl.Float64), calls=pl.col("counted").sum().cast(pl.Float64)
    ).collect()
    means = by_step.group_by(*_KEYS).agg(
        pl.col("step_ns", "calls").sum() / max(len(steps), 1),
        calls_least=pl.col("calls").min(),
        calls_most=pl.col("calls").max(),
        steps=pl.len(),
    )
    means = means.sort(_KEYS)
    return MeanWork(means, len(steps), float(means["step_ns"].sum()))
