"""Reads the databases of the Ascend PyTorch Profiler: ``ascend_pytorch_profiler[_<rank>].db`` and ``analysis.db``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from steplens.common.errors import InputError
from steplens.common.options import DETAILED_LEVELS
from steplens.formats import ascend_database as formats
from steplens.formats.ascend_database import ANALYSIS_DATABASE, CANN_TABLES, FRAMEWORK_TABLES, PROFILER_DATABASE
from steplens.readers.ascend.ascend_link import through_queue
from steplens.readers.ascend.database import cann_samples, cann_tasks, framework_db
from steplens.readers.ascend.database.analysis_db import read_analysis_beside
from steplens.readers.ascend.database.cann_db import cann_tables
from steplens.readers.ascend.database.cann_names import ProfilerDatabase
from steplens.readers.ascend.database.database_files import profiler_databases
from steplens.readers.ascend.prof_directory import device_info, find_prof
from steplens.readers.common.run_info import META_KEYS, ranked_info_files, read_info, read_metadata, world_size_of
from steplens.readers.common.trace_rows import add_rows, merged_meta, meta_rows
from steplens.trace.building.build import build_trace
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, INFO, WARNING, HealthLog
from steplens.trace.recorded_options import options_in_meta
from steplens.trace.schema import CORE_CPU, CORE_CUDA, NAME
from steplens.trace.trace import Trace

_NPU = "NPU"


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
    databases = profiler_databases(output_folder)
    if not databases:
        raise InputError(output_folder, *_nothing_to_read(output_folder))
    if len(databases) > 1:
        read_name, *unread_names = (path.name for path in databases)
        message = f"{read_name} was read, others were not ({', '.join(unread_names)})"
        health.add("several_databases", WARNING, len(unread_names), message)
    tables = read_database(databases[0], health)
    analysis = output_folder / ANALYSIS_DATABASE
    if analysis.is_file():
        _append_tables(tables, read_analysis_beside(analysis, health))
    tables["meta"] = _meta_table(tables.get("meta"), databases[0], run_directory, health)
    if not analysis.is_file() and "communication" in tables and options_in_meta(tables["meta"]).level in DETAILED_LEVELS:
        message = f"{ANALYSIS_DATABASE} is missing: waits and sizes of communication operations are unknown"
        health.add("missing_file", WARNING, 1, message, [COMMUNICATION_TIMES, COMMUNICATION_VOLUME])
    return tables


def read_database(path: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The raw tables of one profiler database, whatever it is called.

    Raises:
        InputError: the file is no database, or none of a profiler.
    """
    with ProfilerDatabase(path, health) as database:
        layout = {**CANN_TABLES, **FRAMEWORK_TABLES}
        if not any(table in database for table in layout):
            raise InputError(path, "is a database of something else", "Give ascend_pytorch_profiler_<rank>.db")
        with_device = any(table in database for table in ("TASK", "CANN_API", "NPU_INFO"))
        with_framework = any(table in database for table in FRAMEWORK_TABLES)
        of_device = formats.DEVICE_TABLES if with_device else ("STRING_IDS",)
        expected = [*(formats.PYTORCH_TABLES if with_framework else ()), *of_device]
        database.load_names(layout, dict.fromkeys(expected), cann_samples.TABLES)
        device = cann_tables(database)
        framework = framework_db.framework_tables(database)
        database.report_names()
    connections = framework.pop("connections", None)
    queue = framework.get("task_queue")
    core = cann_tasks.other_core(device.get("kernels", pl.DataFrame()))
    for name in ("kernels", "communication"):
        if name in device:
            device[name] = _with_operators(through_queue(device[name], queue), connections, core)
    if core is not None and "communication" in device:
        call_frames = [tables[name] for tables, name in ((device, "kernels"), (framework, "ops")) if name in tables]
        device["communication"] = _with_own_names(device["communication"], call_frames)
    if core == CORE_CPU:
        device.pop("api", None)
    # what the framework recorded of CANN's allocators comes from the rows that are read here in full
    if "memory" in framework and "memory" in device:
        framework["memory"] = _with_events(framework["memory"], device["memory"])
    for name in ("memory", "allocations"):
        if name in framework and name in device:
            device[name] = _without_repetition(device[name], framework[name])
    _append_tables(framework, device)
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
        own_name = pl.when(made).then(pl.coalesce("_name", "name")).otherwise("name")
        operations = operations.with_columns(name=own_name).drop("_name")
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
    no_links = pl.DataFrame(schema={"correlation": pl.Int64, "external_id": pl.Int64})
    tasks = tasks.join(no_links if connections is None else connections, on="correlation", how="left", maintain_order="left")
    if core is None:
        return tasks
    is_linked = pl.col("external_id").is_not_null()
    launch = ("launch_pid", "launch_tid", *(("launch_ns",) if core == CORE_CPU else ()))
    tasks = tasks.with_columns(pl.when(~is_linked).then(column).alias(column) for column in launch)
    if core != CORE_CPU or "pid" not in tasks.columns:
        return tasks
    is_unlinked = ~is_linked & pl.col("launch_ns").is_null()
    thread = {"launch_ns": "start_ns", "launch_pid": "pid", "launch_tid": "stream"}
    return tasks.with_columns(**{name: pl.when(is_unlinked).then(value).otherwise(name) for name, value in thread.items()})


def _device_type(core: str | None) -> str:
    """The kind of device whose memory was recorded; the tables of memory themselves do not say it."""
    return _NPU if core is None else CORE_CPU if core == CORE_CPU else CORE_CUDA


def _with_events(framework: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """The framework's rows of CANN's allocators with what CANN's own rows tell: the event, its address, size and thread."""
    keys, event_columns = ["component", "device", "time_ns", "allocated"], ["event", "address", "bytes", "pid", "tid"]
    if not set(keys + event_columns) <= set(device.columns):
        return framework
    events = device.drop_nulls("event").unique(keys, keep="none").select(*keys, *event_columns)
    return framework.drop("pid", "tid").join(events, on=keys, how="left", maintain_order="left")


def _without_repetition(device: pl.DataFrame, framework: pl.DataFrame) -> pl.DataFrame:
    """The rows of the components that the framework's table lacks."""
    repeated = framework["component"].cast(pl.String).unique().drop_nulls()
    return device.filter(~pl.col("component").cast(pl.String).is_in(repeated.implode()).fill_null(False))


def _append_tables(tables: dict[str, pl.DataFrame], more: Mapping[str, pl.DataFrame]) -> None:
    """Put the rows of ``more`` behind those of ``tables``."""
    for name, frame in more.items():
        add_rows(tables, name, frame)


def _nothing_to_read(folder: Path) -> tuple[str, str]:
    """What is wrong with a folder without profiler database, and what to do."""
    remedy = "Put ascend_pytorch_profiler_<rank>.db beside it, or analyse the run again with export type db"
    if (folder / ANALYSIS_DATABASE).is_file():
        return "holds analysis.db and no profiler database: it has only the sums of another analysis", remedy
    if any(PROFILER_DATABASE.match(path.name.removesuffix("-journal")) for path in folder.glob("*.db-journal")):
        return "holds the journal of a profiler database and not the database: writing it was interrupted", remedy
    return "holds no profiler database", remedy


def _meta_table(recorded: pl.DataFrame | None, database: Path, run_directory: Path, health: HealthLog) -> pl.DataFrame:
    """``meta``: what the run directory says, then what the database says, then what follows from names."""
    values = read_metadata(run_directory, health)
    info = read_info(ranked_info_files(run_directory), health, INFO)
    if cores := device_info(find_prof(run_directory)):
        values["device_info"] = cores
    of_info = info.select(META_KEYS)
    match = PROFILER_DATABASE.match(database.name)
    named_rank = int(match[1]) if match and match[1] else None
    rank = named_rank if info.rank is None else info.rank
    if rank is not None:
        of_info["rank"] = rank
    world_size = world_size_of(values)
    if world_size is not None:
        values["world_size"] = world_size
    return merged_meta(meta_rows(values, nulls=False), recorded, meta_rows(of_info, nulls=False))


def _is_cpu_run(tables: Mapping[str, pl.DataFrame]) -> bool:
    """Whether the run recorded the CPU only, so that its operator calls are its device work."""
    return not {"kernels", "api"} & set(tables) and set(options_in_meta(tables["meta"]).activities) == {CORE_CPU}
