"""Traces of Kineto as it and the recorder would have written them together: the host in a recorder's file, the rest beside."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from steplens.common import rundir
from steplens.formats import recorder as layout
from steplens.formats.kineto import COLLECTIVE_MEMBERS

from . import recorder_files as files

_ENCODER = msgspec.json.Encoder(decimal_format="number")
_OF_COLLECTIVES = (*COLLECTIVE_MEMBERS.values(), "dtype")
HOST = ("cpu_op", "user_annotation")
#: what Kineto draws or counts for operator calls, and does not have without them
_OF_OPERATORS = ("cpu_op", "fwdbwd", "python_function")
_TASKS = ("cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset")


def load_trace(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", "replace")
    # of absolute times a float keeps no nanoseconds
    trace: dict[str, Any] = json.loads(text, strict=False, parse_float=Decimal)
    return trace


def replay(trace: Mapping[str, Any], run: Path, *, handles: bool = False) -> Path:
    """Write both halves of a trace into a run directory.

    Args:
        trace: of Kineto.
        run: the run directory.
        handles: whether calls of the runtime lie on the handles of their threads, as where Kineto does not know these.
    """
    raw = run / rundir.RAW_DIRECTORY
    raw.mkdir(parents=True)
    events = trace["traceEvents"]
    base_ns = int(trace.get("baseTimeNanoseconds", 0))
    calls = [event for event in events if event.get("ph") == "X" and event.get("cat") in HOST]
    threads = {tid: number for number, tid in enumerate(sorted({event["tid"] for event in calls}), start=1)}
    handle_of = {tid: (0xF0000000 + number * 0x1000) & 0xFFFFFFFF for tid, number in threads.items()}
    _write_host(calls, threads, handle_of, base_ns, raw / rundir.RAW_OPERATORS)
    device = [_without_operator(event, handle_of if handles else {}) for event in events if event.get("cat") not in _OF_OPERATORS]
    (raw / rundir.RAW_DEVICE).write_bytes(_ENCODER.encode({**trace, "traceEvents": device}))
    return run


def _without_operator(event: dict[str, Any], handle_of: Mapping[int, int]) -> dict[str, Any]:
    if event.get("cat") not in _TASKS:
        return event
    args = {name: value for name, value in event.get("args", {}).items() if name != "External id"}
    # the description of a collective is that of its operator
    args = {name: value for name, value in args.items() if name not in _OF_COLLECTIVES}
    tid = event["tid"]
    if event["cat"].startswith("cuda_"):
        # Kineto writes a handle as the absolute value of a signed number
        tid = (1 << 32) - handle_of[tid] if tid in handle_of else tid
    return {**event, "args": args, "tid": tid}


def _write_host(
    events: list[dict[str, Any]], threads: Mapping[int, int], handle_of: Mapping[int, int], base_ns: int, path: Path
) -> None:
    texts: dict[str, int] = {}
    start = [base_ns + round(event["ts"] * 1000) for event in events]
    end = [begin + round(event["dur"] * 1000) for begin, event in zip(start, events, strict=True)]
    first = min(start)
    recording = files.Recording([files.header(begin_ns=first, pid=events[0]["pid"])])
    # of calls that begin and end at once the outer one has the lower number, and comes later
    order = sorted(range(len(events)), key=lambda row: (end[row], -start[row], -events[row]["args"].get("External id", 0)))
    rows: dict[int, list[Any]] = {number: [] for number in threads.values()}
    for row in order:
        event = events[row]
        text = json.dumps(_signature(event))
        number = texts.setdefault(text, len(texts))
        is_user = event["cat"] == "user_annotation"
        thread = threads[event["tid"]]
        begin_ns, end_ns = start[row] - first, end[row] - first
        rows[thread].append(files.call(begin_ns, end_ns, number, thread=thread, scope=layout.USER_SCOPE if is_user else 0))
    recording.add(files.clocks(0, max(end) - first + 1), files.signatures(*map(str.encode, texts)))
    for tid, number in threads.items():
        handle = files.block(layout.THREAD_HANDLES, struct.pack("<I", handle_of[tid]), count=1, thread=number)
        recording.add(files.thread(number, tid, number), handle)
        recording.add(files.calls(np.concatenate(rows[number]), thread=number))
    recording.add(files.end(len(events)))
    recording.write(path)


def _signature(event: Mapping[str, Any]) -> dict[str, Any]:
    args = event["args"]
    members = {"shapes": "Input Dims", "types": "Input type", "arguments": "Concrete Inputs"}
    signature: dict[str, Any] = {"name": event["name"], **{name: args[key] for name, key in members.items() if key in args}}
    if "Collective name" in args:
        signature["collective"] = {name: args[name] for name in _OF_COLLECTIVES if name in args}
    return signature
