"""The true answers about a simulated run, from the definitions alone: no code of steplens, and as simple as can be.

A device period goes from the first start of the work that a step launched to the first start of the work that the next step
launched. The last of steps that follow each other (the next one has no mark, or nothing of it was recorded) has its end where its
last work ends, or where a later period begins, if that is earlier.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from .capture import Capture
from .simulation import PHASES, Task

KINDS = ("compute", "communication", "copy")
Interval = tuple[int, int]


@dataclass(frozen=True)
class DevicePeriod:
    """What the device did in one step; None where it has no period."""

    step: int
    recorded: bool
    start: int | None = None
    end: int | None = None
    computing: int | None = None
    communication: int | None = None
    copy: int | None = None
    idle: int | None = None
    overlapped: int | None = None
    launched_computing: int | None = None
    launched_communication: int | None = None
    launched_copy: int | None = None


def device_periods(capture: Capture) -> list[DevicePeriod]:
    """The truth about the device, one row for each marked step."""
    launched = {mark.number: _of(capture, mark.number) for mark in capture.marks}
    ends = {mark.number: mark.end for mark in capture.marks}
    starts = {mark.number: mark.start for mark in capture.marks}
    spans: dict[int, Interval] = {}
    for step, tasks in launched.items():
        if not tasks:
            continue
        following = launched.get(step + 1)
        adjacent = step + 1 in starts and starts[step + 1] == ends[step]
        end = max(task.end for task in tasks)
        if following and adjacent:
            end = min(task.start for task in following)
        spans[step] = (min(task.start for task in tasks), end)
    for earlier, later in itertools.pairwise(sorted(spans)):
        spans[earlier] = (spans[earlier][0], min(spans[earlier][1], spans[later][0]))
    assert all(start <= end for start, end in spans.values()), "a schedule whose steps start on the device out of order"
    rows = []
    for step in launched:
        if step not in spans:
            rows.append(DevicePeriod(step, False))
            continue
        start, end = spans[step]
        belonging = launched[step] + [
            task
            for task, of in zip(capture.tasks, capture.launched_by, strict=True)
            if of is None and not _launch_is_known(capture, task) and start <= task.start < end
        ]
        computing, communication, copy, idle, overlapped = parts(capture.tasks, start, end)
        rows.append(
            DevicePeriod(
                step,
                True,
                start,
                end,
                computing,
                communication,
                copy,
                idle,
                overlapped,
                *(covered(_intervals(belonging, kind)) for kind in KINDS),
            )
        )
    return rows


def _of(capture: Capture, step: int) -> list[Task]:
    return [task for task, of in zip(capture.tasks, capture.launched_by, strict=True) if of == step]


def _launch_is_known(capture: Capture, task: Task) -> bool:
    return any(event.correlation == task.correlation for event in capture.host)


def kind_of(task: Task) -> str:
    """The class of a task: sets go with copies."""
    return "copy" if task.kind == "set" else task.kind


def _intervals(tasks: Iterable[Task], kind: str) -> list[Interval]:
    return [(task.start, task.end) for task in tasks if kind_of(task) == kind]


def covered(intervals: list[Interval]) -> int:
    """How much of the time line any of the intervals covers."""
    total, until = 0, None
    for start, end in sorted(intervals):
        if until is None or start > until:
            total, until = total + end - start, end
        elif end > until:
            total, until = total + end - until, end
    return total


def parts(tasks: Iterable[Task], start: int, end: int) -> tuple[int, int, int, int, int]:
    """Computing, exposed communication, exposed copies, idle, overlapped communication between two times.

    The period is cut wherever a task begins or ends, and each piece is looked at by itself.
    """
    tasks = [task for task in tasks if task.end > start and task.start < end]
    borders = sorted({start, end, *(min(max(time, start), end) for task in tasks for time in (task.start, task.end))})
    computing = communication = copy = idle = overlapped = 0
    for left, right in itertools.pairwise(borders):
        kinds = {kind_of(task) for task in tasks if task.start <= left and task.end >= right}
        length = right - left
        if "compute" in kinds:
            computing += length
            overlapped += length if "communication" in kinds else 0
        elif "communication" in kinds:
            communication += length
        elif "copy" in kinds:
            copy += length
        else:
            idle += length
    return computing, communication, copy, idle, overlapped


def painted(tasks: Iterable[Task], start: int, end: int) -> tuple[int, int, int, int, int]:
    """``parts``, nanosecond by nanosecond."""
    tasks = list(tasks)
    counts = [0, 0, 0, 0, 0]
    for time in range(start, end):
        kinds = {kind_of(task) for task in tasks if task.start <= time < task.end}
        place = next((place for place, kind in enumerate(("compute", "communication", "copy")) if kind in kinds), 3)
        counts[place] += 1
        counts[4] += {"compute", "communication"} <= kinds
    return counts[0], counts[1], counts[2], counts[3], counts[4]


def host_phases(capture: Capture) -> dict[int, dict[str, int]]:
    """The truth about the host: of every marked step the time of each phase; all of them are its duration."""
    rows = {}
    for mark in capture.marks:
        row = dict.fromkeys(PHASES, 0)
        for phase, start, end in capture.history.phases:
            row[phase] += max(0, min(end, mark.end) - max(start, mark.start))
        assert sum(row.values()) == mark.end - mark.start
        rows[mark.number] = row
    return rows
