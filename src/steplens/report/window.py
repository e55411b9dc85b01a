"""The window of time that a report shows event by event."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from steplens.common.errors import InputError, SteplensError
from steplens.server.runs import OpenedRun
from steplens.server.tables import tables

#: shown beside a step, as a share of it
_BESIDE = 0.05


@dataclass(frozen=True)
class Window:
    """A stretch of time of a run, ns from its origin; ``step``: whose it is, and ``median``: whether for being the middle one."""

    start_ns: int
    end_ns: int
    step: int | None = None
    median: bool = False


def choose_window(shown: OpenedRun, step: int | None, span_ns: tuple[int, int] | None) -> Window:
    """The window of a run: what was asked for, or else the step of median length, or else all of it.

    Args:
        shown: the run.
        step: a step by its id.
        span_ns: start and end, ns from the origin of the run.

    Raises:
        InputError: the run has no such step.
    """
    if span_ns is not None:
        return Window(*span_ns)
    steps = tables.table_frame(shown, "steps").filter("complete", pl.col("step").is_not_null())
    if "trace" in steps.columns and steps.height:
        steps = steps.filter(pl.col("trace") == steps["trace"].min())
    if step is not None:
        matching = steps.filter(pl.col("step") == step)
        if matching.is_empty():
            first_steps = ", ".join(map(str, steps["step"].head(20))) or "none"
            raise InputError(shown.path, f"has no complete step {step}; its complete steps: {first_steps}")
        return _window_around_step(matching, median=False)
    if steps.height:
        return _window_around_step(steps.sort("duration_ns", "step").slice((steps.height - 1) // 2, 1), median=True)
    bounds = [shown.timeline(number).timeline.bounds for number in range(len(shown.run.traces))]
    return Window(min(start for start, _ in bounds), max(end for _, end in bounds) + 1)


def _window_around_step(step: pl.DataFrame, *, median: bool) -> Window:
    start, length = int(step["start_ns"][0]), int(step["duration_ns"][0])
    beside = int(length * _BESIDE)
    return Window(start - beside, start + length + beside + 1, int(step["step"][0]), median)


def parse_window(text: str) -> tuple[int, int]:
    """``START:END`` in ms from the origin, as ns.

    Raises:
        SteplensError: it is not of this form.
    """
    start, _, end = text.partition(":")
    try:
        limits = round(float(start) * 1e6), round(float(end) * 1e6)
    except (ValueError, OverflowError):
        limits = 0, 0
    if limits[0] >= limits[1] or max(map(abs, limits)) > 1 << 62:
        raise SteplensError(f"--window {text!r} is not START:END in ms from the start of the run, such as 120:180.5")
    return limits
