"""The table of output files, and writing all that are due into a run directory.

Outputs are independent: each is written to a temporary file and renamed when complete, and one that fails neither
hides nor removes another. ``analyse_status.json`` says what became of each; ``analyse.done`` exists only when
everything that was due does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import json_text, rundir
from steplens.common.errors import InputError
from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.trace.trace import Trace
from steplens.writers.common import source_table
from steplens.writers.common.output import LEVEL0, LEVEL1, LEVEL2, LEVEL_NONE, NothingToWriteError, Output, time_base_ns
from steplens.writers.database import database, database_analysis
from steplens.writers.tables import (
    api_statistic,
    communication,
    kernel_details,
    memory_record,
    npu_module_mem,
    op_statistic,
    operator_details,
    operator_memory,
    step_trace_time,
)
from steplens.writers.trace_view import trace_view

#: changes when the same trace would give other files, which makes every earlier result stale
RESULT_VERSION = 4

TEXT = "text"
DATABASE = "db"
EXPORT_TYPES = (TEXT, DATABASE)


def with_databases(export_types: Sequence[str]) -> list[str]:
    """Export types with what comes with them: text results have the databases beside them, which other tools read first."""
    return [*export_types, DATABASE] if TEXT in export_types and DATABASE not in export_types else list(export_types)


DONE = "done"
FAILED = "failed"
SKIPPED = "skipped"

_THREADS = 2

_ALWAYS = (LEVEL_NONE, LEVEL0, LEVEL1, LEVEL2)
_DEVICE = (LEVEL0, LEVEL1, LEVEL2)
_DETAILED = (LEVEL1, LEVEL2)


@dataclass(frozen=True)
class OutputFile:
    """One file of ``ASCEND_PROFILER_OUTPUT``.

    Attributes:
        name: file name; ``{rank}`` in it becomes ``_<rank>``, or nothing where the rank is unknown.
        write: writes it to a path; raises NothingToWriteError where its source is missing.
        levels: profiler levels at which it is due.
        switch: option of the run that must be on, "" for none.
        activity: activity that must have been recorded, "" for any.
        export: export type that it belongs to, "text" or "db".
    """

    name: str
    write: Callable[[Output, Path], None]
    levels: tuple[str, ...] = _ALWAYS
    switch: str = ""
    activity: str = ""
    export: str = TEXT

    def name_for(self, trace: Trace) -> str:
        """The file name of one rank."""
        return self.name.format(rank=f"_{trace.recorded_rank}" if trace.recorded_rank >= 0 else "")


def _passed_on(name: str, levels: tuple[str, ...], switch: str = "") -> OutputFile:
    """A table that the source keeps."""
    return OutputFile(f"{name}.csv", partial(source_table.write_source_table, name), levels, switch=switch)


OUTPUT_FILES = (
    OutputFile("trace_view.json", trace_view.write),
    OutputFile("operator_details.csv", operator_details.write, activity="CPU"),
    OutputFile("kernel_details.csv", kernel_details.write, _DEVICE),
    OutputFile("step_trace_time.csv", step_trace_time.write, _DEVICE),
    OutputFile("op_statistic.csv", op_statistic.write, _DETAILED),
    OutputFile("api_statistic.csv", api_statistic.write, _DETAILED),
    OutputFile("communication.json", communication.write_times, _DETAILED),
    OutputFile("communication_matrix.json", communication.write_matrix, _DETAILED),
    OutputFile("memory_record.csv", memory_record.write, switch="profile_memory"),
    OutputFile("operator_memory.csv", operator_memory.write, switch="profile_memory"),
    OutputFile("npu_module_mem.csv", npu_module_mem.write, _DEVICE),
    _passed_on("task_time", _DEVICE),
    _passed_on("data_preprocess", (LEVEL2,)),
    _passed_on("l2_cache", _DEVICE, switch="l2_cache"),
    _passed_on("soc_pmu", _DEVICE, switch="l2_cache"),
    _passed_on("nic", _DEVICE, switch="sys_io"),
    _passed_on("roce", _DEVICE, switch="sys_io"),
    _passed_on("pcie", _DEVICE, switch="sys_interconnection"),
    _passed_on("hccs", _DEVICE, switch="sys_interconnection"),
    OutputFile("ascend_pytorch_profiler{rank}.db", database.write, export=DATABASE),
    OutputFile("analysis.db", database_analysis.write, _DEVICE, export=DATABASE),
)


@dataclass(frozen=True)
class Settings:
    """How a run was collected, as far as it decides which outputs are due.

    Attributes:
        level: profiler level.
        switches: options that are known to be on or off; an unknown one counts as on.
        activities: recorded activities ("CPU", "CUDA", "NPU"); empty when unknown.
        notes: what had to be assumed, one sentence each.
    """

    level: str = LEVEL0
    switches: Mapping[str, bool] = field(default_factory=dict)
    activities: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputStatus:
    """What became of one output file.

    Attributes:
        status: "done", "failed" or "skipped".
        reason: why it was skipped or failed; empty for "done".
        bytes: size of the file.
        seconds: wall time of writing it.
    """

    status: str
    reason: str = ""
    bytes: int = 0
    seconds: float = 0.0


def why_not_due(file: OutputFile, settings: Settings) -> str:
    """Why ``file`` is not part of the result; empty when it is."""
    if settings.level not in file.levels:
        return f"not part of {settings.level}"
    if file.switch and not settings.switches.get(file.switch, True):
        return f"{file.switch} was off"
    if file.activity and settings.activities and file.activity not in settings.activities:
        return f"the {file.activity} activity was not recorded"
    return ""


def write_result(
    trace: Trace,
    run_directory: Path,
    settings: Settings,
    *,
    export_types: Sequence[str] = (TEXT,),
    missing: str = "",
    files: Sequence[OutputFile] = OUTPUT_FILES,
    on_failure: Callable[[str, BaseException], None] = lambda name, error: None,
    on_output: Callable[[str], None] = lambda name: None,
) -> dict[str, OutputStatus]:
    """Write every output that is due, then the status, then the completion marker.

    Args:
        trace: the tables of the run.
        run_directory: where ``ASCEND_PROFILER_OUTPUT`` lies or is created.
        settings: decides which outputs are due.
        export_types: which files: "text", "db" or both. What an earlier analysis left of the other one is removed: the clients
            read a database in place of the text files beside it, whichever is older.
        missing: which part of the recorded data could not be read, so that the result cannot be complete; empty when none.
        files: the table of outputs, for tests.
        on_failure: called with the file name and the exception of each output that failed, from any thread.
        on_output: called with the name of each output before it is written, from any thread.

    Returns:
        file name -> what became of it, in the order of the table; files of other export types are not in it.

    Raises:
        ValueError: an export type is unknown, or there is none.
    """
    if not export_types or set(export_types) - set(EXPORT_TYPES):
        raise ValueError(f"export_types must be some of {EXPORT_TYPES}, not {export_types!r}")
    folder = output_directory(run_directory)
    if not (folder / rundir.STATUS_FILE).exists():
        # Killed before the end, this leaves files that would otherwise pass for those of somebody else.
        write_status(run_directory, {})
    (folder / rundir.COMPLETION_MARKER).unlink(missing_ok=True)
    metadata = _read_metadata(run_directory)
    base_ns = _time_base(trace, run_directory, metadata)
    output = Output(trace, base_ns, settings.level, metadata or {})
    due = {file.name_for(trace): file for file in files if file.export in export_types}
    for name in {file.name_for(trace) for file in files} - set(due):
        (folder / name).unlink(missing_ok=True)
    # Two threads: printing is native code outside the interpreter lock, and much of the rest is the kernel's copying.
    # The tables that several outputs read are loaded here, once.
    for table in ("ops", "kernels", "memory"):
        # A table that cannot be loaded fails the outputs that need it, and only those.
        with contextlib.suppress(Exception):
            trace.table(table)
    with ThreadPoolExecutor(_THREADS) as pool:
        # The database takes as long as all text files together, so it begins first.
        running = {
            name: pool.submit(_write_due, file, output, settings, folder / name, on_output, on_failure)
            for name, file in sorted(due.items(), key=lambda item: item[1].export != DATABASE)
        }
        statuses = {name: running[name].result() for name in due}
    more = {"level": settings.level, "export_types": list(export_types), TIME_BASE_KEY: base_ns, "notes": list(settings.notes)}
    write_status(run_directory, statuses, **more, **({"missing": missing, "complete": False} if missing else {}))
    if complete(statuses) and not missing:
        rundir.write_bytes(folder / rundir.COMPLETION_MARKER, b"")
    return statuses


def complete(statuses: Mapping[str, OutputStatus]) -> bool:
    """Whether everything that was due exists: nothing failed and something was written."""
    status_names = {status.status for status in statuses.values()}
    return DONE in status_names and FAILED not in status_names


def output_directory(run_directory: Path) -> Path:
    """The result folder of a run directory, created with mode 0750 where it is missing.

    Raises:
        InputError: something else has its name; a link there could lead anywhere.
    """
    folder = run_directory / rundir.OUTPUT_DIRECTORY
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(folder, "is not a directory of its own", "Remove it and analyse again")
    return rundir.make_directory(folder)


def write_rank(run_directory: Path, rank: int) -> None:
    """Write the ``profiler_info*.json`` by which tools know the rank of a run directory; -1 is none."""
    name = f"{rundir.INFO_PREFIX}_{rank}.json" if rank >= 0 else f"{rundir.INFO_PREFIX}.json"
    rundir.write_json(run_directory / name, {"rank_id": rank} if rank >= 0 else {}, indent=4)


def write_status(run_directory: Path, statuses: Mapping[str, OutputStatus], **more: Any) -> None:
    """Write ``analyse_status.json``: what became of each output, and ``more``."""
    outputs = {name: asdict(status) for name, status in statuses.items()}
    value = {"result_version": RESULT_VERSION, "complete": complete(statuses), **more, "outputs": outputs}
    rundir.write_json(output_directory(run_directory) / rundir.STATUS_FILE, value, indent=2)


def _write_due(
    file: OutputFile,
    output: Output,
    settings: Settings,
    path: Path,
    on_output: Callable[[str], None],
    on_failure: Callable[[str, BaseException], None],
) -> OutputStatus:
    begin = time.perf_counter()
    if reason := why_not_due(file, settings):
        status = OutputStatus(SKIPPED, reason)
    else:
        on_output(path.name)
        status = write_file(path, partial(file.write, output), on_failure)
    if status.status != DONE:
        # an older result's file beside newer ones would pass for one of them
        path.unlink(missing_ok=True)
        return status
    return replace(status, seconds=round(time.perf_counter() - begin, 6))


def write_file(
    path: Path, write: Callable[[Path], None], on_failure: Callable[[str, BaseException], None] = lambda name, error: None
) -> OutputStatus:
    """Write one file, whole or not at all, and say what became of it. Never raises for what is wrong with its data.

    Args:
        path: the file.
        write: writes it to a path; raises NothingToWriteError where its source is missing.
        on_failure: called with its name and the exception if it failed.
    """
    try:
        with rundir.atomic_path(path) as temporary:
            write(temporary)
    except NothingToWriteError as nothing:
        return OutputStatus(SKIPPED, str(nothing))
    # The boundary between outputs: whatever goes wrong in one, a panic of polars included, the others are written.
    except (Exception, pl.exceptions.PanicException) as error:
        on_failure(path.name, error)
        return OutputStatus(FAILED, " ".join(f"{type(error).__name__}: {error}".split()))
    return OutputStatus(DONE, "", path.stat().st_size)


def _read_metadata(run_directory: Path) -> dict[str, Any] | None:
    """What ``profiler_metadata.json`` holds; None where it is damaged."""
    try:
        metadata = json_text.loads((run_directory / rundir.METADATA_FILE).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        return None
    return metadata if isinstance(metadata, dict) else None


def _time_base(trace: Trace, run_directory: Path, metadata: dict[str, Any] | None) -> int:
    """The recorded time base, or the computed one, which is then recorded for other tools and later analyses."""
    if metadata is None:
        # a damaged file may still hold something for a human, so it is left alone
        return time_base_ns(trace)
    base_ns = time_base_ns(trace, metadata.get(TIME_BASE_KEY))
    if metadata.get(TIME_BASE_KEY) != base_ns:
        with contextlib.suppress(OSError):
            rundir.write_json(run_directory / rundir.METADATA_FILE, {**metadata, TIME_BASE_KEY: base_ns}, indent=4)
    return base_ns
