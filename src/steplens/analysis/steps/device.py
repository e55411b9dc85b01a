"""What the device did in each step: the device period and its parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.steps.device_work import COMMUNICATION, COMPUTING, COPY, NO_STEP, DeviceWork, device_parts, device_work
from steplens.analysis.tools.grouped_intervals import GroupedTimeline
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import Int64Array, length_inside
from steplens.trace.trace import Trace

#: so many differences between numbers of steps show by how much they count
_COUNTED = 3

BoolArray = npt.NDArray[np.bool_]

#: the parts of the device period, in order of precedence; they add up to it
PARTS = ("computing_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
#: the figures of a step: the parts, and what stands beside them
FIGURES = (
    *PARTS, "overlapped_communication_ns", "launched_computing_ns", "launched_communication_ns", "launched_copy_ns",
)  # fmt: skip
COLUMNS = {
    **dict.fromkeys(("step", "start_ns", "end_ns", "period_ns", *FIGURES, "last_work_ns"), pl.Int64),
    "recorded": pl.Boolean,
}

#: a step at the end of what was recorded of the device that has less than this share of the others' tasks was cut
_CUT = 0.5


@once_per_trace
def device_periods(trace: Trace) -> pl.DataFrame:
    """The device period of every step and its parts, one row per step in the order of ``steps``; ns, columns as in ``COLUMNS``.

    Period. On an accelerator, step n has it from ``start_ns``, the first start of the work that step n launched, to ``end_ns``,
    the first start of the work that step n + 1 launched; the last one to the end of its last work, and so has one behind which
    a mark is missing or the device was not recorded. Work belongs to the step that launched it, by correlation. Where a source
    tells no launches, the steps of the device that it tells count in their place, and where it has neither, the ranges of the
    steps. On a CPU, which does its work itself, the period is the range of the step.

    Parts. Of the period, whoever launched the work, each instant counts once, in this order: ``computing_ns`` (any stream
    computes), ``exposed_communication_ns``, ``exposed_copy_ns`` (copies and sets), ``idle_ns``. They add up to ``period_ns``.
    Beside them stands ``overlapped_communication_ns``: communication during computing.

    What a step launched, wherever it ran: ``launched_computing_ns``, ``launched_communication_ns``, ``launched_copy_ns``, each
    the union over the streams; work without a launch counts for the step whose period holds its start. ``last_work_ns``: end
    of the last work that the step launched.

    ``recorded`` is false for a step without device work although the run used a device, and for the first or last step with
    work where recording of the device began or ended inside it: all its figures are null. So are those of a trace without
    device tasks: communication alone does not tell what the device computed.

    Source: ``kernels``, ``communication``, ``steps``; unsafe where health doubts the clock of the device.
    """
    steps = trace.required("steps").select("id", "start_ns", "end_ns").collect()
    if not steps.height:
        return pl.DataFrame(schema=COLUMNS)
    work = device_work(trace)
    # communication alone says nothing of what the device computed
    if not trace.required("kernels").head(1).collect().height:
        recorded = np.zeros(steps.height, dtype=bool)
        start = end = last = np.zeros(steps.height, dtype=np.int64)
        step_of_work = work.given_step
    else:
        start, end, recorded, step_of_work = _step_periods(trace, steps, work)
        last = _extreme_per_row(np.maximum, work.end_ns, step_of_work, steps.height)
    parts = device_parts(trace)
    computing, communication, copy, overlapped = (
        length_inside(part, start, end) for part in (parts.computing, parts.communication, parts.copy, parts.overlapped)
    )
    figures: dict[str, Int64Array] = {
        "start_ns": start,
        "end_ns": end,
        "period_ns": end - start,
        "computing_ns": computing,
        "exposed_communication_ns": communication,
        "exposed_copy_ns": copy,
        "idle_ns": end - start - computing - communication - copy,
        "overlapped_communication_ns": overlapped,
        **_launched_lengths(work, step_of_work, steps.height),
        "last_work_ns": last,
    }
    frame = pl.DataFrame({"step": steps["id"], **figures, "recorded": recorded}, schema=COLUMNS)
    return frame.with_columns(pl.when("recorded").then(pl.col(name)).alias(name) for name in figures)


def _step_periods(trace: Trace, steps: pl.DataFrame, work: DeviceWork) -> tuple[Int64Array, Int64Array, BoolArray, Int64Array]:
    """Start and end of the device period of every step, whether it was recorded, and the step that each piece of work is of."""
    host_start, host_end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    if not trace.has_accelerator:
        return host_start, host_end, np.ones(steps.height, dtype=bool), work.given_step
    launched = work.launched_in if work.are_launches_told else _steps_of_source(work, host_start, host_end)
    if launched is None:
        recorded = _is_fully_recorded(np.bincount(work.given_step[work.given_step >= 0], minlength=steps.height))
        return host_start, host_end, recorded, work.given_step
    counts = np.bincount(launched[launched >= 0], minlength=steps.height)
    recorded = _is_fully_recorded(counts)
    first = _extreme_per_row(np.minimum, work.start_ns, launched, steps.height)
    last = _extreme_per_row(np.maximum, work.end_ns, launched, steps.height)
    order = np.argsort(host_start, kind="stable")
    place = order[counts[order] > 0]
    start, end = np.zeros(steps.height, dtype=np.int64), np.zeros(steps.height, dtype=np.int64)
    # on several streams a step may begin before the one in front of it: its period begins when that one's does
    start[place] = np.maximum.accumulate(first[place])
    end[place] = np.maximum(last[place], start[place])
    follows = np.flatnonzero(_is_followed(steps["id"].to_numpy()[order], counts[order] > 0))
    end[place[:-1]] = np.minimum(end[place[:-1]], start[place[1:]])
    end[place[follows]] = start[place[follows + 1]]
    # without a launch it is of the step whose period holds its start
    of_period = place[np.maximum(np.searchsorted(start[place], work.start_ns, side="right") - 1, 0)] if len(place) else None
    step_of_work = launched.copy()
    if of_period is not None:
        is_inside = ~work.is_launch_known & (work.start_ns >= start[of_period]) & (work.start_ns < end[of_period])
        step_of_work[is_inside] = of_period[is_inside]
    return start, end, recorded, step_of_work


def _is_followed(ids: Int64Array, has_work: BoolArray) -> BoolArray:
    """Of each step with work but the last one, whether the next step with work is the next step: no mark is missing between."""
    position = np.flatnonzero(has_work)
    apart = np.diff(ids)
    # some count by more than one, and then do so throughout
    usual = int(np.abs(apart).min()) if len(apart) >= _COUNTED else 1
    followed: BoolArray = (np.diff(position) == 1) & (np.abs(np.diff(ids[position])) == usual)
    return followed


def _steps_of_source(work: DeviceWork, host_start: Int64Array, host_end: Int64Array) -> Int64Array | None:
    """The steps that the source tells of its tasks; None where they are no more than the ranges in which the tasks begin."""
    step_numbers = work.given_step
    of_step = step_numbers >= 0
    begins, row = work.start_ns[of_step], step_numbers[of_step]
    outside = (begins < host_start[row]) | (begins >= host_end[row])
    return step_numbers if outside.any() else None


def _is_fully_recorded(counts: Int64Array) -> BoolArray:
    """Of which steps the work of the device was recorded whole, by their numbers of tasks."""
    recorded: BoolArray = counts > 0
    rows = np.flatnonzero(recorded)
    if len(rows) > 3 and len(rows) < len(counts):
        for row, other_rows, neighbour in ((rows[0], rows[1:], rows[0] - 1), (rows[-1], rows[:-1], rows[-1] + 1)):
            # a step at either end of the trace is judged with its other figures
            if 0 <= neighbour < len(counts) and counts[row] < _CUT * np.median(counts[other_rows]):
                recorded[row] = False
    return recorded


def _extreme_per_row(choose: np.ufunc, values: Int64Array, row: Int64Array, rows: int) -> Int64Array:
    """The least or greatest of ``values`` per row; 0 where there are none."""
    extremes: Int64Array = np.full(rows, np.iinfo(np.int64).max if choose is np.minimum else np.iinfo(np.int64).min)
    has_row = row >= 0
    choose.at(extremes, row[has_row], values[has_row])
    extremes[np.bincount(row[has_row], minlength=rows) == 0] = 0
    return extremes


def _launched_lengths(work: DeviceWork, step_of_work: Int64Array, rows: int) -> dict[str, Int64Array]:
    """How long what each step launched ran, ns, per kind."""
    frames = {}
    for name, kind in (("computing", COMPUTING), ("communication", COMMUNICATION), ("copy", COPY)):
        is_chosen = (work.kind == kind) & (step_of_work != NO_STEP)
        frames[name] = pl.DataFrame(
            {"start_ns": work.start_ns[is_chosen], "end_ns": work.end_ns[is_chosen], "step": step_of_work[is_chosen]}
        )
    timeline = GroupedTimeline(list(frames.values()), rows)
    all_rows = pl.Series(np.arange(rows))
    return {f"launched_{name}_ns": timeline.lengths(timeline.intervals(frame, all_rows)) for name, frame in frames.items()}
