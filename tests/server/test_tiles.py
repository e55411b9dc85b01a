"""Tiles, selections and searches of the timeline against loops over plain intervals."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.server.timeline import search, tile_format, window
from steplens.server.timeline.tiles import build_tile, shift_of
from steplens.timeline import items
from steplens.timeline import pyramid as pyramid_module
from steplens.timeline.layout import Timeline, build_timeline
from steplens.timeline.pyramid import Pyramid
from steplens.timeline.rows import MOST_ROWS, assign_rows, first_free, mark_visited_places
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

ORIGIN = 1_700_000_000_000_000_000

# (stream, start, length, name): streams overlap at will, moments and long tasks among short ones
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 3000),
        st.one_of(st.integers(0, 4), st.integers(0, 200), st.integers(0, 5000)),
        st.sampled_from(["aten::mm", "aten::add", "AllReduce", "<img src=x>", ""]),
    ),
    min_size=1,
    max_size=120,
)


def trace_of(events: list[tuple[int, int, int, str]]) -> Trace:
    rows = [
        {"id": place, "name": name, "stream": stream, "start_ns": ORIGIN + start, "end_ns": ORIGIN + start + length}
        for place, (stream, start, length, name) in enumerate(events)
    ]
    frame = pl.DataFrame(rows, schema=pl.Schema(SCHEMA["kernels"]), orient="row")
    frame = frame.with_columns(device=pl.lit(0, pl.Int32), core=pl.lit("CUDA"), kind=pl.lit("compute"))
    return Trace(Path("made"), {"kernels": frame.cast(pl.Schema(SCHEMA["kernels"]))})


def timeline_of(events: list[tuple[int, int, int, str]]) -> Timeline:
    return build_timeline(trace_of(events), ORIGIN)


def kernel_lanes(timeline: Timeline) -> list[Any]:
    return [lane for lane in timeline.lanes if lane.source.id == "kernels"]


@given(EVENTS)
def test_every_event_has_one_place_and_no_row_holds_two_at_once(events: list[tuple[int, int, int, str]]) -> None:
    timeline = timeline_of(events)
    placed = []
    for lane in kernel_lanes(timeline):
        for depth in range(lane.rows):
            low, high = timeline.offsets[lane.first_row + depth : lane.first_row + depth + 2]
            starts, ends = timeline.start[low:high], timeline.end[low:high]
            assert np.all(starts[1:] >= starts[:-1])
            assert np.all(starts[1:] >= ends[:-1])
            assert not timeline.crossing[lane.first_row + depth]
            placed += [
                (lane.key["stream"], int(start), int(end - start), timeline.names[name])
                for start, end, name in zip(starts, ends, timeline.name[low:high], strict=True)
            ]
    assert sorted(placed) == sorted(events)


@given(EVENTS, st.lists(st.integers(0, 120), max_size=8))
def test_a_table_in_pieces_is_laid_out_as_one_in_a_piece(events: list[tuple[int, int, int, str]], cuts: list[int]) -> None:
    whole = trace_of(sorted(events)).required("kernels").collect()
    borders = [0, *sorted(cuts), whole.height]
    pieces = [whole[low:high] for low, high in pairwise(borders)]
    cut = pl.concat([piece for piece in pieces if piece.height], rechunk=False)
    expected, found = (build_timeline(Trace(Path("made"), {"kernels": frame}), ORIGIN) for frame in (whole, cut))
    assert found.lanes == expected.lanes
    assert [found.names[name] for name in found.name] == [expected.names[name] for name in expected.name]
    for column in ("offsets", "crossing", "start", "end", "table_row"):
        np.testing.assert_array_equal(getattr(found, column), getattr(expected, column))


@given(EVENTS, st.integers(-100, 8000), st.integers(0, 8000), st.sampled_from([1, 3, 10, 100, 2000]))
def test_a_tile_holds_or_counts_every_event_of_its_window(
    events: list[tuple[int, int, int, str]], start: int, length: int, pixels: int
) -> None:
    pyramid = Pyramid(timeline_of(events))
    timeline = pyramid.timeline
    rows = range(len(timeline.offsets) - 1)
    found = build_tile(pyramid, rows, start, start + length, pixels)
    bucket = 1 << found.shift
    assert bucket <= max(length // pixels, 1)
    assert found.start_ns <= start
    assert found.end_ns >= start + length
    for place, row in enumerate(rows):
        low, high = timeline.offsets[row], timeline.offsets[row + 1]
        expected = brute_force(timeline, range(low, high), found.start_ns, found.end_ns, bucket)
        mine = slice(found.offsets[place], found.offsets[place + 1])
        shown = found.items
        got = [
            (int(shown.start[i]), int(shown.end[i]), int(shown.count[i]), int(shown.busy[i]), int(shown.longest[i]))
            for i in range(mine.start, mine.stop)
        ]
        assert got == expected
        inside = [event for event in range(low, high) if overlaps(timeline, event, start, start + length)]
        counted = {event for event in inside if is_counted(timeline, event, found, bucket)}
        assert counted == set(inside)
    assert [timeline.names[name] for name in found.items.name] == [timeline.names[timeline.name[i]] for i in found.items.longest]


def overlaps(timeline: Timeline, event: int, start: int, end: int) -> bool:
    return bool(timeline.start[event] < end and (timeline.end[event] > start or timeline.start[event] >= start))


def is_counted(timeline: Timeline, event: int, found: Any, bucket: int) -> bool:
    """By the rule of the documentation alone: long events overlap what the tile covers, short ones begin in it."""
    begin, end = int(timeline.start[event]), int(timeline.end[event])
    if end - begin >= bucket:
        return bool(begin < found.end_ns and end > found.start_ns)
    return bool(found.start_ns <= begin < found.end_ns)


def brute_force(timeline: Timeline, events: range, low: int, high: int, bucket: int) -> list[tuple[int, int, int, int, int]]:
    """Items of a row: one loop, one dictionary, no resolution but the wanted one."""
    alone = []
    together: dict[int, list[int]] = {}
    for event in events:
        begin, end = int(timeline.start[event]), int(timeline.end[event])
        if end - begin >= bucket:
            if begin < high and end > low:
                alone.append((begin, end, 1, end - begin, event))
        elif low <= begin < high:
            together.setdefault(begin // bucket, []).append(event)
    for members in together.values():
        lengths = [int(timeline.end[event] - timeline.start[event]) for event in members]
        begin = min(int(timeline.start[event]) for event in members)
        end = max(int(timeline.end[event]) for event in members)
        alone.append((begin, end, len(members), sum(lengths), members[lengths.index(max(lengths))]))
    return sorted(alone, key=lambda item: (item[0], item[4]))


@given(EVENTS)
def test_the_counts_of_all_resolutions_add_up_to_the_events(events: list[tuple[int, int, int, str]]) -> None:
    pyramid = Pyramid(timeline_of(events))
    for level in pyramid.levels[1:]:
        assert level.items is not None
        assert int(level.items.count.sum()) == len(pyramid.timeline.start)
        assert int(level.items.busy.sum()) == int((pyramid.timeline.end - pyramid.timeline.start).sum())


def test_many_short_events_are_kept_at_coarser_resolutions() -> None:
    rng = np.random.default_rng(5)
    start = np.cumsum(rng.integers(1, 50, 20_000))
    timeline = timeline_of([(place % 3, int(at), int(rng.integers(0, 20)), f"op {place % 7}") for place, at in enumerate(start)])
    pyramid = Pyramid(timeline)
    assert len(pyramid.levels) >= 3
    rows = range(len(timeline.offsets) - 1)
    for pixels in (1, 7, 300, 5000):
        for low, high in ((0, int(start[-1])), (1000, 1100), (int(start[5000]), int(start[9000]))):
            found = build_tile(pyramid, rows, low, high, pixels)
            for place, row in enumerate(rows):
                events = range(timeline.offsets[row], timeline.offsets[row + 1])
                expected = brute_force(timeline, events, found.start_ns, found.end_ns, 1 << found.shift)
                mine = slice(found.offsets[place], found.offsets[place + 1])
                assert found.items.count[mine].tolist() == [item[2] for item in expected]
                assert found.items.longest[mine].tolist() == [item[4] for item in expected]


@given(EVENTS, st.integers(-10, 6000), st.integers(0, 6000))
def test_a_selection_adds_up_what_lies_inside(events: list[tuple[int, int, int, str]], start: int, length: int) -> None:
    timeline = timeline_of(events)
    end = start + length
    lanes = kernel_lanes(timeline)
    names, lanes_found = window.summarize_window(timeline, lanes, start, end)
    inside: dict[str, list[int]] = {}
    cut = 0
    for _, begin, duration, name in events:
        stop = begin + duration
        if begin < end and (stop > start or begin >= start):
            inside.setdefault(name, []).append(min(stop, end) - max(begin, start))
            cut += begin < start or stop > end
    got = {row["name"]: [row[key] for key in ("count", "total_ns", "min_ns", "max_ns")] for row in names.to_dicts()}
    assert got == {name: [len(times), sum(times), min(times), max(times)] for name, times in inside.items()}
    for row in names.to_dicts():
        at = row["longest"]
        assert min(int(timeline.end[at]), end) - max(int(timeline.start[at]), start) == row["max_ns"]
        assert timeline.names[timeline.name[at]] == row["name"]
    assert sum(lane["count"] for lane in lanes_found) == sum(map(len, inside.values()))
    assert sum(lane["cut"] for lane in lanes_found) == cut


@given(EVENTS, st.integers(-10, 6000), st.booleans())
def test_the_next_occurrence_is_the_next_one(events: list[tuple[int, int, int, str]], start: int, forward: bool) -> None:
    timeline = timeline_of(events)
    found, counts = search.find_on_lanes(timeline, "MM", kernel_lanes(timeline), whole=False)
    first = timeline.offsets[kernel_lanes(timeline)[0].first_row]
    hits = [event for event in range(first, len(timeline.start)) if timeline.names[timeline.name[event]] == "aten::mm"]
    assert found.tolist() == hits
    assert sum(counts.values()) == len(hits) == sum(name == "aten::mm" for *_, name in events)
    place = search.neighbouring_event(timeline, found, start, -1, forward=forward)
    times = [(int(timeline.start[event]), event) for event in hits]
    ahead = [(at, event) for at, event in times if (at >= start if forward else at < start)]
    assert place == ((min(ahead) if forward else max(ahead))[1] if ahead else None)


def test_walking_through_all_occurrences_meets_each_once() -> None:
    timeline = timeline_of([(place % 2, 10 * (place // 4), 0, "aten::mm") for place in range(40)])
    found, _ = search.find_on_lanes(timeline, "aten::mm", timeline.lanes, whole=True)
    met = []
    at, event = -1, -1
    while (place := search.neighbouring_event(timeline, found, at, event, forward=True)) is not None:
        met.append(place)
        at, event = int(timeline.start[place]), place
    assert sorted(met) == found.tolist()
    assert [int(timeline.start[place]) for place in met] == sorted(timeline.start[found].tolist())


def test_the_binary_form_is_what_the_documentation_says(tmp_path: Path) -> None:
    pyramid = Pyramid(timeline_of([(place % 3, 7 * place, place % 13, f"名 {place % 5}") for place in range(400)]))
    found = build_tile(pyramid, range(len(pyramid.timeline.offsets) - 1), 100, 2000, 50)
    expected = json.loads(json.dumps(tile_format.tile_as_json(found, pyramid.timeline)))
    raw = tile_format.encode_tile(found, pyramid.timeline)
    # written from docs/view.md, without the module
    assert raw[:4] == b"SLT1"
    (length,) = struct.unpack("<I", raw[4:8])
    header = json.loads(raw[8 : 8 + length])
    begin = 8 + length
    assert begin % 8 == 0
    formats = {"f8": "d", "u4": "I"}
    for column in header.pop("columns"):
        count = header["items"]
        assert (begin + column["offset"]) % 8 == 0
        values = struct.unpack_from(f"<{count}{formats[column['type']]}", raw, begin + column["offset"])
        assert list(values) == expected["columns"][column["name"]], column
    expected.pop("columns")
    assert header == expected
    assert header["events"] == sum(found.items.count.tolist())


def test_hundreds_of_events_at_once_lose_none() -> None:
    count = MOST_ROWS + 90
    start, end = np.arange(count), np.full(count, 10_000)
    depth = first_free(start, end)
    assert depth.tolist()[: MOST_ROWS - 1] == list(range(MOST_ROWS - 1))
    assert set(depth.tolist()[MOST_ROWS - 1 :]) == {MOST_ROWS - 1}
    timeline = timeline_of([(0, place, 10_000 - place, "long") for place in range(count)][::-1])
    pyramid = Pyramid(timeline)
    for low in (0, 5_000, 9_990):
        found = build_tile(pyramid, range(len(timeline.offsets) - 1), low, low + 8, 8)
        lane = kernel_lanes(timeline)[0]
        rows = slice(found.offsets[lane.first_row], found.offsets[lane.first_row + lane.rows])
        expected = sum(place < found.end_ns for place in range(count))
        assert int(found.items.count[rows].sum()) == expected


def test_nested_calls_lie_below_their_callers() -> None:
    lane = np.zeros(5, dtype=np.int64)
    start, end = np.array([0, 1, 2, 5, 12]), np.array([10, 4, 3, 9, 12])
    row, order = assign_rows(lane, start, end, None)
    assert row.tolist() == [0, 1, 2, 1, 0]
    assert order.tolist() == [0, 4, 1, 3, 2]


def test_a_bucket_is_never_wider_than_a_pixel() -> None:
    for width in (1, 2, 999, 10**6, 10**18):
        for pixels in (1, 2, 1000):
            shift = shift_of(0, width, pixels)
            assert 1 << shift <= max(width // pixels, 1) < 2 << shift


@given(EVENTS, st.integers(0, 12))
def test_merging_by_the_fast_way_and_by_the_general_one_is_the_same(events: list[tuple[int, int, int, str]], shift: int) -> None:
    timeline = timeline_of(events)
    row = np.repeat(np.arange(len(timeline.offsets) - 1), np.diff(timeline.offsets))
    single = items.events_as_items(timeline, np.arange(len(timeline.start)))
    fast, fast_row = items.merge_items(single, row, shift, crossing=False)
    general, general_row = items.merge_items(single, row, shift, crossing=True)
    assert fast_row.tolist() == general_row.tolist()
    assert [column.tolist() for column in fast.columns] == [column.tolist() for column in general.columns]


def test_a_bucket_longer_than_four_seconds_keeps_its_longest_event() -> None:
    second = 10**9
    timeline = timeline_of([(0, 6 * second * place, (1 + place % 5) * second, f"op {place % 5}") for place in range(40)])
    for shift in (31, 32, 33, 36, 40):
        found = build_tile(Pyramid(timeline), range(len(timeline.offsets) - 1), 0, 240 * second, 240 * second >> shift)
        low, high = (int(one) for one in timeline.offsets[[-2, -1]])
        expected = brute_force(timeline, range(low, high), found.start_ns, found.end_ns, 1 << found.shift)
        mine = slice(found.offsets[-2], found.offsets[-1])
        assert found.items.longest[mine].tolist() == [item[4] for item in expected]
        assert found.items.peak[mine].tolist() == [int(timeline.end[item[4]] - timeline.start[item[4]]) for item in expected]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60))
def test_a_walk_meets_what_a_loop_meets(leaps: list[int]) -> None:
    after = np.minimum(np.arange(len(leaps)) + leaps, len(leaps))
    met = []
    place = 0
    while place < len(leaps):
        met.append(place)
        place = int(after[place])
    assert np.flatnonzero(mark_visited_places(after)).tolist() == met


@given(EVENTS)
def test_every_event_takes_the_first_row_that_is_free(events: list[tuple[int, int, int, str]]) -> None:
    ordered = sorted((start, -length) for _, start, length, _ in events)
    start = np.array([one for one, _ in ordered])
    end = start - np.array([length for _, length in ordered])
    busy_until: list[int] = []
    for row, begin, stop in zip(first_free(start, end).tolist(), start.tolist(), end.tolist(), strict=True):
        free = next((place for place, until in enumerate(busy_until) if until <= begin), len(busy_until))
        assert row == free
        busy_until[free : free + 1] = [stop]


def test_pieces_of_threads_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    start = np.cumsum(rng.integers(0, 40, 30_000))
    length = np.where(rng.random(30_000) < 0.01, rng.integers(0, 60_000, 30_000), rng.integers(0, 30, 30_000))
    timeline = timeline_of([(place % 3, int(at), int(length[place]), f"op {place % 7}") for place, at in enumerate(start)])
    row = np.repeat(np.arange(len(timeline.offsets) - 1), np.diff(timeline.offsets))
    single = items.events_as_items(timeline, np.arange(len(timeline.start)))
    for piece in (17, 256, 5000):
        monkeypatch.setattr(pyramid_module, "_PIECE", piece)
        levels = Pyramid(timeline).levels[1:]
        assert levels
        for level in levels:
            expected, rows = items.merge_items(single, row, level.shift, crossing=True)
            assert level.items is not None
            assert level.offsets.tolist() == np.searchsorted(rows, np.arange(len(timeline.offsets))).tolist()
            assert all(np.array_equal(one, other) for one, other in zip(level.items.columns, expected.columns, strict=True))
