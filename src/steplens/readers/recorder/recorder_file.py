"""Reads the file of the recorder (``operators.rec``) into a ``Trace``: the host's half of what Kineto would have written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from steplens.common.errors import check_readable
from steplens.common.storage.files import read_bytes
from steplens.formats import recorder as layout
from steplens.readers.common.trace_rows import add_recorded_beside
from steplens.readers.kineto.kineto_device import device_is_missing
from steplens.readers.kineto.kineto_meta import meta_table
from steplens.readers.recorder import recorder_health as health_of
from steplens.readers.recorder.recorder_blocks import Blocks, Records, read_blocks
from steplens.readers.recorder.recorder_clock import RecorderClock
from steplens.readers.recorder.recorder_device import add_device
from steplens.readers.recorder.recorder_python import python_table, read_python
from steplens.readers.recorder.recorder_samples import name_threads, read_samples
from steplens.readers.recorder.recorder_signatures import Signatures, read_signatures
from steplens.readers.recorder.recorder_tables import (
    Threads,
    call_table,
    flow_table,
    read_calls,
    read_memory,
    read_threads,
    thread_table,
)
from steplens.trace.building.build import build_trace
from steplens.trace.health import KERNEL_TIMES, OPERATOR_DEVICE_TIMES, OVERLAP, STEP_DEVICE_TIMES, WARNING, HealthLog
from steplens.trace.recorded_options import options_of
from steplens.trace.schema import OPERATOR_RECORDER, OWN_RECORDER
from steplens.trace.trace import Trace

#: what Kineto's header says of the options, and the bits of the recorder's that say the same
_OPTIONS = {
    "record_shapes": layout.WITH_SHAPES,
    "profile_memory": layout.WITH_MEMORY,
    "with_flops": layout.WITH_FLOPS,
    "with_stack": layout.WITH_PYTHON,
}


def read_recording(
    path: Path,
    *,
    device: Path | None = None,
    extra: Mapping[str, pl.DataFrame] | None = None,
    health: HealthLog | None = None,
    cpu_is_device: bool = True,
) -> Trace:
    """Read one file of the recorder.

    Args:
        path: the file.
        device: what Kineto saw of a GPU meanwhile, see ``recorder_device``.
        extra: further raw tables of the same run, see ``add_recorded_beside``.
        health: findings so far; a new log when absent.
        cpu_is_device: see ``build_trace``.

    Raises:
        InputError: the file is missing, is of another version, or tells no time. One that is cut or damaged gives what can be
            read, and health findings.
    """
    log = health or HealthLog()
    check_readable(path)
    raw, members = raw_tables(path, log, device)
    add_recorded_beside(raw, extra or {})
    # of the device nothing is here: what was used of it allocations and the job's description may say
    cpu_is_device = cpu_is_device and not _device_is_missing(raw, members, log, device)
    return build_trace(path, raw, log, cpu_is_device=cpu_is_device)


def _device_is_missing(raw: dict[str, pl.DataFrame], members: dict[str, Any], log: HealthLog, device: Path | None) -> bool:
    """See ``device_is_missing``; so it is, too, where a GPU was to be recorded and its half was not written."""
    if device is None and "CUDA" in options_of(members.get("config")).activities:
        message = "a GPU was to be recorded and its half is not there: its process was killed, or saving it failed"
        log.add("device_not_recorded", WARNING, 1, message, (STEP_DEVICE_TIMES, OPERATOR_DEVICE_TIMES, KERNEL_TIMES, OVERLAP))
        return True
    return device_is_missing({"api": pl.DataFrame(), **raw}, members, log)


def raw_tables(path: Path, log: HealthLog, device: Path | None = None) -> tuple[dict[str, pl.DataFrame], dict[str, Any]]:
    """``ops``, ``python``, ``memory``, samples, ``flows``, ``threads`` and ``meta`` of a file, and what it says of the recording.

    Args:
        path: the file.
        log: takes what is wrong with it.
        device: see ``read_recording``; adds the tables of the device.

    Raises:
        InputError: see ``read_recording``.
    """
    blocks = read_blocks(read_bytes(path), path)
    clock = RecorderClock(blocks, path)
    threads, signatures = read_threads(blocks.threads), read_signatures(blocks.signatures)
    latest = _latest_ticks(blocks, clock)
    open_calls = _open_calls(blocks, clock, latest)
    python = read_python(blocks, clock, threads, latest)
    calls = read_calls(blocks, open_calls, clock, threads, signatures)
    memory = read_memory(blocks, clock, threads)
    pid = blocks.header.pid
    raw = {
        "ops": call_table(calls, threads, signatures, pid),
        "memory": memory.frame,
        "flows": flow_table(calls, threads, pid),
        "threads": thread_table(threads, [*np.unique(calls.thread), *np.unique(python.thread)], pid),
    }
    if len(python.records):
        raw["python"] = python_table(python, threads, pid)
        if blocks.totals is None:
            still_open = raw["python"].filter(pl.Series(python.records["end_ticks"] == latest))
            health_of.report_open_python(still_open, log)
    samples = read_samples(blocks, clock)
    if samples.samples.height:
        raw |= {"python_samples": samples.samples, "python_stacks": samples.stacks}
        raw["threads"] = name_threads(raw["threads"], samples, pid)
    options = {name: 1 for name, bit in _OPTIONS.items() if blocks.header.options & bit}
    of_device = {}
    if device is not None:
        of_device = add_device(device, raw, blocks=blocks, calls=calls, threads=threads, signatures=signatures, log=log)
    members = {**of_device, **options, "pid": pid, **blocks.metadata, OPERATOR_RECORDER: OWN_RECORDER}
    raw["meta"] = meta_table(members, clock.first_ns, path)
    _report_losses(blocks, open_calls, threads, signatures, log)
    damaged = calls.damaged + memory.damaged + signatures.damaged + python.damaged + samples.damaged
    damaged += clock.damaged + blocks.damaged_blocks
    health_of.report_damage(damaged, calls.unnamed, memory.unknown, log)
    return raw, members


def _report_losses(blocks: Blocks, open_calls: Records, threads: Threads, signatures: Signatures, log: HealthLog) -> None:
    health_of.report_end(blocks, log)
    rows = np.minimum(open_calls["signature"], signatures.columns.height - 1)
    names = signatures.columns["name"].gather(rows).cast(pl.String)
    lanes = threads.native_ids(open_calls["start_thread"]).tolist()
    named_calls = [f"{name} (thread {lane})" for name, lane in zip(names, lanes, strict=True)][::-1]
    health_of.report_open_calls(named_calls, log, is_ended=blocks.totals is not None)


def _latest_ticks(blocks: Blocks, clock: RecorderClock) -> int:
    """The last time in a file: when what had not ended does, as Kineto has it."""
    present = [records for records in (*blocks.open_calls.values(), *blocks.open_python.values()) if len(records)]
    looked = [records["end_ticks"] for records in present]
    ends = [blocks.calls["end_ticks"], blocks.python_calls["end_ticks"], blocks.memory["ticks"]]
    ends.append(blocks.python_samples["taken_ticks"])
    ticks = [*ends, *looked, *(records["start_ticks"] for records in present)]
    if blocks.totals is None:
        ticks.append(blocks.clocks["ticks"])
    possible = np.concatenate(ticks)
    return int(possible[clock.are_possible(possible)].max(initial=0))


def _open_calls(blocks: Blocks, clock: RecorderClock, latest: int) -> Records:
    """The calls that had not ended when the recording did, inner ones first, with its last time as their end.

    A thread may have been changing them while they were written, and what was written last of it may be long over: a call counts
    that began in this recording, no earlier than the one around it, and whose end is not in the file.
    """
    present = [records for records in blocks.open_calls.values() if len(records)]
    if not present or (blocks.totals is not None and blocks.totals["dropped_calls"][0]):
        # a call without room for its record would pass for one that never ended
        return blocks.calls[:0]
    open_parts = []
    for records in present:
        records = records[clock.are_possible(records["start_ticks"])]
        start = records["start_ticks"]
        is_inside = start >= np.r_[start[:1], start[:-1]]
        records = records[: len(records) if is_inside.all() else int(np.argmin(is_inside))]
        ended = blocks.calls[np.isin(blocks.calls["start_ticks"], records["start_ticks"])]
        ends = set(zip(ended["start_thread"].tolist(), ended["start_ticks"].tolist(), strict=True))
        begins = zip(records["start_thread"].tolist(), records["start_ticks"].tolist(), strict=True)
        is_open = np.array([begin not in ends for begin in begins], dtype=bool)
        open_parts.append(records[is_open][::-1])
    open_calls = np.concatenate(open_parts)
    open_calls["end_ticks"] = latest
    return open_calls
