"""The recordings of one side of a comparison: its processes, each with its steps in order of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from steplens.analysis.steps.summary import usual_device_steps, usual_step_times
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS, chosen_step_times
from steplens.analysis.tools.joined_rows import join_rows
from steplens.comparison.processes import group_processes, match_ranks, number_windows
from steplens.trace.trace import Trace

#: parts of a step that are known of steps, in the order in which they are shown
PARTS = (*HOST_PARTS, *DEVICE_PARTS)
#: and what is known of them besides
_OVERLAPPED = "overlapped_communication_ns"
FIGURES = (*PARTS, _OVERLAPPED)
#: key of ``meta``: how long the threads of a process ran and waited for a processor while it was
PROCESSOR_TIME = "processor_time"


@dataclass(frozen=True)
class Recording:
    """One time that a program ran, on all its ranks, in one window or several.

    Attributes:
        steps: a row for each step that figures are of, in order of time: ``step_time_ns``, the mean over its ranks.
        usual: the same without single steps that stand out, with ``FIGURES``, each the mean over the ranks; those of the device
            are null where recording cut its period (``usual_device_steps``).
        ranks: on how many it ran.
        waited_share: the share of their time that its processes waited for a processor, 0 to 1; None where that was not recorded.
        traces: its ranks and windows; none of a recording of which only figures are there.
        windows: which window each of these is (``processes.number_windows``): with it the number of a step is that of no other.
    """

    steps: pl.DataFrame
    usual: pl.DataFrame
    ranks: int
    waited_share: float | None
    traces: tuple[Trace, ...] = ()
    windows: tuple[int, ...] = ()


def find_recordings(traces: Sequence[Trace], paths: Sequence[Path] | None = None) -> list[Recording]:
    """What ran once each, among the traces of a run or a folder of runs, in order of time.

    Traces of a rank that one process wrote are windows of one recording; of several processes, each is a recording of its own.
    Processes of several ranks that ran at the same time are one recording.

    Args:
        traces: of the run.
        paths: the run directory or file of each; by default those that its tables come from.
    """
    of_ranks: dict[int, list[tuple[Trace, Path]]] = {}
    for trace, path in zip(traces, paths or [trace.source for trace in traces], strict=True):
        of_ranks.setdefault(trace.rank, []).append((trace, path))
    processes = [group_processes(of_ranks[rank]) for rank in sorted(of_ranks)]
    return [_make_recording(traces_of_job) for traces_of_job in match_ranks(processes)]


def _make_recording(traces: Sequence[Trace]) -> Recording:
    windows = number_windows(traces)
    return Recording(
        steps=_join_steps(windows, [chosen_step_times(trace) for trace in traces]),
        usual=_join_steps(windows, [_usual_figures(trace) for trace in traces]),
        ranks=len({trace.rank for trace in traces}),
        waited_share=_waited_share(traces),
        traces=tuple(traces),
        windows=windows,
    )


def _usual_figures(trace: Trace) -> pl.DataFrame:
    """The usual steps, with figures of the device where its period is known as a whole."""
    is_whole = pl.col("step").is_in(usual_device_steps(trace)["step"].to_list())
    return usual_step_times(trace).with_columns(pl.when(is_whole).then(pl.col(*DEVICE_PARTS, _OVERLAPPED)))


def _waited_share(traces: Sequence[Trace]) -> float | None:
    times = [value for trace in traces if isinstance(value := trace.meta_value(PROCESSOR_TIME), dict)]
    ran, waited = (sum(time.get(name, 0) for time in times) for name in ("ran_ns", "waited_ns"))
    return waited / (ran + waited) if ran + waited > 0 else None


def usual_step(recordings: Sequence[Recording]) -> float | None:
    """The geometric mean of the median steps of recordings, ns; None without any."""
    medians = [np.log(np.median(recording.steps["step_time_ns"].to_numpy().astype(np.float64))) for recording in recordings]
    return math.exp(float(np.mean(medians))) if medians else None


def _join_steps(windows: Sequence[int], steps_of_traces: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """A row for each step of any rank, the mean over the ranks that have it."""
    columns = ("step", "start_ns", "step_time_ns", *FIGURES)
    frames = [
        steps.select(*columns, window=pl.lit(window, dtype=pl.Int64))
        for steps, window in zip(steps_of_traces, windows, strict=True)
    ]
    figures = pl.col("step_time_ns", *FIGURES).mean()
    of_steps = join_rows(frames).group_by("window", "step").agg(pl.col("start_ns").min(), figures)
    return of_steps.sort("window", "start_ns", "step").drop_nulls("step_time_ns")
