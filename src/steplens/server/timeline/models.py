"""What the addresses of the timeline answer. All times are ns from the origin of the run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel

from steplens.server.http import documented


class LaneShown(BaseModel):
    """One lane.

    Attributes:
        lane: its number.
        source: what it shows: "operators", "kernels", "steps" ...
        table: recorded table that its events come from; empty where they are derived.
        group: "program", "host" or "device".
        label: what it is called.
        key: what tells it apart: pid and tid, device and stream ...
        depths: rows that it is drawn in.
        events: how many events it has.
        start_ns: of the first one.
        end_ns: of the last one to end.
    """

    lane: int
    source: str
    table: str
    group: Annotated[str, documented.as_type(Literal["program", "host", "device"])]
    label: str
    key: dict[str, Any]
    depths: int
    events: int
    start_ns: int
    end_ns: int


class SeriesShown(BaseModel):
    """One series of samples: its number, what it is called, its unit, and how many samples it has."""

    series: int
    label: str
    unit: str
    samples: int


class StepShown(BaseModel):
    """A step as it was recorded, complete or not."""

    step: int
    start_ns: int
    end_ns: int


class FirstView(BaseModel):
    """What the timeline shows first: a step of a trace, from its start to its end or that of its last device task."""

    trace: int
    step: int
    start_ns: int
    end_ns: int


class TimelineShown(BaseModel):
    """The timeline of a trace.

    Attributes:
        origin_ns: Unix time from which its times count, as text.
        start_ns: of the first event.
        end_ns: of the last one to end.
        events: on all lanes.
        unplaced: source of lanes -> recorded events that have no time and are on no lane.
        lanes: in the order in which they are drawn.
        series: that can be drawn below them.
        steps: in order of time.
    """

    origin_ns: str
    start_ns: int
    end_ns: int
    events: int
    unplaced: dict[str, int]
    lanes: list[LaneShown]
    series: list[SeriesShown]
    steps: list[StepShown]


class TileRow(BaseModel):
    """One row of a tile: its lane and depth, its first item, and how many items it has."""

    lane: int
    depth: int
    first: int
    count: int


class TileShown(BaseModel):
    """A tile as JSON; see docs/view.md for the binary form and for what each column is."""

    start_ns: int
    end_ns: int
    bucket_ns: int
    items: int
    events: int
    rows: list[TileRow]
    names: dict[str, str]
    columns: dict[str, list[float]]


class Brief(BaseModel):
    """One event in short."""

    event: int
    name: str
    lane: int
    depth: int
    start_ns: int
    end_ns: int


class Link(BaseModel):
    """Events that an event is tied to; ``count`` may be larger than the number that is listed."""

    kind: str
    count: int
    events: list[Brief]


class EventShown(Brief):
    """One event with the row of its table (times as recorded, numbers beyond 2**53 as text) and its links.

    ``callers``: the events of its lane around it, the outermost first.
    """

    source: str
    table: str
    callers: list[Brief]
    columns: dict[str, Any]
    links: list[Link]


class NameInSelection(BaseModel):
    """Events of one name in a selection.

    All times count only what lies inside; ``self_ns`` is what of ``total_ns`` is left without the events directly below;
    ``longest`` is the id of the one that runs longest inside.
    """

    source: str
    name: str
    count: int
    total_ns: int
    self_ns: int
    min_ns: int
    max_ns: int
    longest: int


class LaneInSelection(BaseModel):
    """One lane in a selection: its events, how many of them reach beyond it, and the time that its outermost ones cover."""

    lane: int
    count: int
    cut: int
    covered_ns: int


class Selection(BaseModel):
    """What happened in a window: names, largest total first, how many names there are, and lanes."""

    names: list[NameInSelection]
    different: int
    lanes: list[LaneInSelection]


class FlameNode(BaseModel):
    """A box of a flame: its place in the list is its number.

    Attributes:
        parent: number of the box above it; -1 without one.
        name: of the events, the module or the frame.
        count: events of the selection that end here; 0 where there are none.
        total_ns: time inside the selection, with everything below.
        self_ns: without what is below.
    """

    parent: int
    name: str
    count: int
    total_ns: int
    self_ns: int


class Flame(BaseModel):
    """A selection as a tree, parents before their children, the largest child first.

    Attributes:
        by: "name" (the calls), "module" or "stack".
        total_ns: of all of it.
        nodes: the boxes; the smallest are left out where there are very many.
        left_out: how many are.
        offered: by what else it can be had.
    """

    by: Annotated[str, documented.as_type(Literal["name", "module", "stack"])]
    total_ns: int
    nodes: list[FlameNode]
    left_out: int
    offered: list[str]


class PhaseRuns(BaseModel):
    """Phases along time: from each start on the events are of this phase, until the next one; "" is none."""

    start_ns: list[int]
    phase: list[str]


class Phases(BaseModel):
    """Which phase events are of: those of threads by time, those of streams by the call that launched them, by lane."""

    host: PhaseRuns
    lanes: dict[int, PhaseRuns]


class Found(BaseModel):
    """Where a name occurs: how often in all and on each lane, and the next occurrence."""

    total: int
    lanes: dict[int, int]
    next: Brief | None


class Occurrences(BaseModel):
    """A page of the events of a name, and how many there are."""

    total: int
    events: list[Brief]


class End(BaseModel):
    """One end of an arrow: the lane, the time, and the innermost event there with its depth on the lane."""

    lane: int
    time_ns: int
    event: int | None
    depth: int


class Arrow(BaseModel):
    """One arrow between events."""

    kind: str
    start: End
    end: End


class Arrows(BaseModel):
    """The longest arrows of a window, how many there are, and recorded ones whose ends are on no lane."""

    arrows: list[Arrow]
    total: int
    unplaced: int


class CurveShown(BaseModel):
    """A series at the width of a screen, an entry per bucket that has samples; ``before``: its value when the window begins."""

    before: float | None
    time_ns: list[int]
    min: list[float | None]
    max: list[float | None]
    last: list[float | None]
    count: list[int]
