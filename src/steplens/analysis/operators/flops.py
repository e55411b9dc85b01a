"""How much arithmetic the operators did, how fast, and how close that is to what the device can do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from steplens.analysis.device.device_peaks import device_peak
from steplens.analysis.operators.flop_formulas import NAMES, work_of
from steplens.analysis.steps.basis import divide_by_steps, step_basis
from steplens.analysis.tools.groups import first_rows, number_groups
from steplens.analysis.tools.names import of_calls
from steplens.analysis.tools.once import once_if_small
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.analysis.tools.source_lines import source_line
from steplens.trace.building.cpu_device import TYPE_BYTES
from steplens.trace.trace import Trace

_KEYS = {"name": ["name"], "shape": ["name", "input_shapes", "dtype"], "module": ["module"], "line": ["line"], "step": ["step"]}

#: one call that did arithmetic
CALLS = table_schema(
    "op: Int32, name: String, input_shapes: String, dtype: String, module: String, line: String, step, flops, bytes, time_ns, "
    "source: String"
)

#: "compute" or "memory": which of the two a group of calls can be limited by
COMPUTE, MEMORY = "compute", "memory"

COLUMNS = table_schema(
    "calls, flops, flops_percent: Float64, bytes, time_ns, flops_per_second: Float64, best_percent: Float64, "
    "flops_per_byte: Float64, attainable_flops_per_second: Float64, attained_percent: Float64, limit: String"
)


#: of a group of calls, what is a sum over them
_SUMS = ("calls", "flops", "bytes", "time_ns")


@once_if_small
def counted_calls(trace: Trace) -> pl.DataFrame:
    """The calls whose arithmetic is known, each multiplication once; columns as in ``CALLS``.

    1. A call's ``flops`` are what the profiler recorded (``source`` "recorded"), else what ``flop_formulas`` gives for its
       shapes ("shapes").
    2. Of nested calls the innermost that is known counts: ``aten::linear`` leaves the work to ``aten::addmm``.
    3. ``bytes``: of its inputs and outputs once each, null where the type is unknown or the formula does not tell;
       ``time_ns``: device time of the call and everything below it, null where no device task is known of it.

    Source: ``ops`` (input_shapes, input_types, arguments, flops, device_total_ns).
    """
    rows = _count_flops(trace, ["id", "name", "input_shapes", "input_types", "module", "stack", "step", "device_total_ns"])
    return rows.select(
        op="id",
        name=pl.col("name").cast(pl.String),
        input_shapes=pl.col("input_shapes").cast(pl.String),
        dtype=_first_input_type(rows["input_types"]),
        module=pl.col("module").cast(pl.String),
        line=source_line(rows["stack"]),
        step="step",
        flops="flops",
        bytes=pl.col("elements"),
        time_ns=pl.when(pl.col("device_total_ns") > 0).then("device_total_ns"),
        source=pl.when("recorded").then(pl.lit("recorded")).otherwise(pl.lit("shapes")),
    ).with_columns(
        bytes=pl.col("bytes") * pl.col("dtype").replace_strict(TYPE_BYTES, default=None, return_dtype=pl.Int64)
    ).select(cast_columns(CALLS))  # fmt: skip


@once_if_small
def flops_of_steps(trace: Trace) -> pl.DataFrame:
    """What ``counted_calls`` says of the arithmetic alone: step and flops of every call."""
    return _count_flops(trace, ["step"])


def _count_flops(trace: Trace, columns: Sequence[str]) -> pl.DataFrame:
    """Some columns of the calls that count, with flops, elements and whether the profiler recorded the flops."""
    ops = trace.required("ops")
    call_names = of_calls(trace)
    has_formula = call_names.filter(call_names.is_in(list(NAMES))).to_list()
    recorded = pl.col("flops").fill_null(0) > 0
    keys = ["name", "input_shapes", "arguments"]
    rows = (
        ops.filter(recorded | (pl.col("name").is_in(has_formula) & pl.col("input_shapes").is_not_null()))
        .select(list(dict.fromkeys(["id", "flops", *keys, *columns])))
        .collect()
    )
    number, count = number_groups(rows, keys)
    first = first_rows(number, count)
    different = rows.select(keys)[first[first >= 0]]
    works = [work_of(*row) for row in different.with_columns(pl.all().cast(pl.String)).iter_rows()]
    place = (np.cumsum(first >= 0) - 1)[number]
    was_recorded = pl.col("flops") > 0
    derived = pl.DataFrame([work or (None, None) for work in works], schema=table_schema("derived, elements"), orient="row")
    flops_of_call = pl.when(was_recorded).then("flops").otherwise("derived")
    rows = rows.hstack(derived[place]).with_columns(recorded=was_recorded, flops=flops_of_call)
    rows = rows.filter(pl.col("flops").is_not_null())
    return rows.filter(~_has_inner_call(rows["id"], trace)).select(*columns, "flops", "elements", "recorded")


def _has_inner_call(ids: pl.Series, trace: Trace) -> pl.Series:
    """Which of some calls have another one of them below themselves; shape of ``ids``."""
    parent = trace.required("ops").select(pl.col("parent").fill_null(-1)).collect()["parent"].to_numpy()
    is_parent = np.zeros(len(parent), dtype=bool)
    climbing = parent[ids.to_numpy()]
    # a damaged source may name parents that it does not have
    while len(climbing := climbing[(climbing >= 0) & (climbing < len(parent))]):
        fresh = np.zeros(len(parent), dtype=bool)
        fresh[climbing] = True
        climbing = np.flatnonzero(fresh & ~is_parent)
        is_parent[climbing] = True
        climbing = parent[climbing]
    return pl.Series(is_parent[ids.to_numpy()])


def _first_input_type(types: pl.Series) -> pl.Series:
    """Type of the first input."""
    distinct = types.unique().drop_nulls()
    first = distinct.cast(pl.String).str.split(";").list.first()
    dtypes: pl.Series = types.replace_strict(distinct, first, default=None, return_dtype=pl.String)
    return dtypes


def flops(trace: Trace, by: str = "name", *, per_step: bool = False) -> pl.DataFrame:
    """Arithmetic of the operators in groups, the most first, and where it lies on the device's roofline.

    Sums of ``counted_calls``, where the definitions are. Besides:

    * ``flops_percent``: share of the sum of all groups; ``bytes``: null unless known of every call of the group;
    * ``time_ns``: device time of the calls whose device time is known; ``flops_per_second``: arithmetic of these calls /
      time; ``best_percent``: of the fastest group of the table;
    * ``flops_per_byte`` = flops / bytes, the arithmetic intensity;
    * ``attainable_flops_per_second``: the lower one of the device's peak for the type and intensity x memory bandwidth,
      ``attained_percent`` how much of it was reached, ``limit`` which of the two is lower ("compute" or "memory"). Null where
      the device is not in ``device_peaks``, or the group mixes types.

    For steps, ``time_ns`` is the duration of the step and ``flops_per_second`` what the step achieves as a whole; its
    attainable rate is the peak, so ``attained_percent`` is the model FLOPs utilization of the step.

    Args:
        trace: one rank.
        by: "name", "shape" (name, input_shapes, dtype), "module", "line" (of the user's code, where stacks are recorded), "step".
        per_step: calls, arithmetic, bytes and time of a step, as means over the chosen steps (``analysis.steps.basis``); of
            single steps it changes nothing.

    Raises:
        ValueError: ``by`` is none of them.
    """
    if by not in _KEYS:
        raise ValueError(f"flops(by={by!r}): by must be one of {', '.join(_KEYS)}")
    keys = _KEYS[by]
    calls = counted_calls(trace)
    basis = step_basis(trace).steps if per_step and by != "step" else ()
    if basis:
        calls = calls.filter(pl.col("step").is_in(list(basis)))
    timed = pl.col("time_ns").is_not_null()
    groups = calls.group_by(keys).agg(
        calls=pl.len().cast(pl.Int64),
        flops=pl.col("flops").sum(),
        bytes=pl.when(pl.col("bytes").null_count() == 0).then(pl.col("bytes").sum()),
        time_ns=pl.when(timed.any()).then(pl.col("time_ns").sum()),
        timed_flops=pl.col("flops").filter(timed).sum(),
        type=pl.when(pl.col("dtype").n_unique() == 1).then(pl.col("dtype").first()),
    )
    if by == "step":
        ranges = trace.required("steps").select(step="id", step_ns=pl.col("end_ns") - pl.col("start_ns")).collect()
        groups = groups.drop_nulls("step").join(ranges, on="step").with_columns(time_ns="step_ns", timed_flops="flops")
    rate = pl.when(pl.col("time_ns") > 0).then(pl.col("timed_flops") * 1e9 / pl.col("time_ns"))
    groups = groups.with_columns(
        flops_percent=_percent_of(pl.col("flops"), pl.col("flops").sum()),
        flops_per_second=rate,
        best_percent=_percent_of(rate, rate.max()),
        flops_per_byte=pl.when(pl.col("bytes") > 0).then(pl.col("flops") / pl.col("bytes")),
    )
    groups = _against_peak(groups, trace, per_step=by == "step")
    order = ["step"] if by == "step" else ["flops", *keys]
    groups = groups.sort(order, descending=[column == "flops" for column in order], nulls_last=True)
    groups = groups.select(
        *(pl.col(key).cast(CALLS[key]) for key in keys), *(pl.col(name).cast(COLUMNS[name]) for name in COLUMNS)
    )
    return divide_by_steps(groups, _SUMS, len(basis)) if per_step and by != "step" else groups


def _against_peak(groups: pl.DataFrame, trace: Trace, *, per_step: bool) -> pl.DataFrame:
    peak = device_peak(trace)
    limits: list[float | None] = [
        None if peak is None else peak.flops_per_second(dtype, achieved)
        for dtype, achieved in groups.select("type", "flops_per_second").iter_rows()
    ]
    bandwidth = None if peak is None or per_step else peak.memory
    fed = pl.col("flops_per_byte") * pl.lit(bandwidth, dtype=pl.Float64)
    compute = pl.Series("compute", limits, dtype=pl.Float64)
    groups = groups.with_columns(compute, fed=fed)
    # a group whose bytes are unknown can only be held against the arithmetic
    attainable = pl.when(pl.col("compute").is_not_null()).then(pl.min_horizontal("compute", "fed"))
    limit = (
        pl.when(pl.col("fed") < pl.col("compute")).then(pl.lit(MEMORY)).when(pl.col("fed").is_not_null()).then(pl.lit(COMPUTE))
    )
    return groups.with_columns(
        attainable_flops_per_second=attainable,
        attained_percent=_percent_of(pl.col("flops_per_second"), attainable),
        limit=pl.when(pl.col("compute").is_not_null()).then(limit),
    )


def _percent_of(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part * 100 / whole)
