"""Reads a run directory that steplens wrote: the raw trace of Kineto, or of the recorder, plus what was recorded beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import partial, rundir
from steplens.common.errors import InputError
from steplens.common.listings import list_folder
from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.readers.common.run_info import info_files, read_info, read_metadata
from steplens.readers.common.side_files import add_findings, as_list, read_json, report_left_out
from steplens.readers.common.trace_rows import merged_meta, meta_rows
from steplens.readers.kineto import kineto
from steplens.readers.recorder import recorder_file
from steplens.readers.steplens_run import ascend_device, flight_recorder, host_events
from steplens.trace.health import ERROR, GARBAGE_COLLECTION, WARNING, HealthLog
from steplens.trace.recorded_options import options_in_meta
from steplens.trace.schema import PROCESS_IDENTITY, WHOLE_STEPS
from steplens.trace.trace import Trace

#: of profiler_info, what becomes of it in ``meta``
_OF_INFO = (
    "config", "torch_version", "steplens_version", "start_info", "end_info", "processor", "processor_time", "allocator",
    "clock_mhz",
)  # fmt: skip
#: errors of a window without data that are told
_MOST_REASONS = 3


def read(path: Path, *, with_npu: bool = False, allow_msprof: bool = False) -> Trace:
    """Read one run directory.

    Args:
        path: the run directory.
        with_npu: whether CANN recorded an NPU beside that.
        allow_msprof: whether CANN's ``msprof`` may be run on device data that was not exported.

    Raises:
        InputError: the directory has no raw trace: its window was open when the process ended, or saving failed.
    """
    health = HealthLog()
    extra = ascend_device.read_device(path, health, allow_msprof=allow_msprof) if with_npu else {}
    state = read_json(path / rundir.RAW_DIRECTORY / rundir.STATE_FILE, health)
    add_findings(state, health)
    raw_trace = rundir.raw_recording(path)
    if raw_trace is None:
        raise InputError(path, *lost_window(path, state))
    meta = _meta_table(path, state, health)
    extra["meta"] = merged_meta(extra["meta"], meta) if "meta" in extra else meta
    host = read_json(path / rundir.RAW_DIRECTORY / rundir.HOST_EVENTS, health)
    if recorded := as_list(host.get("gc")):
        collections = [row for row in recorded if _is_collection(row)]
        lost = len(recorded) - len(collections)
        report_left_out(lost, f"garbage collections in {rundir.HOST_EVENTS}", health, GARBAGE_COLLECTION)
        schema = {"start_ns": pl.Int64, "end_ns": pl.Int64, "generation": pl.Int64, "pid": pl.Int64, "tid": pl.Int64}
        extra["gc"] = pl.DataFrame(collections, schema=schema, orient="row")
    pid = state.get("pid") if isinstance(state.get("pid"), int) else None
    for name, frame in host_events.tables(raw_trace.parent, host, pid, health).items():
        extra[name] = pl.concat([extra[name], frame], how="diagonal_relaxed") if name in extra else frame
    # where an NPU was recorded, the CPU's work must not pass for that of a device whose data is missing
    read_options: Any = {"extra": extra, "health": health, "cpu_is_device": "NPU" not in options_in_meta(meta).activities}
    try:
        if raw_trace.name == rundir.RAW_TRACE:
            trace = kineto.read(raw_trace, **read_options)
        else:
            trace = recorder_file.read_recording(raw_trace, device=rundir.raw_device(path), **read_options)
    except InputError as error:
        if state.get("state") == rundir.STATE_RECORDING:
            # the recorder has just begun
            raise InputError(path, *lost_window(path, state)) from error
        raise
    return flight_recorder.with_sizes(trace, raw_trace.parent)


def _is_collection(row: Any) -> bool:
    """Whether it is five numbers that fit into the columns of ``gc``."""
    return isinstance(row, list) and len(row) == 5 and all(type(value) is int and abs(value) < 1 << 63 for value in row)


def lost_window(path: Path, state: dict[str, Any]) -> tuple[str, str]:
    """What to say of a window without raw data, and what to do.

    Args:
        path: the run directory.
        state: what its state file holds.
    """
    again = _lost_window_remedy(path, state.get("pid"))
    if state.get("state") == rundir.STATE_RECORDING:
        first = state.get("first_step")
        problem, remedy = open_window(f"the window that began at step {first}" if isinstance(first, int) else "its window", state)
        return f"holds no trace: {problem}", remedy.format(again=again)
    if not state:
        return "holds no trace, and no state file that says why", again
    if state.get("state") == rundir.STATE_COLLECTED:
        return (
            "holds no trace: it was saved, and is not there any more",
            "Copy the directory again with all it holds, or record again",
        )
    reasons = [
        finding for finding in as_list(state.get("health")) if isinstance(finding, dict) and finding.get("severity") == ERROR
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
    if state.get("machine") != partial.machine_identity() or not isinstance(pid, int):
        # the process ids of another machine mean nothing here
        unknown = f"whether process {pid} still runs cannot be told here (it is of another machine, or of before a restart)"
        return f"{window} was open when this was written; {unknown}", "If it has ended: {again}"
    if partial.is_process_alive(pid):
        return f"{window} is open, or is being saved (process {pid} runs)", "Wait until it is closed"
    return f"{window} was still open when its process ended (pid {pid}), so its data is lost", "{again}"


def _lost_window_remedy(path: Path, pid: Any) -> str:
    """The remedy for a window that is lost, with what else there is of the same process."""
    complete = 0
    if isinstance(pid, int):
        complete = _complete_windows(path.absolute().parent, pid)
    if not complete:
        return "Record it again"
    there = "1 other window of the same process is" if complete == 1 else f"{complete} other windows of the same process are"
    return f"{there} complete; record this one again"


def _complete_windows(folder: Path, pid: int) -> int:
    """How many run directories of a process in a folder hold raw data."""
    try:
        beside = list_folder(folder).entry_paths
    except OSError:
        return 0
    of_process = [path for path in beside if f"_{pid}_" in path.name and path.name.endswith(rundir.RUN_SUFFIX)]
    return sum(rundir.raw_recording(path) is not None for path in of_process)


def _meta_table(path: Path, state: dict[str, Any], health: HealthLog) -> pl.DataFrame:
    values = read_metadata(path, health)
    info = read_info(info_files(path), health, WARNING)
    values.update(info.select(_OF_INFO))
    rank = info.values.get("rank_id", state.get("rank"))
    if isinstance(rank, int):
        values["rank"] = rank
    if isinstance(state.get("pid"), int):
        values["pid"] = state["pid"]
    if isinstance(state.get(PROCESS_IDENTITY), str):
        values[PROCESS_IDENTITY] = state[PROCESS_IDENTITY]
    values.pop(WHOLE_STEPS, None)
    if state.get("whole_steps") is True:
        values[WHOLE_STEPS] = True
    # the time base of the text outputs; the raw file has one of its own, which the reader has already applied
    values.pop(TIME_BASE_KEY, None)
    return meta_rows(values)
