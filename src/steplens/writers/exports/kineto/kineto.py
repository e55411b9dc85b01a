"""Kineto's own form of a trace: what HolisticTraceAnalysis and other tools of PyTorch read, of whatever source.

An object with ``traceEvents``, one event per line. The rank stands near the beginning, on a line of its own, since
HolisticTraceAnalysis looks for it line by line. Tools know the kinds of events by Kineto's categories and CUDA's names,
so those of other devices are given them; docs/exports.md says what that means for each source.
"""

from __future__ import annotations

import json
from typing import IO, Any

import polars as pl

from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.trace.building.devices import product_names
from steplens.trace.schema import CORE_CPU, CORE_CUDA, CORE_ROCM
from steplens.writers.common.json_events import metadata_event, process_metadata, thread_metadata
from steplens.writers.common.output import NothingToWriteError, has_rows, used_devices
from steplens.writers.exports.kineto import kineto_device, kineto_host
from steplens.writers.exports.kineto.kineto_links import Twin, twin_of
from steplens.writers.exports.subject import Subject

#: members that this file has of its own, and those that exist only inside steplens
_NOT_COPIED = frozenset(
    {"schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "traceName", "traceEvents", "distributedInfo"}
    | {"deviceProperties", "rank", "rank_source", "world_size", TIME_BASE_KEY, "source_format", "pid"}
)

#: devices are listed behind every process
_DEVICES_SORT = 5_000_000


def write(subject: Subject, handle: IO[bytes]) -> None:
    """Write the whole file; ``ts`` and ``dur`` are µs, exact to the ns, after ``baseTimeNanoseconds``.

    Raises:
        NothingToWriteError: the trace has no events.
    """
    trace = subject.trace
    if not has_rows(trace, "ops", "python", "api", "kernels", "communication"):
        raise NothingToWriteError("the trace has no events")
    twin = twin_of(trace, handle)
    members = {"schemaVersion": 1, **_trace_metadata(twin), "displayTimeUnit": "ms", "baseTimeNanoseconds": twin.base_ns}
    handle.write(b"{")
    for name, value in members.items():
        handle.write(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)},\n".encode())
    handle.write(b'"traceEvents": [\n')
    handle.write(json.dumps(metadata_event("process_name", twin.pid, 0, name="python")).encode())
    _name_lanes(twin)
    for write_layer in (*kineto_host.LAYERS, *kineto_device.LAYERS):
        write_layer(twin)
    handle.write(b'\n],\n"traceName": ' + json.dumps(f"{subject.name}.json", ensure_ascii=False).encode() + b"}\n")


def _trace_metadata(twin: Twin) -> dict[str, Any]:
    """What the file says of itself: the job, the devices, and what the source says besides."""
    values = twin.trace.meta_values()
    job = values.get("distributedInfo")
    job = dict(job) if isinstance(job, dict) else {}
    # a process that is part of no job is the first of one
    job["rank"] = max(twin.trace.rank, 0)
    size = values.get("world_size")
    job.setdefault("world_size", size if isinstance(size, int) and size > job["rank"] else job["rank"] + 1)
    devices = values.get("deviceProperties") or [
        {"id": device, "name": product_names(twin.trace).get(device, twin.device_kind)} for device in used_devices(twin.trace)
    ]
    copied = {name: value for name, value in values.items() if name not in _NOT_COPIED}
    return {"distributedInfo": job, "deviceProperties": devices, **copied}


def _name_lanes(twin: Twin) -> None:
    lane_events = [
        twin.trace.required(table).select(pl.col("pid").fill_null(twin.pid), pl.col("tid")) for table in ("ops", "python", "api")
    ]
    pairs = pl.concat(lane_events).unique().drop_nulls().sort("pid", "tid").collect()
    names = {(pid, tid): name for pid, tid, name in twin.trace.required("threads").collect().iter_rows()}
    events: list[dict[str, Any]] = []
    for pid in pairs["pid"].unique(maintain_order=True):
        # the file begins with the name of the recorded process
        events += process_metadata(pid, "python", "CPU", pid)[pid == twin.pid :]
    for pid, tid in pairs.iter_rows():
        events += thread_metadata(pid, tid, names.get((pid, tid)) or f"thread {tid}")
    label = {CORE_CUDA: "GPU", CORE_ROCM: "GPU", CORE_CPU: "CPU as device"}.get(twin.device_kind, twin.device_kind)
    for device in used_devices(twin.trace):
        events += process_metadata(device, "python", f"{label} {device}", _DEVICES_SORT + device)
    streams = pl.concat([task.select("device", "stream").unique() for task in (twin.tasks, twin.collectives)]).unique()
    for device, stream in streams.sort("device", "stream").iter_rows():
        events += thread_metadata(device, stream, f"stream {stream}")
    twin.handle.writelines(b",\n" + json.dumps(event, ensure_ascii=False).encode() for event in events)
