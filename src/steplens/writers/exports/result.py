"""A run directory with the result files of a trace: ``ASCEND_PROFILER_OUTPUT`` as text or as databases."""

from __future__ import annotations

import contextlib
from pathlib import Path

from steplens.common import rundir
from steplens.common.errors import SteplensError
from steplens.readers.common.run_info import info_files
from steplens.trace.recorded_options import options_of
from steplens.trace.trace import Trace
from steplens.writers.common.output import LEVEL0, LEVEL1, LEVEL2, LEVEL_NONE, NothingToWriteError, first_event_ns
from steplens.writers.database.database import TOO_EARLY
from steplens.writers.exports.subject import Subject
from steplens.writers.result import DATABASE, DONE, FAILED, Settings, write_rank, write_result

_SIDE_FILE_BYTES = 64 << 20


def write(subject: Subject, folder: Path, export_type: str) -> None:
    """Write the result files of the level that the run was recorded with, and the side files that tell tools the rank.

    Args:
        subject: the trace, and where its side files are.
        folder: empty run directory.
        export_type: "text" or "db".

    Raises:
        NothingToWriteError: none of the files has anything to hold, or a database cannot hold the times.
        SteplensError: some of them failed.
    """
    trace = subject.trace
    if export_type == DATABASE and (first_event_ns(trace) or 0) < 0:
        # analysis.db alone would pass for the whole
        raise NothingToWriteError(TOO_EARLY)
    _copy_side_files(subject, folder)
    statuses = write_result(trace, folder, Settings(level=recorded_level(trace)), export_types=(export_type,))
    failed = [f"{name} ({status.reason})" for name, status in statuses.items() if status.status == FAILED]
    if failed:
        raise SteplensError(f"{subject.path}: {len(failed)} of the result's files could not be written: {', '.join(failed)}")
    if not any(status.status == DONE for status in statuses.values()):
        raise NothingToWriteError("no result file has anything to hold")


def recorded_level(trace: Trace) -> str:
    """The profiler level of the run; Level1, which shows most of what a trace can hold, of a source that has none."""
    level = options_of(trace.meta_value("config")).level
    return level if level in (LEVEL_NONE, LEVEL0, LEVEL1, LEVEL2) else LEVEL1


def _copy_side_files(subject: Subject, folder: Path) -> None:
    source = subject.path
    side_files = [*info_files(source), source / rundir.METADATA_FILE] if source.is_dir() else []
    for file in side_files:
        # what a tool knows the run by is copied as it is; a link could lead anywhere
        if file.is_file() and not file.is_symlink() and file.stat().st_size < _SIDE_FILE_BYTES:
            with contextlib.suppress(PermissionError):
                rundir.write_bytes(folder / file.name, file.read_bytes())
    if not info_files(folder):
        write_rank(folder, subject.trace.recorded_rank)
