"""How much arithmetic every rank does in a step, and how fast: floating-point operations and operations per second."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.operators.flops import flops_of_steps
from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.parallel import Layout, by_rank
from steplens.analysis.tools.schemas import table_schema
from steplens.trace.trace import Trace

WORK = table_schema(
    "rank, flops: Float64, flops_per_s: Float64, utilization_percent: Float64, normalized: Float64, source: String"
)
OPERATORS = table_schema(
    "name: String, cube_flops: Float64, cube_flops_per_s: Float64, cube_utilization_percent: Float64, vector_flops: Float64, "
    "vector_flops_per_s: Float64, vector_utilization_percent: Float64"
)
_MEGA, _GIGA = 1e6, 1e9
#: column -> the source's name of it, and its unit
_SOURCE = {
    "cube_flops": ("MFLOPs(10^6 cube)", _MEGA),
    "cube_flops_per_s": ("GFLOPS(10^9 cube)", _GIGA),
    "cube_utilization_percent": ("FLOPS utilization(cube)", 1.0),
    "vector_flops": ("MFLOPs(10^6 vector)", _MEGA),
    "vector_flops_per_s": ("GFLOPS(10^9 vector)", _GIGA),
    "vector_utilization_percent": ("FLOPS utilization(vec)", 1.0),
}
#: who counted
COUNTERS_OF_DEVICE = "device counters"
OPERATORS_OF_DEVICE = "device counters of operators"
SHAPES_OF_OPERATORS = "operator shapes"


def work(traces: Sequence[Trace]) -> pl.DataFrame:
    """Work of a step of every rank, columns as in ``WORK``; ranks of which nothing tells are left out.

    ``source`` says who counted. The device's counters (MindSpore's ``flops_summary``) are taken where they are there; their
    ``flops_per_s`` is MindSpore's mean over operators; without it what they counted of every operator is summed
    (``operator_totals``). Else the operations that follow from shapes (``flops.counted_calls``)
    are summed per step, and ``flops_per_s`` = operations / length of the steps. ``normalized`` is the share of the rank that
    does the most; ranks are compared only where one kind of source counted them all.
    """
    rows = []
    for rank, windows in by_rank(traces).items():
        work_row = next((row for trace in windows if (row := work_of(trace)) is not None), None)
        if work_row is not None:
            rows.append({"rank": rank, **work_row})
    table = pl.DataFrame(rows, schema={name: dtype for name, dtype in WORK.items() if name != "normalized"})
    most = pl.when(pl.col("source").n_unique() == 1).then(pl.col("flops").max())
    return table.with_columns(normalized=pl.col("flops") / most).select(list(WORK))


def work_of(trace: Trace) -> dict[str, object] | None:
    """Work of a step of one trace: flops, flops_per_s, utilization_percent and source of ``work``; None where nothing tells."""
    counted = _read_flops_summary(trace)
    if counted is None and (totals := operator_totals(trace)) is not None:
        flops, flops_per_s = totals
        rate = {"flops": flops, "flops_per_s": flops_per_s}
        counted = {**rate, "utilization_percent": None, "source": OPERATORS_OF_DEVICE}
    return counted or _from_shapes(trace)


def _read_flops_summary(trace: Trace) -> dict[str, object] | None:
    table = trace.source_table("flops_summary")
    if table is None or not {"FLOPs", "FLOPS"} <= set(table.columns):
        return None
    values = {name: table[name].cast(pl.Float64, strict=False)[0] for name in table.columns}
    if values["FLOPs"] is None:
        return None
    speed = values["FLOPS"]
    return {
        "flops": values["FLOPs"] * _MEGA,
        "flops_per_s": None if speed is None else speed * _GIGA,
        "utilization_percent": values.get("FLOPS_Utilization"),
        "source": COUNTERS_OF_DEVICE,
    }


def _from_shapes(trace: Trace) -> dict[str, object] | None:
    steps = chosen_step_times(trace).select("step", "step_time_ns")
    if not steps.height:
        return None
    calls = flops_of_steps(trace).filter(pl.col("step").is_in(steps["step"].to_list()))
    total = int(calls["flops"].sum())
    if not total:
        return None
    return {
        "flops": total / steps.height,
        "flops_per_s": total / max(int(steps["step_time_ns"].sum()), 1) * 1e9,
        "utilization_percent": None,
        "source": SHAPES_OF_OPERATORS,
    }


def operator_work(trace: Trace) -> pl.DataFrame:
    """Work of every operator as the device counted it, columns as in ``OPERATORS``; no rows where nothing was counted.

    Columns are taken by their names: files of seven columns have the vector units' figures behind the cube units'.
    """
    table = trace.source_table("flops")
    if table is None:
        return pl.DataFrame(schema=OPERATORS)
    missing = pl.lit(None, dtype=pl.Float64)
    figures = {
        column: pl.col(name).cast(pl.Float64, strict=False) * unit if name in table.columns else missing
        for column, (name, unit) in _SOURCE.items()
    }
    return table.select(name="full_kernel_name", **figures)


def operator_totals(trace: Trace) -> tuple[float, float] | None:
    """Operations of all operators of a step, and per second of their own time: total / total, not a mean of rates.

    Source: ``operator_work`` and the device times of the same operators; None where either is missing.
    """
    details = trace.source_table("aicore_intermediate_detail")
    counted = operator_work(trace)
    if details is None or not counted.height:
        return None
    ms_of = pl.col("task_duration").cast(pl.Float64, strict=False)
    times = details.select(name="full_kernel_name", ms=ms_of).unique("name", keep="first")
    joined = counted.join(times, on="name").drop_nulls("ms")
    flops = joined.select(pl.col("cube_flops").fill_null(0).sum() + pl.col("vector_flops").fill_null(0).sum()).item()
    ms = joined["ms"].sum()
    return (flops, flops / ms * 1e3) if ms > 0 else None


def stage_work(table: pl.DataFrame, job: Layout) -> dict[int, float]:
    """Mean work of a rank of every pipeline stage, from ``work``."""
    stages: dict[int, list[float]] = {}
    for rank, flops in table.select("rank", "flops").iter_rows():
        stages.setdefault(job.stage_of(rank), []).append(flops)
    return {stage: sum(values) / len(values) for stage, values in sorted(stages.items())}
