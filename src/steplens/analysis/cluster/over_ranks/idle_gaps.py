"""The largest gaps in the work of all devices of a job: idle for the host or the device, or waiting for a late rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from steplens.analysis.cluster.over_ranks.rank_gaps import MOST_GAPS, rank_gaps
from steplens.analysis.cluster.stragglers.message_times import message_times
from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.device_work import exposed_communication
from steplens.analysis.tools.joined_rows import RowsOfRanks, join_rows
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.overlap import Intervals, clip, length_inside, merge_intervals, subtract
from steplens.analysis.tools.parallel import by_rank
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

#: no cause of idle time: communication in which the device waits for another rank, and computes nothing
LATE_RANK = "late rank"
GAPS = table_schema(
    "step, cause: String, name: String, before: String, after: String, number, late_rank, ranks, rank, start_ns, idle_ns, "
    "median_ns: Float64, total_ns, cause_ns"
)
_OF_RANK = table_schema(
    "rank, step, start_ns, idle_ns, cause: String, cause_ns, name: String, before: String, after: String, number, late_rank"
)
_SAME = ["step", "cause", "before", "after", "number", "late_rank", "message"]


@once_per_run
def idle_gaps(traces: Sequence[Trace]) -> pl.DataFrame:
    """The largest gaps of every step over all ranks, the longest first; columns as in ``GAPS``.

    Of each rank and step the longest gaps count, ``rank_gaps.MOST_GAPS`` of each of two sorts:

    * the device did nothing: ``cause`` and ``name`` as ``rank_gaps`` has them, from ``device.idle``;
    * ``cause`` "late rank": it communicated, computed nothing, and no message moved data while one waited for its last rank,
      ``late_rank``; ``name`` is the operation and its group. That is no idle time in ``steps``, but exposed communication. What
      several messages wait at once counts for the first of them; waits no longer than clocks may be off are left out.

    Gaps of several ranks are one row where step and cause are the same, and the tasks around them and the ``number`` of the gap
    among those, or the message: ``ranks`` is how many ranks have it, ``idle_ns`` the longest of them, on ``rank``, where it
    begins at ``start_ns`` on the clock of that rank, and ``name`` what it has; ``median_ns`` and ``total_ns`` are over the ranks
    that have it. ``cause_ns``: how much of the longest is due to the cause itself.

    Args:
        traces: of one job, or one alone.
    """
    rows = join_rows(_gaps_of_ranks(traces)).with_columns(message=pl.when(pl.col("cause") == LATE_RANK).then("name"))
    rows = rows.unique(["rank", *_SAME], keep="first", maintain_order=True)
    longest = [pl.col(name).sort_by("idle_ns", descending=True).first() for name in ("rank", "start_ns", "cause_ns", "name")]
    groups = rows.sort("rank").group_by(_SAME, maintain_order=True).agg(
        *longest, ranks=pl.len(), median_ns=pl.col("idle_ns").median(), total_ns=pl.col("idle_ns").sum(),
        idle_ns=pl.col("idle_ns").max(),
    )  # fmt: skip
    return groups.sort("idle_ns", "step", "rank", "start_ns", descending=[True, False, False, False]).select(cast_columns(GAPS))


def _gaps_of_ranks(traces: Sequence[Trace]) -> Iterator[pl.DataFrame]:
    """The longest gaps of each trace, and its longest waits for late ranks; columns as in ``_OF_RANK``."""
    yield pl.DataFrame(schema=_OF_RANK)
    times = message_times(traces)
    last = times.sort("start_ns", "rank").unique("message", keep="last").select("message", late_rank="rank")
    times = times.join(last, on="message", maintain_order="left")
    of_ranks = RowsOfRanks(times)
    for rank, windows in (by_rank(traces) or {-1: list(traces)}).items():
        for trace in windows:
            idle = rank_gaps(trace).with_columns(rank=pl.lit(rank), late_rank=pl.lit(None, dtype=pl.Int64))
            yield idle.select(cast_columns(_OF_RANK))
            yield _late_waits(trace, of_ranks.of_rank(rank))


def _late_waits(trace: Trace, sides: pl.DataFrame) -> pl.DataFrame:
    """The longest waits for late ranks of each step of a trace, columns as in ``_OF_RANK``.

    Args:
        trace: of one rank.
        sides: of ``message_times``, those of the rank, with the ``late_rank`` of each.
    """
    periods = device_periods(trace).filter("recorded")
    if not periods.height or not sides.height:
        return pl.DataFrame(schema=_OF_RANK)
    begin = sides["own_start_ns"].to_numpy()
    arrival = begin + sides["wait_ns"].to_numpy()
    moving = merge_intervals(arrival, arrival + sides["transfer_ns"].to_numpy())
    quiet = subtract(exposed_communication(trace), moving)
    rows = sides.with_columns(begin=begin, until=arrival).sort("begin", "until")
    # what one in front waits already is not waited again
    rows = rows.with_columns(begin=pl.max_horizontal("begin", pl.col("until").cum_max().shift(1).fill_null(pl.col("begin"))))
    rows = rows.filter(pl.col("until") > pl.col("begin"), pl.col("wait_ns") > pl.col("error_ns"))
    lengths = length_inside(quiet, rows["begin"].to_numpy(), rows["until"].to_numpy())
    rows = rows.with_columns(idle_ns=pl.Series(lengths)).filter(pl.col("idle_ns") > 0, pl.col("late_rank") != pl.col("rank"))
    starts = [_first_inside(quiet, *ends) for ends in rows.select("begin", "until").iter_rows()]
    name = pl.concat_str("operation", pl.lit(" "), "group").str.strip_chars()
    rows = rows.select(
        "rank", "step", "idle_ns", "number", "late_rank", start_ns=pl.Series(starts, dtype=pl.Int64), cause=pl.lit(LATE_RANK),
        cause_ns="idle_ns", name=name, before=pl.lit(None), after=pl.lit(None),
    )  # fmt: skip
    longest = rows.sort("idle_ns", "start_ns", descending=[True, False]).group_by("step", maintain_order=True).head(MOST_GAPS)
    return longest.sort("step", "start_ns").select(cast_columns(_OF_RANK))


def _first_inside(intervals: Intervals, begin: int, end: int) -> int:
    """Where the intervals begin inside of a range that they touch."""
    return int(clip(intervals, begin, end).start[0])
