"""The steps of a trace: none missing, none on top of another, the first and the last like the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from steplens.trace.checks.common import Tables, device_tasks, length
from steplens.trace.health import (
    KERNEL_CALLS,
    STEP_AVERAGES,
    STEP_DEVICE_TIMES,
    STEP_PHASES,
    STEP_TIMES,
    WARNING,
    HealthFinding,
    finding,
)
from steplens.trace.steps import step_of

#: a first step this much longer than the others is still warming up (compiling, allocating, filling caches)
_SLOW = 2.0
_SLOW_LEAST_NS = 1_000_000
#: a step with less than this share of the others' device tasks or length lacks something
_PART = 0.5
_STUB = 0.1


def missing_steps(tables: Tables) -> Iterator[HealthFinding]:
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
        yield finding("missing_steps", WARNING, missing, message, STEP_TIMES, STEP_AVERAGES)


def overlapping_steps(tables: Tables) -> Iterator[HealthFinding]:
    """A step begins when the one before it has ended."""
    steps = tables.get("steps")
    if steps is None:
        return
    steps = steps.sort("start_ns")
    overlapping = int((steps["start_ns"] < steps["end_ns"].shift()).sum())
    if overlapping:
        message = f"{overlapping} steps begin before the one before them ends"
        yield finding("overlapping_steps", WARNING, overlapping, message, STEP_TIMES, STEP_PHASES)


def slow_first_step(tables: Tables) -> Iterator[HealthFinding]:
    """The first recorded step takes as long as the others; while caches fill and kernels compile it takes longer."""
    steps = tables.get("steps")
    if steps is None or steps.height < 3:
        return
    durations = (steps["end_ns"] - steps["start_ns"]).to_list()
    others = float(pl.Series(durations[1:]).median())  # type: ignore[arg-type]
    if durations[0] > _SLOW * others and durations[0] - others > _SLOW_LEAST_NS:
        message = (
            f"the first recorded step ({steps['id'][0]}) takes {length(durations[0])}, the others {length(others)}: "
            "warm-up is part of the recording"
        )
        yield finding("slow_first_step", WARNING, 1, message, STEP_AVERAGES)


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
    """The first or last recorded step, where recording began or ended inside it: it holds much less than the others.

    Args:
        tables: ``steps`` and, where there are any, ``kernels``.
    """
    steps = tables.get("steps")
    if steps is None or steps.height < 2:
        return
    counts = _tasks_per_step(tables, steps)
    durations = (steps["end_ns"] - steps["start_ns"]).to_list()
    number = steps["id"].to_list()
    for row, which, check in ((0, "first", "incomplete_first_step"), (-1, "last", "incomplete_last_step")):
        others = _without(durations, row)
        if counts is not None and steps.height > 2:
            usual = _median(_without(counts, row))
            if counts[row] < _PART * usual:
                message = (
                    f"the {which} recorded step ({number[row]}) has {counts[row]} device tasks, the others {usual:.0f}: "
                    "recording began or ended inside it"
                )
                yield PartOfStep(number[row], check, message, (STEP_DEVICE_TIMES, STEP_AVERAGES, KERNEL_CALLS))
                continue
        if row == -1 and durations[row] < _STUB * _median(others):
            message = (
                f"the last recorded step ({number[row]}) takes {length(durations[row])}, the others {length(_median(others))}: "
                "recording ended inside it"
            )
            yield PartOfStep(number[row], check, message, (STEP_TIMES, STEP_AVERAGES))


def uneven_steps(tables: Tables) -> Iterator[HealthFinding]:
    """The first and the last recorded step hold as much as the others: recording neither began nor ended inside them."""
    for part in parts_of_steps(tables):
        yield finding(part.check, WARNING, 1, part.message, *part.unsafe)


def _tasks_per_step(tables: Tables, steps: pl.DataFrame) -> list[int] | None:
    """How many device tasks each step launched, or, where launches are unknown, holds; None without device tasks."""
    tasks = device_tasks(tables)
    if tasks is None:
        return None
    launched = step_of(tasks["launch_ns"].fill_null(-1).to_numpy(), steps.sort("start_ns"))
    of_task = pl.select(pl.coalesce(launched, tasks["step"])).to_series()
    if of_task.null_count() == len(of_task):
        return None
    of_step = dict(of_task.value_counts().iter_rows())
    return [of_step.get(number, 0) for number in steps["id"].to_list()]


def _without(values: list[int], row: int) -> list[int]:
    return values[1:] if row == 0 else values[:-1]


def _median(values: list[int]) -> float:
    return float(pl.Series(values).median())  # type: ignore[arg-type]
