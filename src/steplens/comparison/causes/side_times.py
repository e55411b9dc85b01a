"""What a side of a comparison is measured by, to find what explains its steps: times of calls in each step of each recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from steplens.comparison.causes.cause import HOST
from steplens.comparison.causes.device_times import device_times
from steplens.comparison.causes.host_times import host_times
from steplens.comparison.causes.row_times import MeasuredTimes, RowTimes
from steplens.comparison.causes.trace_times import KEYS, TraceTimes
from steplens.comparison.noise import Floats
from steplens.comparison.paths import Numbers
from steplens.comparison.recordings import Recording


@dataclass(frozen=True)
class SideTimes:
    """Times of calls of a side.

    Attributes:
        keys: what ``trace_times.KEYS`` says of each row, and ``calls``: how many a step has, mean over the recordings.
        recordings: of each recording the times of each row; a recording without steps that take any time is left out.
    """

    keys: pl.DataFrame
    recordings: tuple[RowTimes, ...]

    @cached_property
    def mean_ns(self) -> Floats:
        """Of each row the mean over the recordings of the mean over their steps."""
        mean_ns: Floats = np.mean([times.mean_ns for times in self.recordings], axis=0)
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
    row_times, counts = [], []
    for recording, own_times in zip(recordings, measured, strict=True):
        ns, calls = _fill_matrices(recording, own_times, numbered)
        if ns.shape[1]:
            row_times.append(MeasuredTimes(ns, recording.waited_share or 0.0))
            counts.append(calls.mean(axis=1))
    if not row_times:
        return None
    return SideTimes(keys.with_columns(calls=pl.Series(np.mean(counts, axis=0))), tuple(row_times))


def join_times(sides: Sequence[SideTimes]) -> SideTimes:
    """Times of several sides as those of one, of all of their recordings."""
    keys = pl.concat([side.keys.select(*KEYS) for side in sides]).unique(maintain_order=True)
    calls = np.zeros(keys.height)
    row_times: list[RowTimes] = []
    for side in sides:
        places = _find_places(side.keys, keys)
        calls[places] += side.keys["calls"].to_numpy() * len(side.recordings)
        row_times += [times.move_rows(places, keys.height) for times in side.recordings]
    return SideTimes(keys.with_columns(calls=pl.Series(calls / len(row_times))), tuple(row_times))


def blank_keys(side: SideTimes, names: Sequence[str]) -> SideTimes:
    """Times of rows that are told apart by less.

    Args:
        side: with all of its rows.
        names: columns of ``KEYS`` that say nothing any more.
    """
    blanked = side.keys.with_columns(pl.lit("").alias(name) for name in names)
    keys = blanked.group_by(*KEYS, maintain_order=True).agg(pl.col("calls").sum())
    places = _find_places(blanked, keys)
    return SideTimes(keys, tuple(times.move_rows(places, keys.height) for times in side.recordings))


def _find_places(rows: pl.DataFrame, keys: pl.DataFrame) -> Numbers:
    """Where rows with the same ``KEYS`` are."""
    numbered = keys.select(*KEYS).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    places: Numbers = rows.select(*KEYS).join(numbered, on=list(KEYS), how="left", maintain_order="left")["row"].to_numpy()
    return places


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
