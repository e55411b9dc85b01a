"""The figures of a step of a run: medians over the chosen steps, means of its parts, and which steps these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from steplens.analysis.step_words import CUT_WINDOW, RUN_AHEAD, THROTTLED
from steplens.analysis.steps.choice import LEAST_STEPS, ChosenSteps, choose_steps
from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.queue_waits import queue_waits_by_phase
from steplens.analysis.steps.step_distribution import any_stands_out, step_distribution
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS, chosen_step_times, runs_behind
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_per_trace
from steplens.trace.trace import Trace

#: host duration and device period are told apart where their medians differ by more than this share
_DIFFER = 0.05
#: steps that stand out are single ones where at most one in so many does
_RARE = 8
#: a last device period that is this much of its step or less was cut
_CUT_PERIOD = 0.5
#: a step that takes so many times the median is named, at most this many
_LONG = 1.5
_NAMED = 3


@dataclass(frozen=True)
class LongStep:
    """A chosen step that takes much longer than the others.

    Attributes:
        rank: of its trace; None where the run has one rank, or the trace does not say which it is.
        step: its number.
        step_time_ns: its step time; ``factor``: by how much the median of its trace it is multiplied.
    """

    rank: int | None
    step: int
    step_time_ns: float
    factor: float


@dataclass(frozen=True)
class StepSummary:
    """A step of one trace, or of all traces of a run.

    Attributes:
        steps: how many steps the figures are of, those of every rank; ``device_steps``: of how many the device was recorded.
        step_time_ns: the step time, median; None without steps. ``quartiles_ns``: its first and third quartile.
        host_ns: host duration, median; ``device_ns``: device period, median, None where none was recorded.
        differs: why ``host_ns`` and ``device_ns`` differ by more than 5 %: RUN_AHEAD (the host issues faster than the device
            works), THROTTLED (the host waits for the device's queue) or CUT_WINDOW; empty where they do not.
        host: part of the host duration -> ns: its mean over the usual steps, so that the parts add up to ``host_mean_ns``. Where
            no operators of the training thread were recorded only the known parts, which do not add up: see ``host_complete``.
        device: the same of the device period; they add up to ``device_mean_ns``.
        gradient_sync_ns: the part of backward, in the same way; ``overlapped_communication_ns``: beside the parts of the device.
        behind: whether the device runs behind the host, so that the step time is the device period.
        chosen: per trace, which steps figures are of.
        ranks: how many ranks have chosen steps; ``distinct``: how many steps these are, where a step of several ranks is one.
        queue_wait: phase of the host (``HOST_PARTS``) -> how long of it the host waits for a place in the device's queue, ns, in
            the same way; a part of these phases, and none of its own (``queue_waits``).
        long_steps: chosen steps that take much longer than the others, the longest first.
        usual: the numbers of the usual steps (``usual_step_times``), whose means the parts of the host are; ``usual_steps``: how
            many these are, those of every rank. ``usual_on_device``: the numbers of those that the parts of the device are of.
        outliers: the numbers of chosen steps that are not usual, of any rank.
        host_mean_ns: mean host duration of the steps that the parts of the host are of; None where no part of it is known.
        device_mean_ns: mean device period of the steps that its parts are of; None where none was recorded.
        step_mean_ns: mean step time of the usual steps; None without steps.
    """

    steps: int
    device_steps: int
    step_time_ns: float | None
    quartiles_ns: tuple[float, float] | None
    host_ns: float | None
    device_ns: float | None
    differs: str
    host: dict[str, float]
    device: dict[str, float]
    gradient_sync_ns: float
    overlapped_communication_ns: float
    behind: bool
    chosen: tuple[ChosenSteps, ...]
    ranks: int = 1
    distinct: int = 0
    long_steps: tuple[LongStep, ...] = ()
    queue_wait: dict[str, float] = field(default_factory=dict)
    usual: tuple[int, ...] = ()
    usual_steps: int = 0
    usual_on_device: tuple[int, ...] = ()
    outliers: tuple[int, ...] = ()
    host_mean_ns: float | None = None
    device_mean_ns: float | None = None
    step_mean_ns: float | None = None

    @property
    def host_complete(self) -> bool:
        """Whether all parts of the host duration are known."""
        return all(name in self.host for name in HOST_PARTS)

    def sentence(self) -> str:
        """Which steps the figures are of, in words."""
        texts = list(dict.fromkeys(choice.sentence() for choice in self.chosen if choice.steps))
        if len(texts) == 1:
            which, _, left_out = texts[0].partition(";")
            return which + (f" on {self.ranks} ranks" if self.ranks > 1 else "") + (f";{left_out}" if left_out else "")
        return f"median of {self.steps} steps of {len(self.chosen)} traces" if texts else "no steps"


def summarize_steps(traces: Sequence[Trace]) -> StepSummary:
    """The figures of a step over the chosen steps of some traces of a run; see ``StepSummary``.

    Medians of parts do not add up to the median of the whole. A part is therefore its mean over the usual steps
    (``usual_step_times``), as the rows of these steps have it: the parts of the host add up to ``host_mean_ns``, those of the
    device to ``device_mean_ns``.

    Args:
        traces: of one run.
    """
    steps = join_rows(map(chosen_step_times, traces)) if traces else pl.DataFrame()
    choices = choose_steps(traces)
    if not steps.height:
        return StepSummary(0, 0, None, None, None, None, "", {}, {}, 0.0, 0.0, False, choices)
    recorded = steps.drop_nulls("device_period_ns")
    usual = join_rows(map(usual_step_times, traces))
    ranks = {trace.rank for trace in traces if trace.rank >= 0 and chosen_step_times(trace).height}
    host_ns, device_ns = _column_median(steps, "duration_ns"), _column_median(recorded, "device_period_ns")
    behind = any(runs_behind(trace) for trace in traces)
    called = usual.drop_nulls(list(HOST_PARTS))
    host_parts = HOST_PARTS if called.height else [name for name in HOST_PARTS if usual[name].null_count() < usual.height]
    called = called if called.height else usual.drop_nulls(host_parts) if host_parts else called
    host = _column_means(called, (*HOST_PARTS, "gradient_sync_ns"))
    worked = join_rows(map(usual_device_steps, traces))
    worked = worked if worked.height else recorded
    device = _column_means(worked, (*DEVICE_PARTS, "overlapped_communication_ns"))
    quartiles = (_step_time_quantile(steps, 0.25), _step_time_quantile(steps, 0.75))
    return StepSummary(
        steps=steps.height,
        device_steps=recorded.height,
        step_time_ns=_column_median(steps, "step_time_ns"),
        quartiles_ns=quartiles,
        host_ns=host_ns,
        device_ns=device_ns,
        differs=_why_differs(host_ns, device_ns, behind),
        host={name: value for name, value in host.items() if name in host_parts},
        device={name: value for name, value in device.items() if name in DEVICE_PARTS},
        gradient_sync_ns=host.get("gradient_sync_ns", 0.0),
        overlapped_communication_ns=device.get("overlapped_communication_ns", 0.0),
        behind=behind,
        chosen=choices,
        ranks=len(ranks),
        distinct=len({step for choice in choices for step in choice.steps}) if len(ranks) > 1 else steps.height,
        long_steps=_long_steps(traces, len(ranks) > 1),
        queue_wait=_queue_wait(traces, host_parts),
        usual=_step_numbers(called),
        usual_steps=called.height,
        usual_on_device=_step_numbers(worked),
        outliers=_step_numbers(join_rows(map(_outlier_steps, traces))),
        host_mean_ns=_column_means(called, ("duration_ns",)).get("duration_ns"),
        device_mean_ns=_column_means(worked, ("device_period_ns",)).get("device_period_ns"),
        step_mean_ns=_column_means(usual, ("step_time_ns",)).get("step_time_ns"),
    )


def _queue_wait(traces: Sequence[Trace], host_parts: Sequence[str]) -> dict[str, float]:
    """Mean wait for the queue by phase, of the steps that the parts of the host are of: those with all of ``host_parts``."""
    sums: dict[str, int] = {}
    count = 0
    for trace in traces:
        steps = usual_step_times(trace).drop_nulls(["start_ns", "duration_ns", *host_parts])
        count += steps.height
        for phase, by_step in trace.once(_queue_waits_of_steps).items():
            for number in steps["step"].to_list():
                if number in by_step:
                    sums[phase] = sums.get(phase, 0) + by_step[number]
    return {phase: sums[phase] / count for phase in HOST_PARTS if phase in sums}


def _queue_waits_of_steps(trace: Trace) -> dict[str, dict[int, int]]:
    """How long the host waits for the queue by phase in each usual step, ns."""
    waits: dict[str, dict[int, int]] = {}
    steps = usual_step_times(trace).drop_nulls(["step", "start_ns", "duration_ns"])
    for number, start, duration in steps.select("step", "start_ns", "duration_ns").iter_rows():
        begin, end = np.array([start]), np.array([start + duration])
        for phase, length in queue_waits_by_phase(trace, begin, end).items():
            waits.setdefault(phase, {})[number] = length
    return waits


def _long_steps(traces: Sequence[Trace], several: bool) -> tuple[LongStep, ...]:
    """Chosen steps that take at least half more than the median of their trace, at most three."""
    long_steps = []
    for trace in traces:
        steps = chosen_step_times(trace).select("step", "step_time_ns").drop_nulls()
        median = _column_median(steps, "step_time_ns")
        if not median or steps.height < LEAST_STEPS:
            continue
        rank = trace.rank if several and trace.rank >= 0 else None
        for step, time_ns in steps.filter(pl.col("step_time_ns") >= _LONG * median).iter_rows():
            long_steps.append(LongStep(rank, step, float(time_ns), time_ns / median))
    return tuple(sorted(long_steps, key=lambda entry: -entry.step_time_ns)[:_NAMED])


@once_per_trace
def usual_step_times(trace: Trace) -> pl.DataFrame:
    """The rows of ``chosen_step_times`` without single steps that stand out (``step_distribution``).

    One stall in ten steps is a tenth of the steps and half of their time; what a step usually consists of, it does not say.
    Steps that stand out are left out as long as they are less than one in eight: what recurs more often, such as an update
    after every fourth batch, is usual.
    """
    steps = chosen_step_times(trace)
    outliers = _outlier_steps(trace)
    return steps.join(outliers, on="step", how="anti") if outliers.height else steps


@once_per_trace
def _outlier_steps(trace: Trace) -> pl.DataFrame:
    """The chosen steps that are not usual: their numbers."""
    steps = chosen_step_times(trace)
    if not any_stands_out(steps):
        return steps.clear().select("step")
    outliers = step_distribution(steps).outliers.select("step")
    return outliers if outliers.height * _RARE < steps.height else outliers.clear()


@once_per_trace
def usual_device_steps(trace: Trace) -> pl.DataFrame:
    """The usual steps whose device period is known as a whole.

    The period of a step lasts until the next one's work begins, that of the last step ends with its own. Where the host holds the
    device up that leaves out what the device waits for the next step; where that is most of the step, recording has cut it.
    """
    steps = usual_step_times(trace).drop_nulls("device_period_ns")
    if not trace.has_accelerator or runs_behind(trace):
        return steps
    ends_with_its_work = device_periods(trace).filter(pl.col("end_ns") == pl.col("last_work_ns"))["step"].to_list()
    is_short = pl.col("device_period_ns") < _CUT_PERIOD * pl.col("duration_ns")
    whole = steps.filter(~(pl.col("step").is_in(ends_with_its_work) & is_short).fill_null(False))
    return whole if whole.height else steps


def _column_median(steps: pl.DataFrame, column: str) -> float | None:
    value = steps[column].median()
    return float(value) if isinstance(value, (int, float)) else None


def _step_time_quantile(steps: pl.DataFrame, share: float) -> float:
    value = steps["step_time_ns"].quantile(share, "linear")
    return float(value) if value is not None else 0.0


def _column_means(steps: pl.DataFrame, columns: Sequence[str]) -> dict[str, float]:
    return {name: float(steps[name].sum()) / steps.height for name in columns} if steps.height else {}


def _step_numbers(steps: pl.DataFrame) -> tuple[int, ...]:
    return tuple(sorted(set(steps["step"].drop_nulls().to_list())))


def _why_differs(host_ns: float | None, device_ns: float | None, behind: bool) -> str:
    if not host_ns or not device_ns or abs(host_ns - device_ns) <= _DIFFER * max(host_ns, device_ns):
        return ""
    if device_ns > host_ns:
        return RUN_AHEAD if behind else CUT_WINDOW
    return THROTTLED if behind else CUT_WINDOW
