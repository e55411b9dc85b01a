"""Reads the result files of the Ascend PyTorch Profiler, or of steplens: the text files of ASCEND_PROFILER_OUTPUT.

trace_view.json holds the events, kernel_details.csv what the devices' kernels were, the other files what neither has.
A file that is missing takes away what only it holds; health says what that makes unsafe.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import json_text
from steplens.common.errors import InputError
from steplens.common.options import DETAILED_LEVELS, DEVICE_LEVELS, LEVEL_NONE
from steplens.formats import ascend_results as results
from steplens.formats.ascend_database import ANALYSIS_DATABASE, STEP_TABLE
from steplens.readers.ascend.ascend_communication import operation_name, read_communication, read_communication_matrix
from steplens.readers.ascend.ascend_link import through_queue
from steplens.readers.ascend.ascend_planes import with_inner_tasks
from steplens.readers.ascend.database.analysis_db import elapsed_sums, read_analysis_beside
from steplens.readers.ascend.prof_directory import device_info, find_prof
from steplens.readers.ascend.text import ascend_csv
from steplens.readers.ascend.text.ascend_kernel_list import with_kernel_list
from steplens.readers.ascend.text.text_files import EVENT_FILES, rank_of_folder
from steplens.readers.ascend.timeline.ascend_timeline import read_timeline
from steplens.readers.common import run_info
from steplens.readers.common.run_info import RunInfo
from steplens.readers.common.side_files import add_findings
from steplens.readers.common.trace_rows import add_rows, merged_meta, meta_rows, optional_column
from steplens.trace import health as conclusions
from steplens.trace.building.build import build_trace
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, ERROR, INFO, MEMORY, WARNING, HealthLog
from steplens.trace.recorded_options import RecordedOptions, options_in_meta
from steplens.trace.schema import COLLECTIVE, CORE_CPU, NAME, PARTIAL_STEPS, RECEIVE, RESULTS_ONLY, SEND
from steplens.trace.trace import Trace

#: what reads the files that are handed on
_HANDED_ON = {
    **{f"{name}.csv": read for name, read in ascend_csv.SOURCE_TABLES.items() if name != "aicpu"},
    f"{results.DATA_PREPROCESS}.csv": ascend_csv.read_data_preprocess,
    results.STEP_TRACE: ascend_csv.read_step_trace_time,
}
#: source tables with what such a folder tells of its rank
_STEP_TABLES = (results.STEP_TRACE_TABLE, STEP_TABLE)
#: of profiler_info, what becomes of it in ``meta``
_OF_INFO = (*run_info.META_KEYS, "torch_version", "steplens_version", PARTIAL_STEPS)
_FORMAT = {"source_format": "ascend_text"}
#: files of memory -> the table that they have rows of, and what reads them
_MEMORY_FILES = {
    results.MEMORY_RECORD: ("memory", ascend_csv.read_memory_record),
    results.OPERATOR_MEMORY: ("allocations", ascend_csv.read_operator_memory),
    results.MODULE_MEMORY_FILE: ("counters", ascend_csv.read_npu_module_mem),
}
_EVENTS = ("ops", "python", "kernels", "communication", "api", "memory", "allocations", "counters", "gc", "marks")

_SUMS_REMEDY = "Give the run, or its communication.json, communication_matrix.json, step_trace_time.csv or analysis.db"

#: start times of communication.json have lost digits
_START_TOLERANCE_NS = 1_000


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
    tables = with_inner_tasks(_link_launches(read_timeline([path], health)))
    _require_events(tables, path)
    tables["meta"] = merged_meta(meta_rows(_FORMAT), tables.get("meta"))
    return build_trace(path, tables, health, cpu_is_device=_is_cpu_run(tables))


def read(output_folder: Path, run_directory: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The raw tables of a result folder.

    Raises:
        InputError: no file of it can be read, or none holds an event.
    """
    info, values = _read_description(run_directory, health)
    base_ns = values.get(results.TIME_BASE_KEY)
    base_ns = base_ns if type(base_ns) is int and 0 <= base_ns < 1 << 62 else 0
    results_only = not any((output_folder / name).is_file() for name in EVENT_FILES)
    tables: dict[str, pl.DataFrame] = {}
    if not results_only:
        tables, base_ns = _read_timeline(output_folder / results.TRACE_VIEW, base_ns, health)
    if (output_folder / results.KERNEL_DETAILS).is_file():
        details, metrics = ascend_csv.read_kernel_details([output_folder / results.KERNEL_DETAILS], health, base_ns=base_ns)
        tables = with_kernel_list(tables, details, metrics, health)
    tables = with_inner_tasks(tables)
    for name, (table, read_memory) in _MEMORY_FILES.items():
        if (output_folder / name).is_file():
            add_rows(tables, table, read_memory([output_folder / name], health, base_ns=base_ns))
    for name, read_rows in _HANDED_ON.items():
        if (output_folder / name).is_file():
            add_rows(tables, "source_tables", read_rows([output_folder / name], health))
    if (output_folder / results.COMMUNICATION).is_file():
        tables.update(read_communication(output_folder / results.COMMUNICATION, health, base_ns=base_ns))
    if (output_folder / results.COMMUNICATION_MATRIX).is_file():
        tables["communication_matrix"] = read_communication_matrix(output_folder / results.COMMUNICATION_MATRIX, health)
    if (output_folder / ANALYSIS_DATABASE).is_file():
        _add_analysis(tables, output_folder / ANALYSIS_DATABASE, health)
    if results_only:
        tables = _with_results_only(tables, output_folder, run_directory, values, health)
    tables = with_groups(_link_launches(tables), values.get("parallel_group_info"))
    tables["meta"] = merged_meta(meta_rows(_FORMAT), tables.get("meta"), meta_rows(values))
    tables = {name: frame for name, frame in tables.items() if frame.height}
    if results_only:
        return tables
    _require_events(tables, output_folder)
    _report_missing(output_folder, tables, info.options, health)
    return tables


def _add_analysis(tables: dict[str, pl.DataFrame], path: Path, health: HealthLog) -> None:
    """Add what analysis.db has and the text files have not, and beside theirs its times of steps and collectives, as a check."""
    analysis_tables = read_analysis_beside(path, health)
    add_rows(tables, "source_tables", analysis_tables.pop("source_tables", pl.DataFrame()))
    if "communication_times" in analysis_tables and "communication_times" in tables:
        add_rows(tables, "source_tables", elapsed_sums(analysis_tables["communication_times"]))
    for name, frame in analysis_tables.items():
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
        by_matrix = len(sources) == 1
        rank = sources[0] if by_matrix else rank_of_folder(run_directory)
        if rank is not None:
            values.update(rank=rank, rank_source="communication matrix" if by_matrix else "folder name")
    times = tables.get("communication_times")
    if times is not None and times.height:
        # the format may hold times without a start, which no operation can be placed by
        timed = times.drop_nulls(["start_ns", "elapse_ms"])
        name = pl.col("name").cast(pl.String)
        tables["communication"] = timed.select(
            "group",
            "step",
            "start_ns",
            name=name.cast(NAME),
            operation=operation_name(name).cast(NAME),
            kind=_kind_of(operation_name(name)).cast(NAME),
            end_ns=pl.col("start_ns") + (pl.col("elapse_ms") * 1e6).round().cast(pl.Int64, strict=False),
        )
    steps = "source_tables" in tables and bool(set(tables["source_tables"]["table"]) & set(_STEP_TABLES))
    parts = {
        "the step times": steps,
        "the times of its communication": "communication" in tables,
        "the links between ranks": matrix is not None and matrix.height > 0,
    }
    holds = [part for part, is_there in parts.items() if is_there]
    if not holds:
        # of what lies there and cannot be read the reason is known
        problems = [f"; {finding.message}" for finding in health.findings if finding.check == "unreadable_file"]
        what = "holds no event that steplens knows, no steps and no communication"
        raise InputError(run_directory, what + "".join(problems[:2]), _SUMS_REMEDY)
    message = (
        f"of this rank only results of another analysis are there ({' and '.join(holds)}): "
        "no operators, no device tasks, nothing of the host"
    )
    unsafe = (
        conclusions.OPERATOR_CALLS, conclusions.OPERATOR_TIMES, conclusions.OPERATOR_DEVICE_TIMES, conclusions.KERNEL_CALLS,
        conclusions.KERNEL_TIMES, conclusions.STEP_PHASES, conclusions.OVERLAP,
    )  # fmt: skip
    missing_steps = () if steps else (conclusions.STEP_TIMES, conclusions.STEP_DEVICE_TIMES)
    health.add("results_only", WARNING, 1, message, (*unsafe, *missing_steps))
    return tables


def _kind_of(operation: pl.Expr) -> pl.Expr:
    receives, sends = operation.is_in(["receive", "recv"]), operation == "send"
    return pl.when(receives).then(pl.lit(RECEIVE)).when(sends).then(pl.lit(SEND)).otherwise(pl.lit(COLLECTIVE))


def _read_timeline(path: Path, base_ns: int, health: HealthLog) -> tuple[dict[str, pl.DataFrame], int]:
    """The tables of the timeline, and the time base of the result; none where it is missing or unreadable."""
    lost = (
        conclusions.STEP_TIMES, conclusions.OPERATOR_CALLS, conclusions.OPERATOR_TIMES, conclusions.OPERATOR_DEVICE_TIMES,
        conclusions.CALL_STACKS, conclusions.HOST_AGAINST_DEVICE,
    )  # fmt: skip
    if not path.is_file():
        health.add("missing_file", ERROR, 1, f"{path.name} is missing: no operators, no Python calls, no links to the host", lost)
        return {}, base_ns
    try:
        tables = read_timeline([path], health, base_ns=base_ns)
    except InputError as error:
        health.add("unreadable_file", ERROR, 1, f"{path.name} {error.problem}", lost)
        return {}, base_ns
    if "meta" in tables:
        for value in tables["meta"].filter(pl.col("key") == results.TIME_BASE_KEY)["value"]:
            base_ns = json_text.loads_stored(value)
    return tables, base_ns


def _link_launches(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Launch points of device tasks taken back through the task queue."""
    launched = [name for name in ("kernels", "communication") if name in tables and "launch_tid" in tables[name].columns]
    return {**tables, **{name: through_queue(tables[name], tables.get("task_queue")) for name in launched}}


def with_groups(tables: dict[str, pl.DataFrame], groups: Any) -> dict[str, pl.DataFrame]:
    """Communication operations with the group that communication.json names and its size; their exact starts there.

    The timeline only numbers groups, and communication.json has cut the digits of the starts.
    """
    operations, times = tables.get("communication"), tables.get("communication_times")
    if operations is None:
        return tables
    if times is not None and times.height:
        group_of_name = times.filter(pl.col("group").is_not_null()).unique("name", keep="first").select("name", _group="group")
        operations = operations.join(group_of_name, on="name", how="left", maintain_order="left")
        groups_of = (column.cast(pl.String) for column in (pl.col("_group"), optional_column(operations, "group")))
        operations = operations.with_columns(group=pl.coalesce(*groups_of).cast(NAME)).drop("_group")
        exact = operations.select("name", _start="start_ns").unique("name", keep="none")
        times = times.join(exact, on="name", how="left", maintain_order="left")
        near = (pl.col("_start") - pl.col("start_ns")).abs() <= _START_TOLERANCE_NS
        tables["communication_times"] = times.with_columns(start_ns=pl.when(near).then("_start").otherwise("start_ns")).drop(
            "_start"
        )
    sizes = _group_sizes(groups)
    if sizes and "group" in operations.columns:
        size = pl.col("group").cast(pl.String).replace_strict(sizes, default=None, return_dtype=pl.Int32)
        operations = operations.with_columns(ranks=pl.coalesce(optional_column(operations, "ranks").cast(pl.Int32), size))
    return {**tables, "communication": operations}


def _group_sizes(groups: Any) -> dict[str, int]:
    """Number of ranks of each group, by its id and its name."""
    sizes: dict[str, int] = {}
    for key, name, size in run_info.list_groups(groups):
        sizes[key] = size
        if isinstance(name, str):
            sizes.setdefault(name, size)
    return sizes


def _read_description(run_directory: Path, health: HealthLog) -> tuple[RunInfo, dict[str, Any]]:
    """profiler_info, and what becomes of it and of profiler_metadata in ``meta``."""
    values = run_info.read_metadata(run_directory, health)
    if cores := device_info(find_prof(run_directory)):
        values["device_info"] = cores
    info = run_info.read_info(run_info.ranked_info_files(run_directory), health, INFO)
    if info.values.get("writer") == "steplens":
        add_findings(info.values, health)
    values.pop(PARTIAL_STEPS, None)
    values.update(info.select(_OF_INFO))
    if info.rank is not None:
        values["rank"] = info.rank
    world_size = run_info.world_size_of(values)
    if world_size is not None:
        values["world_size"] = world_size
    return info, values


def _is_cpu_run(tables: Mapping[str, pl.DataFrame]) -> bool:
    """Whether the CPU is the device: all tasks are its own, or nothing but the CPU was recorded."""
    if "kernels" in tables:
        return bool((tables["kernels"]["core"].cast(pl.String) == CORE_CPU).all())
    return set(options_in_meta(tables["meta"]).activities) == {CORE_CPU}


def _require_events(tables: Mapping[str, pl.DataFrame], path: Path) -> None:
    if not any(name in tables for name in _EVENTS):
        raise InputError(path, "holds no event that steplens knows", "Give the result of a run, or the run's raw data")


def _report_missing(folder: Path, tables: Mapping[str, pl.DataFrame], options: RecordedOptions, health: HealthLog) -> None:
    """Report the files that a recording with these options has and the folder lacks."""
    common, level = options.common, options.level
    accelerated = not _is_cpu_run(tables)
    due: list[tuple[bool, str, str, tuple[str, ...]]] = [
        (
            accelerated and ("kernels" in tables or level in DEVICE_LEVELS) and level != LEVEL_NONE,
            results.KERNEL_DETAILS,
            "types and measurements of kernels are unknown, and what computes was concluded from the kind of task",
            (conclusions.KERNEL_DETAILS,),
        ),
        (bool(common.get("profile_memory")), results.MEMORY_RECORD, "totals of the allocators are unknown", (MEMORY,)),
        (bool(common.get("profile_memory")), results.OPERATOR_MEMORY, "allocations are unknown", (MEMORY,)),
        (
            accelerated and level in DETAILED_LEVELS and "communication" in tables,
            results.COMMUNICATION,
            "waits, sizes and groups of communication operations are unknown",
            (COMMUNICATION_TIMES, COMMUNICATION_VOLUME),
        ),
    ]
    for expected, name, consequence, unsafe in due:
        if expected and not (folder / name).is_file():
            health.add("missing_file", WARNING, 1, f"{name} is missing: {consequence}", unsafe)
    if accelerated and "kernels" in tables:
        measured = level in DETAILED_LEVELS
        beside = {
            results.OPERATOR_DETAILS: "ops" in tables,
            results.STEP_TRACE: "steps" in tables or "ops" in tables,
            results.OP_STATISTIC: measured,
            results.API_STATISTIC: measured,
            results.COMMUNICATION_MATRIX: measured and "communication" in tables,
            results.MODULE_MEMORY_FILE: bool(common.get("profile_memory")),
            "l2_cache.csv": bool(options.experimental.get("_l2_cache")),
        }
        _report_lost([name for name, expected in beside.items() if expected], folder, health)


def _report_lost(expected: list[str], folder: Path, health: HealthLog) -> None:
    """Report files that should lie beside those that are there; a folder that somebody made of a few files lacks most."""
    missing = [name for name in expected if not (folder / name).is_file()]
    if missing and 2 * len(missing) <= len(expected):
        message = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing beside the other results"
        unsafe = {results.COMMUNICATION_MATRIX: COMMUNICATION_VOLUME, results.MODULE_MEMORY_FILE: MEMORY}
        lost = [unsafe[name] for name in missing if name in unsafe]
        health.add("missing_results", WARNING if lost else INFO, len(missing), message, lost)
