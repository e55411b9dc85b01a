"""Everything about events: their rows of the tables, and the events that they are tied to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from steplens.server.timeline.nested import overlapping_events
from steplens.server.timeline.search import brief_of_event
from steplens.timeline.layout import Timeline
from steplens.timeline.rows import Int64Array
from steplens.timeline.sources import DEVICE
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.trace import Trace

#: links of one kind that are listed; the number of all is given beside them
MOST_LINKS = 100


def describe_event(trace: Trace, timeline: Timeline, event: int) -> dict[str, Any]:
    """One event: ``brief_of_event``, its row of the table it comes from (times as in the table), its links; see ``find_links``.

    Args:
        trace: the tables.
        timeline: of this trace.
        event: id.
    """
    lane = timeline.lane_of(event)
    table = lane.source.table
    columns: dict[str, Any] = {}
    related = []
    if table:
        rows = timeline.table_row[event : event + 1].astype(np.int64)
        columns = {name: value for name, value in row_columns(trace, table, rows).to_dicts()[0].items() if value is not None}
        for kind, target, pairs in find_links(trace, table, rows):
            if pairs.height:
                ids = events_of(timeline, target, pairs["target"].head(MOST_LINKS)).sort("start", "event")["event"]
                related.append(
                    {"kind": kind, "count": pairs.height, "events": [brief_of_event(timeline, number) for number in ids]}
                )
    described = {"source": lane.source.id, "table": table, "callers": callers_of(timeline, event), "columns": columns}
    return {**brief_of_event(timeline, event), **described, "links": related}


def callers_of(timeline: Timeline, event: int) -> list[dict[str, Any]]:
    """The events of the lane of one in the rows above that it lies inside, the outermost first; none on a device."""
    lane = timeline.lane_of(event)
    if lane.source.group == DEVICE:
        return []
    start, end = int(timeline.start[event]), int(timeline.end[event])
    depth = int(np.searchsorted(timeline.offsets, event, side="right")) - 1 - lane.first_row
    around = []
    for row in range(lane.first_row, lane.first_row + depth):
        at_start = overlapping_events(timeline, row, start, start + 1)
        around += [brief_of_event(timeline, int(caller)) for caller in at_start[-1:] if timeline.end[caller] >= end]
    return around


def row_columns(trace: Trace, table: str, rows: Int64Array) -> pl.DataFrame:
    """Some rows of a table, names as text."""
    row_numbers = pl.Series(rows, dtype=pl.UInt32)
    rows_of_table = trace.required(table)
    rows_of_table = rows_of_table.slice(int(rows[0]), 1) if len(rows) == 1 else rows_of_table.select(pl.all().gather(row_numbers))
    return rows_of_table.with_columns(pl.col(pl.Categorical).cast(pl.String)).collect()


Link = tuple[str, str, pl.DataFrame]


def find_links(trace: Trace, table: str, rows: Int64Array) -> list[Link]:
    """What rows of a table are tied to.

    The call around it (``parent``), the calls that it makes (``child``), the device tasks that it launched (``task``), the
    operator (``operator``) and the runtime call (``runtime``) that launched it, and the call of the other direction with
    its autograd sequence number (``autograd``).

    Args:
        trace: the tables.
        table: whose rows are asked about.
        rows: their places.

    Returns:
        for each kind: its name, the table that it leads to, and pairs of rows (``row`` of ``table``, ``target`` of the other).
    """
    find = _FINDERS.get(table)
    return [] if find is None or table not in trace else find(trace, pl.Series("row", rows, dtype=pl.Int64))


def _of_ops(trace: Trace, rows: pl.Series) -> list[Link]:
    calls = _number_rows(trace, "ops", "parent", "sequence", "scope")
    selected_calls = calls.filter(pl.col("row").is_in(rows.implode()))
    ahead = selected_calls.filter(pl.col("sequence") >= 0).select("row", "sequence", "scope")
    other_calls = calls.select("sequence", target="row", other="scope")
    directions = ahead.join(other_calls, on="sequence").filter(pl.col("scope") != pl.col("other"))
    relations = [
        ("parent", "ops", _link_pairs(selected_calls.filter(pl.col("parent") >= 0), pl.col("parent"))),
        ("child", "ops", _reverse_pairs(calls, "parent", rows)),
        ("autograd", "ops", _link_pairs(directions, pl.col("target"))),
    ]
    if not cpu_is_device(trace):
        # a call that is its own task is there once
        relations.insert(2, ("task", "kernels", _reverse_pairs(_number_rows(trace, "kernels", "op"), "op", rows)))
    return relations


def _of_tasks(table: str, trace: Trace, rows: pl.Series) -> list[Link]:
    selected = _number_rows(trace, table, "op", "correlation").filter(pl.col("row").is_in(rows.implode()))
    called = _link_pairs(selected.filter(pl.col("op") >= 0), pl.col("op"))
    return [("operator", "ops", called), ("runtime", "api", _correlated_pairs(trace, selected, "api"))]


def _of_calls(trace: Trace, rows: pl.Series) -> list[Link]:
    selected = _number_rows(trace, "api", "correlation").filter(pl.col("row").is_in(rows.implode()))
    return [("task", "kernels", _correlated_pairs(trace, selected, "kernels"))]


def _of_python(trace: Trace, rows: pl.Series) -> list[Link]:
    frames = _number_rows(trace, "python", "id", "parent")
    selected = frames.filter(pl.col("row").is_in(rows.implode()) & (pl.col("parent") >= 0))
    callers = frames.select(parent="id", target="row")
    return [("parent", "python", _link_pairs(selected.join(callers, on="parent"), pl.col("target")))]


_FINDERS: dict[str, Callable[[Trace, pl.Series], list[Link]]] = {
    "ops": _of_ops,
    "kernels": partial(_of_tasks, "kernels"),
    "communication": partial(_of_tasks, "communication"),
    "api": _of_calls,
    "python": _of_python,
}


def _number_rows(trace: Trace, table: str, *columns: str) -> pl.LazyFrame:
    """Columns of a table with the numbers of its rows."""
    return trace.required(table).select(columns).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))


def _link_pairs(found: pl.LazyFrame, target: pl.Expr) -> pl.DataFrame:
    return found.select("row", target=target.cast(pl.Int64)).sort("row", "target").collect()


def _reverse_pairs(others: pl.LazyFrame, column: str, rows: pl.Series) -> pl.DataFrame:
    """The rows whose ``column`` names one of ``rows``."""
    children = others.filter(pl.col(column).is_in(rows.implode())).select(row=column, target="row")
    return _link_pairs(children, pl.col("target"))


def _correlated_pairs(trace: Trace, own: pl.LazyFrame, table: str) -> pl.DataFrame:
    correlated = _number_rows(trace, table, "correlation").select("correlation", target="row")
    return _link_pairs(own.filter(pl.col("correlation") > 0).join(correlated, on="correlation"), pl.col("target"))


def events_of(timeline: Timeline, table: str, rows: pl.Series) -> pl.DataFrame:
    """The events that rows of a table are: row, event and start; rows without a time have none."""
    lanes = [lane for lane in timeline.lanes if lane.source.table == table]
    if not lanes:
        return pl.DataFrame(schema={"row": pl.Int64, "event": pl.Int64, "start": pl.Int64})
    first, last = lanes[0].first_row, lanes[-1].first_row + lanes[-1].rows
    low, high = int(timeline.offsets[first]), int(timeline.offsets[last])
    row_numbers = rows.to_numpy().astype(np.uint32)
    events = np.flatnonzero(np.isin(timeline.table_row[low:high], row_numbers)) + low
    return pl.DataFrame({"row": timeline.table_row[events].astype(np.int64), "event": events, "start": timeline.start[events]})
