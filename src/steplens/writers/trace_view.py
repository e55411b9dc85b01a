"""trace_view.json: the timeline, an array of Chrome trace events that MindStudio Insight and Perfetto open.

Layers, each with processes of its own: the framework ("Python"), garbage collection ("Python GC"), runtime calls
("CANN"), device tasks ("Ascend Hardware"), collectives ("Communication"), the overlap of the two ("Overlap Analysis")
and counters.

The file is one line. Every event but the first, a metadata event that holds the time base, starts with a comma.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import polars as pl

from steplens.writers import trace_device, trace_framework
from steplens.writers.output import TIME_BASE_KEY, NothingToWriteError, Output, main_pid
from steplens.writers.trace_events import View, metadata

#: process ids of the system; what a damaged trace has instead would not fit into the ids of the layers
_PROCESS_IDS = 1 << 32


def write(output: Output, path: Path) -> None:
    """Write trace_view.json; ``ts`` and ``dur`` are numbers of µs, ``ts`` after the time base, exact to the ns."""
    with path.open("wb") as handle:
        write_events(output, handle)


def write_events(output: Output, handle: IO[bytes]) -> None:
    """Write the whole array to an open binary file; see ``write``."""
    trace = output.trace
    view = View(output, handle, main_pid(trace) % _PROCESS_IDS)
    if not any(trace.required(table).select(pl.len()).collect().item() for table in _EVENT_TABLES):
        raise NothingToWriteError("the trace has no events")
    handle.write(b"[" + json.dumps(metadata(TIME_BASE_KEY, view.pid, 0, base_time_ns=output.base_ns)).encode())
    for write_layer in (*trace_framework.LAYERS, *trace_device.LAYERS):
        write_layer(view)
    handle.write(b"]")


_EVENT_TABLES = ("ops", "python", "gc", "kernels", "communication", "api", "marks", "task_queue", "counters")
