"""Operators of the same name on all ranks beside each other: when each rank ran them in a step (a Marey diagram).

A vertical line means that the ranks do the same thing at the same time; a slanted one shows who is behind, and where it begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.clocks.job_clocks import job_clocks
from steplens.analysis.device.kernels import outermost_tasks
from steplens.analysis.operators.flops import counted_calls
from steplens.analysis.tools.parallel import by_rank, layout
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY
from steplens.trace.trace import Trace

#: how the times of a rank were made comparable: the ends of common collectives, one clock, or the start of the step
COLLECTIVES, CLOCK, STEP_START = "collectives", "clock", "step start"

STEPS = table_schema("rank, stage, trace, step, start_ns, end_ns, aligned_by: String")
JOINED = table_schema("rank, stage, name: String, number, kind: String, start_ns, end_ns")
LOADS = table_schema("rank, bucket, allocated_bytes, flops")
DELAYS: dict[str, pl.DataType] = {
    **table_schema("stage, rank, name: String, number, grown_ns, spread_ns, from_ns, start_ns"),
    "doing": pl.List(pl.String()),
    "doing_ns": pl.List(pl.Int64()),
}
#: so many delays, each with so many operators that the rank ran meanwhile
_DELAYS, _NAMED = 5, 3
_ENDS = ("start_ns", "end_ns")

#: ranks whose steps of one number begin further apart than this are not on one clock
_ONE_CLOCK_NS = 60 * 10**9
#: what of a device's tasks is drawn; communication is taken from its own table
_KINDS = (KIND_COMPUTE, KIND_COPY)


def rank_steps(traces: Sequence[Trace]) -> pl.DataFrame:
    """When every rank ran every step, on one clock; columns as in ``STEPS``, ns of the lowest rank's clock.

    ``aligned_by`` says how the clock of a rank was set: ``COLLECTIVES``, from its messages, as in
    ``analysis.cluster.clocks.job_clocks``; ``CLOCK``, as recorded; ``STEP_START`` where nothing tells more: its first step
    begins when that of the lowest rank does. ``trace`` is the place of the trace that holds the step.

    Args:
        traces: of one job.
    """
    job = layout(traces)
    place = {id(trace): number for number, trace in enumerate(traces)}
    clocks = job_clocks(traces)
    references: dict[int, int] = dict(clocks.pieces.select("rank", "reference").iter_rows())
    main_reference = references.get(min(references)) if references else None
    frames: list[pl.DataFrame] = []
    reference: int | None = None
    for rank, windows in by_rank(traces).items():
        steps_of_rank = [
            trace.required("steps").select(step="id", start_ns="start_ns", end_ns="end_ns").drop_nulls().collect()
            .with_columns(trace=pl.lit(place[id(trace)], pl.Int64))
            for trace in windows
        ]  # fmt: skip
        steps = pl.concat(steps_of_rank).unique("step", keep="first").sort("start_ns")
        if steps.is_empty():
            continue
        how = COLLECTIVES if rank in references and references[rank] == main_reference else CLOCK
        if how == COLLECTIVES:
            steps = clocks.put_on_one_clock(steps.with_columns(rank=pl.lit(rank, dtype=pl.Int64)), *_ENDS).drop("rank")
        shift, first = 0, int(steps["start_ns"][0])
        reference = first if reference is None else reference
        if how == CLOCK and abs(first - reference) > _ONE_CLOCK_NS:
            shift, how = first - reference, STEP_START
        rank_columns = {"rank": pl.lit(rank), "stage": pl.lit(job.stage_of(rank)), "aligned_by": pl.lit(how)}
        frames.append(steps.with_columns(pl.col(_ENDS) - shift, **rank_columns).select(cast_columns(STEPS)))
    return pl.concat([pl.DataFrame(schema=STEPS), *frames]).sort("rank", "start_ns")


def joined_operators(traces: Sequence[Trace], step: int, steps: pl.DataFrame | None = None) -> pl.DataFrame:
    """Every device task and communication operation of a step on every rank; columns as in ``JOINED``.

    Rows of one ``name`` and ``number`` are the same operator on several ranks: the ranks of a stage run the same program, so the
    k-th operator of a name on one is the k-th on the others (``number`` counts from 0 in order of start). Times are ns from
    the first start of the step on any rank, on the clock of ``rank_steps``.

    Source: ``kernels`` (compute, copies; of a CPU the outermost calls) and ``communication``; what begins inside the step belongs
    to it.

    Args:
        traces: of one job.
        step: number of the step.
        steps: of ``rank_steps``, where it is known already.
    """
    chosen_steps = (rank_steps(traces) if steps is None else steps).filter(step=step)
    frames: list[pl.DataFrame] = []
    for row in chosen_steps.iter_rows(named=True):
        trace = traces[row["trace"]]
        shift, begin, end = _recorded_range(trace, row)
        operation = pl.coalesce(pl.col("operation").cast(pl.String), pl.col("name").cast(pl.String))
        is_inside = (pl.col("start_ns") >= begin) & (pl.col("start_ns") < end)
        computed = outermost_tasks(trace).filter(is_inside & pl.col("kind").cast(pl.String).is_in(_KINDS))
        moved = trace.required("communication").filter(is_inside)
        parts = [
            computed.select(*_ENDS, name=pl.col("name").cast(pl.String), kind=pl.col("kind").cast(pl.String)),
            moved.select(*_ENDS, name=operation, kind=pl.lit(KIND_COMMUNICATION)),
        ]
        rows = pl.concat([part.collect() for part in parts]).drop_nulls().sort("start_ns", "end_ns", "name")
        rows = rows.with_columns(number=pl.int_range(pl.len()).over("name"))
        rank_columns = {"rank": pl.lit(row["rank"]), "stage": pl.lit(row["stage"])}
        frames.append(rows.with_columns(pl.col(_ENDS) - shift, **rank_columns).select(cast_columns(JOINED)))
    origin = chosen_steps["start_ns"].min() or 0
    operators = pl.concat([pl.DataFrame(schema=JOINED), *frames])
    return operators.with_columns(pl.col(_ENDS) - origin).sort("start_ns", "rank", "name", "number")


def bands(joined: pl.DataFrame) -> pl.DataFrame:
    """How far the ranks of a stage lie apart: for each operator that several of them ran, when it began and ended.

    Args:
        joined: of ``joined_operators``.

    Returns:
        stage, name, number, kind, ranks (how many), and start and end: start_min_ns, start_mean_ns, start_max_ns, end_min_ns,
        end_mean_ns, end_max_ns; in order of start_min_ns.
    """
    edges = {
        f"{edge}_{word}_ns": getattr(pl.col(f"{edge}_ns"), word)() for edge in ("start", "end") for word in ("min", "mean", "max")
    }
    band_rows = joined.group_by("stage", "name", "number").agg(pl.col("kind").first(), ranks=pl.col("rank").n_unique(), **edges)
    return band_rows.filter(pl.col("ranks") > 1).sort("start_min_ns", "stage", "name", "number")


def find_delays(joined: pl.DataFrame, least_ns: float) -> pl.DataFrame:
    """Where a rank falls behind: the operators at which the spread of the starts of a stage grows the most, largest first.

    Everything after a delay inherits it; what is told is by how much the spread grew since the operator before that several
    ranks ran, which rank is the last one to come there, and what it ran in between. Communication is left out: collectives
    begin apart and bring the ranks together.

    Args:
        joined: of ``joined_operators``.
        least_ns: what grows by less is noise.

    Returns:
        columns as in ``DELAYS``: from_ns is when the rank began the operator before (its first operator where there is none),
        start_ns when it began this one; doing are the longest operators that it ran in between, at most three, doing_ns how long.
    """
    rows = joined.filter(pl.col("kind") != KIND_COMMUNICATION)
    key = ["stage", "name", "number"]
    points = rows.sort("start_ns").group_by(key).agg(
        ranks=pl.col("rank").n_unique(), first_ns=pl.col("start_ns").first(), start_ns=pl.col("start_ns").last(),
        rank=pl.col("rank").last(),
    )  # fmt: skip
    points = points.filter(pl.col("ranks") > 1).sort("stage", "first_ns", "name", "number")
    spread = pl.col("start_ns") - pl.col("first_ns")
    points = points.with_columns(spread_ns=spread, grown_ns=spread - spread.shift(1).over("stage").fill_null(0))
    largest = points.filter(pl.col("grown_ns") >= least_ns).sort("grown_ns", "first_ns", descending=[True, False]).head(_DELAYS)
    common = rows.join(points, on=key, how="semi")
    delay_rows = []
    for point in largest.iter_rows(named=True):
        rank_rows = rows.filter(rank=point["rank"], stage=point["stage"])
        before = common.filter((pl.col("rank") == point["rank"]) & (pl.col("start_ns") < point["start_ns"]))["start_ns"].max()
        begin = before if before is not None else rank_rows["start_ns"].min()
        between = rank_rows.filter((pl.col("start_ns") >= begin) & (pl.col("start_ns") < point["start_ns"]))
        length = pl.min_horizontal("end_ns", pl.lit(point["start_ns"])) - pl.col("start_ns")
        done = between.group_by("name").agg(length=length.sum()).sort("length", "name", descending=[True, False]).head(_NAMED)
        names = ("stage", "rank", "name", "number", "grown_ns", "spread_ns", "start_ns")
        doing = {"from_ns": begin, "doing": done["name"].to_list(), "doing_ns": done["length"].to_list()}
        delay_rows.append({**{name: point[name] for name in names}, **doing})
    return pl.DataFrame(delay_rows, schema=DELAYS)


def loads(traces: Sequence[Trace], step: int, buckets: int, steps: pl.DataFrame | None = None) -> pl.DataFrame:
    """Memory and arithmetic of every rank over a step; columns as in ``LOADS``, buckets without either are left out.

    The step, from its first start on any rank to its last end, is cut into ``buckets`` of equal width. ``allocated_bytes``: the
    most that was allocated at once during the bucket, on the device that holds most (what was allocated stays until the next
    event); ``flops``: operations of the calls that begin in it (``analysis.operators.flops.counted_calls``).

    Args:
        traces: of one job.
        step: number of the step.
        buckets: how many.
        steps: of ``rank_steps``, where it is known already.
    """
    chosen_steps = (rank_steps(traces) if steps is None else steps).filter(step=step)
    if chosen_steps.is_empty():
        return pl.DataFrame(schema=LOADS)
    origin, last = int(chosen_steps["start_ns"].min()), int(chosen_steps["end_ns"].max())  # type: ignore[arg-type]
    width = max(-(-(last - origin) // buckets), 1)
    frames: list[pl.DataFrame] = []
    for row in chosen_steps.iter_rows(named=True):
        trace = traces[row["trace"]]
        shift, begin, end = _recorded_range(trace, row)
        time = (pl.col("time_ns") >= begin) & (pl.col("time_ns") < end)
        calls = counted_calls(trace).select("op", "flops")
        placed = trace.required("ops").select(op="id", time_ns="start_ns").filter(time).collect()
        work = calls.join(placed, on="op").select("time_ns", value=pl.col("flops").cast(pl.Int64))
        bucket = ((pl.col("time_ns") - shift - origin) // width).alias("bucket")
        place = (begin - shift - origin) // width, (max(end, begin + 1) - 1 - shift - origin) // width
        most = _allocated_per_bucket(trace, begin, end, bucket, place)
        done = work.group_by(bucket).agg(flops=pl.col("value").sum())
        both = most.join(done, on="bucket", how="full", coalesce=True)
        frames.append(both.with_columns(rank=pl.lit(row["rank"])).select(cast_columns(LOADS)))
    return pl.concat([pl.DataFrame(schema=LOADS), *frames]).sort("rank", "bucket")


def _allocated_per_bucket(trace: Trace, begin: int, end: int, bucket: pl.Expr, place: tuple[int, int]) -> pl.DataFrame:
    """Most memory by bucket, from the first to the last bucket of a step; none before the first event."""
    events = trace.required("memory").filter(pl.col("time_ns") < end).drop_nulls("allocated")
    allocations = events.select("time_ns", "allocated", "device_type", "device").sort("time_ns", maintain_order=True).collect()
    grid = pl.DataFrame({"bucket": range(place[0], place[1] + 1)}, schema={"bucket": pl.Int64})
    curves = [pl.DataFrame(schema={"bucket": pl.Int64, "allocated_bytes": pl.Int64})]
    for device in allocations.partition_by("device_type", "device"):
        before = device.filter(pl.col("time_ns") < begin)["allocated"].tail(1).to_list()
        bucket_rows = device.filter(pl.col("time_ns") >= begin).group_by(bucket)
        bucket_values = bucket_rows.agg(most=pl.col("allocated").max(), last=pl.col("allocated").last())
        curve = grid.join(bucket_values, on="bucket", how="left", maintain_order="left")
        held = pl.col("last").forward_fill().shift(1).fill_null(pl.lit(before[0] if before else None, pl.Int64))
        curves.append(curve.select("bucket", allocated_bytes=pl.max_horizontal("most", held)))
    return pl.concat(curves).drop_nulls().group_by("bucket").agg(pl.col("allocated_bytes").max())


def _recorded_range(trace: Trace, row: dict[str, int]) -> tuple[int, int, int]:
    """By how much the clock of a rank was moved, and start and end of one of its steps on its own clock."""
    step_ends = trace.required("steps").filter(pl.col("id") == row["step"]).select(_ENDS).collect().row(0)
    return step_ends[0] - row["start_ns"], step_ends[0], step_ends[1]
