"""Measures one side of a comparison from its recordings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import polars as pl

from steplens.analysis.device.kernels import kernel_statistics
from steplens.analysis.memory.memory import memory_summary
from steplens.analysis.operators.operators import filled_columns, operators
from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.once import once_per_trace
from steplens.comparison.call_tree import CallPaths, measure_paths
from steplens.comparison.causes.cause_side import RecordedSource
from steplens.comparison.circumstances import measure_circumstances
from steplens.comparison.held_memory import measure_peak
from steplens.comparison.item_times import ItemTimes
from steplens.comparison.names import sum_per_step
from steplens.comparison.noise import LEAST_STEPS, Sample
from steplens.comparison.recordings import Recording, find_recordings, usual_step
from steplens.comparison.side import Side
from steplens.run import Run
from steplens.trace.cache.known_answers import accept_known, keep_known
from steplens.trace.trace import Trace

#: what is kept of a comparison is called so
_KIND = "measured"


def measure_side(run: Run) -> Side:
    """A run, or a folder of runs, of which each recording counts as one, as a side of a comparison.

    Its steps and circumstances are measured at once, the rest (``Side.figures``) when it is asked for.
    """
    accept_known(run.traces, _KIND)
    all_recordings = find_recordings(run.traces, run.paths)
    recordings = [recording for recording in all_recordings if recording.steps.height >= LEAST_STEPS]
    recordings = recordings or [recording for recording in all_recordings if recording.steps.height]
    return Side(
        path=run.path,
        recordings=tuple(recordings),
        step_ns=usual_step(recordings),
        has_device=any(trace.has_accelerator for trace in run.traces),
        circumstances=measure_circumstances(run, all_recordings),
        figures=MeasuredFigures(run.traces, recordings),
        run=run,
    )


def keep_measured(run: Run) -> None:
    """Keep what was measured of a run by now beside its tables, for the next comparison with it."""
    keep_known(run.traces, _KIND)


class MeasuredFigures:
    """``side.Figures`` of recordings that are there.

    Args:
        traces: of the side, all of them.
        recordings: those that count.
    """

    def __init__(self, traces: Sequence[Trace], recordings: Sequence[Recording]) -> None:
        self._traces = traces
        self._recordings = recordings

    @cached_property
    def operator_rows(self) -> pl.DataFrame:
        """As in ``side.Figures``."""
        return sum_per_step(self._traces, _operators_by_name, "calls", "self_ns")

    @cached_property
    def shape_rows(self) -> pl.DataFrame | None:
        """As in ``side.Figures``."""
        if not all("input_shapes" in filled_columns(trace) for trace in self._traces):
            return None
        return sum_per_step(self._traces, _operators_by_shape, "calls", "self_ns", ("name", "input_shapes"))

    @cached_property
    def task_rows(self) -> pl.DataFrame:
        """As in ``side.Figures``."""
        return sum_per_step(self._traces, _tasks_by_name, "count", "total_ns")

    @cached_property
    def call_paths(self) -> CallPaths:
        """As in ``side.Figures``."""
        return measure_paths(self._traces)

    @cached_property
    def memory_peaks(self) -> tuple[int | None, ...]:
        """As in ``side.Figures``."""
        return tuple(_memory_peak(recording) for recording in self._recordings)

    @cached_property
    def held_memory(self) -> tuple[pl.DataFrame | None, ...]:
        """As in ``side.Figures``."""
        return tuple(measure_peak(recording) for recording in self._recordings)

    @property
    def cause_source(self) -> RecordedSource:
        """As in ``side.Figures``."""
        return RecordedSource(self._recordings)

    def sample_times(self, time: str, name: str) -> tuple[Sample, ...]:
        """As in ``side.Figures``."""
        samples = (item_times.sample_time(time, name) for item_times in self._item_times)
        return tuple(sample for sample in samples if sample is not None)

    def all_samples(self, time: str) -> list[dict[str, Sample] | None]:
        """As in ``side.Figures``."""
        return [item_times.sample_all(time) for item_times in self._item_times]

    @cached_property
    def _item_times(self) -> list[ItemTimes]:
        return [ItemTimes(recording) for recording in self._recordings]


def _operators_by_name(trace: Trace, *, steps: list[int] | None) -> pl.DataFrame:
    if steps is None:
        return operators(trace, "name").with_columns(pl.col("name").cast(pl.String))
    return _operators_of_chosen(trace)


def _operators_by_shape(trace: Trace, *, steps: list[int] | None) -> pl.DataFrame:
    return _sum_shapes(trace, None) if steps is None else _shapes_of_chosen(trace)


def _tasks_by_name(trace: Trace, *, steps: list[int] | None) -> pl.DataFrame:
    return kernel_statistics(trace) if steps is None else _tasks_of_chosen(trace)


# the steps that figures are of are what is asked for, and so these are kept


@once_per_trace
def _operators_of_chosen(trace: Trace) -> pl.DataFrame:
    rows = operators(trace, "name", steps=_chosen_numbers(trace))
    return rows.select(pl.col("name").cast(pl.String), "calls", "self_ns")


@once_per_trace
def _shapes_of_chosen(trace: Trace) -> pl.DataFrame:
    return _sum_shapes(trace, _chosen_numbers(trace))


@once_per_trace
def _tasks_of_chosen(trace: Trace) -> pl.DataFrame:
    return kernel_statistics(trace, steps=_chosen_numbers(trace)).select("name", "count", "total_ns")


def _chosen_numbers(trace: Trace) -> list[int]:
    return chosen_step_times(trace)["step"].to_list()


def _sum_shapes(trace: Trace, steps: list[int] | None) -> pl.DataFrame:
    shapes = pl.col("input_shapes").cast(pl.String).fill_null("")
    return operators(trace, "shape", steps=steps).select(pl.col("name").cast(pl.String), shapes, "calls", "self_ns")


def _memory_peak(recording: Recording) -> int | None:
    peaks = [peak for trace in recording.traces if (peak := _peak_of_trace(trace)) is not None]
    return max(peaks, default=None)


@once_per_trace
def _peak_of_trace(trace: Trace) -> int | None:
    peak = memory_summary(trace)["peak_allocated"].max()
    return peak if isinstance(peak, int) else None
