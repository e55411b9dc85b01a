"""The events of one trace as lanes, rows and columns, sorted for drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.timeline.rows import MOST_ROWS, PIECE, WORKERS, Int64Array, IntArray, assign_rows
from steplens.timeline.sources import SOURCES, Labels, LaneSource
from steplens.trace.trace import Trace

#: events of one job begin less than this apart, 100 days; what is further away counts on another clock
SAME_CLOCK_NS = 100 * 86_400 * 10**9


@dataclass(frozen=True)
class Lane:
    """One lane: a thread's calls, a stream's tasks ...

    Attributes:
        id: its place in ``Timeline.lanes``.
        source: its ``LaneSource``.
        label: what it is called.
        key: column -> value of what tells it from the other lanes of its source (pid and tid, device and stream ...).
        first_row: its first row in ``Timeline``; its rows follow one another, one per depth.
        rows: how many.
        events: how many events it has.
        start_ns, end_ns: of its events, from the origin.
    """

    id: int
    source: LaneSource
    label: str
    key: Mapping[str, Any]
    first_row: int
    rows: int
    events: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Timeline:
    """All events of a trace that have a place in time, sorted by (row, start). An event's id is its place.

    Attributes:
        origin_ns: Unix time from which all times here count.
        lanes: see ``Lane``.
        offsets: first event of each row, and the number of events behind the last, shape (rows + 1,).
        crossing: whether two events of a row may be at the same time, shape (rows,).
        start, end: ns from the origin, shape (n,).
        name: place of its name in ``names``, shape (n,).
        table_row: row in the table of its lane's source, shape (n,).
        names: distinct names.
        unplaced: source -> events without a time, which no lane shows.
    """

    origin_ns: int
    lanes: tuple[Lane, ...]
    offsets: Int64Array
    crossing: npt.NDArray[np.bool_]
    start: Int64Array
    end: Int64Array
    name: npt.NDArray[np.uint32]
    table_row: npt.NDArray[np.uint32]
    names: tuple[str, ...]
    unplaced: Mapping[str, int]

    @property
    def bounds(self) -> tuple[int, int]:
        """First start and last end, ns from the origin; 0 and 0 without events. Lanes on another clock do not count."""
        near = [lane for lane in self.lanes if abs(lane.start_ns) <= SAME_CLOCK_NS]
        return min((lane.start_ns for lane in near), default=0), max((lane.end_ns for lane in near), default=0)

    def lane_of(self, event: int) -> Lane:
        """The lane of an event."""
        row = int(np.searchsorted(self.offsets, event, side="right")) - 1
        first = [lane.first_row for lane in self.lanes]
        return self.lanes[int(np.searchsorted(first, row, side="right")) - 1]

    @property
    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """The columns of its events."""
        return self.start, self.end, self.name, self.table_row


@dataclass(frozen=True)
class _Part:
    """The events of one source.

    Attributes:
        source: of them.
        lanes: label and key of each of its lanes.
        rows: lane and depth of every row that has events, and its first event; behind them the number of events.
        start, end: Unix ns, in the order of the table, as the next two.
        name: as the process numbers names.
        table_row: in the table of the source; None where they are all of its rows.
        order: which of them comes first, second ... when they are sorted by row.
        unnamed: which have no name; None where all have one.
        texts: number of a name -> the name.
    """

    source: LaneSource
    lanes: list[tuple[str, dict[str, Any]]]
    rows: tuple[Int64Array, Int64Array, Int64Array]
    start: Int64Array
    end: Int64Array
    name: npt.NDArray[np.uint32]
    table_row: npt.NDArray[np.uint32] | None
    order: Int64Array
    unnamed: npt.NDArray[np.bool_] | None
    texts: Mapping[int, str]


class _Rows:
    """The rows of a source that have a time, read column by column: the memory of one is used again for the next.

    Attributes:
        columns: their names.
    """

    def __init__(self, lazy: pl.LazyFrame) -> None:
        self._lazy = lazy
        self._kept: pl.DataFrame | None = None
        self.columns = lazy.collect_schema().names()

    def times(self) -> tuple[Int64Array, Int64Array, int]:
        """Start and end of all rows that have both, and how many have not; to be called first."""
        found = []
        for column in ("start_ns", "end_ns"):
            values = self[column]
            if values.has_nulls():
                return self._without_the_others()
            found.append(_to_single_array(values))
        return found[0], found[1], 0

    def _without_the_others(self) -> tuple[Int64Array, Int64Array, int]:
        numbered = self._lazy if "table_row" in self.columns else self._lazy.with_row_index("table_row")
        all_events = numbered.collect()
        self._kept = all_events.drop_nulls(["start_ns", "end_ns"])
        self.columns = all_events.columns
        return _to_single_array(self["start_ns"]), _to_single_array(self["end_ns"]), all_events.height - self._kept.height

    def of(self, *columns: str) -> pl.DataFrame:
        """Some of the columns."""
        return self._lazy.select(columns).collect() if self._kept is None else self._kept.select(columns)

    def __getitem__(self, column: str) -> pl.Series:
        return self.of(column)[column]


def build_timeline(trace: Trace, origin_ns: int, sources: Sequence[LaneSource] = SOURCES) -> Timeline:
    """Lay out all events of a trace.

    Args:
        trace: one rank.
        origin_ns: Unix time from which times count; the same for all ranks of a run.
        sources: of its lanes.
    """
    labels = Labels(trace)
    with ThreadPoolExecutor(WORKERS) as threads:
        made = list(threads.map(lambda source: _read_source_events(source, trace, labels), sources))
        unplaced = {source.id: lost for source, (_, lost) in zip(sources, made, strict=True) if lost}
        parts = [part for part, _ in made if part is not None]
        del made
        ends = np.cumsum([0, *(len(part.order) for part in parts)])
        columns = tuple(np.empty(ends[-1], dtype=dtype) for dtype in (np.int64, np.int64, np.uint32, np.uint32))
        place, names = _index_names({code: text for part in parts for code, text in part.texts.items()})
        works = [
            work
            for number, part in enumerate(parts)
            for work in _column_moves(part, columns, int(ends[number]), origin_ns, place)
        ]
        list(threads.map(lambda work: work(), works))
    start, end, name, table_row = columns
    lanes, offsets = _build_lanes(parts, ends, start, end)
    return Timeline(
        origin_ns, lanes, offsets, _find_crossing_rows(offsets, start, end), start, end, name, table_row, names, unplaced
    )


def _build_lanes(parts: list[_Part], ends: Int64Array, start: Int64Array, end: Int64Array) -> tuple[tuple[Lane, ...], Int64Array]:
    """All lanes, and the first event of each of their rows."""
    lanes: list[Lane] = []
    offsets: list[Int64Array] = []
    rows = 0
    for part, base in zip(parts, ends.tolist(), strict=False):
        lane_of, depth_of, first = part.rows
        for number, (label, key) in enumerate(part.lanes):
            low, high = np.searchsorted(lane_of, [number, number + 1])
            its = np.full(int(depth_of[high - 1]) + 2, first[high], dtype=np.int64)
            # a depth without events begins where the next one does
            its[depth_of[low:high]] = first[low:high]
            its = np.minimum.accumulate(its[::-1])[::-1] + base
            span = int(start[its[0] : its[-1]].min()), int(end[its[0] : its[-1]].max())
            lanes.append(Lane(len(lanes), part.source, label, key, rows, len(its) - 1, int(its[-1] - its[0]), *span))
            offsets.append(its[:-1])
            rows += len(its) - 1
    return tuple(lanes), np.concatenate([*offsets, ends[-1:]])


def _rows_of(row: IntArray) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Lane and depth of every row that has events, and its first event when they are sorted by row; then how many there are."""
    counts = np.bincount(row)
    used = np.flatnonzero(counts)
    return used // MOST_ROWS, used % MOST_ROWS, np.r_[0, np.cumsum(counts[used])]


def _find_crossing_rows(offsets: Int64Array, start: Int64Array, end: Int64Array) -> npt.NDArray[np.bool_]:
    """Whether an event of a row begins before the one before it has ended."""
    early = np.flatnonzero(start[1:] < end[:-1]) + 1
    row = np.searchsorted(offsets, early, side="right") - 1
    crossing = np.zeros(len(offsets) - 1, dtype=bool)
    crossing[row[offsets[row] != early]] = True
    return crossing


def _read_source_events(source: LaneSource, trace: Trace, labels: Labels) -> tuple[_Part | None, int]:
    """The events of a source, and how many more have no time."""
    lazy = source.events(trace)
    if lazy is None:
        return None, 0
    rows = _Rows(lazy)
    start, end, lost = rows.times()
    if not len(start):
        return None, lost
    lane, keys = _number_lanes(rows.of(*source.keys), len(start))
    if (end < start).any():
        end = np.maximum(end, start)
    depth = rows["depth"] if "depth" in rows.columns else None
    depths = _to_single_array(depth) if depth is not None and not depth.has_nulls() else None
    order = _order_by_lane(lane, start, end)
    if order is None:
        row, by_row = assign_rows(lane, start, end, depths)
    else:
        row, by_row = assign_rows(lane[order], start[order], end[order], depths[order] if depths is not None else None)
    name = rows["name"]
    physical = name.to_physical()
    numbers = _to_single_array(physical.fill_null(0) if name.has_nulls() else physical)
    distinct = name.drop_nulls().unique() if name.has_nulls() else name.gather(_places_of_distinct(numbers))
    part = _Part(
        source=source,
        lanes=[(source.label(key, labels), key) for key in keys],
        rows=_rows_of(row),
        start=start,
        end=end,
        name=numbers,
        table_row=_to_single_array(rows["table_row"]) if "table_row" in rows.columns else None,
        order=by_row if order is None else order[by_row],
        unnamed=name.is_null().to_numpy() if name.has_nulls() else None,
        texts=dict(zip(distinct.to_physical().to_list(), distinct.cast(pl.String).to_list(), strict=True)),
    )
    return part, lost


def _column_moves(
    part: _Part, columns: tuple[npt.NDArray[Any], ...], first: int, origin_ns: int, place: npt.NDArray[np.uint32]
) -> list[Callable[[], Any]]:
    """What brings the columns of a part to their places among all, one work for each column."""
    start, end, name, table_row = (column[first : first + len(part.order)] for column in columns)

    def move_times(source: Int64Array, target: Int64Array) -> None:
        np.take(source, part.order, out=target, mode="clip")
        target -= origin_ns

    def move_names() -> None:
        np.take(part.name, part.order, out=name, mode="clip")
        for low in range(0, len(name), PIECE):
            np.take(place, name[low : low + PIECE], out=name[low : low + PIECE], mode="clip")
        if part.unnamed is not None:
            name[part.unnamed[part.order]] = place[-1]

    def move_table_rows() -> None:
        if part.table_row is None:
            table_row[:] = part.order
        else:
            np.take(part.table_row, part.order, out=table_row, mode="clip")

    return [partial(move_times, part.start, start), partial(move_times, part.end, end), move_table_rows, move_names]


def _to_single_array(values: pl.Series) -> npt.NDArray[Any]:
    """Values without nulls as one array; ``Series.to_numpy`` takes longer over several chunks, and more memory."""
    if values.n_chunks() < 2:
        return values.to_numpy()
    return np.concatenate([chunk.to_numpy() for chunk in values.get_chunks()])


def _places_of_distinct(numbers: npt.NDArray[np.uint32]) -> Int64Array:
    """A place of each of the different values of small numbers."""
    place = np.full(int(numbers.max()) + 1, -1, dtype=np.int64)
    for low in range(0, len(numbers), PIECE):
        piece = numbers[low : low + PIECE]
        place[piece] = np.arange(low, low + len(piece))
    return place[place >= 0]


def _order_by_lane(lane: IntArray, start: Int64Array, end: Int64Array) -> Int64Array | None:
    """The order by (lane, start, -end); None where they have it already, as most tables do."""
    same, later = lane[1:] == lane[:-1], start[1:] > start[:-1]
    tied = (start[1:] == start[:-1]) & (end[1:] <= end[:-1])
    if bool(np.all((lane[1:] > lane[:-1]) | (same & (later | tied)))):
        return None
    return np.lexsort((-end, start, lane)).astype(np.int64)


def _number_lanes(frame: pl.DataFrame, height: int) -> tuple[IntArray, list[dict[str, Any]]]:
    """The number of the lane of every event, and the key of every lane, sorted by it; the columns are the keys."""
    keys = frame.columns
    if not keys:
        return np.zeros(height, dtype=np.int32), [{}]
    # tables are sorted by thread: a run of equal keys is looked up once
    first = np.unique(np.concatenate([np.zeros(1, dtype=np.int64), *(_find_changed_rows(frame[key]) for key in keys)]))
    runs = frame.select(keys)[first]
    distinct = runs.unique()
    # names sort by when they were met, not by their text
    texts = [pl.col(key).cast(pl.String) for key in keys if distinct.schema[key] == pl.Categorical]
    ordered = distinct.with_columns(texts).with_row_index("_place").sort(keys)
    numbered = distinct[ordered["_place"].to_list()].with_row_index("_lane")
    lane = runs.join(numbered, on=list(keys), how="left", nulls_equal=True, maintain_order="left")["_lane"]
    # the numbers of their rows have to fit as well
    narrow = np.int32 if distinct.height * MOST_ROWS < 1 << 31 else np.int64
    return np.repeat(lane.to_numpy().astype(narrow), np.diff(np.r_[first, frame.height])), ordered.drop("_place").to_dicts()


def _find_changed_rows(values: pl.Series) -> Int64Array:
    """Rows that differ from the one before them."""
    number = values.to_physical() if values.dtype == pl.Categorical else values
    if number.has_nulls() or not number.dtype.is_integer():
        changed = number.ne_missing(number.shift())
        return changed.arg_true().to_numpy().astype(np.int64)
    changes: list[Int64Array] = []
    low, last = 0, None
    for chunk in number.get_chunks():
        plain = chunk.to_numpy()
        if last is not None and len(plain) and plain[0] != last:
            changes.append(np.array([low]))
        changes.append(np.flatnonzero(plain[1:] != plain[:-1]) + low + 1)
        low += len(plain)
        last = plain[-1] if len(plain) else last
    return np.concatenate(changes)


def _index_names(texts: Mapping[int, str]) -> tuple[npt.NDArray[np.uint32], tuple[str, ...]]:
    """The place of every name by the number that the process gives it, behind them that of a missing one; and the names."""
    pool = sorted(texts)
    place = np.full(pool[-1] + 2 if pool else 1, len(pool), dtype=np.uint32)
    place[pool] = np.arange(len(pool), dtype=np.uint32)
    return place, (*(texts[number] for number in pool), "")
