"""The recordings of one side of a comparison: its processes, each with its steps in order of time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.steps.summary import usual_step_times
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS, chosen_step_times
from steplens.analysis.tools.joined_rows import join_rows
from steplens.trace.building.checks.ranks import recorded_span
from steplens.trace.trace import Trace

#: parts of a step that are known of steps, in the order in which they are shown
PARTS = (*HOST_PARTS, *DEVICE_PARTS)
#: and what is known of them besides
FIGURES = (*PARTS, "overlapped_communication_ns")
#: key of ``meta``: the process that was recorded
_PROCESS_NUMBER = "pid"
#: and how long its threads ran and waited for a processor while it was
PROCESSOR_TIME = "processor_time"


@dataclass(frozen=True)
class Recording:
    """One time that a program ran, on all its ranks, in one window or several.

    Attributes:
        steps: a row for each step that figures are of, in order of time: ``step_time_ns``, the mean over its ranks.
        usual: the same without single steps that stand out, with ``FIGURES``, each the mean over the ranks.
        ranks: on how many it ran.
        waited_share: the share of their time that its processes waited for a processor, 0 to 1; None where that was not recorded.
        traces: its ranks and windows; none of a recording of which only figures are there.
    """

    steps: pl.DataFrame
    usual: pl.DataFrame
    ranks: int
    waited_share: float | None
    traces: tuple[Trace, ...] = ()


def find_recordings(traces: Sequence[Trace]) -> list[Recording]:
    """What ran once each, among the traces of a run or a folder of runs, in order of time.

    Traces of a rank that one process wrote are windows of one recording; of several processes, each is a recording of its own.
    """
    groups: dict[int, list[Trace]] = {}
    processes: dict[int, dict[object, int]] = {}
    for trace in sorted(traces, key=_begin_ns):
        numbers = processes.setdefault(trace.rank, {})
        number = numbers.setdefault(trace.meta_value(_PROCESS_NUMBER), len(numbers))
        groups.setdefault(number, []).append(trace)
    return [_make_recording(groups[number]) for number in sorted(groups)]


def _begin_ns(trace: Trace) -> int:
    return recorded_span(trace)[0] or 0


def _make_recording(traces: Sequence[Trace]) -> Recording:
    return Recording(
        steps=_steps_of_ranks(traces, usual=False),
        usual=_steps_of_ranks(traces, usual=True),
        ranks=len({trace.rank for trace in traces}),
        waited_share=_waited_share(traces),
        traces=tuple(traces),
    )


def _waited_share(traces: Sequence[Trace]) -> float | None:
    times = [value for trace in traces if isinstance(value := trace.meta_value(PROCESSOR_TIME), dict)]
    ran, waited = (sum(time.get(name, 0) for time in times) for name in ("ran_ns", "waited_ns"))
    return waited / (ran + waited) if ran + waited > 0 else None


def usual_step(recordings: Sequence[Recording]) -> float | None:
    """The geometric mean of the median steps of recordings, ns; None without any."""
    medians = [np.log(np.median(recording.steps["step_time_ns"].to_numpy().astype(np.float64))) for recording in recordings]
    return math.exp(float(np.mean(medians))) if medians else None


def number_windows(traces: Sequence[Trace]) -> list[int]:
    """Which window of its rank each trace of a recording is, from 0: numbers of steps may begin anew in each."""
    windows: Counter[int] = Counter()
    numbers = []
    for trace in traces:
        numbers.append(windows[trace.rank])
        windows[trace.rank] += 1
    return numbers


def _steps_of_ranks(traces: Sequence[Trace], *, usual: bool) -> pl.DataFrame:
    frames = []
    for trace, number in zip(traces, number_windows(traces), strict=True):
        steps = usual_step_times(trace) if usual else chosen_step_times(trace)
        window = pl.lit(number, dtype=pl.Int64)
        frames.append(steps.select("step", "start_ns", "step_time_ns", *FIGURES, window=window))
    figures = pl.col("step_time_ns", *FIGURES).mean()
    of_steps = join_rows(frames).group_by("window", "step").agg(pl.col("start_ns").min(), figures)
    return of_steps.sort("window", "start_ns", "step").drop_nulls("step_time_ns")
