"""What a step works on longest: kernels and collectives where there is a device, operators on a CPU, per step."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

#: kind of a row that is no task of a device
OPERATOR = "operator"

COLUMNS = table_schema("name: String, kind: String, step_ns: Float64, calls: Float64, ratio: Float64, steps: Int64")
_KEYS = ["name", "kind"]


def step_work(traces: Sequence[Trace]) -> pl.DataFrame:
    """What takes the most time of a step, the longest first: of each trace the median over its chosen steps, and their mean.

    On a device: its tasks that compute, by name, and its collectives, by operation. On a CPU, and where a device's tasks
    were not recorded: the self time of operators; user annotations are no operators. Work belongs to the step that launched
    it; work that ran at the same time on two streams counts twice. In a step without a name its time is 0. Traces without
    any such work do not count. Without steps the rows are sums of the whole recording, and ``steps`` is 0.

    Source: ``kernels``, ``communication``; or ``ops``.

    Args:
        traces: of one run.

    Returns:
        name, kind (OPERATOR, KIND_COMPUTE or KIND_COMMUNICATION), step_ns, calls, ratio (of all such work of a step, 0 to 1)
        and steps (of how many steps of all traces the figures are).
    """
    works = [_work_pieces(trace) for trace in traces]
    medians = [_median_work(work, _steps_of(trace)) for work, trace in zip(works, traces, strict=True)]
    counted = [(frame, steps, total_ns) for frame, steps, total_ns in medians if total_ns > 0]
    if counted:
        rows = pl.concat(frame for frame, _, _ in counted).group_by(_KEYS).agg(pl.col("step_ns", "calls").sum() / len(counted))
        whole_ns = sum(total_ns for _, _, total_ns in counted) / len(counted)
    else:
        sums = pl.concat(_sum_work(work) for work in works) if works else pl.DataFrame(schema=COLUMNS)
        rows = sums.group_by(_KEYS).agg(pl.col("step_ns", "calls").sum())
        whole_ns = float(sums["step_ns"].sum())
    return (
        rows.filter(pl.col("step_ns") > 0)
        .with_columns(ratio=pl.col("step_ns") / whole_ns, steps=pl.lit(sum(steps for _, steps, _ in counted)))
        .sort("step_ns", *_KEYS, descending=[True, False, False])
        .select(cast_columns(COLUMNS))
    )


def _work_pieces(trace: Trace) -> pl.LazyFrame:
    """Every piece of work: name, kind, step and length."""
    if trace.required("kernels").select(pl.len()).collect().item() and not cpu_is_device(trace):
        tasks = trace.required("kernels").filter(pl.col("kind").cast(pl.String) == KIND_COMPUTE)
        operation = pl.coalesce(pl.col("operation").cast(pl.String), pl.col("name").cast(pl.String))
        return pl.concat(
            [
                tasks.select(pl.col("name", "kind").cast(pl.String), "step", length="self_ns"),
                trace.required("communication").select(
                    operation.alias("name"),
                    pl.lit(KIND_COMMUNICATION).alias("kind"),
                    "step",
                    length=pl.col("end_ns") - pl.col("start_ns"),
                ),
            ]
        )
    calls = trace.required("ops").filter(pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]))
    return calls.select(pl.col("name").cast(pl.String), pl.lit(OPERATOR).alias("kind"), "step", length="self_ns")


def _steps_of(trace: Trace) -> pl.DataFrame:
    """The chosen steps; on a device those of which its work was recorded."""
    steps = chosen_step_times(trace)
    return (steps.drop_nulls("device_period_ns") if trace.has_accelerator else steps).select("step").unique()


def _sum_work(work: pl.LazyFrame, *keys: str) -> pl.DataFrame:
    sums = work.drop_nulls("length").group_by(*_KEYS, *keys)
    return sums.agg(step_ns=pl.col("length").sum().cast(pl.Float64), calls=pl.len().cast(pl.Float64)).collect()


def _median_work(work: pl.LazyFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, int, float]:
    """Of each name the median time and calls of a step; how many steps these are, and how long all work of a step takes."""
    sums = _sum_work(work.join(steps.lazy(), on="step"), "step")
    total_ns = _padded_median(pl.col("step_ns"), steps.height)
    totals = sums.group_by("step").agg(pl.col("step_ns").sum()).select(total_ns)
    whole_ns = float(totals.item() or 0.0) if sums.height else 0.0
    columns = [_padded_median(pl.col(name), steps.height).alias(name) for name in ("step_ns", "calls")]
    return sums.group_by(_KEYS).agg(columns), steps.height, whole_ns


def _padded_median(values: pl.Expr, count: int) -> pl.Expr:
    """The median of so many numbers, of which those that are not there are 0."""
    ordered = values.sort(descending=True)
    # the i-th largest of them: beyond those that are there, 0
    lower, upper = (ordered.slice(place, 1).first().fill_null(0.0) for place in ((count - 1) // 2, count // 2))
    return (lower + upper) / 2
