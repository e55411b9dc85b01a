"""Turns recorded run directories into results: in a process of its own after collection, or at any time later.

steplens.analyse("result")                           # a run directory or a folder of them
python -m steplens.offline analyse RUN_DIR
python -m steplens.offline chrome RUN_DIR trace.json.gz
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

from steplens import rundir
from steplens.collect import log
from steplens.errors import InputError, SteplensError
from steplens.readers import run_directory
from steplens.readers.detect import load_trace
from steplens.trace.health import HealthFinding
from steplens.trace.trace import Trace
from steplens.writers import trace_view
from steplens.writers.output import LEVEL0, LEVEL1, LEVEL2, LEVEL_NONE, Output, time_base_ns
from steplens.writers.result import (
    FAILED,
    RESULT_VERSION,
    OutputStatus,
    Settings,
    complete,
    output_directory,
    write_result,
    write_status,
)

_TEXT = "text"
_DATABASE = "db"
_NO_DATABASE = "database export is not available yet"

_LOG_BYTES = 10 * 1024 * 1024
_LOG_BACKUPS = 3

EXIT_BAD_INPUT = SteplensError.exit_code
#: some runs or outputs were written and others failed
EXIT_PARTIAL = 3


@dataclass(frozen=True)
class RunResult:
    """What became of one run directory.

    Attributes:
        path: the run directory.
        ok: every output that was due exists.
        outputs: file name -> status; empty when the run could not be read, or was complete already.
        seconds: wall time of reading and writing.
        already_complete: nothing was done, because the result was newer than the raw data.
        problem: why the run could not be read, in one sentence; empty when it could.
        findings: findings about the data of a run that could not be read.
    """

    path: Path
    ok: bool
    outputs: dict[str, OutputStatus] = field(default_factory=dict)
    seconds: float = 0.0
    already_complete: bool = False
    problem: str = ""
    findings: tuple[HealthFinding, ...] = ()


def analyse(
    profiler_path: str | os.PathLike[str],
    max_process_number: int | None = None,
    export_type: str | Sequence[str] | None = None,
    *,
    force: bool = False,
) -> list[RunResult]:
    """Write the result files of every run directory in ``profiler_path``.

    A run whose result is complete and newer than its raw data is left alone, so an interrupted analysis goes on where
    it stopped. A run that cannot be read, such as one whose process was killed while its window was open, does not
    keep the others from being analysed.

    Args:
        profiler_path: a run directory, or a folder that holds some.
        max_process_number: how many runs are analysed at a time; half of the cores by default and for invalid values.
        export_type: "text", "db" or a list of them; None is what the run was recorded with.
        force: analyse complete runs again.

    Returns:
        one entry per run directory, sorted by name.

    Raises:
        InputError: the path does not exist or holds no run directory.
    """
    runs = _find_runs(Path(profiler_path))
    exports = _export_types(export_type)
    workers = min(_process_number(max_process_number), len(runs))
    with _progress(len(runs)) as advance:
        # A daemon process, such as a data loading worker, may not have children.
        if workers == 1 or multiprocessing.current_process().daemon:
            return [_and_report(analyse_run(path, exports, force=force), advance) for path in runs]
        return _in_processes(runs, exports, force, workers, advance)


def analyse_run(path: Path, export_types: Sequence[str] | None = None, *, force: bool = False) -> RunResult:
    """Write the result files of one run directory; see ``analyse``. Never raises for what is wrong with the run."""
    begin = time.perf_counter()
    try:
        settings, recorded_exports = read_settings(path)
        exports = list(export_types) if export_types is not None else recorded_exports
        if not force and is_complete(path, settings):
            return RunResult(path, True, already_complete=True, seconds=time.perf_counter() - begin)
        with _run_log(path) as logger:
            result = _analyse_run(path, settings, exports, logger)
    except (Exception, _polars_panic()) as error:  # the boundary between runs: the others are analysed whatever happens here
        return RunResult(path, False, problem=_one_line(error), seconds=time.perf_counter() - begin)
    return RunResult(**{**vars(result), "seconds": round(time.perf_counter() - begin, 6)})


def _analyse_run(path: Path, settings: Settings, exports: Sequence[str], logger: logging.Logger) -> RunResult:
    try:
        trace = load_trace(path)
    except InputError as error:
        logger.error("%s", error)
        return _unreadable(path, settings, error)
    unavailable = {_database_name(trace): _NO_DATABASE} if _DATABASE in exports else {}
    if unavailable:
        log.warning(f"{_NO_DATABASE}; text files are written for {path}")
    statuses = write_result(
        trace,
        path,
        settings,
        unavailable=unavailable,
        on_output=lambda name: logger.info("writing %s", name),
        on_failure=lambda name, error: logger.error("%s failed", name, exc_info=error),
    )
    for name, status in statuses.items():
        logger.info("%s: %s %s (%d bytes, %.3f s)", name, status.status, status.reason, status.bytes, status.seconds)
    return RunResult(path, complete(statuses), statuses)


def _unreadable(path: Path, settings: Settings, error: InputError) -> RunResult:
    """Leave a status that says why there is no result; an older marker would contradict it."""
    state = run_directory.read_json(path / rundir.RAW_DIRECTORY / rundir.STATE_FILE).get("state")
    check = "window_lost" if state == rundir.STATE_RECORDING else "unreadable"
    finding = HealthFinding(check, "error", 1, error.problem, "everything of this window")
    (output_directory(path) / rundir.COMPLETION_MARKER).unlink(missing_ok=True)
    write_status(path, {}, level=settings.level, problem=error.problem, notes=list(settings.notes), health=[asdict(finding)])
    return RunResult(path, False, problem=str(error), findings=(finding,))


def read_settings(path: Path) -> tuple[Settings, list[str]]:
    """How a run was collected, and the export types it was recorded with, from its ``profiler_info*.json``.

    Without that file every output of Level0 is written, and the status says so.
    """
    files = sorted(path.glob(f"{rundir.INFO_PREFIX}*.json"))
    info = run_directory.read_json(files[0]) if files else {}
    config = info.get("config")
    common = config.get("common_config") if isinstance(config, dict) else None
    experimental = config.get("experimental_config") if isinstance(config, dict) else None
    common = common if isinstance(common, dict) else {}
    experimental = experimental if isinstance(experimental, dict) else {}
    notes = []
    if not files:
        notes.append(f"{rundir.INFO_PREFIX}.json is missing in {path.name}, {LEVEL0} is assumed")
    level = experimental.get("_profiler_level")
    if level not in (LEVEL_NONE, LEVEL0, LEVEL1, LEVEL2):
        if files:
            notes.append(f"{files[0].name} names no known profiler level, {LEVEL0} is assumed")
        level = LEVEL0
    activities = common.get("activities")
    switches = {key: value for key, value in common.items() if isinstance(value, bool)}
    settings = Settings(
        level=level,
        switches=switches,
        activities=tuple(str(item).rpartition(".")[2] for item in activities) if isinstance(activities, list) else (),
        notes=tuple(notes),
    )
    exports = experimental.get("_export_type")
    exports = [exports] if isinstance(exports, str) else exports
    return settings, [item for item in exports if item in (_TEXT, _DATABASE)] if isinstance(exports, list) else [_TEXT]


def is_complete(path: Path, settings: Settings) -> bool:
    """Whether a run has a complete result that is newer than its raw data and of the same level and result version."""
    folder = path / rundir.OUTPUT_DIRECTORY
    try:
        marker_ns = (folder / rundir.COMPLETION_MARKER).stat().st_mtime_ns
        newest_ns = max(source.stat().st_mtime_ns for source in run_directory.sources(path))
    except (OSError, ValueError):
        return False
    status = run_directory.read_json(folder / rundir.STATUS_FILE)
    outputs = status.get("outputs")
    if marker_ns < newest_ns or status.get("level") != settings.level or status.get("result_version") != RESULT_VERSION:
        return False
    if not isinstance(outputs, dict):
        return False
    done = [name for name, output in outputs.items() if isinstance(output, dict) and output.get("status") == "done"]
    return bool(done) and all((folder / name).is_file() for name in done)


def export_chrome_trace(source: str | os.PathLike[str] | Trace, path: str | os.PathLike[str]) -> None:
    """Write the array of trace_view.json to any path; compressed when its name ends in ``.gz``.

    Args:
        source: a run directory, a trace file, or a trace.
        path: the file; missing folders are created.

    Raises:
        InputError: the source cannot be read.
    """
    target = Path(path)
    if isinstance(source, Trace):
        trace, level, recorded = source, LEVEL1, None
    else:
        folder = Path(source)
        trace = load_trace(folder)
        level = read_settings(folder)[0].level if folder.is_dir() else LEVEL1
        recorded = run_directory.read_json(folder / rundir.METADATA_FILE).get("base_time_ns") if folder.is_dir() else None
    output = Output(trace, time_base_ns(trace, recorded), level)
    rundir.make_directory(target.absolute().parent)
    with rundir.atomic_path(target) as temporary, _open(temporary, compressed=target.suffix == ".gz") as handle:
        trace_view.write_events(output, handle)


@contextlib.contextmanager
def _open(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as file:
        if not compressed:
            yield file
            return
        # a low level: the highest ones double the time for a few percent of the size
        with gzip.GzipFile(filename="", mode="wb", compresslevel=3, fileobj=file) as handle:
            yield handle  # type: ignore[misc]


def _find_runs(path: Path) -> list[Path]:
    if not path.exists():
        raise InputError(path, "does not exist", "Check the path")
    if not path.is_dir():
        raise InputError(path, "is not a directory", "Give a run directory (its name ends in _ascend_pt) or a folder of them")
    runs = rundir.find_run_directories(path)
    if not runs:
        raise InputError(path, "holds no run", "Give a run directory (its name ends in _ascend_pt) or a folder of them")
    return runs


def _export_types(given: str | Sequence[str] | None) -> list[str] | None:
    if given is None:
        return None
    items = [str(getattr(item, "value", item)) for item in ([given] if isinstance(given, str) else given)]
    wrong = [item for item in items if item not in (_TEXT, _DATABASE)]
    if wrong or not items:
        log.warning(f"export_type {given!r} is not {_TEXT!r}, {_DATABASE!r} or a list of them, the recorded one is used")
        return None
    return items


def _process_number(given: int | None) -> int:
    cores = os.cpu_count() or 1
    default = max(cores // 2, 1)
    if given is None:
        return default
    if type(given) is not int or not 0 < given <= cores:
        log.warning(f"max_process_number {given!r} is not between 1 and {cores}, {default} is used")
        return default
    return given


def _in_processes(
    runs: Sequence[Path], exports: list[str] | None, force: bool, workers: int, advance: Callable[[], None]
) -> list[RunResult]:
    """Analyse runs in a pool. A fork would copy the locks of whatever threads the caller has, so workers are spawned."""
    results: dict[Path, RunResult] = {}
    context = multiprocessing.get_context("spawn")
    # A broken pool fails all of its futures at once; what its workers left is dealt with below.
    with ProcessPoolExecutor(max_workers=workers, mp_context=context) as pool, contextlib.suppress(BrokenProcessPool):
        futures: dict[Future[RunResult], Path] = {pool.submit(analyse_run, path, exports, force=force): path for path in runs}
        for future in as_completed(futures):
            results[futures[future]] = _and_report(future.result(), advance)
    left = [path for path in runs if path not in results]
    if left and not results:
        # Workers cannot even start: typically a script without ``if __name__ == "__main__":``, which they import.
        log.warning("analysis processes could not be started, the runs are analysed one after the other")
        results.update((path, _and_report(analyse_run(path, exports, force=force), advance)) for path in left)
    else:
        for path in left:
            problem = "its analysis process died, possibly for lack of memory; analyse it alone"
            results[path] = _and_report(RunResult(path, False, problem=f"{path}: {problem}"), advance)
    return [results[path] for path in runs]


def _and_report(result: RunResult, advance: Callable[[], None]) -> RunResult:
    """Say what failed as soon as it is known."""
    advance()
    if result.problem:
        log.error(result.problem)
    for name, status in result.outputs.items():
        if status.status == FAILED:
            log.error(f"{result.path}: {name} was not written: {status.reason}")
    return result


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A progress bar over the runs, where somebody is looking."""
    if total < 2 or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("analysing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("analysing", total=total)
        yield lambda: progress.advance(task)


@contextlib.contextmanager
def _run_log(path: Path) -> Iterator[logging.Logger]:
    """The log of one analysis in the run directory; its first line states the path."""
    logger = logging.Logger(f"steplens.analyse.{path.name}", logging.INFO)
    folder = path / rundir.LOG_DIRECTORY
    if folder.is_symlink():
        raise InputError(folder, "is a link, so the log could end anywhere", "Remove it and analyse again")
    rundir.make_directory(folder)
    file = folder / f"profiler_{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}_analyse.log"
    handler = RotatingFileHandler(file, maxBytes=_LOG_BYTES, backupCount=_LOG_BACKUPS, encoding="utf-8")
    file.chmod(rundir.FILE_MODE)
    handler.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s] [%(process)d] %(message)s"))
    logger.addHandler(handler)
    try:
        logger.info("analysing %s", path.absolute())
        yield logger
    except BaseException:
        logger.exception("analysis stopped")
        raise
    finally:
        handler.close()


def _database_name(trace: Trace) -> str:
    return f"ascend_pytorch_profiler_{trace.rank}.db" if trace.rank >= 0 else "ascend_pytorch_profiler.db"


def _polars_panic() -> type[BaseException]:
    import polars as pl

    return pl.exceptions.PanicException


def _one_line(error: BaseException) -> str:
    text = str(error) if isinstance(error, SteplensError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line of ``python -m steplens.offline``; see the module.

    Returns:
        0 when every run is complete, 3 when only some runs or outputs could be written, 2 when none could.
    """
    parser = argparse.ArgumentParser(prog="python -m steplens.offline", description="Turn recorded runs into results.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("analyse", help="write the result files of a run directory or a folder of them")
    command.add_argument("path", type=Path)
    command.add_argument("--force", action="store_true", help="analyse again what is complete already")
    command = commands.add_parser("chrome", help="write the timeline of a run directory to one file")
    command.add_argument("path", type=Path)
    command.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    try:
        if options.command == "chrome":
            export_chrome_trace(options.path, options.out)
            return 0
        return exit_code(analyse(options.path, force=options.force))
    # The boundary to the shell, or to the training process that started this one: one line, no traceback.
    except (Exception, _polars_panic()) as error:
        print(f"steplens: {_one_line(error)}", file=sys.stderr)
        return EXIT_BAD_INPUT


def exit_code(results: Sequence[RunResult]) -> int:
    """0 when every run is complete, 3 when only some runs or outputs could be written, 2 when none could."""
    if all(result.ok for result in results):
        return 0
    written = any(result.ok or any(status.status == "done" for status in result.outputs.values()) for result in results)
    return EXIT_PARTIAL if written else EXIT_BAD_INPUT


if __name__ == "__main__":
    # Under its real name: the worker processes exchange objects of classes of this module.
    from steplens import offline

    sys.exit(offline.main())
