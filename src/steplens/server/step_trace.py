"""The figure of a step: where its parts begin and end, and the collectives beside them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel

from steplens.analysis.step_trace.step_figure import Row, step_figure
from steplens.analysis.step_trace.step_trace import points_of
from steplens.server.http import documented
from steplens.server.http.errors import not_found
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen, TraceNumber
from steplens.server.tables import columns

router = create_router("/api/runs/{run}", "steps")

#: segments of one row that are sent, the longest ones
_MOST = 2000
Point = Annotated[str | None, Query(max_length=500, description="full name of the operator, or its last parts")]


class SegmentShown(BaseModel):
    """A stretch of a step; see ``analysis.step_trace.step_figure.Segment``. Times are ns from the start of the step."""

    name: str
    start_ns: float
    duration_ns: float
    steps: int


class FigureRow(BaseModel):
    """Segments that follow each other.

    Attributes:
        kind: "total", "parts" or "collectives".
        stream: of the collectives.
        segments: in order of time.
        left_out: how many shorter ones are not among them.
    """

    kind: Annotated[str, documented.as_type(Literal["total", "parts", "collectives"])]
    stream: int | None
    segments: list[SegmentShown]
    left_out: int


class PartShown(BaseModel):
    """One part over the steps, ns; see ``analysis.step_trace.step_trace.StepAverages``. ``share`` is of the total, 0 to 1."""

    part: str
    mean_ns: float | None
    median_ns: float | None
    p90_ns: float | None
    share: float | None
    steps: int


class StepTrace(BaseModel):
    """One step or the average.

    Attributes:
        step: its number; null for the average.
        steps: every step that there is.
        excluded: steps that the average leaves out: warm-up.
        rows: total, parts, and a row per stream with collectives.
        parts: over all counted steps: mean, median, 90th percentile.
        forward_names: operators at the start of the forward pass, those of most steps first.
        backward_names: operators at the end of the backward pass.
        forward_point: name that was asked for, or that FP_POINT gives or gave when the run was recorded, and that ran; null where
            the point is found by itself.
        backward_point: the same of BP_POINT.
    """

    step: int | None
    steps: list[int]
    excluded: list[int]
    rows: list[FigureRow]
    parts: list[PartShown]
    forward_names: list[str]
    backward_names: list[str]
    forward_point: str | None
    backward_point: str | None


@router.get("/step-trace")
def step_trace_figure(
    chosen: Chosen,
    trace: TraceNumber = 0,
    step: Annotated[int | None, Query(ge=0, le=1 << 53, description="number of the step; the average without it")] = None,
    forward_point: Point = None,
    backward_point: Point = None,
) -> StepTrace:
    """A step, or the average, as rows of segments with start and length, and the operators at its two points."""
    source = chosen.trace(trace)
    with not_found("step", "Leave it out for the average"):
        figure = step_figure(source, step, forward_point=forward_point, backward_point=backward_point)
    points = points_of(source)
    derived = {
        "rows": [_figure_row(row) for row in figure.rows],
        "parts": columns.json_records(figure.parts),
        "forward_point": forward_point or points.forward,
        "backward_point": backward_point or points.backward,
    }
    return StepTrace.model_validate({**vars(figure), **derived})


def _figure_row(row: Row) -> FigureRow:
    longest = sorted(row.segments, key=lambda segment: -segment.duration_ns)[:_MOST]
    segments = [SegmentShown(**vars(segment)) for segment in sorted(longest, key=lambda segment: segment.start_ns)]
    return FigureRow(kind=row.kind, stream=row.stream, segments=segments, left_out=len(row.segments) - len(segments))
