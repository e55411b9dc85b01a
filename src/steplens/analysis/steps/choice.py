"""Which steps figures are of: one choice per run, used wherever a figure speaks of "a step"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.step_words import number_ranges as number_ranges
from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.given_steps import given_steps
from steplens.trace.building.checks import parts_of_steps
from steplens.trace.schema import PARTIAL_STEPS
from steplens.trace.together import once_for_traces
from steplens.trace.trace import Trace

#: why a step is left out
CUT, WARM_UP = "cut", "warm-up"
#: in which figure a step of the warm-up differs
HOST_DURATION, DEVICE_PERIOD, WORK_DONE = "host duration", "device period", "work done"

#: with fewer steps left, warm-up is not left out
LEAST_STEPS = 3
#: a leading step differs from the rest when it is farther from their median than this many robust standard deviations, ...
_DEVIATIONS = 5.0
#: ... than this share of the median, and lies outside of what the rest spans
_LEAST_SHARE = 0.1
#: standard deviation of a normal distribution with a median absolute deviation of 1
_NORMAL = 1.4826
#: the collector's finding that recording was stopped before the next step began
STOPPED_INSIDE = "stopped_inside_step"


@dataclass(frozen=True)
class LeftOut:
    """A step that figures are not of.

    Attributes:
        step: its number.
        reason: CUT (recording holds a part of it) or WARM_UP.
        differs_in: of a warm-up, the figure in which it differs from the others; empty where another rank's does.
        value: that figure of the step, ns or a count; ``usual``: the median of the others.
    """

    step: int
    reason: str
    differs_in: str = ""
    value: float = 0.0
    usual: float = 0.0


@dataclass(frozen=True)
class ChosenSteps:
    """The steps of one trace that figures are of.

    Attributes:
        steps: their numbers, in order of time.
        left_out: the other ones, in order of time.
        few: fewer than three complete steps are left, so that none was left out as warm-up.
    """

    steps: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    few: bool

    def sentence(self) -> str:
        """Which steps figures are of, such as "median of steps 103-105; left out: 101-102 (warm-up)"."""
        if not self.steps:
            return "no steps"
        several = len(self.steps) > 1
        text = f"median of steps {number_ranges(self.steps)}" if several else f"step {self.steps[0]} alone"
        reasons = (
            f"{number_ranges([entry.step for entry in self.left_out if entry.reason == reason])} ({word})"
            for reason, word in ((WARM_UP, "warm-up"), (CUT, "cut by recording"))
            if any(entry.reason == reason for entry in self.left_out)
        )
        left_out = ", ".join(reasons)
        text += f"; left out: {left_out}" if left_out else ""
        return text + ("; few steps" if self.few else "")


def choose_steps(traces: Sequence[Trace]) -> tuple[ChosenSteps, ...]:
    """The steps that figures are of, for each trace of a run.

    Complete steps only: what recording cut is left out. So is warm-up: leading steps that differ from the rest in host
    duration, device period or work done (operator calls, device tasks). A leading step differs where it is farther from the
    median of the steps behind it than five robust standard deviations (1.4826 times the median absolute deviation) and than
    10 % of the median, and outside of what these steps span. Where fewer than three steps would be left, warm-up stays.
    A step that any rank leaves out is left out of the ranks whose step of the same number ran at the same time.

    A step without recorded device work stays: it has figures of the host, and null figures of the device.

    Args:
        traces: of one run: its ranks and windows.
    """
    choices = [trace.once(choose_alone) for trace in traces]
    if len(traces) == 1:
        return (choices[0],)
    left_out_by_step = once_for_traces(_left_out_by_step, traces)
    return tuple(_with_others(trace, choice, left_out_by_step) for trace, choice in zip(traces, choices, strict=True))


def chosen_steps(trace: Trace) -> ChosenSteps:
    """The steps of a trace that figures are of, chosen together with the other traces of its run; see ``choose_steps``."""
    return trace.once(choose_together)


def choose_together(trace: Trace) -> ChosenSteps:
    """``chosen_steps``, chosen anew: of a run of thousands one process does that, which tells the others."""
    return _with_others(trace, trace.once(choose_alone), once_for_traces(_left_out_by_step, trace.companions))


def incomplete_steps(trace: Trace) -> set[int]:
    """Numbers of the steps of which recording holds only a part."""
    steps = trace.steps
    if steps is None or not steps.height:
        return set()
    tables = {name: frame for name in ("steps", "kernels", "meta") if (frame := trace.table(name)) is not None}
    parts = {part.step for part in parts_of_steps(tables)}
    partial = trace.meta_value(PARTIAL_STEPS)
    parts |= {step for step in partial if type(step) is int} if isinstance(partial, list) else set()
    health = trace.table("health")
    if health is not None and STOPPED_INSIDE in health["check"].cast(pl.String).to_list():
        # the last one lasted until somebody stopped recording, and not until the step was done
        parts.add(steps.sort("start_ns")["id"][-1])
    return parts


def choose_alone(trace: Trace) -> ChosenSteps:
    """The choice for one trace alone."""
    steps = trace.required("steps").select("id", "start_ns", "end_ns").sort("start_ns").collect()
    if not steps.height and trace.is_results_only:
        step_numbers = tuple(given_steps(trace)["step"].to_list())
        return ChosenSteps(step_numbers, (), few=len(step_numbers) < LEAST_STEPS)
    incomplete = incomplete_steps(trace)
    complete = steps.filter(~pl.col("id").is_in(sorted(incomplete)))
    if not complete.height:
        # nothing else is there to show
        return ChosenSteps(tuple(steps["id"].to_list()), (), few=True)
    cut = [LeftOut(step, CUT) for step in steps["id"].to_list() if step in incomplete]
    numbers: list[int] = complete["id"].to_list()
    warm_up = _warm_up(trace, complete)
    left = len(numbers) - len(warm_up)
    if left < LEAST_STEPS:
        warm_up, left = [], len(numbers)
    place = {step: number for number, step in enumerate(steps["id"].to_list())}
    left_out = sorted([*cut, *warm_up], key=lambda entry: place[entry.step])
    return ChosenSteps(tuple(numbers[len(warm_up) :]), tuple(left_out), few=left < LEAST_STEPS)


def _warm_up(trace: Trace, steps: pl.DataFrame) -> list[LeftOut]:
    """The leading steps that differ from those behind them."""
    if steps.height <= LEAST_STEPS:
        return []
    periods = device_periods(trace).select(id="step", period_ns="period_ns")
    columns = [steps.select("id", duration=pl.col("end_ns") - pl.col("start_ns")), periods]
    columns += [_rows_per_step(trace, table) for table in ("ops", "kernels")]
    frame = steps.select("id")
    for column in columns:
        frame = frame.join(column, on="id", how="left", maintain_order="left")
    values = [frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy() for name in frame.columns[1:]]
    kinds = (HOST_DURATION, DEVICE_PERIOD if trace.has_accelerator else HOST_DURATION, WORK_DONE, WORK_DONE)
    warm_up: list[LeftOut] = []
    for row in range(steps.height - 1):
        differing = next((pair for pair in zip(kinds, values, strict=True) if is_unusual(pair[1][row], pair[1][row + 1 :])), None)
        if differing is None:
            break
        kind, figures = differing
        usual = float(np.nanmedian(figures[row + 1 :]))
        warm_up.append(LeftOut(int(frame["id"][row]), WARM_UP, kind, float(figures[row]), usual))
    return warm_up


def is_unusual(value: float, rest: npt.NDArray[np.float64]) -> bool:
    """Whether a step differs from the rest in a figure; see ``choose_steps``. False where the figure is not known."""
    numbers = rest[~np.isnan(rest)]
    if np.isnan(value) or len(numbers) < 2:
        return False
    median = float(np.median(numbers))
    spread = _NORMAL * float(np.median(np.abs(numbers - median)))
    away = abs(value - median)
    outside = value < numbers.min() or value > numbers.max()
    return bool(outside and away > _DEVIATIONS * spread and away > _LEAST_SHARE * median)


def _rows_per_step(trace: Trace, table: str) -> pl.DataFrame:
    """How many rows of a table belong to each step; null for steps without any, of which nothing was recorded."""
    rows = trace.required(table).select("step").drop_nulls().group_by("step").agg(pl.len().alias(f"{table}_count"))
    return rows.rename({"step": "id"}).collect()


def _left_out_by_step(traces: Sequence[Trace]) -> dict[int, list[tuple[Trace, LeftOut]]]:
    """What each trace alone leaves out, by number of the step: every trace is looked at once, not once for every other one."""
    left_out: dict[int, list[tuple[Trace, LeftOut]]] = {}
    for trace in traces:
        for entry in trace.once(choose_alone).left_out:
            left_out.setdefault(entry.step, []).append((trace, entry))
    return left_out


def _with_others(trace: Trace, chosen: ChosenSteps, others: Mapping[int, Sequence[tuple[Trace, LeftOut]]]) -> ChosenSteps:
    """The choice of one trace, without the steps that ranks beside it leave out."""
    spans = trace.once(find_step_spans)
    beside: dict[int, LeftOut] = {}
    for step, (start, end) in spans.items():
        for other_trace, entry in others.get(step, ()):
            theirs = other_trace.once(find_step_spans).get(step)
            if theirs is not None and start < theirs[1] and theirs[0] < end and other_trace.rank != trace.rank:
                beside[step] = LeftOut(step, entry.reason)
                break
    steps = tuple(step for step in chosen.steps if step not in beside)
    if len(steps) < LEAST_STEPS or len(steps) == len(chosen.steps):
        return chosen
    left_out = {**beside, **{entry.step: entry for entry in chosen.left_out}}
    return ChosenSteps(steps, tuple(left_out[step] for step in sorted(left_out, key=lambda step: spans[step][0])), chosen.few)


def find_step_spans(trace: Trace) -> dict[int, tuple[int, int]]:
    """When each step of a trace ran."""
    rows = trace.required("steps").select("id", "start_ns", "end_ns").collect().iter_rows()
    return {step: (start, end) for step, start, end in rows}
