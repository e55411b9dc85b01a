"""Sanity of the clocks: causes precede effects, times lie together, and how fine they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.trace import health
from steplens.trace.building.checks.common import (
    Tables,
    device_tasks,
    format_duration,
    launched_tasks,
    rows_matching_name,
    time_resolution,
    to_int64_array,
)

#: what converting the device's clock to the host's may be off without anything being wrong
_JITTER_NS = 1_000
#: early tasks that are as few and as little early as this say how well the clocks agree
_SMALL_NS = 100_000
_FEW_SHARE = 0.1
#: a call that waits for the device returns after its last task; by this the clocks may be apart
_SYNCHRONIZATION_SLACK_NS = 100_000
#: an idle device starts a task within tens of microseconds; never within this means that its clock is late
_LATE_START_NS = 1_000_000
_LATE_LEAST = 10
#: the counters of accelerators tick every 10 to 20 ns; coarser times have lost something
_COARSE_NS = 100
#: a column of fewer times says nothing of the clock
_FEW = 32
#: no profile lasts this long
_APART_NS = 86_400 * 10**9

_WAIT_FOR_DEVICE = r"(?i)(device|ctx|context)synchronize$|synchronizedevice(withtimeout)?$"
_HOST_TABLES = ("ops", "api", "python")


def tasks_before_launch(tables: Tables) -> Iterator[health.HealthFinding]:
    """No device task starts before the call that launched it; the clock of the device is early otherwise, or the link is wrong.

    A few tasks that are early by microseconds only show how well the two clocks agree.
    """
    tasks = launched_tasks(tables)
    if tasks is None:
        return
    tasks = tasks.select("start_ns", "launch_ns").drop_nulls()
    allowed = _JITTER_NS + max(time_resolution(tasks["start_ns"]), time_resolution(tasks["launch_ns"]))
    early = (tasks["launch_ns"] - tasks["start_ns"]).filter(tasks["start_ns"] < tasks["launch_ns"] - allowed)
    if not len(early):
        return
    most = _format_aggregate(early.max())
    if int(early.max()) < _SMALL_NS and len(early) < _FEW_SHARE * tasks.height:
        severity, so = health.INFO, f"by up to {most}: the clocks of host and device agree to about that"
    else:
        severity = health.ERROR if 2 * len(early) > tasks.height else health.WARNING
        so = (
            f"by {_format_aggregate(early.median())} in the middle and {most} at most: the clock of the device is "
            "early by at least that, or they are linked to the wrong calls"
        )
    message = f"{len(early)} of {tasks.height} device tasks start before the call that launched them, {so}"
    yield health.finding(
        "tasks_before_launch",
        severity,
        len(early),
        message,
        health.KERNEL_WAITS,
        health.HOST_AGAINST_DEVICE,
        health.STEP_DEVICE_TIMES,
    )


def device_clock_late(tables: Tables) -> Iterator[health.HealthFinding]:
    """The clock of the device is not late, by two signs.

    1. A call that waits for the whole device returns after the end of every task launched before it.
    2. Some task that was launched while the device had nothing to do starts soon.

    The first is looked at where one process drives one device, since the call waits for the current device alone.
    """
    tasks = device_tasks(tables)
    if tasks is None:
        return
    devices = tasks["device"].n_unique()
    tasks = tasks.select("start_ns", "end_ns", "launch_ns").drop_nulls()
    api = tables.get("api")
    if not tasks.height:
        return
    unsafe = (health.KERNEL_WAITS, health.HOST_AGAINST_DEVICE, health.STEP_DEVICE_TIMES)
    if api is not None and devices == 1 and api["pid"].n_unique() == 1:
        late = _behind_synchronization(tasks, rows_matching_name(api, _WAIT_FOR_DEVICE))
        if len(late):
            message = (
                f"{len(late)} calls that wait for the device return up to {format_duration(late.max())} before its last "
                "task ends: the clock of the device is late by at least that, or they are linked to the wrong calls"
            )
            yield health.finding("device_clock_late", health.ERROR, len(late), message, *unsafe)
            return
    tasks = tasks.sort("start_ns")
    end = np.maximum.accumulate(to_int64_array(tasks["end_ns"]))
    idle = to_int64_array(tasks["launch_ns"])[1:] > end[:-1] + _JITTER_NS
    wait = (to_int64_array(tasks["start_ns"]) - to_int64_array(tasks["launch_ns"]))[1:][idle]
    if len(wait) >= _LATE_LEAST and wait.min() > _LATE_START_NS:
        message = (
            f"{len(wait)} tasks were launched while the device had nothing to do, and none of them starts "
            f"within {format_duration(wait.min())}: the clock of the device is late by nearly that, or something that "
            "was not recorded kept it busy"
        )
        yield health.finding("device_clock_late", health.WARNING, len(wait), message, *unsafe)


def _behind_synchronization(tasks: pl.DataFrame, waiting: pl.DataFrame) -> np.typing.NDArray[np.int64]:
    """How far behind the end of each waiting call the last task ends that was launched before it; only where it does, ns."""
    waiting = waiting.sort("start_ns")
    tasks = tasks.sort("launch_ns")
    last_end = np.maximum.accumulate(to_int64_array(tasks["end_ns"]))
    launched = np.searchsorted(to_int64_array(tasks["launch_ns"]), to_int64_array(waiting["start_ns"]))
    behind = last_end[np.maximum(launched - 1, 0)] - to_int64_array(waiting["end_ns"])
    return behind[(launched > 0) & (behind > _SYNCHRONIZATION_SLACK_NS)]


def out_of_range(tables: Tables) -> Iterator[health.HealthFinding]:
    """All times lie within a day of each other."""
    middle = _middle_time(tables)
    if middle is None:
        return
    for name, frame in tables.items():
        columns = [column for column in ("start_ns", "end_ns", "time_ns", "from_ns", "to_ns") if column in frame.columns]
        # a data pipeline may have a clock of its own, which its reader reports
        if not columns or name.startswith("pipeline_"):
            continue
        bounds = [bound for column in columns for bound in (frame[column].min(), frame[column].max()) if isinstance(bound, int)]
        if not bounds or (min(bounds) >= middle - _APART_NS and max(bounds) <= middle + _APART_NS):
            continue
        outside = pl.any_horizontal((pl.col(columns) < middle - _APART_NS) | (pl.col(columns) > middle + _APART_NS))
        count = int(frame.select(outside.fill_null(False).sum()).item())
        yield health.finding(
            "out_of_range",
            health.ERROR,
            count,
            f"{count} rows of {name} lie more than a day away from the rest",
            health.EVERYTHING,
        )


def _middle_time(tables: Tables) -> int | None:
    """A time in the middle of the largest table of events."""
    frames = [frame for name in ("ops", "kernels", "api") if (frame := tables.get(name)) is not None]
    if not frames:
        return None
    times = max(frames, key=len)["start_ns"].drop_nulls()
    middle = times.gather_every(max(len(times) // 1001, 1)).median() if len(times) else None
    return None if middle is None else int(middle)  # type: ignore[arg-type]


def timestamp_precision(tables: Tables) -> Iterator[health.HealthFinding]:
    """Times are as fine as a nanosecond; old and converted traces have microseconds, or what a double leaves of them."""
    host = [frame["start_ns"] for name in _HOST_TABLES if (frame := tables.get(name)) is not None]
    tasks = device_tasks(tables)
    coarse: dict[int, list[str]] = {}
    for side, columns in (("the host", host), ("the device", [] if tasks is None else [tasks["start_ns"]])):
        finest = min((step for column in columns if (step := time_resolution(column)) > 1), default=1)
        if finest >= _COARSE_NS and all(time_resolution(column) > 1 or len(column) < _FEW for column in columns):
            coarse.setdefault(finest, []).append(side)
    if coarse:
        message = ", ".join(
            f"times of {' and '.join(of)} are multiples of {format_duration(step)}" for step, of in coarse.items()
        )
        yield health.finding(
            "timestamp_precision", health.INFO, 1, f"{message}; lengths of about that say little", health.SHORT_TIMES
        )


def _format_aggregate(value: object) -> str:
    return format_duration(float(value))  # type: ignore[arg-type]
