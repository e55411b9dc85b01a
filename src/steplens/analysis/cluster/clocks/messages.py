"""The messages of a job: which collectives and which sends and receives of several ranks are the same one.

Two ranks number what they exchange in the same order, so that equal numbers are one message. No times of two ranks are compared:
their clocks may differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.clocks.first_messages import without_shifted
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.message_size import is_one_part
from steplens.analysis.tools.once import once_per_run, once_per_trace
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.building.checks.ranks import ends_together, is_size_told, recorded_ranks
from steplens.trace.schema import COLLECTIVE, RECEIVE, SEND
from steplens.trace.trace import Trace

#: one side of a message, on its rank's clock. ``number``: from 0 within step (null: in all that was recorded), group and
#: operation; ``members``: ranks of the group that were recorded, of ``size`` that it has; ``peer``: the root of a one-sided
#: collective, null where it has none or nobody says which; ``is_part``: what bytes are, see ``message_size.is_one_part``
SIDES = table_schema(
    "message, step, group: String, operation: String, number, rank, bytes, is_part: Boolean, members, size, start_ns, end_ns, "
    "peer, kind: String"
)

#: what tells messages apart whose sides are numbered
KEY = ["step", "group", "operation"]
_POINT_TO_POINT = "send/receive"


@once_per_run
def message_sides(traces: Sequence[Trace]) -> pl.DataFrame:
    """Every side of every message that was recorded on at least two ranks, one row per rank; columns ``SIDES``.

    * Collectives of one group, operation and step are numbered by their start; where all recorded ranks of the group have equally
      many, equal numbers are one message. Those outside steps are left out, and those of which a rank has more or fewer.
    * Where no rank recorded a step, they are numbered in all that was recorded. Ranks that began to record at different
      collectives are not compared, as far as the times between these tell it (``first_messages.without_shifted``).
    * A send and a receive are one message when they are the equally numbered ones of their source, destination and step, and both
      ranks have equally many. ``group`` names both ranks, ``operation`` is "send/receive".
    * How many ranks a group has is what the source says; of a group of unknown size all ranks of the job have to be there. Where
      results of another analysis are all there is of a rank and nothing tells the size of the job, some may be missing.

    Args:
        traces: of one job; several windows of a rank may be among them.

    Returns:
        Sorted by message and rank; ``message`` counts from 0, in the order of the program within a group and operation.
    """
    rows = join_rows(itertools.chain([pl.DataFrame(schema=_ROWS)], map(communication_rows, traces)))
    has_steps = rows["step"].null_count() < rows.height or any(map(has_recorded_steps, traces))
    if has_steps:
        rows = rows.drop_nulls("step")
    if rows["rank"].n_unique() < 2:
        return pl.DataFrame(schema=SIDES)
    ranks, job = recorded_ranks(traces)
    needed = job if len(ranks) < job else 0
    if not needed and any(trace.is_results_only for trace in traces) and not is_size_told(traces):
        needed = job + 1
    rows = pl.concat([rows.filter(kind=COLLECTIVE), _point_to_point(rows)]).sort("start_ns", "end_ns")
    rows = rows.with_columns(number=pl.int_range(pl.len()).over([*KEY, "rank"]), calls=pl.len().over([*KEY, "rank"]))
    of_group = rows.group_by("group").agg(members=pl.col("rank").n_unique(), size=pl.col("ranks").max().fill_null(needed))
    rows = rows.join(of_group, on="group")
    is_common = (pl.col("calls").n_unique().over(KEY) == 1) & (pl.col("rank").n_unique().over(KEY) == pl.col("members"))
    rows = rows.filter(is_common & (pl.col("members") > 1)).sort("group", "operation", "step", "number", "rank")
    if not has_steps:
        rows = without_shifted(rows)
    message = pl.struct("group", "operation", "step", "number").rle_id().cast(pl.Int64)
    return rows.with_columns(message=message).select(cast_columns(SIDES))


def clock_bounds(sides: pl.DataFrame) -> pl.DataFrame:
    """What of the sides of messages bounds clocks: columns ``clocks.bounds.MESSAGES``.

    Where every rank hears of every other, nobody leaves before all have arrived; of a broadcast, before the root has; the root of
    a reduction does not leave before all others have arrived; nobody receives what was not sent.

    Args:
        sides: of ``message_sides``.
    """
    operation = pl.col("operation")
    is_mutual = ends_together(operation)
    has_root = pl.col("peer").is_not_null()
    is_root = pl.col("peer") == pl.col("rank")
    from_root = has_root & operation.str.contains("(?i)broadcast|scatter")
    to_root = has_root & operation.str.contains("(?i)reduce|gather")
    is_awaited = is_mutual | (pl.col("kind") == SEND) | (from_root & is_root) | (to_root & ~is_root)
    has_waited = is_mutual | (pl.col("kind") == RECEIVE) | (from_root & ~is_root) | (to_root & is_root)
    return sides.select(
        "message",
        "rank",
        group=pl.concat_str("group", operation, separator=" "),
        arrival_ns="start_ns",
        leave_ns="end_ns",
        is_awaited=is_awaited.fill_null(False),
        has_waited=has_waited.fill_null(False),
    ).filter(pl.col("is_awaited") | pl.col("has_waited"))


_ROWS = table_schema(
    "step, bytes, is_part: Boolean, ranks, start_ns, end_ns, peer, rank, kind: String, group: String, operation: String"
)


@once_per_trace
def communication_rows(trace: Trace) -> pl.DataFrame:
    """The sides of a trace's collectives, sends and receives, one row each, whether or not others were recorded.

    Of a trace with steps those in its steps. Sorted by start.
    """
    if "communication" not in trace or trace.rank < 0:
        return pl.DataFrame(schema=_ROWS)
    columns = {
        "group": pl.col("group").cast(pl.String).fill_null(""),
        "operation": pl.coalesce(pl.col("operation").cast(pl.String), pl.col("name").cast(pl.String)),
        "kind": pl.col("kind").cast(pl.String),
        "rank": pl.lit(trace.rank),
        "is_part": is_one_part(),
    }
    rows = trace.required("communication").select("step", "bytes", "ranks", "start_ns", "end_ns", "peer", **columns)
    needed = ["step", "end_ns"] if has_recorded_steps(trace) else ["end_ns"]
    # in the order of ``operations_of_trace``: what is kept of a rank compresses to less where columns are the same
    return rows.drop_nulls(needed).sort("start_ns", maintain_order=True).collect().select(cast_columns(_ROWS))


def has_recorded_steps(trace: Trace) -> bool:
    """Whether a trace has any step."""
    return trace.steps is not None and trace.steps.height > 0


def _point_to_point(rows: pl.DataFrame) -> pl.DataFrame:
    """Sends and receives, with both of their ranks as their group."""
    is_sent = pl.col("kind") == SEND
    source = pl.when(is_sent).then("rank").otherwise("peer")
    destination = pl.when(is_sent).then("peer").otherwise("rank")
    both = rows.filter(pl.col("kind").is_in([SEND, RECEIVE]), pl.col("peer").is_not_null(), pl.col("peer") != pl.col("rank"))
    return both.with_columns(
        group=pl.concat_str(source, pl.lit(" to "), destination),
        operation=pl.lit(_POINT_TO_POINT),
        ranks=pl.lit(2, dtype=pl.Int64),
    ).select(rows.columns)
