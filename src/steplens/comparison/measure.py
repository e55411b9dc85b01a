"""Measures one side of a comparison from its recordings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import polars as pl

from steplens.analysis.device.kernels import kernel_statistics
from steplens.analysis.memory.memory import memory_summary
from steplens.analysis.operators.operators import filled_columns, operators
from steplens.comparison.call_tree import CallPaths, measure_paths
from steplens.comparison.circumstances import measure_circumstances
from steplens.comparison.item_times import ItemTimes
from steplens.comparison.names import sum_per_step
from steplens.comparison.noise import LEAST_STEPS, Sample
from steplens.comparison.recordings import Recording, find_recordings, usual_step
from steplens.comparison.side import Side
from steplens.run import Run
from steplens.trace.trace import Trace


def measure_side(run: Run) -> Side:
    """A run, or a folder of runs, of which each recording counts as one, as a side of a comparison.

    Its steps and circumstances are measured at once, the rest (``Side.figures``) when it is asked for.
    """
    all_recordings = find_recordings(run.traces)
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
        return sum_per_step(self._traces, kernel_statistics, "count", "total_ns")

    @cached_property
    def call_paths(self) -> CallPaths:
        """As in ``side.Figures``."""
        return measure_paths(self._traces)

    @cached_property
    def memory_peaks(self) -> tuple[int | None, ...]:
        """As in ``side.Figures``."""
        return tuple(_memory_peak(recording) for recording in self._recordings)

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
    return operators(trace, "name", steps=steps).with_columns(pl.col("name").cast(pl.String))


def _operators_by_shape(trace: Trace, *, steps: list[int] | None) -> pl.DataFrame:
    shapes = pl.col("input_shapes").cast(pl.String).fill_null("")
    return operators(trace, "shape", steps=steps).with_columns(pl.col("name").cast(pl.String), input_shapes=shapes)


def _memory_peak(recording: Recording) -> int | None:
    peak = pl.concat([memory_summary(trace).select("peak_allocated") for trace in recording.traces])["peak_allocated"].max()
    return peak if isinstance(peak, int) else None
