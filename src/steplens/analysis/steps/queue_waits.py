"""When the host waits for a place in the queue of a device: it launches faster than the device works."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis.steps.phases import PHASES, phase_intervals
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import Int64Array, Intervals, intersect, length_inside, merge_intervals
from steplens.trace.schema import KIND_OTHER
from steplens.trace.trace import Trace

#: a queue whose longest length is below this was not full: those of CUDA hold some 1,000 launches
_LEAST_LIMIT = 256
#: a queue is full from this share of its longest length on
_FULL = 0.99
#: a launch into a full queue waits when it takes so many times as long as launches of its name usually do
_TIMES_USUAL = 3


@once_per_trace
def queue_waits(trace: Trace) -> Intervals:
    """When a thread of the host is in a launching call that waits until the queue of a stream has a place again.

    Such a call begins while the stream has at least 99 % of the most tasks that ever were launched and not started (256 or more),
    and lasts at least three times as long as the median call of its name; what it lasts longer than that median is the wait.
    Source: ``kernels`` (``launch_ns``, ``start_ns``) and ``api``, by correlation; needs a common clock of host and device.
    """
    empty = np.empty(0, dtype=np.int64)
    if not trace.has_accelerator or "api" not in trace:
        return merge_intervals(empty, empty)
    tasks = (
        trace.required("kernels")
        .filter(pl.col("launch_ns").is_not_null() & (pl.col("kind").cast(pl.String) != KIND_OTHER) & (pl.col("correlation") > 0))
        .select("device", "stream", "correlation", "launch_ns", "start_ns")
        .collect()
    )
    full = [numbers for _, rows in tasks.group_by("device", "stream") if len(numbers := _launched_when_full(rows))]
    if not full:
        return merge_intervals(empty, empty)
    columns = ["name", "start_ns", "end_ns"]
    calls = trace.required("api").filter(pl.col("correlation") > 0).unique("correlation", keep="first").drop_nulls(columns)
    usual = pl.col("length").median().over("name")
    launches = (
        calls.select("correlation", *columns, length=pl.col("end_ns") - pl.col("start_ns"))
        .join(tasks.lazy().select("correlation").unique(), on="correlation", how="semi")
        .with_columns(usual=usual)
        .collect()
    )
    waits = launches.filter(
        pl.col("correlation").is_in(np.concatenate(full).tolist()) & (pl.col("length") >= _TIMES_USUAL * pl.col("usual"))
    )
    begins = waits.select((pl.col("start_ns") + pl.col("usual")).cast(pl.Int64)).to_series()
    return merge_intervals(begins.to_numpy(), waits["end_ns"].to_numpy())


def queue_waits_by_phase(trace: Trace, start: Int64Array, end: Int64Array) -> dict[str, int]:
    """How long the host waits for the queue in each phase of the training thread, within some ranges together, ns.

    A launch of backward waits on the thread of autograd, for which the training thread waits.
    """
    phases, waits = phase_intervals(trace), queue_waits(trace)
    if phases is None or not len(waits.start):
        return {}
    sets = (phases.data, phases.forward, phases.backward, phases.optimizer, phases.device_wait, phases.between)
    lengths = [int(length_inside(intersect(waits, intervals), start, end).sum()) for intervals in sets]
    whole = int(length_inside(waits, start, end).sum())
    all_ns = dict(zip(PHASES, [*lengths, whole - sum(lengths)], strict=True))
    return {phase: length for phase, length in all_ns.items() if length > 0}


def _launched_when_full(tasks: pl.DataFrame) -> Int64Array:
    """Correlations of the tasks of a stream that were launched while its queue was full."""
    ordered = tasks.sort("launch_ns")
    starts = np.sort(ordered["start_ns"].to_numpy())
    launches = ordered["launch_ns"].to_numpy()
    queued = np.arange(1, len(launches) + 1) - np.searchsorted(starts, launches, side="right")
    limit = int(queued.max(initial=0))
    is_full = queued >= _FULL * limit
    selected = is_full if limit >= _LEAST_LIMIT else np.zeros(len(queued), dtype=bool)
    return np.asarray(ordered["correlation"].to_numpy()[selected], dtype=np.int64)
