"""Writes the result files of one run."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from logging.handlers import RotatingFileHandler
from pathlib import Path

from steplens.analysis.stored_figures import find_contradictions
from steplens.common import rundir
from steplens.common.errors import DefectError, InputError
from steplens.common.storage.files import is_remote, read_bytes
from steplens.offline.outcome import RunResult, one_line, polars_panic, recorded_findings
from steplens.offline.recompute import compare_results
from steplens.offline.settings import is_complete, keep_complete, read_settings, seems_complete
from steplens.offline.simplify import simplify
from steplens.readers import contents, detect
from steplens.readers.ascend.msprof_command import find_msprof
from steplens.readers.common.run_info import info_files
from steplens.readers.common.side_files import read_json
from steplens.readers.reader import AnyCapture
from steplens.timeline.prebuild import lay_out
from steplens.trace.health import ERROR, EVERYTHING, HealthFinding
from steplens.trace.trace import Trace
from steplens.writers.result import (
    TEXT,
    Settings,
    complete,
    output_directory,
    with_databases,
    write_rank,
    write_result,
    write_status,
)

#: folder of recomputed results in the current directory
RECOMPUTED = "recomputed"
LEFT_ALONE = "holds the results of another analysis, which stay as they are; --recompute computes them again elsewhere"

NOT_OURS = (
    "its results were not made here by this user and are not checked: its folder is closed to writing, so they stay as they are; "
    "--out FOLDER makes them again elsewhere"
)

_SIDE_FILE_BYTES = 64 << 20
_LOG_BYTES = 10 * 1024 * 1024
_LOG_BACKUPS = 3


def analyse_run(
    path: Path, export_types: Sequence[str] | None = None, *, force: bool = False, target: Path | None = None
) -> RunResult:
    """Write the result files of one run; see ``analyse``. Never raises for what is wrong with the run.

    Args:
        path: run directory, lone result folder or trace file.
        export_types: "text", "db"; None is what the run was recorded with.
        force: also when the result is complete.
        target: run directory that gets the results; the run's own by default.
    """
    begin = time.perf_counter()
    try:
        capture = source_of(detect.find_one(path))
        settings, recorded_exports = read_settings(path)
        exports = list(export_types) if export_types is not None else recorded_exports
        if target is not None and export_types is None and TEXT not in exports:
            # what is recomputed is compared, and text is what can be compared
            exports = [TEXT, *exports]
        if target is None and detect.raw_of(capture) is not capture:
            return _as_it_is(capture, settings, exports, force)
        if target is None and not in_place(capture):
            return RunResult(path, True, already_complete=True, note=LEFT_ALONE, written_to=path)
        exports = with_databases(exports)
        if not force and target is None and seems_complete(path, settings, sources := detect.sources(capture), exports):
            own = is_complete(path, settings, sources, exports)
            if own or not _is_open(path):
                note = "" if own else NOT_OURS
                seconds = time.perf_counter() - begin
                return RunResult(path, True, already_complete=True, note=note, written_to=path, seconds=seconds)
        into = path if target is None else _prepare_directory(capture, target)
        with _run_log(into) as logger:
            result = _analyse_run(capture, into, settings, exports, logger)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        remedy = "Free some space or change its permissions and analyse again, or give another --out folder"
        where = InputError(error.filename or target or path, f"cannot be read or written: {reason}", remedy)
        return RunResult(path, False, problem=one_line(where), seconds=time.perf_counter() - begin, written_to=target)
    except (Exception, polars_panic()) as error:  # the boundary between runs: the others are analysed whatever happens here
        return RunResult(path, False, problem=one_line(error), seconds=time.perf_counter() - begin)
    return replace(result, seconds=round(time.perf_counter() - begin, 6))


class _LogFile(RotatingFileHandler):
    """A log that fills no terminal when its disk is full or gone: the outputs that fail for the same reason say so."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Leave the record out."""

    def close(self) -> None:
        """Close the file; what it could not take is lost."""
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def _run_log(path: Path) -> Iterator[logging.Logger]:
    """The log of one analysis in the run directory; its first line states the path."""
    logger = logging.Logger(f"steplens.analyse.{path.name}", logging.INFO)
    folder = path / rundir.LOG_DIRECTORY
    if folder.is_symlink():
        raise InputError(folder, "is a link, so the log could end anywhere", "Remove it and analyse again")
    rundir.make_directory(folder)
    file = folder / f"profiler_{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}_analyse.log"
    handler = _LogFile(file, maxBytes=_LOG_BYTES, backupCount=_LOG_BACKUPS, encoding="utf-8")
    file.chmod(rundir.FILE_MODE)
    handler.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s] [%(process)d] %(message)s"))
    logger.addHandler(handler)
    try:
        logger.info("analysing %s", path.absolute())
        yield logger
    except BaseException:  # goes on: the log has it first
        logger.exception("analysis stopped")
        raise
    finally:
        handler.close()


def _is_open(path: Path) -> bool:
    """Whether results can be made again where they are."""
    there = (path, path / rundir.OUTPUT_DIRECTORY)
    return all(os.access(folder, os.W_OK | os.X_OK) and folder.stat().st_mode & rundir.ANYBODY_WRITES for folder in there)


def source_of(capture: AnyCapture) -> AnyCapture:
    """What results are made from: after data simplification the raw data again, where there is an msprof to export it."""
    raw = detect.raw_of(capture)
    if raw is not capture:
        with contextlib.suppress(InputError):
            find_msprof()
            return raw
    return capture


def _as_it_is(capture: AnyCapture, settings: Settings, exports: Sequence[str], force: bool) -> RunResult:
    """A run whose results are the only readable form of its device data: they are never written over."""
    current = is_complete(capture.path, settings, detect.sources(detect.raw_of(capture)), with_databases(exports))
    status = read_json(capture.path / rundir.OUTPUT_DIRECTORY / rundir.STATUS_FILE)
    # an older steplens may have made them, but they are all that there is
    there = status.get("export_types")
    why = "data simplification removed the exported device data, and there is no msprof here to export it again"
    if not isinstance(there, list) or not set(exports) <= set(map(str, there)):
        kinds = " and ".join(exports)
        raise InputError(
            capture.path, f"has no complete {kinds} results: {why}", "Analyse it where CANN is, or give another --out folder"
        )
    note = f"{why}, so the results stay as they are" if force or not current else ""
    return RunResult(capture.path, True, already_complete=True, note=note, written_to=capture.path)


def in_place(capture: AnyCapture) -> bool:
    """Whether the results of a capture belong into its own run directory: it is raw data, and nobody else's results are there."""
    if not capture.reader.in_place:
        return False
    there = contents.contents_of(capture.path)
    return there.own or not (there.text or there.databases)


def _prepare_directory(capture: AnyCapture, target: Path) -> Path:
    """Create the run directory of recomputed results, with the side files that other tools know the rank by."""
    rundir.make_directory(target)
    if capture.path.is_dir():
        for file in (*info_files(capture.path), capture.path / rundir.METADATA_FILE):
            if file.is_file() and file.stat().st_size < _SIDE_FILE_BYTES:
                rundir.write_bytes(target / file.name, read_bytes(file))
    else:
        write_rank(target, detect.load(capture).recorded_rank)
    return target


def _analyse_run(
    capture: AnyCapture, into: Path, settings: Settings, exports: Sequence[str], logger: logging.Logger
) -> RunResult:
    try:
        trace = detect.load(capture, allow_msprof=not is_remote(capture.path))
    except InputError as error:
        logger.error("%s", error, exc_info=isinstance(error, DefectError))
        if _is_simplified(capture) and into == capture.path:
            raise
        return _write_unreadable_status(capture.path, into, settings, error)
    _give_memory_back()
    missing = _describe_unexported_data(capture)
    if missing and _is_simplified(capture) and into == capture.path:
        # the results that are there hold more than new ones would
        raise InputError(capture.path, f"cannot be analysed again: {missing}; its results stay as they are", "See its logs")
    statuses = write_result(
        trace,
        into,
        settings,
        export_types=exports,
        missing=missing,
        on_output=lambda name: logger.info("writing %s", name),
        on_failure=lambda name, error: logger.error("%s failed", name, exc_info=error),
    )
    for name, status in statuses.items():
        logger.info("%s: %s %s (%d bytes, %.3f s)", name, status.status, status.reason, status.bytes, status.seconds)
    compared = compare_results(capture, trace, into) if into != capture.path else ()
    findings = (*recorded_findings(trace), *find_contradictions(trace))
    ok = complete(statuses) and not missing
    if ok and (into == capture.path or _is_simplified(capture)):
        _simplify_run(capture.path, logger)
    if ok and into == capture.path:
        # what is left of it now is what the next analysis will look at
        keep_complete(into, detect.sources(detect.raw_of(detect.find_one(into))))
    _lay_out(trace, logger)
    return RunResult(capture.path, ok, statuses, findings=findings, written_to=into, comparison=compared)


def _is_simplified(capture: AnyCapture) -> bool:
    """Whether the run had complete results and nothing else of its device data when its analysis began."""
    return isinstance(capture.where, contents.Contents) and capture.where.simplified


def _simplify_run(path: Path, logger: logging.Logger) -> None:
    """Remove what the run's option ``data_simplification`` asks to remove, now that its results are complete."""
    done = simplify(path)
    for name in done.removed:
        logger.info("data simplification removed %s", name)
    for sentence in done.kept:
        logger.warning("data simplification kept %s", sentence)
    for name, size in done.raw.items():
        logger.info("data simplification leaves %s (%d bytes): raw data of the host cannot be made again", name, size)


def _lay_out(trace: Trace, logger: logging.Logger) -> None:
    """Keep the timeline of a large trace, so that ``view`` shows it at once; without it that takes longer, and nothing else."""
    begin = time.perf_counter()
    try:
        file = lay_out(trace)
    except (Exception, polars_panic()):  # the boundary between results and what is kept for view
        logger.exception("the timeline could not be laid out")
        return
    if file is not None:
        logger.info("%s: laid out (%d bytes, %.3f s)", file.name, file.stat().st_size, time.perf_counter() - begin)


def _give_memory_back() -> None:
    """Give what reading has freed back to the system, where the C library can (glibc): it would count into the peak."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _describe_unexported_data(capture: AnyCapture) -> str:
    """Which recorded device data only CANN can read, in one sentence; empty when there is none."""
    if capture.path.is_dir() and capture.reader.in_place:
        there = contents.contents_of(capture.path)
        if there.prof and not there.exported:
            return f"the device data of {there.prof[0]} has not been exported by msprof"
    return ""


def _write_unreadable_status(path: Path, into: Path, settings: Settings, error: InputError) -> RunResult:
    """Leave a status that says why there is no result; an older marker would contradict it."""
    state = read_json(path / rundir.RAW_DIRECTORY / rundir.STATE_FILE).get("state")
    check = "window_lost" if state == rundir.STATE_RECORDING else "unreadable"
    finding = HealthFinding(check, ERROR, 1, error.problem, EVERYTHING)
    (output_directory(into) / rundir.COMPLETION_MARKER).unlink(missing_ok=True)
    write_status(into, {}, level=settings.level, problem=error.problem, notes=list(settings.notes), health=[asdict(finding)])
    return RunResult(path, False, problem=str(error), findings=(finding,))
