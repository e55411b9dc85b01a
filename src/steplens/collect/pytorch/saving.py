"""A closed window on disk: Kineto's file, and the small files beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steplens.collect.ascend import installation
from steplens.collect.common import clock, exception_text, log, metadata
from steplens.collect.common.health import ERROR, INFO, Health
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.pytorch.schedule_text import size_text
from steplens.collect.pytorch.window import Window
from steplens.common import rundir

#: How a complete file of Kineto ends; Kineto itself does not tell when a write failed.
_TRACE_END = b'"traceName"'
_TRACE_END_BYTES = 16 << 10

#: findings that a state file keeps when there is no room for all of them
_LEAST_FINDINGS = 4


def save_trace(results: Any, unfinished: Path, target: Path) -> int:
    """Let Kineto write its file, which it does once, and check that it did. Cut off by an interrupt, it can be called again.

    Args:
        results: what Kineto recorded.
        unfinished: where Kineto writes, beside the file.
        target: the file.

    Returns:
        its size in bytes.

    Raises:
        OSError: the file could not be written completely; no part of it is left.
    """
    try:
        if not target.exists():
            if not unfinished.exists():
                with rundir.name_for_kineto(unfinished) as name:
                    results.save(name)
            _check_complete(unfinished)
            rundir.publish_file(unfinished, target)
    except Exception:  # no part of the file is left, and the caller reports it
        for leftover in _partial_files(unfinished):
            leftover.unlink(missing_ok=True)
        raise
    return target.stat().st_size


def _check_complete(path: Path) -> None:
    """Raise OSError unless ``path`` is a complete file of Kineto."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise OSError(f"Kineto wrote no file{_save_failure_reason(path)}") from None
    with path.open("rb") as handle:
        handle.seek(max(0, size - _TRACE_END_BYTES))
        end = handle.read().rstrip()
    if not end.endswith(b"}") or _TRACE_END not in end:
        raise OSError(f"Kineto's file is not complete{_save_failure_reason(path)}")


def _save_failure_reason(path: Path) -> str:
    """Why Kineto could not write a file, which it does not say: what it has left, and what happens to a file of ours."""
    folder, limit = path.parent, exception_text.largest_file()
    if limit is not None and any(left.stat().st_size >= limit for left in _partial_files(path)):
        return exception_text.limit_text(limit)
    try:
        rundir.try_to_write(folder)
    except OSError as error:
        return f": {error.strerror or error}"
    return f"; {size_text(rundir.free_bytes(folder))} are free now, and Kineto does not say why"


def _partial_files(path: Path) -> Iterator[Path]:
    """What Kineto has left of a file: it has a temporary one of its own, named after this, which stays when the disk is full."""
    return path.parent.glob(f"{path.name}*")


def write_side_files(
    window: Window, settings: RecordingSettings, device: Any, user_metadata: metadata.UserMetadata, health: Health
) -> None:
    """Write what Kineto's file does not hold: configuration, clocks, collections of garbage, metadata.

    Args:
        window: the closed window.
        settings: what was to be recorded.
        device: what the device's session says about itself; None without one.
        user_metadata: what the user adds.
        health: gets files that could not be written.
    """
    raw = window.run_directory / rundir.RAW_DIRECTORY
    window.recorders.save(window.counters)
    begin = clock.monotonic_ns()
    if save_collectives(raw / rundir.COLLECTIVES, health):
        window.counters["collectives_ns"] = clock.monotonic_ns() - begin
    suffix = f"_{window.rank}" if window.rank >= 0 else ""
    info = {
        "config": settings.recorded(),
        "start_info": {
            "syscnt_enable": False,
            "freq": 100.0,
            "start_cnt": 0,
            "start_monotonic": window.span.start_monotonic_ns,
            "collectionTimeStart": window.span.start_ns,
        },
        "end_info": {"collectionTimeEnd": window.span.end_ns, "MonotonicTimeEnd": window.span.end_monotonic_ns},
        **metadata.software_versions(installation.cann_version()),
        "rank_id": window.rank,
        "world_size": metadata.world_size(),
        "processor": metadata.processor_info(),
        "clock_mhz": metadata.clock_rates(),
        **({} if window.span.processor_time is None else {"processor_time": window.span.processor_time}),
        "allocator": metadata.allocator_info(),
    }
    if device is not None:
        info["ascend"] = device
    content = metadata.window_metadata(user_metadata, window_trace_id=window.trace_id, start_ns=window.span.start_ns)
    for path, value, indent in (
        (raw / rundir.HOST_EVENTS, {"gc": window.recorders.garbage_collections, "collection": window.counters}, None),
        (window.run_directory / f"{rundir.INFO_PREFIX}{suffix}.json", info, 4),
        (window.run_directory / rundir.METADATA_FILE, content, 4),
    ):
        try:
            rundir.write_json(path, value, indent=indent)
        except Exception as exception:  # without them the trace is still worth having
            health.report("save_failed", ERROR, f"{path.name} could not be written: {exception_text.text_of(exception)}")


def write_state(path: Path, value: dict[str, Any]) -> None:
    """Write what became of a window; in the place of what is there when there is room for nothing else.

    Raises:
        OSError: not even that is possible. What was there is removed then: it says that the window is open.
    """
    try:
        rundir.write_json(path, value)
        return
    except (OSError, MemoryError):
        pass
    short = {**value, "health": [item for item in value["health"] if item["severity"] == ERROR][:_LEAST_FINDINGS]}
    content = json.dumps(short).encode()
    try:
        with path.open("r+b") as handle:
            handle.write(content)
            handle.truncate()
    except OSError:
        path.unlink(missing_ok=True)
        raise


def save_collectives(target: Path, health: Health) -> bool:
    """Write what PyTorch's flight recorder holds of collectives that run on the CPU: type, size and group of the last 2000.

    Kineto's file tells their sizes only with ``record_shapes``, and never the group. It is written as it is; nothing without
    process groups, or where this version of PyTorch keeps no such record (``TORCH_FR_BUFFER_SIZE=0`` also switches it off).

    Args:
        target: the file.
        health: gets what could not be written.

    Returns:
        whether there was anything to write.
    """
    if metadata.world_size() is None:
        return False
    dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_fr_trace_json", None)
    if not callable(dump):
        return False
    try:
        content = dump(True, False)
        if not isinstance(content, bytes) or b'"record_id"' not in content:
            return False
        rundir.write_bytes(target, content)
    except Exception as exception:  # a record of PyTorch that is still changing its form
        message = f"The sizes of collectives could not be kept: {exception}"
        log.warning(message)
        health.add("not_collected", INFO, message, unsafe="communication volume")
        return False
    return True
