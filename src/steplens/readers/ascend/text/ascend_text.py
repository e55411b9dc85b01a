"""Reads the result files of the Ascend PyTorch Profiler, or of steplens: the text files of ASCEND_PROFILER_OUTPUT.

trace_view.json holds the events, kernel_details.csv what the devices' kernels were, the other files what neither has.
A file that is missing takes away what only it holds; health says what that makes unsafe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from steplens import rundir
from steplens.common import json_text
from steplens.errors import InputError
from steplens.readers.ascend.ascend_communication import read_communication, read_communication_matrix
from steplens.readers.ascend.ascend_link import through_queue
from steplens.readers.ascend.ascend_planes import with_inner_tasks
from steplens.readers.ascend.database.analysis_db import elapsed_sums, read_analysis
from steplens.readers.ascend.prof_directory import device_info, find_prof
from steplens.readers.ascend.text import ascend_csv
from steplens.readers.ascend.text.ascend_kernel_list import with_kernel_list
from steplens.readers.ascend.timeline.ascend_timeline import read_timeline
from steplens.readers.ascend.timeline.ascend_timeline_device import operation_name
from steplens.readers.common.recorded_findings import add_findings
from steplens.readers.kineto.kineto import meta_frame
from steplens.readers.kineto.kineto_meta import rank_in_name
from steplens.readers.steplens_run.run_directory import read_json
from steplens.trace.building.build import build_trace
from steplens.trace.health import (
    CALL_STACKS,
    COMMUNICATION_TIMES,
    COMMUNICATION_VOLUME,
    ERROR,
    HOST_AGAINST_DEVICE,
    INFO,
    KERNEL_CALLS,
    KERNEL_DETAILS,
    KERNEL_TIMES,
    MEMORY,
    OPERATOR_CALLS,
    OPERATOR_DEVICE_TIMES,
    OPERATOR_TIMES,
    OVERLAP,
    RUN_OPTIONS,
    STEP_DEVICE_TIMES,
    STEP_PHASES,
    STEP_TIMES,
    WARNING,
    HealthLog,
)
from steplens.trace.schema import COLLECTIVE, CORE_CPU, NAME, PARTIAL_STEPS, RECEIVE, RESULTS_ONLY, SEND
from steplens.trace.trace import Trace

TIMELINE = "trace_view.json"
KERNELS = "kernel_details.csv"
_MEMORY_RECORD = "memory_record.csv"
_OPERATOR_MEMORY = "operator_memory.csv"
_MODULE_MEMORY = "npu_module_mem.csv"
_COMMUNICATION = "communication.json"
_MATRIX = "communication_matrix.json"
_ANALYSIS = "analysis.db"

#: files that are handed on, besides those of ascend_csv.SOURCE_TABLES
_HANDED_ON = {
    **{f"{name}.csv": read for name, read in ascend_csv.SOURCE_TABLES.items() if name != "aicpu"},
    "data_preprocess.csv": ascend_csv.read_data_preprocess,
    "step_trace_time.csv": ascend_csv.read_step_trace_time,
}
#: any of these makes a folder a result
_FILES = (TIMELINE, KERNELS, _MEMORY_RECORD, _OPERATOR_MEMORY, _MODULE_MEMORY, _COMMUNICATION, _MATRIX, _ANALYSIS, *_HANDED_ON)
#: those that hold events; without any of them a folder holds sums and times of another analysis alone
_EVENT_FILES = (TIMELINE, KERNELS, _MEMORY_RECORD, _OPERATOR_MEMORY, _MODULE_MEMORY)
#: what such a folder tells of its rank: tables, and source tables
_SUMS = ("communication_times", "communication_matrix")
_STEP_TABLES = ("step_trace_time", "StepTraceTime")
#: of profiler_info, what becomes of it in ``meta``
_OF_INFO = (
    "config",
    "start_info",
    "end_info",
    "cann_version",
    "torch_npu_version",
    "torch_version",
    "steplens_version",
    PARTIAL_STEPS,
)
_INFO_NAME = re.compile(rf"^{rundir.INFO_PREFIX}(?:_(\d{{1,9}}))?\.json$")
_FORMAT = {"source_format": "ascend_text"}
_BASE_KEY = "base_time_ns"
_EVENTS = ("ops", "python", "kernels", "communication", "api", "memory", "allocations", "counters", "gc", "marks")

_SUMS_REMEDY = "Give the run, or its communication.json, communication_matrix.json, step_trace_time.csv or analysis.db"

#: start times of communication.json have lost digits
_START_TOLERANCE_NS = 1_000


def detect(output_folder: Path) -> bool:
    """Whether a folder holds result files."""
    return any((output_folder / name).is_file() for name in _FILES)


def sources(output_folder: Path, run_directory: Path) -> list[Path]:
    """The files that decide what the tables of a result folder hold."""
    named = [*(output_folder / name for name in _FILES), run_directory / rundir.METADATA_FILE]
    return [*(file for file in named if file.is_file()), *_info_files(run_directory)]


def read_trace(output_folder: Path, run_directory: Path) -> Trace:
    """The trace of a result folder.

    Args:
        output_folder: ``ASCEND_PROFILER_OUTPUT``.
        run_directory: where ``profiler_info*.json`` and ``profiler_metadata.json`` lie; may be the same.

    Raises:
        InputError: as ``read``.
    """
    health = HealthLog()
    tables = read(output_folder, run_directory, health)
    return build_trace(run_directory, tables, health, cpu_is_device=_is_cpu_run(tables))


def read_timeline_trace(path: Path) -> Trace:
    """The trace of one msprof_*.json or trace_view.json on its own.

    Raises:
        InputError: it cannot be read or holds no event.
    """
    health = HealthLog()
    tables = with_inner_tasks(_linked(read_timeline([path], health)))
    _require_events(tables, path)
    tables["meta"] = _without_repetition([meta_frame(_FORMAT), *_present(tables, "meta")])
    return build_trace(path, tables, health, cpu_is_device=_is_cpu_run(tables))


def read(output_folder: Path, run_directory: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The raw tables of a result folder.

    Raises:
        InputError: no file of it can be read, or none holds an event.
    """
    info, values = _description(run_directory, health)
    base_ns = values.get(_BASE_KEY)
    base_ns = base_ns if type(base_ns) is int and 0 <= base_ns < 1 << 62 else 0
    results_only = not any((output_folder / name).is_file() for name in _EVENT_FILES)
    tables: dict[str, pl.DataFrame] = {}
    if not results_only:
        tables, base_ns = _timeline(output_folder / TIMELINE, base_ns, health)
    if (output_folder / KERNELS).is_file():
        details, metrics = ascend_csv.read_kernel_details([output_folder / KERNELS], health, base_ns=base_ns)
        tables = with_kernel_list(tables, details, metrics, health)
    tables = with_inner_tasks(tables)
    tables.update(_memory(output_folder, base_ns, health))
    _add(tables, "counters", output_folder / _MODULE_MEMORY, health, base_ns=base_ns)
    for name, read_rows in _HANDED_ON.items():
        if (output_folder / name).is_file():
            rows = read_rows([output_folder / name], health)
            if rows.height:
                tables["source_tables"] = pl.concat([*_present(tables, "source_tables"), rows])
    if (output_folder / _COMMUNICATION).is_file():
        tables.update(read_communication(output_folder / _COMMUNICATION, health, base_ns=base_ns))
    if (output_folder / _MATRIX).is_file():
        tables["communication_matrix"] = read_communication_matrix(output_folder / _MATRIX, health)
    if (output_folder / _ANALYSIS).is_file():
        _add_analysis(tables, output_folder / _ANALYSIS, health)
    if results_only:
        tables = _with_results_only(tables, output_folder, run_directory, values, health)
    tables = with_groups(_linked(tables), values.get("parallel_group_info"))
    tables["meta"] = _without_repetition([meta_frame(_FORMAT), *_present(tables, "meta"), meta_frame(values)])
    tables = {name: frame for name, frame in tables.items() if frame.height}
    if results_only:
        return tables
    _require_events(tables, output_folder)
    _report_missing(output_folder, tables, info, health)
    return tables


def _add_analysis(tables: dict[str, pl.DataFrame], path: Path, health: HealthLog) -> None:
    """Add what analysis.db has and the text files have not, and beside theirs its times of steps and collectives, as a check."""
    try:
        found = read_analysis(path, health)
    except InputError as error:
        message = f"{path.name} {error.problem}, so what it measured of communication is missing"
        health.add("damaged_analysis", WARNING, 1, message, COMMUNICATION_TIMES)
        return
    rows = [found.pop("source_tables", pl.DataFrame())]
    if "communication_times" in found and "communication_times" in tables:
        rows.append(elapsed_sums(found["communication_times"]))
    if rows := [frame for frame in rows if frame.height]:
        tables["source_tables"] = pl.concat([*_present(tables, "source_tables"), *rows])
    for name, frame in found.items():
        tables.setdefault(name, frame)


def _with_results_only(
    tables: dict[str, pl.DataFrame], output_folder: Path, run_directory: Path, values: dict[str, Any], health: HealthLog
) -> dict[str, pl.DataFrame]:
    """A rank of which only sums and times of another analysis are there: its communication as they tell it, and its rank.

    Its rank is, unless profiler_info says it, that from which all links of the communication matrix go, else that in the name
    of its folder.
    """
    values[RESULTS_ONLY] = True
    matrix = tables.get("communication_matrix")
    sources = matrix["source"].drop_nulls().unique().to_list() if matrix is not None else []
    if "rank" not in values:
        named = rank_of_folder(run_directory)
        rank = sources[0] if len(sources) == 1 else named
        if rank is not None:
            values["rank"], values["rank_source"] = rank, "communication matrix" if len(sources) == 1 else "folder name"
    times = tables.get("communication_times")
    if times is not None and times.height:
        # the format may hold times without a start, which no operation can be placed by
        timed = times.drop_nulls(["start_ns", "elapse_ms"])
        name = pl.col("name").cast(pl.String)
        tables = {
            **tables,
            "communication": timed.select(
                "group",
                "step",
                "start_ns",
                name=name.cast(NAME),
                operation=operation_name(name).cast(NAME),
                kind=_kind_of(operation_name(name)).cast(NAME),
                end_ns=pl.col("start_ns") + (pl.col("elapse_ms") * 1e6).round().cast(pl.Int64, strict=False),
            ),
        }
    steps = "source_tables" in tables and bool(set(tables["source_tables"]["table"]) & set(_STEP_TABLES))
    holds = [
        *(["the step times"] if steps else []),
        *(["the times of its communication"] if "communication" in tables else []),
        *(["the links between ranks"] if matrix is not None else []),
    ]
    if not holds:
        raise InputError(output_folder, "holds no event that steplens knows, no steps and no communication", _SUMS_REMEDY)
    message = (
        f"of this rank only results of another analysis are there ({' and '.join(holds)}): "
        "no operators, no device tasks, nothing of the host"
    )
    unsafe = (OPERATOR_CALLS, OPERATOR_TIMES, OPERATOR_DEVICE_TIMES, KERNEL_CALLS, KERNEL_TIMES, STEP_PHASES, OVERLAP)
    missing_steps = () if steps else (STEP_TIMES, STEP_DEVICE_TIMES)
    health.add("results_only", WARNING, 1, message, (*unsafe, *missing_steps))
    return tables


def rank_of_folder(run_directory: Path) -> int | None:
    """The rank in the name of a run directory, else in that of the folder around it; None where neither names one."""
    folder = run_directory.resolve()
    ranks = (rank_in_name(name, distributed=False) for name in (folder.name, folder.parent.name))
    return next((rank for rank in ranks if rank is not None), None)


def _kind_of(operation: pl.Expr) -> pl.Expr:
    receives, sends = operation.is_in(["receive", "recv"]), operation == "send"
    return pl.when(receives).then(pl.lit(RECEIVE)).when(sends).then(pl.lit(SEND)).otherwise(pl.lit(COLLECTIVE))


def _timeline(path: Path, base_ns: int, health: HealthLog) -> tuple[dict[str, pl.DataFrame], int]:
    """The tables of the timeline, and the time base of the result; none where it is missing or unreadable."""
    lost = (STEP_TIMES, OPERATOR_CALLS, OPERATOR_TIMES, OPERATOR_DEVICE_TIMES, CALL_STACKS, HOST_AGAINST_DEVICE)
    if not path.is_file():
        health.add("missing_file", ERROR, 1, f"{path.name} is missing: no operators, no Python calls, no links to the host", lost)
        return {}, base_ns
    try:
        tables = read_timeline([path], health, base_ns=base_ns)
    except InputError as error:
        health.add("unreadable_file", ERROR, 1, f"{path.name} {error.problem}", lost)
        return {}, base_ns
    for value in (row for meta in _present(tables, "meta") for row in meta.filter(pl.col("key") == _BASE_KEY)["value"]):
        base_ns = json_text.own(value)
    return tables, base_ns


def _linked(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Launch points of device tasks taken back through the task queue."""
    found = {
        name: through_queue(tables[name], tables.get("task_queue"))
        for name in ("kernels", "communication")
        if _can_link(tables, name)
    }
    return {**tables, **found}


def _can_link(tables: Mapping[str, pl.DataFrame], name: str) -> bool:
    return name in tables and "launch_tid" in tables[name].columns


def _memory(folder: Path, base_ns: int, health: HealthLog) -> dict[str, pl.DataFrame]:
    found = {}
    if (folder / _MEMORY_RECORD).is_file():
        found["memory"] = ascend_csv.read_memory_record([folder / _MEMORY_RECORD], health, base_ns=base_ns)
    if (folder / _OPERATOR_MEMORY).is_file():
        found["allocations"] = ascend_csv.read_operator_memory([folder / _OPERATOR_MEMORY], health, base_ns=base_ns)
    return found


def _add(tables: dict[str, pl.DataFrame], name: str, path: Path, health: HealthLog, *, base_ns: int) -> None:
    if path.is_file():
        rows = ascend_csv.read_npu_module_mem([path], health, base_ns=base_ns)
        if rows.height:
            tables[name] = pl.concat([*_present(tables, name), rows], how="diagonal_relaxed")


def _present(tables: Mapping[str, pl.DataFrame], name: str) -> list[pl.DataFrame]:
    return [tables[name]] if name in tables else []


def with_groups(tables: dict[str, pl.DataFrame], groups: Any) -> dict[str, pl.DataFrame]:
    """Communication operations with the group that communication.json names and its size; their exact starts there.

    The timeline only numbers groups, and communication.json has cut the digits of the starts.
    """
    operations, times = tables.get("communication"), tables.get("communication_times")
    if operations is None:
        return tables
    if times is not None and times.height:
        named = times.filter(pl.col("group").is_not_null()).unique("name", keep="first").select("name", _group="group")
        operations = operations.join(named, on="name", how="left", maintain_order="left")
        known = pl.col("group").cast(pl.String) if "group" in operations.columns else pl.lit(None, dtype=pl.String)
        operations = operations.with_columns(group=pl.coalesce(pl.col("_group").cast(pl.String), known).cast(NAME)).drop("_group")
        exact = operations.select("name", _start="start_ns").unique("name", keep="none")
        times = times.join(exact, on="name", how="left", maintain_order="left")
        near = (pl.col("_start") - pl.col("start_ns")).abs() <= _START_TOLERANCE_NS
        tables["communication_times"] = times.with_columns(start_ns=pl.when(near).then("_start").otherwise("start_ns")).drop(
            "_start"
        )
    sizes = _group_sizes(groups)
    if sizes and "group" in operations.columns:
        size = pl.col("group").cast(pl.String).replace_strict(sizes, default=None, return_dtype=pl.Int32)
        own = pl.col("ranks").cast(pl.Int32) if "ranks" in operations.columns else pl.lit(None, dtype=pl.Int32)
        operations = operations.with_columns(ranks=pl.coalesce(own, size))
    return {**tables, "communication": operations}


def _group_sizes(groups: Any) -> dict[str, int]:
    """Number of ranks of each group, by its id and its name."""
    sizes: dict[str, int] = {}
    for key, group in groups.items() if isinstance(groups, dict) else ():
        ranks = group.get("global_ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list):
            sizes[key] = len(ranks)
            if isinstance(group.get("group_name"), str):
                sizes.setdefault(group["group_name"], len(ranks))
    return sizes


def _description(run_directory: Path, health: HealthLog) -> tuple[dict[str, Any], dict[str, Any]]:
    """profiler_info, and what becomes of it and of profiler_metadata in ``meta``."""
    values: dict[str, Any] = dict(read_json(run_directory / rundir.METADATA_FILE, health))
    if cores := device_info(find_prof(run_directory)):
        values["device_info"] = cores
    files = _info_files(run_directory)
    info = read_json(files[0], health) if files else {}
    if not info:
        message = "profiler_info.json is missing, so the options of the run are unknown"
        health.add("missing_profiler_info", INFO, 1, message, RUN_OPTIONS)
    if info.get("writer") == "steplens":
        add_findings(info, health)
    values.pop(PARTIAL_STEPS, None)
    for key in _OF_INFO:
        if key in info:
            values[key] = info[key]
    named = _INFO_NAME.match(files[0].name) if files else None
    ranks = [info.get("rank_id"), int(named[1]) if named and named[1] else None]
    rank = next((value for value in ranks if type(value) is int and value >= 0), None)
    if rank is not None:
        values["rank"] = rank
    distributed = values.get("distributed_args")
    if isinstance(distributed, dict) and type(distributed.get("world_size")) is int:
        values["world_size"] = distributed["world_size"]
    return info, values


def _info_files(run_directory: Path) -> list[Path]:
    try:
        return sorted(path for path in run_directory.iterdir() if _INFO_NAME.match(path.name) and path.is_file())
    except OSError:
        return []


def _without_repetition(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames).unique("key", keep="last", maintain_order=True)


def _is_cpu_run(tables: Mapping[str, pl.DataFrame]) -> bool:
    """Whether the CPU is the device: all tasks are its own, or nothing but the CPU was recorded."""
    if "kernels" in tables:
        return bool((tables["kernels"]["core"].cast(pl.String) == CORE_CPU).all())
    config = next((json_text.own(value) for key, value in tables["meta"].iter_rows() if key == "config"), None)
    common = config.get("common_config") if isinstance(config, dict) else None
    activities = common.get("activities") if isinstance(common, dict) else None
    return isinstance(activities, list) and bool(activities) and all(str(name).endswith(CORE_CPU) for name in activities)


def _require_events(tables: Mapping[str, pl.DataFrame], path: Path) -> None:
    if not any(name in tables for name in _EVENTS):
        raise InputError(path, "holds no event that steplens knows", "Give the result of a run, or the run's raw data")


def _report_missing(folder: Path, tables: Mapping[str, pl.DataFrame], info: Mapping[str, Any], health: HealthLog) -> None:
    """Report the files that a recording with these options has and the folder lacks."""
    config = info.get("config")
    common, experimental = (
        (part if isinstance(part := config.get(f"{name}_config"), dict) else {} for name in ("common", "experimental"))
        if isinstance(config, dict)
        else ({}, {})
    )
    level = experimental.get("_profiler_level")
    accelerated = not _is_cpu_run(tables)
    due: list[tuple[bool, str, str, tuple[str, ...]]] = [
        (
            accelerated and ("kernels" in tables or level in ("Level0", "Level1", "Level2")) and level != "Level_none",
            KERNELS,
            "types and measurements of kernels are unknown, and what computes was concluded from the kind of task",
            (KERNEL_DETAILS,),
        ),
        (bool(common.get("profile_memory")), _MEMORY_RECORD, "totals of the allocators are unknown", (MEMORY,)),
        (bool(common.get("profile_memory")), _OPERATOR_MEMORY, "allocations are unknown", (MEMORY,)),
        (
            accelerated and level in ("Level1", "Level2") and "communication" in tables,
            _COMMUNICATION,
            "waits, sizes and groups of communication operations are unknown",
            (COMMUNICATION_TIMES, COMMUNICATION_VOLUME),
        ),
    ]
    for expected, name, consequence, unsafe in due:
        if expected and not (folder / name).is_file():
            health.add("missing_file", WARNING, 1, f"{name} is missing: {consequence}", unsafe)
    if accelerated and "kernels" in tables:
        measured = level in ("Level1", "Level2")
        beside = {
            "operator_details.csv": "ops" in tables,
            "step_trace_time.csv": "steps" in tables or "ops" in tables,
            "op_statistic.csv": measured,
            "api_statistic.csv": measured,
            _MATRIX: measured and "communication" in tables,
            _MODULE_MEMORY: bool(common.get("profile_memory")),
            "l2_cache.csv": bool(experimental.get("_l2_cache")),
        }
        _report_lost([name for name, expected in beside.items() if expected], folder, health)


def _report_lost(expected: list[str], folder: Path, health: HealthLog) -> None:
    """Report files that should lie beside those that are there; a folder that somebody made of a few files lacks most."""
    missing = [name for name in expected if not (folder / name).is_file()]
    if missing and 2 * len(missing) <= len(expected):
        message = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing beside the other results"
        conclusions = {_MATRIX: COMMUNICATION_VOLUME, _MODULE_MEMORY: MEMORY}
        lost = [conclusions[name] for name in missing if name in conclusions]
        health.add("missing_results", WARNING if lost else INFO, len(missing), message, lost)
