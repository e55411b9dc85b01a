"""trace_view.json: the timeline, an array of Chrome trace events that MindStudio Insight and Perfetto open.

Layers, each with processes of its own: the framework ("Python"), garbage collection ("Python GC"), runtime calls
("CANN"), device tasks ("Ascend Hardware"), collectives ("Communication"), the overlap of the two ("Overlap Analysis")
and counters.

The file is one line. Every event but the first, a metadata event that holds the time base, starts with a comma.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO

from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.trace.trace import Trace
from steplens.writers.common.json_events import metadata_event
from steplens.writers.common.output import NothingToWriteError, Output, has_rows, main_pid
from steplens.writers.trace_view import trace_device, trace_framework
from steplens.writers.trace_view.trace_events import View
from steplens.writers.trace_view.trace_parts import Part, ProcessIds

_EVENT_TABLES = ("ops", "python", "gc", "kernels", "communication", "api", "marks", "task_queue", "counters")

#: process ids of the system; what a damaged trace has instead would not fit into the ids of the layers
_PROCESS_IDS = 1 << 32


def write(output: Output, path: Path) -> None:
    """Write trace_view.json; ``ts`` and ``dur`` are numbers of µs, ``ts`` after the time base, exact to the ns."""
    with path.open("wb") as handle:
        write_events(output, handle)


def write_events(output: Output, handle: IO[bytes]) -> None:
    """Write the whole array to an open binary file; see ``write``."""
    if not has_rows(output.trace, *_EVENT_TABLES):
        raise NothingToWriteError("the trace has no events")
    view = View(output, handle, _main_pid(output.trace))
    _write_time_base(handle, view.pid, output.base_ns)
    _write_layers(view)
    handle.write(b"]")


def write_several(outputs: Iterable[tuple[str, Output]], base_ns: int, handle: IO[bytes]) -> None:
    """Write several traces to one array: their processes apart, named after the trace they belong to, in their order.

    Traces without events are left out. One trace is in memory at a time, as far as ``outputs`` makes them when asked.

    Args:
        outputs: name and output of each; the times of its events are counted from the base of the output.
        base_ns: the time base that the file tells.
        handle: open binary file.

    Raises:
        NothingToWriteError: none has events.
    """
    ids, number = ProcessIds(), 0
    for name, output in outputs:
        if not has_rows(output.trace, *_EVENT_TABLES):
            continue
        trace, pid, recorded = ids.take(output.trace, _main_pid(output.trace))
        if not number:
            _write_time_base(handle, pid, base_ns)
        _write_layers(View(replace(output, trace=trace), handle, pid, Part(number, name, recorded)))
        number += 1
    if not number:
        raise NothingToWriteError("the traces have no events")
    handle.write(b"]")


def _write_time_base(handle: IO[bytes], pid: int, base_ns: int) -> None:
    handle.write(b"[" + json.dumps(metadata_event(TIME_BASE_KEY, pid, 0, base_time_ns=base_ns)).encode())


def _write_layers(view: View) -> None:
    for write_layer in (*trace_framework.LAYERS, *trace_device.LAYERS):
        write_layer(view)


def _main_pid(trace: Trace) -> int:
    return main_pid(trace) % _PROCESS_IDS
