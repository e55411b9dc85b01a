"""The timeline of a report: the whole run in coarse buckets, a window of it event by event, and everything about these events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from steplens.report.ask import InProcessClient
from steplens.report.parts import Parts
from steplens.report.window import Window
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns
from steplens.server.timeline import details, tile_format, tiles
from steplens.server.timeline.tiles import Tile
from steplens.timeline.layout import Timeline
from steplens.timeline.pyramid import Pyramid
from steplens.timeline.rows import Int64Array

#: width of the coarse tile of the whole run
_PIXELS = 4096
#: from one level of detail to the next buckets become this many times 2 narrower
_FINER = 4
#: a level that is not at least this many times smaller than the next finer one is not worth its bytes
_WORTH = 3
#: events about which everything is known
MOST_DETAILED = 40_000
_MOST_ARROWS = 2000
_MOST_SERIES = 200
_POINTS = 1200
_POINTS_INSIDE = 4000


def collect_timeline(asker: InProcessClient, shown: OpenedRun, trace: int, window: Window, parts: Parts) -> None:
    """Put the timeline of a trace into a report.

    What the whole run looks like, the events of the window at several levels of detail, the finest of which has each of them,
    the rows and links of these events, the series, the arrows of the window, and how often every name occurs.
    """
    pyramid = shown.timeline(trace)
    if not len(pyramid.timeline.start):
        return
    if not _add_levels(pyramid, shown, trace, window, parts):
        parts.lost("timeline", shown.id, trace, "", 0, len(pyramid.timeline.start), "size")
        return
    _add_name_counts(pyramid.timeline, shown, trace, parts)
    _add_series(asker, shown, trace, window, parts)
    _add_arrows(asker, shown, trace, window, parts)


def _add_levels(pyramid: Pyramid, shown: OpenedRun, trace: int, window: Window, parts: Parts) -> bool:
    timeline = pyramid.timeline
    rows = range(len(timeline.offsets) - 1)
    low, high = timeline.bounds
    tile_of_all = tiles.build_tile(pyramid, rows, low, high + 1, _PIXELS)
    if not parts.add(f"level/{shown.id}/{trace}/0", tile_format.encode_tile(tile_of_all, timeline)):
        return False
    # no bucket of the whole run lies half inside it; what is shorter than a bucket and begins before it ends before the window
    start = (max(window.start_ns, low) >> tile_of_all.shift) - 1 << tile_of_all.shift
    end = -(-min(window.end_ns, high + 1) // (1 << tile_of_all.shift)) << tile_of_all.shift
    made: list[Tile] = []
    for shift in range(0, tile_of_all.shift, _FINER) if start < end else ():
        detailed = _items_in_window(tiles.build_tile(pyramid, rows, start, end, max((end - start) >> shift, 1)), start, end)
        if not made or (detailed.shift > made[-1].shift and len(detailed.items.start) * _WORTH <= len(made[-1].items.start)):
            made.append(detailed)
    tiles_by_level: list[Tile] = []
    for detailed in reversed(made):
        if parts.add(f"level/{shown.id}/{trace}/{len(tiles_by_level) + 1}", tile_format.encode_tile(detailed, timeline)):
            tiles_by_level.append(detailed)
    events = int(made[0].items.count.sum()) if made else 0
    finest = tiles_by_level[-1] if tiles_by_level else tile_of_all
    single = finest.items.longest[finest.items.count == 1] if tiles_by_level else np.empty(0, dtype=np.int64)
    if len(single) < events:
        parts.lost("events", shown.id, trace, "", len(single), events, "size")
    event_details = _add_event_details(timeline, shown, trace, single, parts)
    answer = {
        "start_ns": start,
        "end_ns": end,
        "from_ns": window.start_ns,
        "levels": len(tiles_by_level) + 1,
        "exact": len(single) == events,
        "details": event_details,
    }
    return parts.add(f"timeline/{shown.id}/{trace}", answer)


def _items_in_window(tile: Tile, start_ns: int, end_ns: int) -> Tile:
    """The items of a tile that begin in a window; the others are items of the whole run."""
    inside_at = np.flatnonzero((tile.items.start >= start_ns) & (tile.items.start < end_ns))
    offsets = np.searchsorted(inside_at, tile.offsets)
    return dataclasses.replace(tile, start_ns=start_ns, end_ns=end_ns, offsets=offsets, items=tile.items.take(inside_at))


def _add_event_details(timeline: Timeline, shown: OpenedRun, trace: int, events: Int64Array, parts: Parts) -> int:
    """Rows and links of some events, the longest first where there are too many; how many are known."""
    if len(events) > MOST_DETAILED:
        longest = np.argsort(timeline.start[events] - timeline.end[events], kind="stable")[:MOST_DETAILED]
        parts.lost("details", shown.id, trace, "", MOST_DETAILED, len(events), "many")
        events = np.sort(events[longest])
    tables = shown.trace(trace)
    details_by_event: dict[str, Any] = {}
    linked = [events]
    for table, rows_of_table in _by_table(timeline, events):
        rows = timeline.table_row[rows_of_table].astype(np.int64)
        frame = details.row_columns(tables, table, rows)
        links = []
        for kind, target, pairs in details.find_links(tables, table, np.unique(rows)):
            found = _linked_rows(timeline, target, pairs)
            linked.append(found["event"].explode().drop_nulls().to_numpy().astype(np.int64))
            links.append({"kind": kind, **{name: found[name].to_list() for name in found.columns}})
        details_by_event[table] = {
            "events": rows_of_table.tolist(),
            "rows": rows.tolist(),
            "columns": {column.name: _encode_column(column) for column in frame.iter_columns()},
            "links": links,
        }
    body = {"tables": details_by_event, "briefs": _event_briefs(timeline, np.unique(np.concatenate(linked)))}
    if parts.add(f"details/{shown.id}/{trace}", body):
        return len(events)
    parts.lost("details", shown.id, trace, "", 0, len(events), "size")
    return 0


def _by_table(timeline: Timeline, events: Int64Array) -> Iterator[tuple[str, Int64Array]]:
    """Events by the table that they come from; those that are derived from several are left out."""
    first = np.array([timeline.offsets[lane.first_row] for lane in timeline.lanes], dtype=np.int64)
    lane = np.searchsorted(first, events, side="right") - 1
    # a lane without events begins where the next one does; every lane has some
    table = np.array([lane_of_timeline.source.table for lane_of_timeline in timeline.lanes])[lane]
    for name in np.unique(table):
        if name:
            yield str(name), events[table == name]


def _linked_rows(timeline: Timeline, target: str, pairs: pl.DataFrame) -> pl.DataFrame:
    """row, count of the rows that it is tied to, and the events of the first of them in order of start."""
    counted = pairs.group_by("row", maintain_order=True).agg(count=pl.len(), target=pl.col("target").head(details.MOST_LINKS))
    some = counted.explode("target")
    linked_events = details.events_of(timeline, target, some["target"].drop_nulls().unique()).rename({"row": "target"})
    placed = some.select("row", "target").join(linked_events, on="target", how="inner").sort("row", "start", "event")
    ids = placed.group_by("row", maintain_order=True).agg("event")
    return (
        counted.select("row", "count")
        .join(ids, on="row", how="left", maintain_order="left")
        .with_columns(pl.col("event").fill_null(pl.lit([], dtype=pl.List(pl.Int64))))
    )


def _encode_column(column: pl.Series) -> dict[str, Any]:
    """A column as its distinct values and their places; the same text stands in thousands of rows."""
    distinct = column.unique(maintain_order=True)
    frame = pl.DataFrame({"value": column}).join(
        pl.DataFrame({"value": distinct}).with_row_index("place"), on="value", how="left", nulls_equal=True, maintain_order="left"
    )
    return {"values": [columns.json_value(value) for value in distinct.to_list()], "places": frame["place"].to_list()}


def _event_briefs(timeline: Timeline, events: Int64Array) -> dict[str, Any]:
    """The events in short, as columns; ``names`` are whole, those of tiles are cut."""
    row = np.searchsorted(timeline.offsets, events, side="right") - 1
    first = np.array([lane.first_row for lane in timeline.lanes], dtype=np.int64)
    lane = np.searchsorted(first, row, side="right") - 1
    places, name = np.unique(timeline.name[events], return_inverse=True)
    return {
        "event": events.tolist(),
        "lane": lane.tolist(),
        "depth": (row - first[lane]).tolist() if len(first) else [],
        "start_ns": timeline.start[events].tolist(),
        "end_ns": timeline.end[events].tolist(),
        "name": name.tolist(),
        "names": [timeline.names[place] for place in places.tolist()],
    }


def _add_name_counts(timeline: Timeline, shown: OpenedRun, trace: int, parts: Parts) -> None:
    """How often every name occurs on every lane, so that a search tells of the whole run."""
    lane = np.repeat(np.arange(len(timeline.lanes)), [lane_of_timeline.events for lane_of_timeline in timeline.lanes])
    pairs, count = np.unique(timeline.name.astype(np.int64) * max(len(timeline.lanes), 1) + lane, return_counts=True)
    name, on = np.divmod(pairs, max(len(timeline.lanes), 1))
    body = {"names": list(timeline.names), "name": name.tolist(), "lane": on.tolist(), "count": count.tolist()}
    names = len(timeline.names)
    parts.add_some(f"names/{shown.id}/{trace}", body, "answers", shown.id, trace, "timeline/search", names, names)


def _add_series(asker: InProcessClient, shown: OpenedRun, trace: int, window: Window, parts: Parts) -> None:
    path = f"runs/{shown.id}/timeline"
    told = asker.get(path, {"trace": trace}).json
    spans = [
        {"start_ns": told["start_ns"], "end_ns": told["end_ns"] + 1, "points": _POINTS},
        {"start_ns": window.start_ns, "end_ns": window.end_ns, "points": _POINTS_INSIDE},
    ]
    numbers = [series["series"] for series in told["series"]]
    curves = {
        number: [{**span, **asker.get(f"{path}/series/{number}", {"trace": trace, **span}).json} for span in spans]
        for number in numbers[:_MOST_SERIES]
    }
    if curves:
        parts.add_some(f"series/{shown.id}/{trace}", curves, "curves", shown.id, trace, "", len(curves), len(numbers))


def _add_arrows(asker: InProcessClient, shown: OpenedRun, trace: int, window: Window, parts: Parts) -> None:
    query = {"trace": trace, "start_ns": window.start_ns, "end_ns": window.end_ns, "limit": _MOST_ARROWS}
    flows = asker.get(f"runs/{shown.id}/timeline/flows", query).json
    piece, arrows = f"arrows/{shown.id}/{trace}", len(flows["arrows"])
    parts.add_some(piece, flows, "arrows", shown.id, trace, "", arrows, flows["total"])
