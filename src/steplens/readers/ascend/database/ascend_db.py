"""Reads the databases of the Ascend PyTorch Profiler: ``ascend_pytorch_profiler[_<rank>].db`` and ``analysis.db``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from steplens import rundir
from steplens.common import json_text
from steplens.errors import InputError
from steplens.readers.ascend.ascend_link import through_queue
from steplens.readers.ascend.database import cann_samples, cann_tasks, framework_db
from steplens.readers.ascend.database.analysis_db import read_analysis
from steplens.readers.ascend.database.cann_db import cann_tables, meta_rows
from steplens.readers.ascend.database.cann_layout import CANN_LAYOUT, CANN_TABLES, Enums, Texts, report_differences, report_unread
from steplens.readers.ascend.prof_directory import device_info, find_prof
from steplens.readers.common.sqlite_file import SqliteFile
from steplens.readers.steplens_run.run_directory import read_json
from steplens.trace.building.build import build_trace
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, INFO, RUN_OPTIONS, WARNING, HealthLog
from steplens.trace.schema import CORE_CPU, CORE_CUDA, NAME
from steplens.trace.trace import Trace

_NAME = re.compile(r"^ascend_(?:pytorch|mindspore)_profiler(?:_(\d+))?\.db$")
_ANALYSIS = "analysis.db"
_NPU = "NPU"
_INFO_NAME = re.compile(rf"^{rundir.INFO_PREFIX}(?:_(\d+))?\.json$")


def detect(output_folder: Path) -> bool:
    """Whether a result folder holds a profiler database."""
    return bool(_databases(output_folder))


def sources(output_folder: Path, run_directory: Path) -> list[Path]:
    """The files that decide what the tables of a result folder hold."""
    named = [*_databases(output_folder)[:1], output_folder / _ANALYSIS, run_directory / rundir.METADATA_FILE]
    return [*(file for file in named if file.is_file()), *_info_files(run_directory)]


def read_trace(output_folder: Path, run_directory: Path) -> Trace:
    """The trace of a result folder with a database.

    Raises:
        InputError: as ``read``.
    """
    health = HealthLog()
    tables = read(output_folder, run_directory, health)
    return build_trace(run_directory, tables, health, cpu_is_device=_is_cpu_run(tables))


def read_file_trace(path: Path) -> Trace:
    """The trace of one database on its own, whatever it is called: of the profiler, or of CANN.

    Raises:
        InputError: the file is no database, none of a profiler, or holds no event.
    """
    health = HealthLog()
    tables = read_database(path, health)
    if set(tables) <= {"meta", "source_tables", "connections"}:
        raise InputError(path, "holds no event", "Record at least one step, then export it again")
    return build_trace(path, tables, health, cpu_is_device=False)


def read(output_folder: Path, run_directory: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The raw tables of a result folder: the profiler database, what analysis.db adds, and the run's own description.

    Device tasks are tied to operators by where they were launched: the launch point goes back through the task queue; where
    no operator is there, the connections of the database decide.

    Args:
        output_folder: ``ASCEND_PROFILER_OUTPUT``, or wherever the databases lie.
        run_directory: holds profiler_info and profiler_metadata; may be the same folder.
        health: gets what is missing, damaged or different from the current layout.

    Raises:
        InputError: there is no profiler database, or it cannot be read.
    """
    databases = _databases(output_folder)
    if not databases:
        raise InputError(output_folder, *_nothing_to_read(output_folder))
    if len(databases) > 1:
        others = ", ".join(path.name for path in databases[1:])
        health.add("several_databases", WARNING, len(databases) - 1, f"{databases[0].name} was read, others were not ({others})")
    tables = read_database(databases[0], health)
    analysis = output_folder / _ANALYSIS
    if analysis.is_file():
        try:
            _add(tables, read_analysis(analysis, health))
        except InputError as error:
            message = f"{analysis.name} {error.problem}, so what it measured of communication is missing"
            health.add("damaged_analysis", WARNING, 1, message, COMMUNICATION_TIMES)
    tables["meta"] = _meta(tables.get("meta"), databases[0], run_directory, health)
    if not analysis.is_file() and "communication" in tables and _is_measured(tables["meta"]):
        message = f"{_ANALYSIS} is missing: waits and sizes of communication operations are unknown"
        health.add("missing_file", WARNING, 1, message, [COMMUNICATION_TIMES, COMMUNICATION_VOLUME])
    return tables


def read_database(path: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The raw tables of one profiler database, whatever it is called.

    Raises:
        InputError: the file is no database, or none of a profiler.
    """
    with SqliteFile(path, health) as database:
        layout = {**CANN_LAYOUT, **framework_db.LAYOUT}
        if not any(table in database for table in layout):
            raise InputError(path, "is a database of something else", "Give ascend_pytorch_profiler_<rank>.db")
        with_device = any(table in database for table in ("TASK", "CANN_API", "NPU_INFO"))
        with_framework = any(table in database for table in framework_db.LAYOUT)
        expected = [*(framework_db.TABLES if with_framework else ()), *(CANN_TABLES if with_device else ("STRING_IDS",))]
        report_differences(database, layout, dict.fromkeys(expected), health)
        report_unread(database, [*layout, *cann_samples.TABLES], health)
        texts, enums = Texts(database), Enums(database)
        device = cann_tables(database, texts, enums, health)
        framework = framework_db.framework_tables(database, texts, enums, health)
        texts.report(health)
        enums.report(health)
    connections = framework.pop("connections", None)
    queue = framework.get("task_queue")
    core = cann_tasks.other_core(device.get("kernels", pl.DataFrame()))
    for name in ("kernels", "communication"):
        if name in device:
            device[name] = _with_operators(through_queue(device[name], queue), connections, core)
    if core is not None and "communication" in device:
        known = [tables[name] for tables, name in ((device, "kernels"), (framework, "ops")) if name in tables]
        device["communication"] = _with_own_names(device["communication"], known)
    if core == CORE_CPU:
        device.pop("api", None)
    # what the framework recorded of CANN's allocators comes from the rows that are read here in full
    if "memory" in framework and "memory" in device:
        framework["memory"] = _with_events(framework["memory"], device["memory"])
    for name in ("memory", "allocations"):
        if name in framework and name in device:
            device[name] = _without_repetition(device[name], framework[name])
    _add(framework, device)
    for name in ("memory", "allocations"):
        if name in framework:
            framework[name] = framework[name].with_columns(device_type=pl.lit(_device_type(core), dtype=NAME))
    return framework


def _with_own_names(operations: pl.DataFrame, known: list[pl.DataFrame]) -> pl.DataFrame:
    """Collectives of a run without an NPU by the names of the tasks or calls that they are.

    steplens gives them names that clients know. Several tasks or calls of the same times, but different names, tell nothing.
    """
    times = ["start_ns", "end_ns"]
    for frame in known:
        names = frame.select(*times, _name="name").unique(maintain_order=True).unique(times, keep="none")
        operations = operations.join(names, on=times, how="left", maintain_order="left")
        made = pl.col("name").cast(pl.String).str.starts_with("hcom_")
        own = pl.when(made).then(pl.coalesce("_name", "name")).otherwise("name")
        operations = operations.with_columns(name=own).drop("_name")
    return operations


def _with_operators(tasks: pl.DataFrame, connections: pl.DataFrame | None, core: str | None) -> pl.DataFrame:
    """Add ``external_id``, the number that the task's operator has in ``ops``.

    Without an NPU the connections come first: they are those of the trace that the database was made from. A CPU launches
    its tasks itself; launches in its database are there for the connections' sake.

    Args:
        tasks: rows of ``kernels`` or ``communication``.
        connections: correlation and external_id of the operators.
        core: that of a run without an NPU, or None.
    """
    nothing = pl.DataFrame(schema={"correlation": pl.Int64, "external_id": pl.Int64})
    tasks = tasks.join(nothing if connections is None else connections, on="correlation", how="left", maintain_order="left")
    if core is None:
        return tasks
    known = pl.col("external_id").is_not_null()
    launch = ("launch_pid", "launch_tid", *(("launch_ns",) if core == CORE_CPU else ()))
    tasks = tasks.with_columns(pl.when(~known).then(column).alias(column) for column in launch)
    if core != CORE_CPU or "pid" not in tasks.columns:
        return tasks
    own = ~known & pl.col("launch_ns").is_null()
    thread = {"launch_ns": "start_ns", "launch_pid": "pid", "launch_tid": "stream"}
    return tasks.with_columns(**{name: pl.when(own).then(value).otherwise(name) for name, value in thread.items()})


def _device_type(core: str | None) -> str:
    """The kind of device whose memory was recorded; the tables of memory themselves do not say it."""
    return _NPU if core is None else CORE_CPU if core == CORE_CPU else CORE_CUDA


def _with_events(framework: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """The framework's rows of CANN's allocators with what CANN's own rows tell: the event, its address, size and thread."""
    keys, told = ["component", "device", "time_ns", "allocated"], ["event", "address", "bytes", "pid", "tid"]
    if not set(keys + told) <= set(device.columns):
        return framework
    events = device.drop_nulls("event").unique(keys, keep="none").select(*keys, *told)
    return framework.drop("pid", "tid").join(events, on=keys, how="left", maintain_order="left")


def _without_repetition(device: pl.DataFrame, framework: pl.DataFrame) -> pl.DataFrame:
    """The rows of the components that the framework's table lacks."""
    repeated = framework["component"].cast(pl.String).unique().drop_nulls()
    return device.filter(~pl.col("component").cast(pl.String).is_in(repeated.implode()).fill_null(False))


def _add(tables: dict[str, pl.DataFrame], more: Mapping[str, pl.DataFrame]) -> None:
    """Put the rows of ``more`` behind those of ``tables``."""
    for name, frame in more.items():
        if frame.height:
            tables[name] = pl.concat([tables[name], frame], how="diagonal_relaxed") if name in tables else frame


def _databases(folder: Path) -> list[Path]:
    """The profiler databases of a folder, the first one is read: without rank, then by rank."""
    try:
        found = [(match, path) for path in folder.iterdir() if (match := _NAME.match(path.name)) and path.is_file()]
    except OSError:
        return []
    return [path for match, path in sorted(found, key=lambda item: (int(item[0][1] or -1), item[1].name))]


def _nothing_to_read(folder: Path) -> tuple[str, str]:
    """What is wrong with a folder without profiler database, and what to do."""
    remedy = "Put ascend_pytorch_profiler_<rank>.db beside it, or analyse the run again with export type db"
    if (folder / _ANALYSIS).is_file():
        return "holds analysis.db and no profiler database: it has only the sums of another analysis", remedy
    if any(_NAME.match(path.name.removesuffix("-journal")) for path in folder.glob("*.db-journal")):
        return "holds the journal of a profiler database and not the database: writing it was interrupted", remedy
    return "holds no profiler database", remedy


def _info_files(run_directory: Path) -> list[Path]:
    try:
        return sorted(path for path in run_directory.iterdir() if _INFO_NAME.match(path.name) and path.is_file())
    except OSError:
        return []


def _meta(found: pl.DataFrame | None, database: Path, run_directory: Path, health: HealthLog) -> pl.DataFrame:
    """``meta``: what the run directory says, then what the database says, then what follows from names."""
    values: dict[str, Any] = dict(read_json(run_directory / rundir.METADATA_FILE, health))
    files = _info_files(run_directory)
    info = read_json(files[0], health) if files else {}
    if not info:
        message = "profiler_info.json is missing, so the options of the run are unknown"
        health.add("missing_profiler_info", INFO, 1, message, RUN_OPTIONS)
    if cores := device_info(find_prof(run_directory)):
        values["device_info"] = cores
    known: dict[str, Any] = {
        key: info[key] for key in ("config", "start_info", "end_info", "cann_version", "torch_npu_version") if key in info
    }
    match = _NAME.match(database.name)
    named = _INFO_NAME.match(files[0].name) if files else None
    ranks = [info.get("rank_id"), *(int(found_[1]) for found_ in (named, match) if found_ and found_[1])]
    rank = next((value for value in ranks if type(value) is int and value >= 0), None)
    if rank is not None:
        known["rank"] = rank
    distributed = values.get("distributed_args")
    if isinstance(distributed, dict) and type(distributed.get("world_size")) is int:
        values["world_size"] = distributed["world_size"]
    rows = [meta_rows(values), *([found] if found is not None else []), meta_rows(known)]
    return pl.concat(rows).unique("key", keep="last", maintain_order=True)


def _is_measured(meta: pl.DataFrame) -> bool:
    """Whether the recording was of a level that measures communication."""
    config = next((json_text.own(value) for key, value in meta.iter_rows() if key == "config"), None)
    extended = config.get("experimental_config") if isinstance(config, dict) else None
    return isinstance(extended, dict) and extended.get("_profiler_level") in ("Level1", "Level2")


def _is_cpu_run(tables: Mapping[str, pl.DataFrame]) -> bool:
    """Whether the run recorded the CPU only, so that its operator calls are its device work."""
    if {"kernels", "api"} & set(tables):
        return False
    values = {key: json_text.own(value) for key, value in tables["meta"].iter_rows() if key == "config"}
    config = values.get("config")
    common = config.get("common_config") if isinstance(config, dict) else None
    activities = common.get("activities") if isinstance(common, dict) else None
    return isinstance(activities, list) and bool(activities) and all(str(name).endswith(CORE_CPU) for name in activities)
