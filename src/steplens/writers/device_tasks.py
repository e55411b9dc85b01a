"""Device tasks as files list and draw them: those of the CPU one after the other, as a device would run them."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.trace.building.devices import cpu_is_device
from steplens.trace.trace import Trace


def device_tasks(trace: Trace) -> pl.LazyFrame:
    """``kernels`` with the times that files give: an accelerator's as recorded, the CPU's ``one_after_the_other``.

    A task lasts from start to end in these formats, and their readers add lengths up; calls within calls would count twice.
    """
    return trace.once(_laid_out).lazy() if cpu_is_device(trace) else trace.required("kernels")


def _laid_out(trace: Trace) -> pl.DataFrame:
    return one_after_the_other(trace.required("kernels").collect())


def one_after_the_other(tasks: pl.DataFrame) -> pl.DataFrame:
    """The CPU's tasks as a device would run them, for formats whose tasks have a start and an end and do not nest.

    Every task is as long as its device time. Within an outermost call tasks follow one another in the order in which their calls
    began, without gaps, so that they fill the range of that call (but for communication in it): lengths, counts and the time
    in which the device computes are all as they were. A task begins no earlier than its call, within its outermost call.

    Args:
        tasks: rows of ``kernels`` with stream, start_ns, end_ns, self_ns; the order of the calls decides between equal times.

    Returns:
        The same rows in the same order with other times.
    """
    order = np.lexsort((-tasks["end_ns"].to_numpy(), tasks["start_ns"].to_numpy(), tasks["stream"].fill_null(-1).to_numpy()))
    stream = tasks["stream"].fill_null(-1).to_numpy()[order]
    start, end, self_time = (tasks[column].to_numpy()[order] for column in ("start_ns", "end_ns", "self_ns"))
    self_time = np.maximum(self_time, 0)
    first = np.r_[True, stream[1:] != stream[:-1]][: len(order)]
    # streams behind one another, so that one running maximum serves all
    apart = np.cumsum(first) * (int(end.max()) - int(start.min()) + 1) if len(order) else start
    reach = np.maximum.accumulate(end + apart)
    outermost = first.copy()
    outermost[1:] |= start[1:] + apart[1:] >= reach[:-1]
    before = np.cumsum(self_time) - self_time
    heads = np.flatnonzero(outermost)[np.cumsum(outermost) - 1]
    begin = np.empty_like(start)
    begin[order] = start[heads] + before - before[heads]
    length = np.empty_like(self_time)
    length[order] = self_time
    return tasks.with_columns(start_ns=pl.Series(begin), end_ns=pl.Series(begin + length))
