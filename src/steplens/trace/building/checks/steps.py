"""The steps of a trace: none missing, none on top of another, the first and the last like the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from steplens.trace import health
from steplens.trace.building.checks.common import Tables, device_tasks, format_duration
from steplens.trace.building.steps import step_of
from steplens.trace.schema import PARTIAL_STEPS, WHOLE_STEPS

#: a first step this much longer than the others is still warming up (compiling, allocating, filling caches)
_SLOW = 2.0
_SLOW_LEAST_NS = 1_000_000
#: and this much longer than any later one: an evaluation or a checkpoint comes again, and is no warm-up
_UNLIKE = 1.5
#: a step with less than this share of the others' device tasks or length lacks something
_PART = 0.5
_STUB = 0.1


def missing_steps(tables: Tables) -> Iterator[health.HealthFinding]:
    """The numbers of the steps of one trace follow one another."""
    steps = tables.get("steps")
    if steps is None or steps.height < 2:
        return
    numbers = steps["id"].sort()
    gaps = numbers.diff().drop_nulls()
    missing = int((gaps - 1).clip(0).sum())
    if missing:
        after = numbers[:-1].filter(gaps > 1)[0]
        message = f"{missing} steps are missing between {numbers[0]} and {numbers[-1]}, the first after step {after}"
        yield health.finding("missing_steps", health.WARNING, missing, message, health.STEP_TIMES, health.STEP_AVERAGES)


def overlapping_steps(tables: Tables) -> Iterator[health.HealthFinding]:
    """A step begins when the one before it has ended."""
    steps = tables.get("steps")
    if steps is None:
        return
    steps = steps.sort("start_ns")
    overlapping = int((steps["start_ns"] < steps["end_ns"].shift()).sum())
    if overlapping:
        message = f"{overlapping} steps begin before the one before them ends"
        yield health.finding("overlapping_steps", health.WARNING, overlapping, message, health.STEP_TIMES, health.STEP_PHASES)


def slow_first_step(tables: Tables) -> Iterator[health.HealthFinding]:
    """The first recorded step takes as long as the others; while caches fill and kernels compile it takes longer.

    That it does so is known, and not why: work that is done once looks like warm-up.
    """
    steps = tables.get("steps")
    if steps is None or steps.height < 3:
        return
    durations = (steps["end_ns"] - steps["start_ns"]).to_list()
    later_median = float(pl.Series(durations[1:]).median())  # type: ignore[arg-type]
    # warm-up may last for several steps; what is like them and comes behind ordinary ones is something else
    later = itertools.dropwhile(lambda duration: duration > _SLOW * later_median, durations)
    slow = durations[0] > _SLOW * later_median and durations[0] - later_median > _SLOW_LEAST_NS
    if slow and durations[0] > _UNLIKE * max(later):
        message = (
            f"the first recorded step ({steps['id'][0]}) takes {format_duration(durations[0])}, "
            f"the others {format_duration(later_median)}: it may hold warm-up, or work that is done once"
        )
        yield health.finding("slow_first_step", health.WARNING, 1, message, health.STEP_AVERAGES)


class PartOfStep(NamedTuple):
    """A step of which recording holds only a part.

    Attributes:
        step: its number.
        check: the finding's name.
        message: how that shows.
        unsafe: conclusions that it makes unsafe.
    """

    step: int
    check: str
    message: str
    unsafe: tuple[str, ...]


def parts_of_steps(tables: Tables) -> Iterator[PartOfStep]:
    """The first or last recorded step, where recording may have begun or ended inside it: it holds much less than the others.

    Where the recorder says that it began and ended between steps, or inside which, a short step is a short step. Device tasks may
    still be missing; that the launches show where they are known.

    Args:
        tables: ``steps``, ``meta`` and, where there are any, ``kernels``.
    """
    steps = tables.get("steps")
    if steps is None or steps.height < 2:
        return
    whole_steps = _are_cut_steps_recorded(tables)
    counts = _tasks_per_step(tables, steps, launches_suffice=whole_steps)
    durations = (steps["end_ns"] - steps["start_ns"]).to_list()
    number = steps["id"].to_list()
    ends = ((0, "first", "began", "incomplete_first_step"), (-1, "last", "ended", "incomplete_last_step"))
    for row, which, happened, check in ends:
        # the recorder's word on the host's steps holds; of what the device did of them some may be lost all the same
        cut = (
            "its other tasks were not recorded, or it has none"
            if whole_steps
            else f"recording {happened} inside it, or it does less"
        )
        durations_without = _drop_end_step(durations, row)
        if counts is not None and steps.height > 2:
            usual = _lower_median(_drop_end_step(counts, row))
            if counts[row] < _PART * usual:
                message = f"the {which} recorded step ({number[row]}) has {counts[row]} device tasks, the others {usual}: {cut}"
                yield PartOfStep(
                    number[row], check, message, (health.STEP_DEVICE_TIMES, health.STEP_AVERAGES, health.KERNEL_CALLS)
                )
                continue
        if row == -1 and not whole_steps and durations[row] < _STUB * _lower_median(durations_without):
            others_take = format_duration(_lower_median(durations_without))
            message = (
                f"the last recorded step ({number[row]}) takes {format_duration(durations[row])}, the others {others_take}: {cut}"
            )
            yield PartOfStep(number[row], check, message, (health.STEP_TIMES, health.STEP_AVERAGES))


def uneven_steps(tables: Tables) -> Iterator[health.HealthFinding]:
    """The first and the last recorded step hold as much as the others: recording neither began nor ended inside them."""
    for part in parts_of_steps(tables):
        yield health.finding(part.check, health.WARNING, 1, part.message, *part.unsafe)


def _are_cut_steps_recorded(tables: Tables) -> bool:
    """Whether the recorder says that no step was cut, or which."""
    meta = tables.get("meta")
    is_whole = ((pl.col("key") == WHOLE_STEPS) & (pl.col("value") == "true")) | (pl.col("key") == PARTIAL_STEPS)
    return meta is not None and meta.filter(is_whole).height > 0


def _tasks_per_step(tables: Tables, steps: pl.DataFrame, *, launches_suffice: bool) -> list[int] | None:
    """How many device tasks each step launched, or, where launches are unknown, holds.

    None without device tasks, and where ``launches_suffice`` and they are known.
    """
    tasks = device_tasks(tables)
    if tasks is None or (launches_suffice and tasks["launch_ns"].null_count() < tasks.height):
        return None
    launched = step_of(tasks["launch_ns"].fill_null(-1).to_numpy(), steps.sort("start_ns"))
    of_task = pl.select(pl.coalesce(launched, tasks["step"])).to_series()
    if of_task.null_count() == len(of_task):
        return None
    of_step = dict(of_task.value_counts().iter_rows())
    return [of_step.get(number, 0) for number in steps["id"].to_list()]


def _drop_end_step(values: list[int], row: int) -> list[int]:
    return values[1:] if row == 0 else values[:-1]


def _lower_median(values: list[int]) -> int:
    """Median, of an even number the lower one in the middle: of two others, one may hold an evaluation."""
    return sorted(values)[(len(values) - 1) // 2]
