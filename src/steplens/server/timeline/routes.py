"""The addresses of the timeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from starlette.responses import Response

from steplens.server.http.errors import Refusal
from steplens.server.http.routing import create_router
from steplens.server.many.kept_route import KeptRoute
from steplens.server.memory import curves
from steplens.server.requests import Chosen, Moment, Points, TraceNumber, json_response
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns
from steplens.server.timeline import (
    counters,
    details,
    flame,
    flows,
    models,
    opening,
    phases,
    search,
    tile_format,
    tiles,
    window,
)  # fmt: skip
from steplens.server.timeline.counters import Series
from steplens.timeline.layout import Lane, Timeline

router = create_router("/api/runs/{run}/timeline", "timeline")

Lanes = Annotated[
    str | None, Query(pattern=r"^\d{1,9}(,\d{1,9})*$", description="numbers of lanes, separated by commas; all by default")
]
Text = Annotated[str, Query(min_length=1, max_length=1 << 16)]
Whole = Annotated[bool, Query(description="the whole name instead of a part of it in either case of letters")]

_TILE: dict[int | str, dict[str, Any]] = {
    200: {
        "model": models.TileShown,
        "content": {tile_format.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        "description": "the items of the window",
    }
}


@router.get("")
def timeline(chosen: Chosen, trace: TraceNumber = 0) -> models.TimelineShown:
    """The lanes of a trace, and the series that can be drawn below them."""
    laid_out = chosen.timeline(trace).timeline
    start, end = laid_out.bounds
    return models.TimelineShown(
        origin_ns=str(laid_out.origin_ns),
        start_ns=start,
        end_ns=end,
        events=len(laid_out.start),
        unplaced=dict(laid_out.unplaced),
        lanes=[_describe_lane(lane) for lane in laid_out.lanes],
        series=[
            models.SeriesShown(series=number, label=curve.label, unit=curve.unit, samples=curve.samples.height)
            for number, curve in enumerate(_cached_series(chosen, trace))
        ],
        steps=_recorded_steps(chosen, trace),
    )


def first_view(
    chosen: Chosen, trace: Annotated[int | None, Query(ge=0, le=1 << 31, description="of this trace only")] = None
) -> models.FirstView | None:
    """The complete step that is shown first, of the rank that the verdict names where it names one."""
    return chosen.answer(("first view", trace), lambda: opening.first_view(chosen, trace))


# of many ranks the verdict takes longer than a timeline may wait for
router.add_api_route("/opening", first_view, route_class_override=KeptRoute)


@router.get("/phases")
def phases_of_lanes(chosen: Chosen, trace: TraceNumber = 0) -> models.Phases:
    """Which phase of a step (waiting for data, forward, backward, optimizer, communication) events are of."""
    return chosen.answer(
        ("phases", trace),
        lambda: phases.find_phases(chosen.trace(trace), chosen.timeline(trace).timeline),
        lambda found: 64 * sum(len(runs.start_ns) for runs in (found.host, *found.lanes.values())),
    )


@router.get("/tile", responses=_TILE, response_class=Response)
def tile(
    chosen: Chosen,
    start_ns: Moment,
    end_ns: Moment,
    pixels: Points,
    trace: TraceNumber = 0,
    lanes: Lanes = None,
    form: Annotated[Literal["binary", "json"], Query(alias="format")] = "binary",
) -> Response:
    """What a window looks like at a width in pixels: events, and buckets of those that are shorter than a pixel."""
    _check_window(start_ns, end_ns)
    pyramid = chosen.timeline(trace)
    lane_numbers = _select_lanes(pyramid.timeline, lanes)
    rows = [lane.first_row + depth for lane in lane_numbers for depth in range(lane.rows)]
    drawn = tiles.build_tile(pyramid, rows, start_ns, end_ns, pixels)
    chosen.seen.set()
    if form == "json":
        return json_response(tile_format.tile_as_json(drawn, pyramid.timeline))
    return Response(tile_format.encode_tile(drawn, pyramid.timeline), media_type=tile_format.MEDIA_TYPE)


@router.get("/events/{event}", response_model=models.EventShown)
def event(chosen: Chosen, event: Annotated[int, Path(ge=0, le=1 << 32)], trace: TraceNumber = 0) -> Any:
    """Everything about one event."""
    laid_out = chosen.timeline(trace).timeline
    if event >= len(laid_out.start):
        raise Refusal(404, f"the timeline has {len(laid_out.start)} events, numbered from 0", f"event {event}")
    return json_response(columns.json_value(details.describe_event(chosen.trace(trace), laid_out, event)))


@router.get("/selection")
def selection(
    chosen: Chosen,
    start_ns: Moment,
    end_ns: Moment,
    trace: TraceNumber = 0,
    lanes: Lanes = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> models.Selection:
    """What happened in a window, by name and by lane."""
    _check_window(start_ns, end_ns)
    laid_out = chosen.timeline(trace).timeline
    names, covered = window.summarize_window(laid_out, _select_lanes(laid_out, lanes), start_ns, end_ns)
    return models.Selection(
        names=[models.NameInSelection(**row) for row in names.head(limit).to_dicts()],
        different=names.height,
        lanes=[models.LaneInSelection(**row) for row in covered],
    )


@router.get("/flame")
def flame_of_selection(
    chosen: Chosen,
    start_ns: Moment,
    end_ns: Moment,
    trace: TraceNumber = 0,
    lanes: Lanes = None,
    by: Annotated[
        Literal["name", "module", "stack"], Query(description="calls by name, or modules or stacks with them")
    ] = "name",
    limit: Annotated[int, Query(ge=1, le=5000)] = 1500,
) -> models.Flame:
    """A selection as a tree: what is called by what, or by module or Python stack, with the time inside the window."""
    _check_window(start_ns, end_ns)
    laid_out = chosen.timeline(trace).timeline
    return flame.build_flame(chosen.trace(trace), laid_out, _select_lanes(laid_out, lanes), start_ns, end_ns, by, limit)


@router.get("/search")
def find(
    chosen: Chosen,
    text: Text,
    whole: Whole = False,
    trace: TraceNumber = 0,
    lanes: Lanes = None,
    from_ns: Moment = -(1 << 62),
    from_event: Annotated[int, Query(ge=-1, le=1 << 32, description="the event that is shown, where one is")] = -1,
    direction: Literal["next", "previous"] = "next",
) -> models.Found:
    """How often a name occurs on each lane, and the next or previous occurrence from a time and event."""
    laid_out = chosen.timeline(trace).timeline
    events, counts = search.find_on_lanes(laid_out, text, _select_lanes(laid_out, lanes), whole=whole)
    place = search.neighbouring_event(laid_out, events, from_ns, from_event, forward=direction == "next")
    return models.Found(
        total=len(events),
        lanes={lane: count for lane, count in counts.items() if count},
        next=None if place is None else models.Brief(**search.brief_of_event(laid_out, place)),
    )


@router.get("/occurrences")
def occurrences(
    chosen: Chosen,
    text: Text,
    whole: Whole = True,
    trace: TraceNumber = 0,
    lanes: Lanes = None,
    by: Annotated[Literal["start", "duration"], Query(description="in order of start, or the longest first")] = "start",
    offset: Annotated[int, Query(ge=0, le=1 << 32)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> models.Occurrences:
    """The events of a name."""
    laid_out = chosen.timeline(trace).timeline
    events, _ = search.find_on_lanes(laid_out, text, _select_lanes(laid_out, lanes), whole=whole)
    page = search.page_of_events(laid_out, events, by, offset, limit)
    return models.Occurrences(total=len(events), events=[models.Brief(**brief) for brief in page])


@router.get("/flows")
def arrows(
    chosen: Chosen,
    start_ns: Moment,
    end_ns: Moment,
    trace: TraceNumber = 0,
    limit: Annotated[int, Query(ge=1, le=2000)] = 200,
    event: Annotated[int | None, Query(ge=0, le=1 << 32, description="only those that begin or end in this event")] = None,
) -> models.Arrows:
    """The arrows of a window, from launches to their tasks and those that were recorded, the longest first."""
    _check_window(start_ns, end_ns)
    placed = chosen.timeline(trace).timeline
    if event is not None and event >= len(placed.start):
        raise Refusal(404, f"the timeline has {len(placed.start)} events, numbered from 0", f"event {event}")
    all_flows = chosen.answer(
        ("flows", trace), lambda: flows.find_flows(chosen.trace(trace), placed), lambda made: int(made.frame.estimated_size())
    )
    longest, total = flows.in_window(all_flows, placed, start_ns, end_ns, limit, event)
    return models.Arrows(arrows=[models.Arrow(**arrow) for arrow in longest], total=total, unplaced=all_flows.unplaced)


@router.get("/series/{series}", response_model=models.CurveShown)
def curve(
    chosen: Chosen,
    series: Annotated[int, Path(ge=0, le=1 << 31)],
    start_ns: Moment,
    end_ns: Moment,
    trace: TraceNumber = 0,
    points: Points = 1000,
) -> Any:
    """A series in buckets, each with its exact smallest, largest and last value."""
    _check_window(start_ns, end_ns)
    known = _cached_series(chosen, trace)
    if series >= len(known):
        raise Refusal(404, f"the trace has {len(known)} series, numbered from 0", f"series {series}")
    samples = known[series].samples
    time = samples["time_ns"].to_numpy() - chosen.origins[trace]
    return json_response(curves.reduce_series(time, samples["value"].to_numpy(), start_ns, end_ns, points))


def _cached_series(chosen: OpenedRun, trace: int) -> list[Series]:
    tables = chosen.trace(trace)
    return chosen.answer(
        ("series", trace),
        lambda: counters.list_series(tables),
        lambda found: sum(int(curve.samples.estimated_size()) for curve in found),
    )


def _recorded_steps(chosen: OpenedRun, trace: int) -> list[models.StepShown]:
    origin = chosen.origins[trace]
    rows = chosen.trace(trace).required("steps").select("id", "start_ns", "end_ns").drop_nulls().sort("start_ns").collect()
    return [models.StepShown(step=step, start_ns=start - origin, end_ns=end - origin) for step, start, end in rows.iter_rows()]


def _describe_lane(lane: Lane) -> models.LaneShown:
    return models.LaneShown(
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
    lane_numbers = list(dict.fromkeys(map(int, numbers.split(","))))
    if max(lane_numbers) >= len(found.lanes):
        raise Refusal(404, f"the timeline has {len(found.lanes)} lanes, numbered from 0", "lanes")
    return [found.lanes[number] for number in lane_numbers]


def _check_window(start_ns: int, end_ns: int) -> None:
    if end_ns < start_ns:
        raise Refusal(422, "the window ends before it starts", "end_ns")
