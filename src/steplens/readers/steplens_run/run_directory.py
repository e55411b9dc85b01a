"""Reads a run directory that steplens wrote: Kineto's raw trace plus what steplens recorded beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from steplens import rundir
from steplens.common import json_text, partial
from steplens.errors import InputError
from steplens.readers.kineto import kineto
from steplens.readers.steplens_run import flight_recorder, host_events
from steplens.trace.health import ERROR, GARBAGE_COLLECTION, RUN_OPTIONS, WARNING, HealthLog
from steplens.trace.schema import WHOLE_STEPS
from steplens.trace.trace import Trace

_SIDE_FILE_LIMIT = 64 << 20

#: errors of a window without data that are told
_MOST_REASONS = 3

#: in the list of activities in profiler_info.json
_NPU = '"ProfilerActivity.NPU"'


def detect(path: Path) -> bool:
    """Whether ``path`` is a run directory."""
    return path.is_dir() and rundir.is_run_directory(path)


def sources(path: Path) -> list[Path]:
    """The files of a run directory that decide what its tables hold."""
    raw = path / rundir.RAW_DIRECTORY
    named = [raw / rundir.RAW_TRACE, raw / rundir.HOST_EVENTS, raw / rundir.STATE_FILE, path / rundir.METADATA_FILE]
    beside = host_events.sources(raw)
    beside += flight_recorder.source(raw)
    return [*(file for file in named if file.is_file()), *beside, *sorted(path.glob(f"{rundir.INFO_PREFIX}*.json"))]


def read(path: Path, *, device: dict[str, pl.DataFrame] | None = None, health: HealthLog | None = None) -> Trace:
    """Read one run directory.

    Args:
        path: the run directory.
        device: raw tables of a device that was not recorded by Kineto.
        health: findings so far; a new log when absent.

    Raises:
        InputError: the directory has no raw trace: its window was open when the process ended, or saving failed.
    """
    health = health or HealthLog()
    state = read_json(path / rundir.RAW_DIRECTORY / rundir.STATE_FILE, health)
    for finding in _list(state.get("health")):
        if isinstance(finding, dict):
            text = {key: str(finding.get(key, "")) for key in ("check", "severity", "message", "unsafe")}
            count = finding.get("count")
            health.add(text["check"], text["severity"], count if isinstance(count, int) else 1, text["message"], text["unsafe"])
    raw_trace = path / rundir.RAW_DIRECTORY / rundir.RAW_TRACE
    if not raw_trace.is_file():
        raise InputError(path, *lost_window(path, state))
    meta = _meta(path, state, health)
    extra = dict(device or {})
    extra["meta"] = pl.concat([extra["meta"], meta]).unique("key", keep="last") if "meta" in extra else meta
    host = read_json(path / rundir.RAW_DIRECTORY / rundir.HOST_EVENTS, health)
    if recorded := _list(host.get("gc")):
        collections = [row for row in recorded if _is_collection(row)]
        if len(collections) < len(recorded):
            message = f"garbage collections in {rundir.HOST_EVENTS} are damaged and were left out"
            health.add("damaged_side_file", WARNING, len(recorded) - len(collections), message, GARBAGE_COLLECTION)
        schema = {"start_ns": pl.Int64, "end_ns": pl.Int64, "generation": pl.Int64, "pid": pl.Int64, "tid": pl.Int64}
        extra["gc"] = pl.DataFrame(collections, schema=schema, orient="row")
    pid = state.get("pid") if isinstance(state.get("pid"), int) else None
    for name, frame in host_events.tables(raw_trace.parent, host, pid, read_json, health).items():
        extra[name] = pl.concat([extra[name], frame], how="diagonal_relaxed") if name in extra else frame
    trace = kineto.read(raw_trace, extra=extra, health=health, cpu_is_device=not _ran_on_npu(meta))
    return flight_recorder.with_sizes(trace, raw_trace.parent)


def _list(value: Any) -> list[Any]:
    """A list of a side file; empty where something else stands in its place."""
    return value if isinstance(value, list) else []


def _is_collection(row: Any) -> bool:
    """Whether it is five numbers that fit into the columns of ``gc``."""
    return isinstance(row, list) and len(row) == 5 and all(type(value) is int and abs(value) < 1 << 63 for value in row)


def lost_window(path: Path, state: dict[str, Any]) -> tuple[str, str]:
    """What to say of a window without raw data, and what to do.

    Args:
        path: the run directory.
        state: what its state file holds.
    """
    again = _again(path, state.get("pid"))
    if state.get("state") == rundir.STATE_RECORDING:
        first = state.get("first_step")
        what, remedy = open_window(f"the window that began at step {first}" if isinstance(first, int) else "its window", state)
        return f"holds no trace: {what}", remedy.format(again=again)
    if not state:
        return "holds no trace, and no state file that says why", again
    if state.get("state") == rundir.STATE_COLLECTED:
        return (
            "holds no trace: it was saved, and is not there any more",
            "Copy the directory again with all it holds, or record again",
        )
    reasons = [
        finding for finding in _list(state.get("health")) if isinstance(finding, dict) and finding.get("severity") == ERROR
    ]
    text = "; ".join(str(finding.get("message", "")).rstrip(".") for finding in reasons[:_MOST_REASONS])
    return f"holds no trace: {text or 'saving it failed (see the log of the run)'}", again


def open_window(window: str, state: dict[str, Any]) -> tuple[str, str]:
    """What is known of a window that was open when its state file was written.

    Args:
        window: how it is called in a sentence.
        state: what the state file holds.

    Returns:
        what is known, and what to do, with ``{again}`` where it has to be recorded again.
    """
    pid = state.get("pid")
    if state.get("machine") != partial.machine() or not isinstance(pid, int):
        # the process ids of another machine mean nothing here
        unknown = f"whether process {pid} still runs cannot be told here (it is of another machine, or of before a restart)"
        return f"{window} was open when this was written; {unknown}", "If it has ended: {again}"
    if partial.lives(pid):
        return f"{window} is open, or is being saved (process {pid} runs)", "Wait until it is closed"
    return f"{window} was still open when its process ended (pid {pid}), so its data is lost", "{again}"


def _again(path: Path, pid: Any) -> str:
    """The remedy for a window that is lost, with what else there is of the same process."""
    complete = 0
    if isinstance(pid, int):
        others = path.absolute().parent.glob(f"*_{pid}_*{rundir.RUN_SUFFIX}")
        complete = sum((other / rundir.RAW_DIRECTORY / rundir.RAW_TRACE).is_file() for other in others)
    if not complete:
        return "Record it again"
    there = "1 other window of the same process is" if complete == 1 else f"{complete} other windows of the same process are"
    return f"{there} complete; record this one again"


def read_json(path: Path, health: HealthLog | None = None) -> dict[str, Any]:
    """The object in a small JSON file; empty when the file is missing, and a finding when it is damaged."""
    try:
        if path.stat().st_size > _SIDE_FILE_LIMIT:
            raise ValueError("larger than a file of its kind can be")
        data = path.read_bytes()
        value = json_text.loads(data)
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        if b"\\ud" in data.lower():
            value = dict(_as_text(value))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        if health is not None:
            health.add("damaged_side_file", WARNING, 1, f"{path.name} cannot be used ({error})", RUN_OPTIONS)
        return {}
    return value


def _as_text(value: Any) -> Any:
    """The value with "?" for halves of surrogate pairs, which JSON can write and no text can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return {_as_text(key): _as_text(item) for key, item in value.items()} if isinstance(value, dict) else value


def _ran_on_npu(meta: pl.DataFrame) -> bool:
    """Whether an NPU was recorded: then the CPU's work must not pass for that of a device whose data is missing."""
    return any(key == "config" and value is not None and _NPU in value for key, value in meta.select("key", "value").iter_rows())


def _meta(path: Path, state: dict[str, Any], health: HealthLog) -> pl.DataFrame:
    values: dict[str, Any] = dict(read_json(path / rundir.METADATA_FILE, health))
    info_files = sorted(path.glob(f"{rundir.INFO_PREFIX}*.json"))
    info = read_json(info_files[0], health) if info_files else {}
    if not info:
        health.add(
            "missing_profiler_info",
            "warning",
            1,
            "profiler_info.json is missing, so the options of the run are unknown",
            RUN_OPTIONS,
        )
    for key in ("config", "torch_version", "steplens_version", "start_info", "end_info", "processor", "allocator"):
        if key in info:
            values[key] = info[key]
    rank = info.get("rank_id", state.get("rank"))
    if isinstance(rank, int):
        values["rank"] = rank
    if isinstance(state.get("pid"), int):
        values["pid"] = state["pid"]
    values.pop(WHOLE_STEPS, None)
    if state.get("whole_steps") is True:
        values[WHOLE_STEPS] = True
    # the time base of the text outputs; the raw file has one of its own, which the reader has already applied
    values.pop("base_time_ns", None)
    return kineto.meta_frame(values)
