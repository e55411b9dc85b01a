"""The parts of the steps of every rank of a job, as far as they tell of its parallelism: computing, communication, receiving."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import polars as pl

from steplens.analysis.step_trace.step_trace import step_trace
from steplens.analysis.steps.choice import chosen_steps, incomplete_steps
from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.device_work import device_parts
from steplens.analysis.steps.given_steps import given_steps
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.overlap import length_inside, merged, subtract, union
from steplens.analysis.tools.parallel import Layout, by_rank, layout
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import RECEIVE
from steplens.trace.trace import Trace

COLUMNS = table_schema(
    "rank, stage, step, total_ns, interval_ns, forward_backward_ns, tail_ns, computation_ns, communication_alone_ns, stage_ns, "
    "receive_alone_ns, collective_alone_ns"
)
#: the parts, in order
PARTS = tuple(COLUMNS)[3:]
#: part -> its column (ms) in the source's own analysis
_ANALYSED = {
    "computation_ns": "computation_time",
    "communication_alone_ns": "communication_alone_time",
    "stage_ns": "stage_time",
    "receive_alone_ns": "receive_alone_time",
    "collective_alone_ns": "collective_communication_alone_time",
}
#: part -> its column (counts of 10 ns) in the source's means of the step trace
_MEANS = {"total_ns": "total", "interval_ns": "iteration_interval", "forward_backward_ns": "fp_and_bp", "tail_ns": "tail"}
_TICK_NS = 10


@once_per_run
def cluster_steps(traces: Sequence[Trace]) -> pl.DataFrame:
    """The steps of all ranks, one row per rank and step; columns as in ``COLUMNS``, ns, parts that nothing tells are null.

    1. ``total``, ``interval``, ``forward_backward`` and ``tail`` are those of ``step_trace``.
    2. Of the device period of a step (``analysis.steps.device``), whoever launched the work: ``communication_alone``:
       communication outside computing; ``computation`` = period - communication_alone; ``receive_alone``: receives outside
       everything else; ``stage`` = period - receive_alone; ``collective_alone``: communication other than receives, outside
       computing. MindSpore's own analysis of them is taken where it is there, since the device tasks that it was made of are
       mostly not; else they are computed from the device's tasks.

    Args:
        traces: of one job; a job of one rank is one too.
    """
    job = layout(traces)
    frames = (_rank_steps(trace, job, rank) for rank, windows in by_rank(traces).items() for trace in windows)
    rows = join_rows(itertools.chain([pl.DataFrame(schema=COLUMNS)], frames))
    return rows.unique(["rank", "step"], keep="first").sort("rank", "step")


def _rank_steps(trace: Trace, job: Layout, rank: int) -> pl.DataFrame:
    constants = {"rank": pl.lit(rank, pl.Int64), "stage": pl.lit(job.stage_of(rank), pl.Int64)}
    return trace.once(parts_of_steps).with_columns(**constants).select(cast_columns(COLUMNS))


def parts_of_steps(trace: Trace) -> pl.DataFrame:
    """The steps of one rank with the parts that ``cluster_steps`` gives of each, in no order of columns."""
    points = trace.once(step_trace).select("step", *_MEANS)
    analysed = stored_parts(trace).filter(pl.col("step").is_not_null())
    if analysed.height:
        steps = points.join(analysed, on="step", how="full", coalesce=True)
    elif trace.is_results_only:
        steps = given_steps(trace).select(
            "step",
            "stage_ns",
            computation_ns="computing_ns",
            communication_alone_ns="communication_not_overlapped_ns",
            **{name: pl.lit(None, dtype=pl.Int64) for name in (*_MEANS, "receive_alone_ns", "collective_alone_ns")},
        )
    else:
        steps = points.join(_from_tasks(trace), on="step", how="left")
    return steps


def stored_parts(trace: Trace) -> pl.DataFrame:
    """What the source's own analysis says of the steps of one rank, also where no task was recorded; no rows without it.

    Source: ``ascend_cluster_analyse_*.csv``, kept as the source table ``ascend_cluster_analyse``, whose times are ms.

    Returns:
        step (null: the mean over steps), computation_ns, communication_alone_ns, stage_ns, receive_alone_ns,
        collective_alone_ns; null is what it does not know.
    """
    schema = dict.fromkeys(("step", *_ANALYSED), pl.Int64)
    table = trace.source_table("ascend_cluster_analyse")
    if table is None or not set(_ANALYSED.values()) & set(table.columns):
        return pl.DataFrame(schema=schema)
    missing = pl.lit(None, dtype=pl.Float64)
    parts = {
        part: (pl.col(name).cast(pl.Float64, strict=False) if name in table.columns else missing)
        for part, name in _ANALYSED.items()
    }
    number = pl.col("step_num").cast(pl.Int64, strict=False)
    times = {part: (ms * 1e6).round().cast(pl.Int64, strict=False) for part, ms in parts.items()}
    return table.select(number.alias("step"), **times)


def _from_tasks(trace: Trace) -> pl.DataFrame:
    """The parts from the device's tasks, of the steps that have any; without computing tasks nothing tells what they cover."""
    periods = device_periods(trace)
    start, end = periods["start_ns"].fill_null(0).to_numpy(), periods["end_ns"].fill_null(0).to_numpy()
    computing = device_parts(trace).computing
    operations = trace.required("communication").select("start_ns", "end_ns", "kind").drop_nulls(["start_ns", "end_ns"]).collect()
    receives = (pl.col("kind").cast(pl.String) == RECEIVE).fill_null(False)
    received, not_received = merged(operations.filter(receives)), merged(operations.filter(~receives))
    alone = {
        "communication_alone_ns": subtract(union(received, not_received), computing),
        "receive_alone_ns": subtract(subtract(received, computing), not_received),
        "collective_alone_ns": subtract(not_received, computing),
    }
    parts = periods.with_columns(pl.Series(name, length_inside(part, start, end)) for name, part in alone.items())
    period = pl.col("period_ns")
    incomplete = sorted(incomplete_steps(trace))
    return parts.filter("recorded", pl.col("computing_ns") > 0, ~pl.col("step").is_in(incomplete)).select(
        "step", *alone, computation_ns=period - pl.col("communication_alone_ns"), stage_ns=period - pl.col("receive_alone_ns")
    )


def rank_means(traces: Sequence[Trace], *, step: int | None = None) -> pl.DataFrame:
    """The parts of a step of every rank: means over the steps that figures are of (``chosen_steps``), or those of one step.

    Where a source keeps means of its own they count: its files may hold fewer steps than the means are of, and health says
    so. A row of means without a total is none.

    Args:
        traces: of one job.
        step: only this step.

    Returns:
        rank, stage, ``PARTS`` as in ``cluster_steps`` (floats), steps (how many count) and stored (whether the means are those
        of the source), in order of rank. With ``step``, ranks that have not recorded it are left out.
    """
    step_parts = cluster_steps(traces)
    counted = step_parts.filter(pl.col("step") == step) if step is not None else of_chosen_steps(step_parts, traces)
    means = counted.group_by("rank", "stage", maintain_order=True).agg(pl.col(PARTS).cast(pl.Float64).mean(), steps=pl.len())
    means = means.with_columns(stored=pl.lit(False)).sort("rank")
    if step is not None:
        return means
    rows = [_stored_means(windows[0], rank) for rank, windows in by_rank(traces).items()]
    stored = pl.DataFrame(rows, schema={"rank": pl.Int64, **dict.fromkeys(PARTS, pl.Float64)}, orient="row")
    measured_steps = stored.filter(pl.any_horizontal(pl.col(PARTS).is_not_null())).with_columns(known=pl.lit(True))
    joined = means.join(measured_steps, on="rank", how="left", suffix="_stored")
    values = {part: pl.coalesce(f"{part}_stored", part) for part in PARTS}
    return joined.with_columns(**values, stored=pl.col("known").fill_null(False)).select(means.columns)


def of_chosen_steps(rows: pl.DataFrame, traces: Sequence[Trace]) -> pl.DataFrame:
    """Those of some rows (rank, step) that are of steps which figures are of; of a rank that has none of these all its rows."""
    pairs = [
        {"rank": rank, "step": step}
        for rank, windows in by_rank(traces).items()
        for window in windows
        for step in chosen_steps(window).steps
    ]
    chosen_pairs = pl.DataFrame(pairs, schema={"rank": pl.Int64, "step": pl.Int64}).unique()
    chosen_rows = rows.join(chosen_pairs, on=["rank", "step"], how="semi", maintain_order="left")
    return pl.concat([chosen_rows, rows.join(chosen_rows, on="rank", how="anti", maintain_order="left")])


def _stored_means(trace: Trace, rank: int) -> tuple[int | float | None, ...]:
    """The means that a source keeps, ns; None for parts of which it keeps none."""
    part_times: dict[str, float] = {}
    # beside recorded tasks such a file completes them and may be of another recording
    is_flat = trace.meta_value("source_format") == "mindspore_flat"
    table = trace.source_table("step_trace_average") if is_flat else None
    if table is not None and table.height:
        row = {name: _to_float(value) for name, value in table.row(0, named=True).items()}
        if (row.get("total") or 0) > 0:
            part_times.update({part: value * _TICK_NS for part, name in _MEANS.items() if (value := row.get(name)) is not None})
    means = stored_parts(trace)
    if means.height > 1 and means["step"].null_count():
        last = means.filter(pl.col("step").is_null()).row(0, named=True)
        part_times.update({part: float(last[part]) for part in _ANALYSED if last[part] is not None})
    return (rank, *(part_times.get(part) for part in PARTS))


def _to_float(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None
