"""Reads raw captures of the Ascend PyTorch Profiler: ``FRAMEWORK/`` of the host joined with ``PROF_*/`` of the device.

The device's half can only be read where CANN has exported it, as text or as a database; ``msprof`` is run for that when
the caller allows it. Each half is read without the other where the other is missing, and health says what that means.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common.errors import InputError
from steplens.common.options import DETAILED_LEVELS, LEVEL_NONE
from steplens.formats.ascend_capture import FRAMEWORK_DIRECTORY, MEMORY_RECORD, MSPROF, NPU_MEM, OP_SUMMARY, OPERATOR_MEMORY
from steplens.formats.ascend_database import CANN_ANALYSIS_DATABASE
from steplens.formats.ascend_results import COMMUNICATION, COMMUNICATION_MATRIX, TIME_BASE_KEY
from steplens.formats.ascend_terms import GE, MODULE_MEMORY
from steplens.readers.ascend import ascend_communication, msprof_command
from steplens.readers.ascend.ascend_link import through_queue
from steplens.readers.ascend.ascend_planes import with_inner_tasks
from steplens.readers.ascend.capture.framework import read_framework
from steplens.readers.ascend.capture.framework_files import MEMORY_USAGE, PYTHON_CALLS, first_time
from steplens.readers.ascend.database.analysis_db import read_analysis
from steplens.readers.ascend.database.cann_db import read_cann
from steplens.readers.ascend.prof_directory import ProfDirectory, device_info, find_clock, find_prof, host_values, rank_of
from steplens.readers.ascend.text import ascend_csv
from steplens.readers.ascend.text.ascend_kernel_list import with_kernel_list
from steplens.readers.ascend.text.ascend_text import with_groups
from steplens.readers.ascend.timeline.ascend_timeline import read_timeline
from steplens.readers.common import run_info
from steplens.readers.common.run_info import RunInfo
from steplens.readers.common.trace_rows import add_rows, concat_rows, merged_meta, meta_rows
from steplens.trace import health as conclusions
from steplens.trace.building.build import build_trace
from steplens.trace.health import (
    COMMUNICATION_TIMES,
    ERROR,
    EVERYTHING,
    INFO,
    OPERATOR_CALLS,
    OPERATOR_DEVICE_TIMES,
    WARNING,
    HealthLog,
)
from steplens.trace.schema import NAME
from steplens.trace.trace import Trace

#: what the device's half is there for
_ABOUT_DEVICE = (conclusions.KERNEL_TIMES, conclusions.STEP_DEVICE_TIMES, OPERATOR_DEVICE_TIMES)
_STACKS = ("with_stack", "with_modules")

#: tables that only the device's half has, or that both have rows of
_Tables = dict[str, pl.DataFrame]
#: rows of kernels, rows of kernel_metrics, and what was wrong with them
_KernelList = tuple[pl.DataFrame, pl.DataFrame, HealthLog]


def read_trace(path: Path, *, allow_msprof: bool = False) -> Trace:
    """The trace of one run directory; see ``read``.

    Raises:
        InputError: as ``read``.
    """
    health = HealthLog()
    tables = read(path, health, allow_msprof=allow_msprof)
    return build_trace(path, tables, health, cpu_is_device=False)


def read(path: Path, health: HealthLog, *, allow_msprof: bool = False) -> _Tables:
    """The raw tables of one run directory.

    Device tasks carry the point where their launch entered the host: the runtime call or, where that was made for the task
    queue, the start of the enqueue. Allocator events of the queue's thread carry the enqueue too.

    Args:
        path: the run directory.
        health: gets what is missing or damaged.
        allow_msprof: whether CANN's ``msprof`` may be run on device data that was not exported.

    Raises:
        InputError: neither half can be read.
    """
    info = run_info.read_info(run_info.ranked_info_files(path), health, ERROR, with_clock=True)
    prof_directories = find_prof(path)
    prof = prof_directories[0] if prof_directories else None
    if len(prof_directories) > 1:
        read_name, *unread_names = (directory.path.name for directory in prof_directories)
        message = f"{read_name} was read, other device data was not ({', '.join(unread_names)})"
        health.add("several_prof", WARNING, len(unread_names), message)
    if prof is not None and not prof.is_exported:
        prof = _export_if_allowed(path, prof, info, health, allow_msprof)
    folder = path / FRAMEWORK_DIRECTORY
    begin = first_time(folder)
    if begin is None and (prof is None or not prof.is_exported):
        remedy = "Record the run again" if prof is None else f"Run `{_export_command(prof)}` where CANN is installed"
        raise InputError(path, "holds no readable raw data", remedy)
    clock = find_clock(prof, info.values, begin, health)
    only_device = prof.devices[0] if prof is not None and len(prof.devices) == 1 else None
    device: _Tables = {}
    # The halves have nothing to do with each other, and much of the host's is native code outside the interpreter lock.
    host_health = HealthLog()
    with ThreadPoolExecutor(1) as pool:
        framework = pool.submit(read_framework, folder, clock, host_health, physical_device=only_device)
        if begin is not None and clock.unix_offset_ns is None and prof is not None and prof.is_exported:
            message = (
                f"the device's events have wall-clock times and the host's have not, so {prof.path.name} was left out; "
                "open it alone"
            )
            health.add("device_data_left_out", ERROR, 1, message, _ABOUT_DEVICE)
        elif prof is not None and prof.is_exported:
            device = _read_device(prof, only_device, health, pool)
        host = framework.result()
    health.extend(host_health.findings)
    _report_missing(info, host, device, prof, health)
    metadata = run_info.read_metadata(path, health)
    tables = with_groups(_join_host_and_device(host, device), metadata.get("parallel_group_info"))
    tables["meta"] = _meta_table(metadata, info, prof, host, device)
    return tables


def _export_command(prof: ProfDirectory) -> str:
    return f"{MSPROF} --export=on --output={prof.path}"


def _export_if_allowed(path: Path, prof: ProfDirectory, info: RunInfo, health: HealthLog, allow_msprof: bool) -> ProfDirectory:
    """Export the device data if that is allowed; the directory as it is then."""
    if not allow_msprof:
        return prof
    options = info.options
    exports = [item for item in options.export_types or () if item in (msprof_command.TEXT, msprof_command.DATABASE)]
    try:
        done = msprof_command.export_device_data(
            path, prof.path, exports or [msprof_command.TEXT], communication=options.level != LEVEL_NONE
        )
    except InputError as error:
        health.add("export_failed", ERROR, 1, f"{error}", _ABOUT_DEVICE)
        return prof
    notes = "".join(f"; {note}" for note in done.notes)
    message = f"device data was exported by {' and '.join(done.commands)} in {done.duration}{notes}"
    health.add("exported", INFO, len(done.commands), message)
    return next((again for again in find_prof(path) if again.path == prof.path), prof)


def _report_missing(info: RunInfo, host: _Tables, device: _Tables, prof: ProfDirectory | None, health: HealthLog) -> None:
    activities = info.options.activities
    is_left_out = any(finding.check == "device_data_left_out" for finding in health.findings)
    message = ""
    if prof is None and "NPU" in activities:
        message = (
            "the NPU activity was recorded and there is no PROF_* directory, so there is no device data; "
            "check that the versions of driver and CANN fit"
        )
    elif prof is not None and not prof.is_exported:
        message = (
            f"the device data of {prof.path.name} has not been exported, so there are no device tasks; run "
            f"`{_export_command(prof)}` where CANN is installed, then analyse again"
        )
    elif prof is not None and not is_left_out and device.keys().isdisjoint(("kernels", "api")):
        message = f"the export of {prof.path.name} holds no device tasks"
    if message:
        health.add("no_device_data", ERROR, 1, message, _ABOUT_DEVICE)
    if "CPU" in activities and "ops" not in host:
        message = f"the CPU activity was recorded and {FRAMEWORK_DIRECTORY} holds no operator calls"
        health.add("no_framework_data", ERROR, 1, message, (OPERATOR_CALLS, OPERATOR_DEVICE_TIMES))
    elif not activities and not host:
        message = f"there is no {FRAMEWORK_DIRECTORY}, so this is the device alone"
        health.add("no_framework_data", WARNING, 1, message, OPERATOR_CALLS)
    _report_missing_files(info, host, device, prof, health)


def _report_missing_files(info: RunInfo, host: _Tables, device: _Tables, prof: ProfDirectory | None, health: HealthLog) -> None:
    """Report single files that a recording with these options has, where the rest of its half is there."""
    common, level = info.options.common, info.options.level
    lost: list[tuple[bool, str, str, str]] = []
    memory, stacks = (any(common.get(name) is True for name in names) for names in (("profile_memory",), _STACKS))
    if "ops" in host:
        lost = [
            (memory and "memory" not in host, MEMORY_USAGE.prefix, "the framework's memory", conclusions.MEMORY),
            (stacks and "python" not in host, PYTHON_CALLS.prefix, "the calls of Python", conclusions.CALL_STACKS),
        ]
    if prof is not None and prof.is_exported and prof.database is None and device:
        measured = level in DETAILED_LEVELS and "communication" in device
        waits = measured and COMMUNICATION not in prof.analysis
        lost += [
            (not prof.timelines, "msprof_*.json", "when the host launched what", OPERATOR_DEVICE_TIMES),
            (OP_SUMMARY not in prof.tables, "op_summary_*.csv", "what computes, and its shapes", conclusions.KERNEL_DETAILS),
            (waits, COMMUNICATION, "what collectives wait for", COMMUNICATION_TIMES),
        ]
    for missing, name, purpose, unsafe in lost:
        if missing:
            health.add("missing_file", WARNING, 1, f"{name} is missing, which holds {purpose}", unsafe)


# --- the device's half ----------------------------------------------------------------------------------------------------


def _read_device(prof: ProfDirectory, only_device: int | None, health: HealthLog, pool: ThreadPoolExecutor) -> _Tables:
    """The raw tables of an export: from its database where there is one, the rest from its text files."""
    tables: _Tables = {}
    kernel_list: Future[_KernelList] | None = None
    if prof.database is None and OP_SUMMARY in prof.tables:
        # polars reads it while this thread holds the interpreter lock for the timeline
        kernel_list = pool.submit(_read_kernel_list, prof)
    if prof.database is not None:
        try:
            tables = read_cann(prof.database, health)
        except InputError as error:
            health.add("unreadable_file", ERROR, 1, f"{prof.database.name} {error.problem}", EVERYTHING)
    if not {"kernels", "api"} & set(tables) and prof.timelines:
        try:
            tables = {**read_timeline(prof.timelines, health, device=only_device), **tables}
        except InputError as error:
            health.add("unreadable_file", ERROR, 1, f"{error.path.name} {error.problem}", EVERYTHING)
    _add_tables(tables, prof, kernel_list, health)
    tables = with_inner_tasks(tables)
    _add_communication(tables, prof, health)
    for name in ("memory", "allocations"):
        if name in tables and "component" in tables[name].columns:
            # rows without a component are those of the graph engine, the only allocator that CANN records by operator
            tables[name] = tables[name].with_columns(component=pl.col("component").cast(pl.String).fill_null(GE).cast(NAME))
    return {name: frame for name, frame in tables.items() if frame.height}


def _read_kernel_list(prof: ProfDirectory) -> _KernelList:
    kernel_health = HealthLog()
    return *ascend_csv.read_op_summary(prof.tables[OP_SUMMARY], kernel_health), kernel_health


def _add_tables(tables: _Tables, prof: ProfDirectory, kernel_list: Future[_KernelList] | None, health: HealthLog) -> None:
    """Add what only the CSV files of the export have; ``kernel_list`` is one of them, being read already."""
    slices = prof.tables
    if OP_SUMMARY in slices and "kernel_metrics" not in tables:
        details, metrics, kernel_health = kernel_list.result() if kernel_list is not None else _read_kernel_list(prof)
        health.extend(kernel_health.findings)
        tables.update(with_kernel_list(tables, details, metrics, health))
    if "memory" not in tables:
        readers = {NPU_MEM: ascend_csv.read_npu_mem, MEMORY_RECORD: ascend_csv.read_memory_record}
        add_rows(tables, "memory", *(read_kind(slices[kind], health) for kind, read_kind in readers.items() if kind in slices))
    if OPERATOR_MEMORY in slices and "allocations" not in tables:
        tables["allocations"] = ascend_csv.read_operator_memory(slices[OPERATOR_MEMORY], health)
    counters = tables.get("counters")
    has_modules = counters is not None and bool((counters["group"].cast(pl.String) == MODULE_MEMORY).any())
    if MODULE_MEMORY in slices and not has_modules:
        add_rows(tables, "counters", ascend_csv.read_npu_module_mem(slices[MODULE_MEMORY], health))
    handed_on = (reader(slices[kind], health) for kind, reader in ascend_csv.SOURCE_TABLES.items() if kind in slices)
    add_rows(tables, "source_tables", *handed_on)


def _add_communication(tables: _Tables, prof: ProfDirectory, health: HealthLog) -> None:
    """Add what CANN's analysis of collectives measured."""
    database = prof.analysis.get(CANN_ANALYSIS_DATABASE)
    if database is not None:
        try:
            analysis_tables = read_analysis(database, health)
        except InputError as error:
            health.add("unreadable_file", WARNING, 1, f"{database.name} {error.problem}", COMMUNICATION_TIMES)
        else:
            add_rows(tables, "source_tables", analysis_tables.pop("source_tables", pl.DataFrame()))
            tables.update(analysis_tables)
            return
    times, matrix = prof.analysis.get(COMMUNICATION), prof.analysis.get(COMMUNICATION_MATRIX)
    if times is not None:
        tables.update(ascend_communication.read_communication(times, health))
    if matrix is not None:
        tables["communication_matrix"] = ascend_communication.read_communication_matrix(matrix, health)


# --- the join -------------------------------------------------------------------------------------------------------------


def _join_host_and_device(host: _Tables, device: _Tables) -> _Tables:
    """Both halves as one; launches by the task queue are moved to where the operator enqueued them."""
    queue = host.get("task_queue")
    tables = {**device, **host}
    for name in ("kernels", "communication"):
        if name in device and "launch_ns" in device[name].columns:
            tables[name] = through_queue(device[name], queue)
    if "memory" in host:
        events = host["memory"].with_columns(launch_ns="time_ns", launch_pid="pid", launch_tid="tid")
        tables["memory"] = through_queue(events, queue)
    for name in ("memory", "source_tables", "marks"):
        if name in host and name in device:
            tables[name] = concat_rows(tables[name], device[name])
    return tables


def _meta_table(
    metadata: Mapping[str, Any], info: RunInfo, prof: ProfDirectory | None, host: _Tables, device: _Tables
) -> pl.DataFrame:
    """What the side files, the raw data and the export say about the run; later ones win."""
    values: dict[str, Any] = dict(metadata)
    # of the text outputs; raw data is absolute
    values.pop(TIME_BASE_KEY, None)
    world_size = run_info.world_size_of(metadata)
    world_size = run_info.default_group_size(metadata) if world_size is None else world_size
    if world_size is not None:
        values["world_size"] = world_size
    values.update({**info.select(run_info.META_KEYS), "source_format": "ascend_raw"})
    rank = rank_of(prof) if info.rank is None and prof is not None else info.rank
    if rank is not None:
        values["rank"] = rank
    values.update(host_values(prof))
    if "ops" in host:
        values["pid"] = int(host["ops"]["pid"][0])
    if prof is not None and prof.devices:
        values["device_ids"] = list(prof.devices)
        values["device_info"] = device_info([prof])
    return merged_meta(device.get("meta"), meta_rows(values))
