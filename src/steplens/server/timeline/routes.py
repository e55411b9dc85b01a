"""The addresses of the timeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from steplens.server.http.errors import PROBLEMS, Refusal
from steplens.server.memory import curves
from steplens.server.requests import Chosen, Moment, Points, Runs, TraceNumber, json_response
from steplens.server.runs import OpenedRun, RunLibrary
from steplens.server.tables import columns
from steplens.server.timeline import counters, details, flows, search, tile_format, tiles, window
from steplens.server.timeline.counters import Series
from steplens.server.timeline.models import (
    Arrow,
    Arrows,
    Brief,
    CurveShown,
    End,
    EventShown,
    Found,
    LaneInSelection,
    LaneShown,
    NameInSelection,
    Occurrences,
    Selection,
    SeriesShown,
    StepShown,
    TileShown,
    TimelineShown,
)
from steplens.timeline.layout import Lane, Timeline

router = APIRouter(prefix="/api/runs/{run}/timeline", tags=["timeline"], responses=PROBLEMS)

Lanes = Annotated[
    str | None, Query(pattern=r"^\d{1,9}(,\d{1,9})*$", description="numbers of lanes, separated by commas; all by default")
]
Text = Annotated[str, Query(min_length=1, max_length=1 << 16)]
Whole = Annotated[bool, Query(description="the whole name instead of a part of it in either case of letters")]

_TILE: dict[int | str, dict[str, Any]] = {
    200: {
        "model": TileShown,
        "content": {tile_format.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        "description": "the items of the window",
    }
}


@router.get("")
def timeline(chosen: Chosen, runs: Runs, trace: TraceNumber = 0) -> TimelineShown:
    """The lanes of a trace, and the series that can be drawn below them."""
    laid_out = runs.timeline(chosen, trace).timeline
    start, end = laid_out.bounds
    return TimelineShown(
        origin_ns=str(laid_out.origin_ns),
        start_ns=start,
        end_ns=end,
        events=len(laid_out.start),
        unplaced=dict(laid_out.unplaced),
        lanes=[_describe_lane(lane) for lane in laid_out.lanes],
        series=[
            SeriesShown(series=number, label=curve.label, unit=curve.unit, samples=curve.samples.height)
            for number, curve in enumerate(_cached_series(runs, chosen, trace))
        ],
        steps=_recorded_steps(chosen, trace),
    )


@router.get("/tile", responses=_TILE, response_class=Response)
def tile(
    chosen: Chosen,
    runs: Runs,
    start_ns: Moment,
    end_ns: Moment,
    pixels: Points,
    trace: TraceNumber = 0,
    lanes: Lanes = None,
    form: Annotated[Literal["binary", "json"], Query(alias="format")] = "binary",
) -> Response:
    """What a window looks like at a width in pixels: events, and buckets of those that are shorter than a pixel."""
    _check_window(start_ns, end_ns)
    pyramid = runs.timeline(chosen, trace)
    lane_numbers = _select_lanes(pyramid.timeline, lanes)
    rows = [lane.first_row + depth for lane in lane_numbers for depth in range(lane.rows)]
    drawn = tiles.build_tile(pyramid, rows, start_ns, end_ns, pixels)
    chosen.seen.set()
    if form == "json":
        return json_response(tile_format.tile_as_json(drawn, pyramid.timeline))
    return Response(tile_format.encode_tile(drawn, pyramid.timeline), media_type=tile_format.MEDIA_TYPE)


@router.get("/events/{event}", response_model=EventShown)
def event(chosen: Chosen, runs: Runs, event: Annotated[int, Path(ge=0, le=1 << 32)], trace: TraceNumber = 0) -> Any:
    """Everything about one event."""
    laid_out = runs.timeline(chosen, trace).timeline
    if event >= len(laid_out.start):
        raise Refusal(404, f"the timeline has {len(laid_out.start)} events, numbered from 0", f"event {event}")
    return json_response(columns.json_value(details.describe_event(chosen.trace(trace), laid_out, event)))


@router.get("/selection")
def selection(
    chosen: Chosen,
    runs: Runs,
    start_ns: Moment,
    end_ns: Moment,
    trace: TraceNumber = 0,
    lanes: Lanes = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Selection:
    """What happened in a window, by name and by lane."""
    _check_window(start_ns, end_ns)
    laid_out = runs.timeline(chosen, trace).timeline
    names, covered = window.summarize_window(laid_out, _select_lanes(laid_out, lanes), start_ns, end_ns)
    return Selection(
        names=[NameInSelection(**row) for row in names.head(limit).to_dicts()],
        different=names.height,
        lanes=[LaneInSelection(**row) for row in covered],
    )


@router.get("/search")
def find(
    chosen: Chosen,
    runs: Runs,
    text: Text,
    whole: Whole = False,
    trace: TraceNumber = 0,
    lanes: Lanes = None,
    from_ns: Moment = -(1 << 62),
    from_event: Annotated[int, Query(ge=-1, le=1 << 32, description="the event that is shown, where one is")] = -1,
    direction: Literal["next", "previous"] = "next",
) -> Found:
    """How often a name occurs on each lane, and the next or previous occurrence from a time and event."""
    laid_out = runs.timeline(chosen, trace).timeline
    events, counts = search.on_lanes(laid_out, search.find_events(laid_out, text, whole=whole), _select_lanes(laid_out, lanes))
    place = search.neighbouring_event(laid_out, events, from_ns, from_event, forward=direction == "next")
    return Found(
        total=len(events),
        lanes={lane: count for lane, count in counts.items() if count},
        next=None if place is None else Brief(**search.brief_of_event(laid_out, place)),
    )


@router.get("/occurrences")
def occurrences(
    chosen: Chosen,
    runs: Runs,
    text: Text,
    whole: Whole = True,
    trace: TraceNumber = 0,
    lanes: Lanes = None,
    by: Annotated[Literal["start", "duration"], Query(description="in order of start, or the longest first")] = "start",
    offset: Annotated[int, Query(ge=0, le=1 << 32)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Occurrences:
    """The events of a name."""
    laid_out = runs.timeline(chosen, trace).timeline
    events, _ = search.on_lanes(laid_out, search.find_events(laid_out, text, whole=whole), _select_lanes(laid_out, lanes))
    page = search.page_of_events(laid_out, events, by, offset, limit)
    return Occurrences(total=len(events), events=[Brief(**brief) for brief in page])


@router.get("/flows")
def arrows(
    chosen: Chosen,
    runs: Runs,
    start_ns: Moment,
    end_ns: Moment,
    trace: TraceNumber = 0,
    limit: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> Arrows:
    """The arrows of a window, from launches to their tasks and those that were recorded, the longest first."""
    _check_window(start_ns, end_ns)
    placed = runs.timeline(chosen, trace).timeline
    all_flows = runs.answer(
        chosen,
        ("flows", trace),
        lambda: flows.find_flows(chosen.trace(trace), placed),
        lambda found: int(found.frame.estimated_size()),
    )
    found, total = flows.in_window(all_flows, placed, start_ns, end_ns, limit)
    arrow_list = [Arrow(kind=flow["kind"], start=End(**flow["from"]), end=End(**flow["to"])) for flow in found]
    return Arrows(arrows=arrow_list, total=total, unplaced=all_flows.unplaced)


@router.get("/series/{series}", response_model=CurveShown)
def curve(
    chosen: Chosen,
    runs: Runs,
    series: Annotated[int, Path(ge=0, le=1 << 31)],
    start_ns: Moment,
    end_ns: Moment,
    trace: TraceNumber = 0,
    points: Points = 1000,
) -> Any:
    """A series in buckets, each with its exact smallest, largest and last value."""
    _check_window(start_ns, end_ns)
    known = _cached_series(runs, chosen, trace)
    if series >= len(known):
        raise Refusal(404, f"the trace has {len(known)} series, numbered from 0", f"series {series}")
    samples = known[series].samples
    time = samples["time_ns"].to_numpy() - chosen.origins[trace]
    return json_response(curves.reduce_series(time, samples["value"].to_numpy(), start_ns, end_ns, points))


def _cached_series(runs: RunLibrary, chosen: OpenedRun, trace: int) -> list[Series]:
    tables = chosen.trace(trace)
    return runs.answer(
        chosen,
        ("series", trace),
        lambda: counters.list_series(tables),
        lambda found: sum(int(curve.samples.estimated_size()) for curve in found),
    )


def _recorded_steps(chosen: OpenedRun, trace: int) -> list[StepShown]:
    origin = chosen.origins[trace]
    rows = chosen.trace(trace).required("steps").select("id", "start_ns", "end_ns").drop_nulls().sort("start_ns").collect()
    return [StepShown(step=step, start_ns=start - origin, end_ns=end - origin) for step, start, end in rows.iter_rows()]


def _describe_lane(lane: Lane) -> LaneShown:
    return LaneShown(
        lane=lane.id,
        source=lane.source.id,
        table=lane.source.table,
        group=lane.source.group,
        label=lane.label,
        key=columns.json_value(dict(lane.key)),
        depths=lane.rows,
        events=lane.events,
        start_ns=lane.start_ns,
        end_ns=lane.end_ns,
    )


def _select_lanes(found: Timeline, numbers: str | None) -> list[Lane]:
    if numbers is None:
        return list(found.lanes)
    lane_numbers = list(dict.fromkeys(int(number) for number in numbers.split(",")))
    if max(lane_numbers) >= len(found.lanes):
        raise Refusal(404, f"the timeline has {len(found.lanes)} lanes, numbered from 0", "lanes")
    return [found.lanes[number] for number in lane_numbers]


def _check_window(start_ns: int, end_ns: int) -> None:
    if end_ns < start_ns:
        raise Refusal(422, "the window ends before it starts", "end_ns")
