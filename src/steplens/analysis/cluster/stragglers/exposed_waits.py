"""Exposed communication told apart: moving data, and waiting for other ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from steplens.analysis.cluster.stragglers.message_times import message_times
from steplens.analysis.steps.device_work import exposed_communication
from steplens.analysis.steps.summary import usual_device_steps
from steplens.analysis.tools.joined_rows import RowsOfRanks, join_rows
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.overlap import Intervals, intersect, length_inside, merge_intervals, subtract
from steplens.analysis.tools.parallel import by_rank
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import COLLECTIVE
from steplens.trace.trace import Trace

EXPOSED = table_schema(
    "rank, step, period_ns, computing_ns, exposed_ns, moving_ns, collective_moving_ns, micro_batch_moving_ns, waiting_ns, "
    "unknown_ns"
)
#: of the messages of a group so many lie between the sends and receives of their step where micro-batches need them
_AMONG_TRANSFERS = 0.5


@once_per_run
def exposed_waits(traces: Sequence[Trace]) -> pl.DataFrame:
    """What exposed communication each rank has in each usual step (``steps.summary``); columns as in ``EXPOSED``.

    Of the device period: ``computing_ns``; ``exposed_ns``, communication during which the device computes nothing; of that
    ``moving_ns``, while a message moves data, the rest of it is ``waiting_ns``, while every message in flight waits for its last
    rank, and ``unknown_ns``, while nothing is in flight of which that can be told. ``collective_moving_ns`` is what collectives
    have of ``moving_ns``; ``micro_batch_moving_ns`` is what those of them have that each micro-batch of a pipeline needs, such as
    the all-reduces of tensor parallelism: of groups that communicate mostly between the first and the last send or receive of
    a step. Moving comes first: while one message moves, others wait for free.

    Source: ``message_times``, on each rank's own clock.
    """
    rows = join_rows(_exposed_of_ranks(traces))
    return rows.unique(["rank", "step"], keep="first", maintain_order=True).sort("rank", "step")


def _exposed_of_ranks(traces: Sequence[Trace]) -> Iterator[pl.DataFrame]:
    """The rows of ``exposed_waits``, a table of each trace."""
    yield pl.DataFrame(schema=EXPOSED)
    times = RowsOfRanks(message_times(traces))
    for rank, windows in by_rank(traces).items():
        rows = times.of_rank(rank)
        begin = rows["own_start_ns"].to_numpy()
        moves_from = begin + rows["wait_ns"].to_numpy()
        end = moves_from + rows["transfer_ns"].to_numpy()
        is_collective = (rows["kind"] == COLLECTIVE).to_numpy()
        in_flight, moving = merge_intervals(begin, end), merge_intervals(moves_from, end)
        collective = merge_intervals(moves_from[is_collective], end[is_collective])
        is_of_batch = _is_of_micro_batch(rows)
        of_batches = merge_intervals(moves_from[is_of_batch], end[is_of_batch])
        for trace in windows:
            yield _exposed_in_steps(trace, rank, in_flight, moving, collective, of_batches)


def _is_of_micro_batch(rows: pl.DataFrame) -> np.typing.NDArray[np.bool_]:
    """Which messages of a rank are collectives of a group that communicates between the sends and receives of a step."""
    is_transfer = pl.col("kind") != COLLECTIVE
    transfers = pl.col("own_start_ns").filter(is_transfer)
    among = (pl.col("own_start_ns") > transfers.min()) & (pl.col("own_start_ns") < transfers.max())
    marked = rows.with_columns(among=among.over("step").fill_null(False), is_transfer=is_transfer)
    share = pl.col("among").mean().over("group")
    return marked.select((share >= _AMONG_TRANSFERS) & ~pl.col("is_transfer")).to_series().fill_null(False).to_numpy()


def _exposed_in_steps(
    trace: Trace, rank: int, in_flight: Intervals, moving: Intervals, collective: Intervals, of_batches: Intervals
) -> pl.DataFrame:
    steps = usual_device_steps(trace)
    if not steps.height:
        return pl.DataFrame(schema=EXPOSED)
    start = steps["device_start_ns"].to_numpy()
    end = start + steps["device_period_ns"].to_numpy()
    exposed = exposed_communication(trace)
    moves = intersect(exposed, moving)
    lengths: dict[str, np.typing.NDArray[np.int64]] = {
        "exposed_ns": length_inside(exposed, start, end),
        "moving_ns": length_inside(moves, start, end),
        "collective_moving_ns": length_inside(intersect(exposed, collective), start, end),
        "micro_batch_moving_ns": length_inside(intersect(exposed, of_batches), start, end),
        "waiting_ns": length_inside(subtract(intersect(exposed, in_flight), moving), start, end),
        "unknown_ns": length_inside(subtract(exposed, in_flight), start, end),
    }
    frame = steps.select("step", "computing_ns", period_ns="device_period_ns")
    frame = frame.with_columns(rank=pl.lit(rank), **{name: pl.Series(values) for name, values in lengths.items()})
    return frame.select(cast_columns(EXPOSED))
