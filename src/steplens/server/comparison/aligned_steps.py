"""A usual step of two runs, its parts matched, for one picture with a common axis of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel

from steplens.comparison.alignment.aligned_steps import StepPart, align_steps
from steplens.comparison.alignment.step_calls import StepCalls, read_step_calls
from steplens.server.comparison.sides import find_side
from steplens.server.http.errors import path_text
from steplens.server.http.routing import create_router
from steplens.server.requests import Runs
from steplens.server.runs import OpenedRun
from steplens.server.timeline.opening import StepSpan, usual_step

router = create_router("/api/compare", "compare")

#: bytes that a call takes in memory, about
_CALL_BYTES = 100

_Number = Annotated[int, Query(ge=0, le=1 << 31)]


class StepPartShown(BaseModel):
    """A part of a step: see ``comparison.alignment.aligned_steps.StepPart``. Times are ns from the begin of the step."""

    kind: str
    thread: int
    name: str
    start_ns: int
    end_ns: int
    callers: list[str]
    match: int


class AlignedStep(BaseModel):
    """A step of one run.

    Attributes:
        run: its number.
        trace: of it.
        recording: what the trace lies in, as a path below what was opened.
        recordings: how many the side has; of several, this is the one whose usual step is nearest to the step time of the side.
        step: its number.
        start_ns: from the origin of the trace.
        length_ns: of the step, the work of the device that it launched included.
        parts: in order of kind, thread and time.
    """

    run: int
    trace: int
    recording: str
    recordings: int
    step: int
    start_ns: int
    length_ns: int
    parts: list[StepPartShown]


class AlignedSteps(BaseModel):
    """The same step of two runs; null where one has no complete step."""

    before: AlignedStep | None
    after: AlignedStep | None


@router.get("/steps")
def aligned_steps(runs: Runs, before: _Number = 0, after: _Number = 1) -> AlignedSteps:
    """A step of usual length of each run, and which of its parts are the same."""
    first, second = (_find_step(runs.shown(number)) for number in (before, after))
    if first is None or second is None:
        return AlignedSteps(before=None, after=None)
    parts = align_steps(first.calls, second.calls)
    answers = [_show_step(step, of_side) for step, of_side in zip((first, second), parts, strict=True)]
    return AlignedSteps(before=answers[0], after=answers[1])


@dataclass(frozen=True)
class _UsualStep:
    """A step of a run: its trace, of how many recordings, its number, where it lies (from the origin) and its calls."""

    opened: OpenedRun
    trace: int
    recordings: int
    step: int
    start_ns: int
    length_ns: int
    calls: StepCalls


def _find_step(chosen: OpenedRun) -> _UsualStep | None:
    """The usual step, of the lowest rank, that is nearest to the step time of the side: a recording may have been disturbed."""
    side = find_side(chosen)
    counted = {trace for recording in side.recordings for trace in recording.traces}
    usual_steps: list[tuple[int, float, int, StepSpan]] = []
    for number, trace in enumerate(chosen.run.traces):
        if counted and trace not in counted:
            continue
        usual = chosen.answer(("usual step", number), partial(usual_step, trace))
        if usual is not None:
            length_ns = usual.end_ns - usual.start_ns
            apart = abs(math.log(max(length_ns, 1) / side.step_ns)) if side.step_ns else 0.0
            usual_steps.append((trace.rank, apart, number, usual))
    if not usual_steps:
        return None
    _, _, number, usual = min(usual_steps, key=lambda row: row[:3])
    # what the host does while the device still works on the step is of the next one
    read_calls = partial(read_step_calls, chosen.run.traces[number], usual.start_ns, usual.end_ns)
    calls = chosen.answer(("step calls", number, usual.step), read_calls, _size_of_calls)
    begin_ns, length_ns = usual.start_ns - chosen.origins[number], usual.device_end_ns - usual.start_ns
    return _UsualStep(chosen, number, len(side.recordings), usual.step, begin_ns, length_ns, calls)


def _size_of_calls(calls: StepCalls) -> int:
    return _CALL_BYTES * len(calls.names)


def _name_recording(opened: OpenedRun, number: int) -> str:
    path = opened.run.paths[number]
    return path_text(path.relative_to(opened.path) if opened.path in path.parents else path.name)


def _show_step(step: _UsualStep, parts: Sequence[StepPart]) -> AlignedStep:
    return AlignedStep(
        run=step.opened.id,
        trace=step.trace,
        recording=_name_recording(step.opened, step.trace),
        recordings=step.recordings,
        step=step.step,
        start_ns=step.start_ns,
        length_ns=step.length_ns,
        parts=[
            StepPartShown(
                kind=part.kind,
                thread=part.thread,
                name=part.name,
                start_ns=part.start,
                end_ns=part.end,
                callers=list(part.callers),
                match=part.match,
            )
            for part in parts
        ],
    )
