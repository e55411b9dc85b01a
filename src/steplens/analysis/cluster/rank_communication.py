"""What communication cost every rank and every link in a step: waiting, moving data, bandwidth; by operation too."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.arrivals import arrivals, waits_by_step
from steplens.analysis.cluster.cluster_steps import of_chosen_steps
from steplens.analysis.cluster.communication_operations import ARRIVAL, LIBRARY, communication_operations, transfer_rate
from steplens.analysis.cluster.links import link_means, links
from steplens.analysis.cluster.measured_communication import communication_times, is_measured, link_transfers
from steplens.analysis.steps.summary import summarize_steps, usual_device_steps
from steplens.analysis.steps.times import step_times
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.overlap import merge_intervals
from steplens.analysis.tools.parallel import by_rank, layout
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

COSTS = table_schema(
    "rank, stage, communication_ns: Float64, exposed_ns: Float64, overlapped_ns: Float64, transfer_ns: Float64, "
    "wait_ns: Float64, unexplained_ns: Float64, communication_share: Float64, steps, measured_by: String"
)
_STEPS = table_schema("rank, step, communication_ns: Float64, transfer_ns: Float64, wait_ns: Float64, measured_by: String")
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


def rank_costs(traces: Sequence[Trace], step: int | None = None, *, by_library: bool = True) -> pl.DataFrame:
    """What communication cost every rank in a step; columns as in ``COSTS``, ns.

    * ``communication_ns``: how long an operation was in flight, several at once counted once; where the communication library
      measured (``measured_by`` "library", ``analysis.cluster.links``), the sum of the times of its operations.
    * ``wait_ns``, ``transfer_ns``: of that, what the library measured as waiting and as moving data; else what the arrival at
      collectives tells (``measured_by`` "arrival", ``analysis.cluster.arrivals``). Null where neither tells.
    * ``unexplained_ns``: the rest, of which nothing tells whether it was one or the other: the library calls it idle, as while
      ranks are not there yet; of other collectives the arrival of some rank is not known. The three add up.
    * ``exposed_ns``, ``overlapped_ns``: communication outside of and beside computing, as in the figures of a step.
    * ``communication_share`` = transfer / (transfer + wait).

    Args:
        traces: of one job.
        step: of this step; a rank that has not recorded it has no row. None is the mean over the usual steps, as
            elsewhere; what the library measured is a mean over all, as MindSpore's tools have it.
        by_library: what the library measured counts where it did.
    """
    measured = _library_steps(traces) if by_library else pl.DataFrame()
    has_library = measured.height > 0
    if not has_library:
        measured = _arrival_steps(traces)
        measured = measured if step is not None else _of_usual_steps(measured, traces)
    of_step = measured if step is None else measured.filter(step=step)
    means = of_step.group_by("rank", maintain_order=True).agg(
        pl.col("communication_ns", "transfer_ns", "wait_ns").mean(), pl.col("measured_by").drop_nulls().first(), steps=pl.len()
    )
    beside = [(rank, *_beside_computing(windows, step)) for rank, windows in by_rank(traces).items()]
    schema = {"rank": pl.Int64(), "exposed_ns": pl.Float64(), "overlapped_ns": pl.Float64()}
    means = means.join(pl.DataFrame(beside, schema=schema, orient="row"), on="rank", how="left")
    if step is None and not has_library:
        scale = _to_typical_step()
        means = means.with_columns(pl.col("communication_ns", "transfer_ns", "wait_ns") * scale)
    total_time = pl.col("transfer_ns") + pl.col("wait_ns")
    means = means.with_columns(
        unexplained_ns=(pl.col("communication_ns") - total_time.fill_null(0)).clip(0),
        communication_share=pl.when(total_time > 0).then(pl.col("transfer_ns") / total_time),
        stage=_stage_of_rank(traces, "rank"),
    )
    return means.sort("rank").select(cast_columns(COSTS))


def _to_typical_step() -> pl.Expr:
    """From what is in flight in a step of the host to what its device period has, as in the figures of a step."""
    typical = pl.col("exposed_ns") + pl.col("overlapped_ns")
    return pl.when((typical > 0) & (pl.col("communication_ns") > 0)).then(typical / pl.col("communication_ns")).otherwise(1.0)


def _of_usual_steps(rows: pl.DataFrame, traces: Sequence[Trace]) -> pl.DataFrame:
    """Those of some rows (rank, step) that are of the steps whose means the parts of a step are.

    Of a rank of which no such step has a row, its rows of steps that figures are of.
    """
    pairs = [
        (rank, step)
        for rank, windows in by_rank(traces).items()
        for window in windows
        for step in usual_device_steps(window)["step"].drop_nulls().to_list()
    ]
    usual_pairs = pl.DataFrame(pairs, schema={"rank": pl.Int64, "step": pl.Int64}, orient="row").unique()
    usual_rows = rows.join(usual_pairs, on=["rank", "step"], how="semi", maintain_order="left")
    other_ranks = rows.join(usual_rows, on="rank", how="anti", maintain_order="left")
    return pl.concat([usual_rows, of_chosen_steps(other_ranks, traces)])


def _beside_computing(windows: Sequence[Trace], step: int | None) -> tuple[float | None, float | None]:
    """Communication of a rank outside of and beside computing."""
    if step is None:
        summary = summarize_steps(windows)
        return summary.device.get("exposed_communication_ns"), summary.overlapped_communication_ns if summary.device else None
    columns = ("exposed_communication_ns", "overlapped_communication_ns")
    rows = [row for trace in windows for row in step_times(trace).filter(step=step).select(columns).drop_nulls().iter_rows()]
    return rows[0] if rows else (None, None)


def _library_steps(traces: Sequence[Trace]) -> pl.DataFrame:
    """What the communication library measured, per rank and step; columns as in ``_STEPS``."""
    frames = [pl.DataFrame(schema=_STEPS)]
    for rank, windows in by_rank(traces).items():
        for trace in windows:
            if not is_measured(trace):
                continue
            times = communication_times(trace).drop_nulls("step").group_by("step", maintain_order=True)
            sums = times.agg(pl.col("elapse_ms", "transit_ms", "wait_ms").sum() * 1e6)
            explained = pl.col("transit_ms") + pl.col("wait_ms")
            columns = {
                "rank": pl.lit(rank),
                "communication_ns": pl.max_horizontal("elapse_ms", explained),
                "transfer_ns": pl.col("transit_ms"),
                "wait_ns": pl.col("wait_ms"),
                "measured_by": pl.lit(LIBRARY),
            }
            frames.append(sums.with_columns(**columns).select(cast_columns(_STEPS)))
    return pl.concat(frames).sort("rank", "step")


@once_per_run
def _arrival_steps(traces: Sequence[Trace]) -> pl.DataFrame:
    """How long communication of every rank was in flight in each step, and what the arrival of all ranks tells of it."""
    lengths = []
    operations = communication_operations(traces).drop_nulls("step").filter(pl.col("rank") >= 0)
    for (rank, step), calls in operations.group_by("rank", "step"):
        start = calls["start_ns"].to_numpy()
        lengths.append((rank, step, float(merge_intervals(start, start + calls["duration_ns"].to_numpy()).length_ns)))
    schema = {"rank": pl.Int64, "step": pl.Int64, "communication_ns": pl.Float64}
    steps = pl.DataFrame(lengths, schema=schema, orient="row")
    steps = steps.join(waits_by_step(arrivals(traces)), on=["rank", "step"], how="left")
    steps = steps.with_columns(measured_by=pl.when(pl.col("wait_ns").is_not_null()).then(pl.lit(ARRIVAL)))
    return steps.sort("rank", "step").select(cast_columns(_STEPS))


def cost_steps(traces: Sequence[Trace]) -> list[int]:
    """The steps of which some rank knows what its communication cost."""
    steps = _library_steps(traces)["step"]
    if steps.is_empty():
        steps = communication_operations(traces)["step"]
    return sorted(steps.drop_nulls().unique().to_list())


def rank_edges(traces: Sequence[Trace], step: int | None = None) -> pl.DataFrame:
    """What lies between each two ranks in a step; columns as in ``EDGES``.

    Where links were measured, ``kind`` is "link": bytes that moved from ``source`` to ``destination``, and the time of it;
    bandwidth is bytes / time, never a sum or mean of bandwidths. Elsewhere it is "wait": how long ``source`` waited at
    collectives to which ``destination`` came last, several at once counted once.

    Args:
        traces: of one job.
        step: of this step; None is the mean over all steps of the rank that measured it; of waits a typical step, as in
            ``rank_costs``.
    """
    moved = links(traces)
    if moved.height:
        rows = moved.filter(step=step) if step is not None else link_means(moved)
        # a link is measured by one of its ends; should both have it, the mean of them counts
        edges = rows.group_by(_LINK_KEY, maintain_order=True).agg(pl.col("time_ns", "bytes").mean())
        speed = pl.when(pl.col("time_ns") > 0).then(pl.col("bytes") / pl.col("time_ns") * 1e9)
        edges = edges.with_columns(bytes_per_s=speed, kind=pl.lit(LINK))
    else:
        edges_of_steps = _waits_for_ranks(traces)
        steps = _arrival_steps(traces).drop_nulls("measured_by")
        if step is None:
            edges_of_steps, steps = _of_usual_steps(edges_of_steps, traces), _of_usual_steps(steps, traces)
        else:
            edges_of_steps, steps = edges_of_steps.filter(step=step), steps.filter(step=step)
        # as the waiting of the rank in ``rank_costs``
        means = steps.group_by("rank").agg(of=pl.col("step").n_unique(), mean_ns=pl.col("wait_ns").mean())
        means = means.join(rank_costs(traces, step, by_library=False).select("rank", typical_ns="wait_ns"), on="rank")
        scale = pl.when(pl.col("mean_ns") > 0).then(pl.col("typical_ns") / pl.col("mean_ns")).otherwise(1.0)
        waited = edges_of_steps.filter(pl.col("rank") != pl.col("last_rank"), pl.col("wait_ns") > 0)
        waited = waited.group_by("rank", "last_rank").agg(time_ns=pl.col("wait_ns").sum())
        edges = waited.join(means, on="rank").select(
            source="rank",
            destination="last_rank",
            transport=pl.lit(""),
            time_ns=pl.col("time_ns") / pl.col("of") * scale,
            bytes=pl.lit(None),
            bytes_per_s=pl.lit(None),
            kind=pl.lit(WAIT),
        )
    ends = {f"{end}_stage": _stage_of_rank(traces, end) for end in ("source", "destination")}
    return edges.with_columns(**ends).sort(_LINK_KEY).select(cast_columns(EDGES))


def _waits_for_ranks(traces: Sequence[Trace]) -> pl.DataFrame:
    """How long every rank waited in each step for each ``last_rank``; columns as of ``waits_by_step``."""
    met = arrivals(traces)
    each = ["step", "group", "operation", "number"]
    last = met.sort("place").unique(each, keep="last").select(*each, last_rank="rank")
    return waits_by_step(met.join(last, on=each, nulls_equal=True), "last_rank")


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
    dealt = (pl.col(column) // max(job.size // job.stages, 1) + 1).clip(upper_bound=job.stages)
    return pl.col(column).replace_strict(dict(job.placed), default=dealt, return_dtype=pl.Int64) if job.placed else dealt
