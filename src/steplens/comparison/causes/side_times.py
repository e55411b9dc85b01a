"""What a side of a comparison is measured by, to find what explains its steps: times of calls in each step of each recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.steps.times import runs_behind
from steplens.comparison.causes.cause import DEVICE, HOST
from steplens.comparison.causes.device_times import device_times
from steplens.comparison.causes.host_times import host_times
from steplens.comparison.causes.trace_times import KEYS, TraceTimes
from steplens.comparison.noise import Floats
from steplens.comparison.recordings import Recording


@dataclass(frozen=True)
class SideTimes:
    """Times of calls of a side.

    Attributes:
        keys: what ``trace_times.KEYS`` says of each row, and ``calls``: how many a step has, mean over the recordings.
        recordings: of each recording the ns of each row in each usual step, mean over its ranks, shape (rows, steps); a recording
            without steps that take any time is left out.
        contention: of each of these, the share of its time that it waited for a processor.
    """

    keys: pl.DataFrame
    recordings: tuple[Floats, ...]
    contention: tuple[float, ...]

    @property
    def mean_ns(self) -> Floats:
        """Of each row the mean over the recordings of the mean over their steps."""
        mean_ns: Floats = np.mean([values.mean(axis=1) for values in self.recordings], axis=0)
        return mean_ns


def measure_times(recordings: Sequence[Recording], side: str) -> SideTimes | None:
    """Times of calls of a side; None where a recording has none.

    Args:
        recordings: of the side.
        side: HOST or DEVICE.
    """
    measure = host_times if side == HOST else device_times
    measured: list[list[TraceTimes]] = []
    for recording in recordings:
        times = [measure(trace) for trace in recording.traces]
        if any(time is None for time in times) or not times:
            return None
        measured.append([time for time in times if time is not None])
    if not measured:
        return None
    keys = pl.concat([time.keys for times in measured for time in times]).unique(maintain_order=True)
    numbered = keys.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    matrices, counts, contention = [], [], []
    for recording, own_times in zip(recordings, measured, strict=True):
        ns, calls = _fill_matrices(recording, own_times, numbered)
        if ns.shape[1]:
            matrices.append(ns)
            counts.append(calls.mean(axis=1))
            contention.append(recording.waited_share or 0.0)
    if not matrices:
        return None
    with_calls = keys.with_columns(calls=pl.Series(np.mean(counts, axis=0)))
    return SideTimes(with_calls, tuple(matrices), tuple(contention))


def _fill_matrices(recording: Recording, times: Sequence[TraceTimes], numbered: pl.DataFrame) -> tuple[Floats, Floats]:
    """Of each row its ns in each step of a recording, and its number of calls."""
    frames = []
    for time, window in zip(times, recording.windows, strict=True):
        rows = time.keys.join(numbered, on=list(KEYS), how="left", maintain_order="left")["row"]
        frames.append(time.times.with_columns(row=rows.gather(time.times["key"]), window=pl.lit(window, dtype=pl.Int64)))
    all_times = pl.concat(frames)
    step_keys = ["window", "step"]
    steps = all_times.select(step_keys).unique().sort(step_keys).with_row_index("column")
    placed = all_times.join(steps, on=step_keys, how="left", maintain_order="left")
    shape = (numbered.height, steps.height)
    flat = placed["row"].to_numpy() * shape[1] + placed["column"].to_numpy()
    ranks = _ranks_of_steps(recording, times, steps)
    ns, calls = (np.bincount(flat, weights=placed[name].to_numpy(), minlength=shape[0] * shape[1]) for name in ("ns", "calls"))
    return ns.reshape(shape) / ranks, calls.reshape(shape) / ranks


def _ranks_of_steps(recording: Recording, times: Sequence[TraceTimes], steps: pl.DataFrame) -> Floats:
    """How many ranks have each step."""
    frames = [
        time.times.select("step").unique().with_columns(window=pl.lit(window, dtype=pl.Int64))
        for time, window in zip(times, recording.windows, strict=True)
    ]
    counted = pl.concat(frames).group_by("window", "step").agg(ranks=pl.len())
    joined = steps.join(counted, on=["window", "step"], how="left", maintain_order="left")
    return joined["ranks"].fill_null(1).to_numpy().astype(np.float64)


def critical_side(sides: Sequence[Sequence[Recording]]) -> str:
    """DEVICE where the device runs behind the host in a recording of any side, whose steps are then its periods, else HOST."""
    traces = [trace for side in sides for recording in side for trace in recording.traces]
    return DEVICE if any(runs_behind(trace) for trace in traces) else HOST
