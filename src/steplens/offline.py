"""Turns recorded data into results: in a process of its own after collection, or at any time later.

steplens.analyse("result")                           # a run directory or a folder of them
steplens.analyse("capture", recompute=True)          # results of another profiler, computed again beside them
python -m steplens.offline analyse RUN_DIR
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
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

from steplens import mindspore_results, parent, rundir
from steplens.collect import log
from steplens.errors import InputError, SteplensError
from steplens.readers import contents, detect, run_directory
from steplens.readers.msprof_command import find_msprof
from steplens.recompute import Comparison, compare
from steplens.simplify import simplify
from steplens.trace.health import ERROR, EVERYTHING, INFO, HealthFinding
from steplens.writers.mindspore_result import PIPELINE_OUTPUT
from steplens.writers.output import LEVEL0, LEVEL1, LEVEL2, LEVEL_NONE
from steplens.writers.result import (
    DONE,
    FAILED,
    OUTPUT_FILES,
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

_RECOMPUTED = "recomputed"
_SIDE_FILE_BYTES = 64 << 20

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
        written_to: the run directory that holds the results; that of the run itself unless they were recomputed.
        already_complete: nothing was done, because the result was newer than the raw data.
        note: what the user should know about it, in one sentence.
        comparison: recomputed results beside those that the capture brought along.
        problem: why the run could not be read, in one sentence; empty when it could.
        findings: findings about the data.
    """

    path: Path
    ok: bool
    outputs: dict[str, OutputStatus] = field(default_factory=dict)
    seconds: float = 0.0
    written_to: Path | None = None
    already_complete: bool = False
    note: str = ""
    comparison: tuple[Comparison, ...] = ()
    problem: str = ""
    findings: tuple[HealthFinding, ...] = ()


def analyse(
    profiler_path: str | os.PathLike[str],
    max_process_number: int | None = None,
    export_type: str | Sequence[str] | None = None,
    *,
    force: bool = False,
    recompute: bool = False,
    output: str | os.PathLike[str] | None = None,
) -> list[RunResult]:
    """Write the result files of everything in ``profiler_path``.

    Raw data gets its results into its own run directory. A run whose result is complete and newer than its raw data is
    left alone, so an interrupted analysis goes on where it stopped. A run that cannot be read, such as one whose process
    was killed while its window was open, does not keep the others from being analysed.

    The results of another profiler are never changed: new ones are written only with ``recompute`` or ``output``, into a
    folder of their own, and compared with those that are there. The same holds for a trace file.

    Args:
        profiler_path: a run directory, a folder that holds some, or a trace file.
        max_process_number: how many runs are analysed at a time; half of the cores by default and for invalid values.
        export_type: "text", "db" or a list of them; None is what the run was recorded with.
        force: analyse complete runs again.
        recompute: like ``force``, and compute again what holds results only.
        output: folder for the results, one run directory each, in place of the runs' own; "recomputed" in the current
            directory where one is needed and none is given.

    Returns:
        one entry per run, in order of path.

    Raises:
        InputError: the path does not exist or holds nothing that steplens reads.
    """
    top = Path(profiler_path)
    folder = None if output is None else Path(output)
    ranks = [] if top.is_file() else [found for found in detect.find_traces(top) if found.part]
    jobs = _jobs(top, recompute=recompute, output=folder)
    exports = _export_types(export_type)
    force = force or recompute
    workers = min(_process_number(max_process_number), len(jobs))
    if ranks:
        with _progress(len(ranks)) as advance:
            shared = [_and_report(_analyse_rank(found, exports, force, recompute, folder), advance) for found in ranks]
        return [*shared, *(analyse_run(path, exports, force=force, target=target) for path, target in jobs)]
    with _progress(len(jobs)) as advance:
        # A daemon process, such as a data loading worker, may not have children.
        if workers == 1 or multiprocessing.current_process().daemon:
            return [_and_report(analyse_run(path, exports, force=force, target=target), advance) for path, target in jobs]
        return _in_processes(jobs, exports, force, workers, advance)


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
        found = _source(detect.find_one(path))
        settings, recorded_exports = read_settings(path)
        exports = list(export_types) if export_types is not None else recorded_exports
        if target is not None and export_types is None and _TEXT not in exports:
            # what is recomputed is compared, and text is what can be compared
            exports = [_TEXT, *exports]
        if target is None and detect.raw_of(found) is not found:
            return _as_it_is(found, settings, exports, force)
        if target is None and not _in_place(found):
            note = "holds the results of another analysis, which stay as they are; --recompute computes them again elsewhere"
            return RunResult(path, True, already_complete=True, note=note, written_to=path)
        if not force and target is None and is_complete(path, settings, detect.sources(found), exports):
            return RunResult(path, True, already_complete=True, written_to=path, seconds=time.perf_counter() - begin)
        into = path if target is None else _prepare(found, target)
        with _run_log(into) as logger:
            result = _analyse_run(found, into, settings, exports, logger)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        remedy = "Free some space or change its permissions and analyse again, or give another --output folder"
        where = InputError(error.filename or target or path, f"cannot be read or written: {reason}", remedy)
        return RunResult(path, False, problem=_one_line(where), seconds=time.perf_counter() - begin, written_to=target)
    except (Exception, _polars_panic()) as error:  # the boundary between runs: the others are analysed whatever happens here
        return RunResult(path, False, problem=_one_line(error), seconds=time.perf_counter() - begin)
    return RunResult(**{**vars(result), "seconds": round(time.perf_counter() - begin, 6)})


def _jobs(top: Path, *, recompute: bool, output: Path | None) -> list[tuple[Path, Path | None]]:
    """Every run below ``top`` with the run directory that its results go to; None is its own."""
    if top.is_file() and output is None and not recompute:
        raise InputError(top, "is a trace file, whose results need a folder of their own", "Say where: --output FOLDER")
    jobs: list[tuple[Path, Path | None]] = []
    folder = output or Path(_RECOMPUTED)
    for found in map(_source, detect.find_traces(top)):
        if found.part:
            continue
        target = None
        if output is not None or (recompute and not _in_place(found)):
            inside = found.path.relative_to(top) if found.path != top and top in found.path.parents else Path(found.path.name)
            name = inside.name if inside.name.endswith(rundir.RUN_SUFFIX) else inside.name.split(".")[0] + rundir.RUN_SUFFIX
            target = folder / inside.parent / name
            if target.resolve() == found.path.resolve():
                raise InputError(target, "is the run itself", "Give another output folder")
        jobs.append((found.path, target))
    return jobs


def _source(found: detect.Found) -> detect.Found:
    """What results are made from: after data simplification the raw data again, where there is an msprof to export it."""
    raw = detect.raw_of(found)
    if raw is not found:
        with contextlib.suppress(InputError):
            find_msprof()
            return raw
    return found


def _as_it_is(found: detect.Found, settings: Settings, exports: Sequence[str], force: bool) -> RunResult:
    """A run whose results are the only readable form of its device data: they are never written over."""
    current = is_complete(found.path, settings, detect.sources(detect.raw_of(found)), exports)
    status = run_directory.read_json(found.path / rundir.OUTPUT_DIRECTORY / rundir.STATUS_FILE)
    # an older steplens may have made them, but they are all that there is
    there = status.get("export_types")
    why = "data simplification removed the exported device data, and there is no msprof here to export it again"
    if not isinstance(there, list) or not set(exports) <= set(map(str, there)):
        wanted = " and ".join(exports)
        raise InputError(
            found.path, f"has no complete {wanted} results: {why}", "Analyse it where CANN is, or give another --output folder"
        )
    note = f"{why}, so the results stay as they are" if force or not current else ""
    return RunResult(found.path, True, already_complete=True, note=note, written_to=found.path)


def _analyse_rank(
    found: detect.Found, exports: Sequence[str] | None, force: bool, recompute: bool, output: Path | None
) -> RunResult:
    """Write the results of one rank of a folder that several share: MindSpore's files, or elsewhere those of every run."""
    begin = time.perf_counter()
    try:
        if output is None and mindspore_results.is_raw(found.where):
            if not force and mindspore_results.is_complete(found.where):
                return RunResult(found.path, True, already_complete=True, written_to=found.path)
            made = mindspore_results.analyse_source(found.where, mindspore_results.Options(data_simplification=None))
            seconds = round(time.perf_counter() - begin, 6)
            written = sum(status.status == DONE for status in made.outputs.values())
            note = f"{written} files of number {found.part} in {made.written_to}" if made.written_to is not None else ""
            return RunResult(found.path, not made.failed, made.outputs, seconds, made.written_to, note=note, problem=made.problem)
        if output is None and not recompute:
            note = "holds the results of another analysis, which stay as they are; --recompute computes them again elsewhere"
            return RunResult(found.path, True, already_complete=True, note=note, written_to=found.path)
        into = (output or Path(_RECOMPUTED)) / f"{found.path.name}_{found.part}{rundir.RUN_SUFFIX}"
        trace = detect.load(found)
        rundir.make_directory(into)
        statuses = write_result(
            trace, into, Settings(level=LEVEL1), export_types=exports or [_TEXT], files=(*OUTPUT_FILES, *PIPELINE_OUTPUT)
        )
        findings = tuple(HealthFinding(**row) for row in trace.required("health").collect().iter_rows(named=True))
    except (Exception, _polars_panic()) as error:  # the boundary between ranks
        return RunResult(found.path, False, problem=_one_line(error), seconds=time.perf_counter() - begin)
    seconds = round(time.perf_counter() - begin, 6)
    return RunResult(found.path, complete(statuses), statuses, seconds, into, findings=findings)


def _in_place(found: detect.Found) -> bool:
    """Whether the results of ``found`` belong into its own run directory: it is raw data, and nobody else's results are there."""
    if not found.format.in_place:
        return False
    there = contents.contents_of(found.path)
    return there.own or not (there.text or there.databases)


def _prepare(found: detect.Found, target: Path) -> Path:
    """Create the run directory of recomputed results, with the side files that other tools know the rank by."""
    rundir.make_directory(target)
    if found.path.is_dir():
        for file in (*sorted(found.path.glob(f"{rundir.INFO_PREFIX}*.json")), found.path / rundir.METADATA_FILE):
            if file.is_file() and file.stat().st_size < _SIDE_FILE_BYTES:
                rundir.write_bytes(target / file.name, file.read_bytes())
    else:
        trace = detect.load(found)
        name = f"{rundir.INFO_PREFIX}_{trace.rank}.json" if trace.rank >= 0 else f"{rundir.INFO_PREFIX}.json"
        rundir.write_json(target / name, {"rank_id": trace.rank} if trace.rank >= 0 else {}, indent=4)
    return target


def _analyse_run(
    found: detect.Found, into: Path, settings: Settings, exports: Sequence[str], logger: logging.Logger
) -> RunResult:
    try:
        trace = detect.load(found, allow_msprof=True)
    except InputError as error:
        logger.error("%s", error)
        if _is_simplified(found) and into == found.path:
            raise
        return _unreadable(found.path, into, settings, error)
    _give_memory_back()
    missing = _unexported(found)
    if missing and _is_simplified(found) and into == found.path:
        # the results that are there hold more than new ones would
        raise InputError(found.path, f"cannot be analysed again: {missing}; its results stay as they are", "See its logs")
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
    compared = compare(found, trace, into) if into != found.path else ()
    findings = tuple(HealthFinding(**row) for row in trace.required("health").collect().iter_rows(named=True))
    ok = complete(statuses) and not missing
    if ok and (into == found.path or _is_simplified(found)):
        _simplify(found.path, logger)
    return RunResult(found.path, ok, statuses, findings=findings, written_to=into, comparison=compared)


def _is_simplified(found: detect.Found) -> bool:
    """Whether the run had complete results and nothing else of its device data when its analysis began."""
    return isinstance(found.where, contents.Contents) and found.where.simplified


def _simplify(path: Path, logger: logging.Logger) -> None:
    """Remove what the run's option ``data_simplification`` asks to remove, now that its results are complete."""
    done = simplify(path)
    for name in done.removed:
        logger.info("data simplification removed %s", name)
    for sentence in done.kept:
        logger.warning("data simplification kept %s", sentence)


def _give_memory_back() -> None:
    """Give what reading has freed back to the system, where the C library can (glibc): it would count into the peak."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _unexported(found: detect.Found) -> str:
    """Which recorded device data only CANN can read, in one sentence; empty when there is none."""
    if found.path.is_dir() and found.format.in_place:
        there = contents.contents_of(found.path)
        if there.prof and not there.exported:
            return f"the device data of {there.prof[0]} has not been exported by msprof"
    return ""


def _unreadable(path: Path, into: Path, settings: Settings, error: InputError) -> RunResult:
    """Leave a status that says why there is no result; an older marker would contradict it."""
    state = run_directory.read_json(path / rundir.RAW_DIRECTORY / rundir.STATE_FILE).get("state")
    check = "window_lost" if state == rundir.STATE_RECORDING else "unreadable"
    finding = HealthFinding(check, ERROR, 1, error.problem, EVERYTHING)
    (output_directory(into) / rundir.COMPLETION_MARKER).unlink(missing_ok=True)
    write_status(into, {}, level=settings.level, problem=error.problem, notes=list(settings.notes), health=[asdict(finding)])
    return RunResult(path, False, problem=str(error), findings=(finding,))


def read_settings(path: Path) -> tuple[Settings, list[str]]:
    """How a run was collected, and the export types it was recorded with, from its ``profiler_info*.json``.

    Without that file every output of Level0 is written, and the status says so; of a trace file, every one of Level1.
    """
    if path.is_file():
        return Settings(level=LEVEL1), [_TEXT]
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
    named = {**{key.removeprefix("_"): value for key, value in experimental.items()}, **common}
    switches = {key: value for key, value in named.items() if isinstance(value, bool)}
    settings = Settings(
        level=level,
        switches=switches,
        activities=tuple(str(item).rpartition(".")[2] for item in activities) if isinstance(activities, list) else (),
        notes=tuple(notes),
    )
    exports = experimental.get("_export_type")
    exports = [exports] if isinstance(exports, str) else exports
    return settings, [item for item in exports if item in (_TEXT, _DATABASE)] if isinstance(exports, list) else [_TEXT]


def is_complete(path: Path, settings: Settings, sources: Sequence[Path], exports: Sequence[str]) -> bool:
    """Whether a run has a complete result that is newer than its raw data and of the same level, version and export types."""
    folder = path / rundir.OUTPUT_DIRECTORY
    try:
        marker_ns = (folder / rundir.COMPLETION_MARKER).stat().st_mtime_ns
        newest_ns = max(source.stat().st_mtime_ns for source in sources)
    except (OSError, ValueError):
        return False
    status = run_directory.read_json(folder / rundir.STATUS_FILE)
    outputs = status.get("outputs")
    if marker_ns < newest_ns or status.get("level") != settings.level or status.get("result_version") != RESULT_VERSION:
        return False
    if not isinstance(outputs, dict) or sorted(status.get("export_types", [])) != sorted(set(exports)):
        return False
    done = [name for name, output in outputs.items() if isinstance(output, dict) and output.get("status") == "done"]
    return bool(done) and all((folder / name).is_file() for name in done)


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
    jobs: Sequence[tuple[Path, Path | None]],
    exports: list[str] | None,
    force: bool,
    workers: int,
    advance: Callable[[], None],
) -> list[RunResult]:
    """Analyse runs in a pool. A fork would copy the locks of whatever threads the caller has, so workers are spawned."""
    results: dict[Path, RunResult] = {}
    context = multiprocessing.get_context("spawn")
    # A broken pool fails all of its futures at once; what its workers left is dealt with below.
    with ProcessPoolExecutor(max_workers=workers, mp_context=context) as pool, contextlib.suppress(BrokenProcessPool):
        futures: dict[Future[RunResult], Path] = {
            pool.submit(analyse_run, path, exports, force=force, target=target): path for path, target in jobs
        }
        for future in as_completed(futures):
            results[futures[future]] = _and_report(future.result(), advance)
    left = [(path, target) for path, target in jobs if path not in results]
    if left and not results:
        # Workers cannot even start: typically a script without ``if __name__ == "__main__":``, which they import.
        log.warning("analysis processes could not be started, the runs are analysed one after the other")
        for path, target in left:
            results[path] = _and_report(analyse_run(path, exports, force=force, target=target), advance)
    else:
        for path, _ in left:
            problem = "its analysis process died, possibly for lack of memory; analyse it alone"
            results[path] = _and_report(RunResult(path, False, problem=f"{path}: {problem}"), advance)
    return [results[path] for path, _ in jobs]


def _and_report(result: RunResult, advance: Callable[[], None]) -> RunResult:
    """Say what failed as soon as it is known."""
    advance()
    if result.problem:
        log.error(result.problem)
    else:
        doubts = [finding for finding in result.findings if finding.severity != INFO]
        for finding in doubts:
            say = log.error if finding.severity == ERROR else log.warning
            doubtful = f"; doubtful: {finding.unsafe}" if finding.unsafe else ""
            say(f"data of {result.path}: {finding.message}{doubtful}")
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
    except BaseException:
        logger.exception("analysis stopped")
        raise
    finally:
        handler.close()


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
    options = parser.parse_args(arguments)
    parent.end_with_parent()
    try:
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

    code = offline.main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is on disk; taking a few hundred MB of tables apart first would only take time.
    os._exit(code)
