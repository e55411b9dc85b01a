"""What memory is used for when it is highest, on two sides: what a change made hold more, or less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from steplens.analysis.memory.memory_peak import ALLOCATED, memory_peak
from steplens.analysis.tools.once import once_per_trace
from steplens.comparison.recordings import Recording
from steplens.trace.trace import Trace

#: a peak that changed by a smaller share is the same
_LEAST_CHANGE = 0.005
#: what changed by a smaller share of the change is not named, and no more than so many are
_LEAST_SHARE = 0.05
_MOST_NAMED = 5
_PROCESSOR = "CPU"
#: columns of ``measure_peak``: a row for each operator that allocated some of it, or what else there is to say of it
PEAK = {"device_type": pl.String(), "name": pl.String(), "bytes": pl.Float64()}


@dataclass(frozen=True)
class HeldMemory:
    """What a side holds when its memory is highest, on the device with the highest peak.

    Attributes:
        device: "CPU", "CUDA" ...; of sides on unlike ones both.
        name: the operator that allocated it; empty of all together.
        before_bytes, after_bytes: at the peak of each side: the mean over its recordings, of each of which the rank and window
            with the highest peak counts.
    """

    device: str
    name: str
    before_bytes: float
    after_bytes: float

    @property
    def difference_bytes(self) -> float:
        """After less before."""
        return self.after_bytes - self.before_bytes


def compare_held_memory(before: Sequence[Recording], after: Sequence[Recording]) -> tuple[HeldMemory, ...]:
    """The peak of both sides, then what of it changed, the largest change first; nothing where it hardly did or was not recorded.

    Args:
        before: the recordings of the earlier side.
        after: those of the later one.
    """
    first, second = ([measure_peak(recording) for recording in recordings] for recordings in (before, after))
    return compare_peaks(first, second)


def compare_peaks(before: Sequence[pl.DataFrame | None], after: Sequence[pl.DataFrame | None]) -> tuple[HeldMemory, ...]:
    """The same of sides that were measured.

    Args:
        before: ``measure_peak`` of each recording of the earlier side.
        after: that of the later one.
    """
    sides = [[peak for peak in side if peak is not None] for side in (before, after)]
    if not all(sides) or sum(map(len, sides)) < len(before) + len(after):
        return ()
    devices = [_most_used_device(side) for side in sides]
    # one GPU with another one, but none with a processor
    if len({device == _PROCESSOR for device in devices}) > 1:
        return ()
    by_name = [_mean_of_highest(side, device) for side, device in zip(sides, devices, strict=True)]
    device_text = " and ".join(dict.fromkeys(devices))
    rows = by_name[0].join(by_name[1], on="name", how="full", coalesce=True, suffix="_after").fill_null(0.0)
    totals = HeldMemory(device_text, "", float(rows["bytes"].sum()), float(rows["bytes_after"].sum()))
    if abs(totals.difference_bytes) <= _LEAST_CHANGE * max(totals.before_bytes, 1.0):
        return ()
    of_operators = [HeldMemory(device_text, *row) for row in rows.select("name", "bytes", "bytes_after").iter_rows()]
    least = _LEAST_SHARE * abs(totals.difference_bytes)
    changed = sorted(of_operators, key=lambda held: -abs(held.difference_bytes))
    largest = [held for held in changed if abs(held.difference_bytes) >= least]
    return (totals, *largest[:_MOST_NAMED])


def _most_used_device(side: Sequence[pl.DataFrame]) -> str:
    """The type of device that holds most; the processor has a peak as well where everything of interest is on another one."""
    peaks = pl.concat(side)
    on_devices = peaks.filter(pl.col("device_type") != _PROCESSOR)
    by_device = (on_devices if on_devices.height else peaks).group_by("device_type").agg(pl.col("bytes").sum())
    return str(by_device.sort("bytes", "device_type", descending=[True, False])["device_type"][0])


def _mean_of_highest(peaks: Sequence[pl.DataFrame], device: str) -> pl.DataFrame:
    """Name and bytes on a type of device at the peak of each recording, the mean over them."""
    on_device = pl.concat(peaks).filter(pl.col("device_type") == device)
    return on_device.group_by("name").agg(bytes=pl.col("bytes").sum() / len(peaks))


def measure_peak(recording: Recording) -> pl.DataFrame | None:
    """What a recording holds at the highest peak of its ranks and windows on each type of device: columns ``PEAK``.

    Args:
        recording: with its traces.

    Returns:
        None where memory was not recorded.
    """
    peaks = [peak for trace in recording.traces if (peak := _peak_by_operator(trace)) is not None]
    if not peaks:
        return None
    devices = pl.concat(peaks)["device_type"].unique().sort().to_list()
    of_devices = ([peak.filter(pl.col("device_type") == device) for peak in peaks] for device in devices)
    return pl.concat(max(frames, key=lambda rows: rows["bytes"].sum()) for frames in of_devices).select(*PEAK)


@once_per_trace
def _peak_by_operator(trace: Trace) -> pl.DataFrame | None:
    """device_type, name and bytes of what is held at the highest peak of each type of device; None where nothing was recorded."""
    if "memory" not in trace:
        return None
    rows = memory_peak(trace)
    if not rows.height:
        return None
    allocator = ("device_type", "device", "component")
    totals = rows.group_by(*allocator).agg(total=pl.col("bytes").sum()).sort("total", *allocator, descending=[True] + [False] * 3)
    highest = totals.unique("device_type", keep="first", maintain_order=True).select(allocator)
    name = pl.when(pl.col("kind") == ALLOCATED).then(pl.col("name").fill_null("code without an operator")).otherwise("kind")
    return (
        rows.join(highest, on=allocator, nulls_equal=True)
        .group_by("device_type", name=name.cast(pl.String))
        .agg(bytes=pl.col("bytes").sum().cast(pl.Float64))
        .with_columns(pl.col("device_type").cast(pl.String))
        .sort("device_type", "name")
    )
