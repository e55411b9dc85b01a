"""The steps that tables of "a step" are of: sums over the chosen steps of a trace, divided by their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from steplens.analysis.step_words import number_ranges
from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.once import once_per_trace
from steplens.trace.trace import Trace


@dataclass(frozen=True)
class Basis:
    """The chosen steps of a trace, as what figures of a step are of.

    Attributes:
        steps: their numbers.
        device_steps: those of which the device's work was recorded; on a CPU all of them.
    """

    steps: tuple[int, ...]
    device_steps: tuple[int, ...]


@once_per_trace
def step_basis(trace: Trace) -> Basis:
    """The chosen steps of a trace (``choice.choose_steps``); without steps none, and tables are of the whole recording."""
    steps = chosen_steps(trace).steps
    if trace.steps is None or not trace.steps.height:
        return Basis((), ())
    if not trace.has_accelerator:
        return Basis(steps, steps)
    recorded = chosen_step_times(trace).drop_nulls("device_period_ns")
    return Basis(steps, tuple(recorded["step"].to_list()))


def divide_by_steps(rows: pl.DataFrame, columns: Sequence[str], steps: int) -> pl.DataFrame:
    """Sums over so many steps as those of one, as real numbers; with 0 steps they stay what they are."""
    return rows.with_columns(pl.col(*columns).cast(pl.Float64) / max(steps, 1))


def with_steps(traces: Sequence[Trace]) -> list[Trace]:
    """The traces that figures of a step are of: those with steps; where none has any, all of them."""
    timed = [trace for trace in traces if step_basis(trace).steps]
    return timed or list(traces)


def basis_sentence(traces: Sequence[Trace], *, apart: bool = False) -> str:
    """What tables per step are of, in words: "per step (mean of steps 2-5)".

    Args:
        traces: of one run.
        apart: each has rows of its own, instead of their mean.
    """
    timed = [trace for trace in traces if step_basis(trace).steps]
    if not timed:
        return "sums over the whole recording, which has no steps"
    ranges = {number_ranges(step_basis(trace).steps) for trace in timed}
    count = sum(len(step_basis(trace).steps) for trace in timed)
    mean = "mean of " if count > len(timed) else ""
    same = f"step{'s' if mean else ''} {ranges.pop()}" if len(ranges) == 1 else ""
    ranks = len({trace.rank for trace in timed})
    if len(timed) == 1 or apart:
        return f"per step ({mean}{same or 'the steps of each'})"
    if ranks == len(timed):
        return f"per step and rank (mean of {same or f'{count} steps'} of {ranks} ranks)"
    return f"per step (mean of {count} steps in {len(timed)} recordings)"
