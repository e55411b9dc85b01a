"""How long operators and device tasks take in each step of a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import polars as pl

from steplens.analysis.steps.summary import usual_step_times
from steplens.analysis.tools.once import once_per_trace
from steplens.comparison.noise import Sample, sample_mean
from steplens.comparison.recordings import Recording
from steplens.trace.schema import NAME, SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

#: times of operators: what their calls take themselves, and the device tasks that they launch themselves
SELF, DEVICE = "self_ns", "device_self_ns"
#: time of device tasks
TASK = "task_ns"


class ItemTimes:
    """Times of the operators and device tasks of a recording per usual step, as samples.

    Args:
        recording: with its traces.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._samples: dict[tuple[str, str], Sample | None] = {}

    def sample_time(self, time: str, name: str) -> Sample | None:
        """The times of what has a name in each usual step, mean over the ranks that have it, 0 where a step has none.

        Args:
            time: SELF or DEVICE of operators, or TASK.
            name: of the operator or task.

        Returns:
            None where the recording has no operators, or tasks, or no steps.
        """
        key = (time, name)
        if key not in self._samples:
            self._samples[key] = self._make_sample(time, name)
        return self._samples[key]

    def sample_all(self, time: str) -> dict[str, Sample] | None:
        """``sample_time`` of all names that have some time, in order; None where that would be."""
        times = self._times_of(time)
        if times is None or not self._recording.usual.height:
            return None
        samples = {name: self.sample_time(time, name) for name in sorted(times)}
        return {name: sample for name, sample in samples.items() if sample is not None and sample.usual}

    def _make_sample(self, time: str, name: str) -> Sample | None:
        usual, times = self._recording.usual, self._times_of(time)
        if times is None or not usual.height:
            return None
        contention = self._recording.waited_share or 0.0
        steps = times.get(name)
        if steps is None or not (steps[time] != 0).any():
            return Sample(usual.height, 0.0, 0.0, 0.0, 1, contention)
        joined = usual.select("window", "step").join(steps, on=["window", "step"], how="left", maintain_order="left")
        return sample_mean(joined[time].fill_null(0.0).to_numpy(), contention)

    def _times_of(self, time: str) -> Mapping[str, pl.DataFrame] | None:
        return self._task_times if time == TASK else self._operator_times

    @cached_property
    def _operator_times(self) -> Mapping[str, pl.DataFrame] | None:
        return _times_by_step([_operators_by_step(trace) for trace in self._recording.traces], self._recording)

    @cached_property
    def _task_times(self) -> Mapping[str, pl.DataFrame] | None:
        return _times_by_step([_tasks_by_step(trace) for trace in self._recording.traces], self._recording)


def _times_by_step(frames: Sequence[pl.DataFrame | None], recording: Recording) -> Mapping[str, pl.DataFrame] | None:
    """Of each name its times in each window and usual step, mean over the ranks; None where nothing of the kind was recorded."""
    numbered, steps_of_ranks = [], []
    for trace, frame, number in zip(recording.traces, frames, recording.windows, strict=True):
        if frame is not None:
            window = pl.lit(number, dtype=pl.Int64)
            steps = usual_step_times(trace).select(pl.col("step").cast(pl.Int64))
            numbered.append(frame.join(steps, on="step", how="semi").with_columns(window=window))
            steps_of_ranks.append(steps.with_columns(window=window))
    if not numbered:
        return None
    keys = ("name", "window", "step")
    sums = pl.concat(numbered).group_by(*keys).agg(pl.exclude(*keys).sum())
    # a rank may lack a window, or a step
    ranks = pl.concat(steps_of_ranks).group_by("window", "step").agg(ranks=pl.len())
    means = sums.join(ranks, on=["window", "step"], how="left").with_columns(pl.exclude(*keys, "ranks") / pl.col("ranks"))
    parts = means.drop("ranks").partition_by("name", as_dict=True, include_key=False)
    return {str(name): part for (name,), part in parts.items()}


@once_per_trace
def _operators_by_step(trace: Trace) -> pl.DataFrame | None:
    if "ops" not in trace:
        return None
    is_operator = pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    return _sum_by_step(trace.required("ops").filter(is_operator), {SELF: "self_ns", DEVICE: "device_self_ns"})


@once_per_trace
def _tasks_by_step(trace: Trace) -> pl.DataFrame | None:
    return _sum_by_step(trace.required("kernels"), {TASK: "self_ns"}) if "kernels" in trace else None


def _sum_by_step(rows: pl.LazyFrame, times: Mapping[str, str]) -> pl.DataFrame:
    """The times of each name in each step: new name of a column -> its name in the table."""
    return (
        rows.filter(pl.col("step").is_not_null())
        .group_by("name", "step")
        .agg(**{name: pl.col(column).cast(pl.Int64).sum() for name, column in times.items()})
        # names stay numbers of names: of thousands of steps their texts would be most of what is kept
        .with_columns(pl.col("name").cast(NAME), pl.col("step").cast(pl.Int64))
        .collect()
    )
