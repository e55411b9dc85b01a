"""What communication cost every rank and every link in a step: waiting, moving data, bandwidth; by operation too."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.cluster_steps import of_chosen_steps
from steplens.analysis.cluster.communication_operations import ARRIVAL, LIBRARY, communication_operations, transfer_rate
from steplens.analysis.cluster.links import communication_costs, link_means, links
from steplens.analysis.cluster.measured_communication import communication_times, link_transfers
from steplens.analysis.tools.parallel import by_rank, layout
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

COSTS = table_schema(
    "rank, stage, transfer_ns: Float64, wait_ns: Float64, communication_share: Float64, steps, measured_by: String"
)
#: what an edge between two ranks is: data that moved over a link, or waiting for the rank that came last
LINK, WAIT = "link", "wait"
EDGES = table_schema(
    "kind: String, source, destination, transport: String, time_ns: Float64, bytes: Float64, bytes_per_s: Float64, source_stage, "
    "destination_stage"
)
OPERATIONS = table_schema(
    "operation: String, calls, transfer_ns: Float64, wait_ns: Float64, bytes: Float64, bytes_per_s: Float64"
)
_LINK_KEY = ("source", "destination", "transport")


def rank_costs(traces: Sequence[Trace], step: int | None = None) -> pl.DataFrame:
    """How long every rank moved data and waited in a step; columns as in ``COSTS``, ns.

    Where the communication library measured it, its sums count (``measured_by`` "library", ``analysis.cluster.links``); else
    what the arrival at collectives tells (``analysis.cluster.arrivals``). ``communication_share`` = transfer / (transfer + wait).

    Args:
        traces: of one job.
        step: of this step; a rank that has not recorded it has no row. None is the mean over the steps of each
            rank: over the chosen ones; of what the library measured over all, as MindSpore's tools have it.
    """
    measured = communication_costs(traces).rename({"transit_ns": "transfer_ns"}).with_columns(measured_by=pl.lit(LIBRARY))
    if measured.is_empty():
        operations = communication_operations(traces).drop_nulls(["step", "wait_ns"])
        sums = operations.group_by("rank", "step").agg(pl.col("transfer_ns", "wait_ns").sum().cast(pl.Float64))
        measured = sums.with_columns(measured_by=pl.lit(ARRIVAL)).sort("rank", "step")
        measured = measured if step is not None else of_chosen_steps(measured, traces)
    of_step = measured if step is None else measured.filter(step=step)
    means = of_step.group_by("rank", maintain_order=True).agg(
        pl.col("transfer_ns", "wait_ns").mean(), pl.col("measured_by").first(), steps=pl.len()
    )
    total_time = pl.col("transfer_ns") + pl.col("wait_ns")
    means = means.with_columns(
        communication_share=pl.when(total_time > 0).then(pl.col("transfer_ns") / total_time), stage=_stage_of_rank(traces, "rank")
    )
    return means.sort("rank").select(cast_columns(COSTS))


def cost_steps(traces: Sequence[Trace]) -> list[int]:
    """The steps of which some rank knows what its communication cost."""
    steps = communication_costs(traces)["step"]
    if steps.is_empty():
        steps = communication_operations(traces)["step"]
    return sorted(steps.drop_nulls().unique().to_list())


def rank_edges(traces: Sequence[Trace], step: int | None = None) -> pl.DataFrame:
    """What lies between each two ranks in a step; columns as in ``EDGES``.

    Where links were measured, ``kind`` is "link": bytes that moved from ``source`` to ``destination``, and the time of it;
    bandwidth is bytes / time, never a sum or mean of bandwidths. Elsewhere it is "wait": how long ``source`` waited at
    collectives to which ``destination`` came last.

    Args:
        traces: of one job.
        step: of this step; None is the mean over all steps of the rank that measured it.
    """
    moved = links(traces)
    if moved.height:
        rows = moved.filter(step=step) if step is not None else link_means(moved)
        # a link is measured by one of its ends; should both have it, the mean of them counts
        edges = rows.group_by(_LINK_KEY, maintain_order=True).agg(pl.col("time_ns", "bytes").mean())
        speed = pl.when(pl.col("time_ns") > 0).then(pl.col("bytes") / pl.col("time_ns") * 1e9)
        edges = edges.with_columns(bytes_per_s=speed, kind=pl.lit(LINK))
    else:
        met = communication_operations(traces).filter(pl.col("measured_by") == ARRIVAL).drop_nulls("step")
        met = met if step is None else met.filter(step=step)
        steps = met.group_by("rank").agg(of=pl.col("step").n_unique())
        waited = (
            met.filter(pl.col("rank") != pl.col("last_rank")).group_by("rank", "last_rank").agg(time_ns=pl.col("wait_ns").sum())
        )
        edges = waited.join(steps, on="rank").select(
            source="rank",
            destination="last_rank",
            transport=pl.lit(""),
            time_ns=pl.col("time_ns") / pl.col("of"),
            bytes=pl.lit(None),
            bytes_per_s=pl.lit(None),
            kind=pl.lit(WAIT),
        )
    ends = {f"{end}_stage": _stage_of_rank(traces, end) for end in ("source", "destination")}
    return edges.with_columns(**ends).sort(_LINK_KEY).select(cast_columns(EDGES))


def rank_operations(traces: Sequence[Trace], rank: int, step: int | None = None) -> pl.DataFrame:
    """What each communication operation cost a rank in a step, the longest first; columns as in ``OPERATIONS``.

    Operations of the library's measurements carry its names; their bytes are those of their tensors or, where these are not
    known, what moved over links to or from the rank. Elsewhere operations of one kind ("allreduce") are one row. Without a
    step all of them count, per step.
    """
    windows = by_rank(traces).get(rank, [])
    times = [communication_times(trace) for trace in windows]
    rows = pl.concat(times, how="diagonal_relaxed") if times else pl.DataFrame()
    if rows.is_empty():
        operations = communication_operations(traces).filter(pl.col("rank") == rank)
        operations = operations.filter(pl.col("step").is_not_null() if step is None else pl.col("step") == step)
        has_all_sizes = pl.col("bytes").null_count() == 0
        operation_rows = operations.group_by("operation").agg(
            pl.col("transfer_ns", "wait_ns").sum(), calls=pl.len(), bytes=pl.when(has_all_sizes).then(pl.col("bytes").sum())
        )
        steps = operations["step"].n_unique()
    else:
        rows = rows.filter(pl.col("step").is_not_null() if step is None else pl.col("step") == step)
        operation_rows = rows.group_by(operation="name").agg(
            transfer_ns=pl.col("transit_ms").sum() * 1e6, wait_ns=pl.col("wait_ms").sum() * 1e6, calls=pl.len()
        )
        operation_rows = operation_rows.join(_operation_sizes(windows, step), on="operation", how="left")
        steps = rows["step"].n_unique()
    per_step = 1 if step is not None else max(steps, 1)
    operation_rows = operation_rows.with_columns(pl.col("transfer_ns", "wait_ns", "bytes") / per_step)
    operation_rows = operation_rows.with_columns(bytes_per_s=transfer_rate("bytes", "transfer_ns"))
    order = pl.col("transfer_ns") + pl.col("wait_ns")
    return operation_rows.sort(order, "operation", descending=[True, False]).select(cast_columns(OPERATIONS))


def operation_links(traces: Sequence[Trace], rank: int, operation: str | None, step: int | None = None) -> pl.DataFrame:
    """The links that an operation of a rank moved data over, sums over what the library measured; none where it did not.

    Args:
        traces: of one job.
        rank: that measured.
        operation: its name; None is all of them.
        step: only in this step.

    Returns:
        operation, source, destination, transport, time_ns, bytes, bytes_per_s.
    """
    schema = {"operation": pl.String(), **{name: dtype for name, dtype in EDGES.items() if name in _MOVED}}
    frames = [link_transfers(trace) for trace in by_rank(traces).get(rank, []) if "communication_matrix" in trace]
    rows = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
    if rows.is_empty():
        return pl.DataFrame(schema=schema)
    rows = rows.with_columns(operation=pl.coalesce("op_name", "name")).drop_nulls(["source", "destination"])
    if operation is not None:
        rows = rows.filter(pl.col("operation") == operation)
    rows = rows.filter(pl.col("step").is_not_null() if step is None else pl.col("step") == step)
    sums = rows.group_by("operation", *_LINK_KEY, maintain_order=True).agg(
        time_ns=pl.col("transit_ms").sum() * 1e6, bytes=pl.col("size_mb").sum() * 1e6
    )
    sums = sums.with_columns(bytes_per_s=pl.when(pl.col("time_ns") > 0).then(pl.col("bytes") / pl.col("time_ns") * 1e9))
    return sums.sort("operation", *_LINK_KEY).select(cast_columns(schema))


def _operation_sizes(windows: Sequence[Trace], step: int | None) -> pl.DataFrame:
    """Names and bytes of the operations of a rank, by the library's names."""
    tensors = pl.concat(
        [
            trace.required("communication").select("step", "bytes", operation=pl.col("name").cast(pl.String)).collect()
            for trace in windows
        ]
    )
    of_step = tensors.filter(pl.col("step").is_not_null() if step is None else pl.col("step") == step).drop_nulls("bytes")
    if of_step.is_empty():
        of_step = pl.concat([operation_links([trace], trace.rank, None, step) for trace in windows])
        of_step = of_step.filter(pl.col("source") != pl.col("destination"))
    return of_step.group_by("operation").agg(pl.col("bytes").sum())


_MOVED = (*_LINK_KEY, "time_ns", "bytes", "bytes_per_s")


def _stage_of_rank(traces: Sequence[Trace], column: str) -> pl.Expr:
    """The pipeline stage of the rank in a column."""
    job = layout(traces)
    return (pl.col(column) // max(job.size // job.stages, 1) + 1).clip(upper_bound=job.stages)
