"""Several runs at a time, each in a process of its own; what failed is said as soon as it is known."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from steplens.collect.common import log
from steplens.offline.one_run import analyse_run
from steplens.offline.outcome import RunResult
from steplens.trace.health import ERROR, INFO
from steplens.writers.result import FAILED


def process_number(given: int | None) -> int:
    """How many runs are analysed at a time: as given, at most one per core; half of the cores by default and for wrong values."""
    cores = os.cpu_count() or 1
    default = max(cores // 2, 1)
    if given is None:
        return default
    if type(given) is not int or given < 1:
        log.warning(f"max_process_number {given!r} is no number of processes, {default} is used")
        return default
    return min(given, cores)


def in_processes(
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
            results[futures[future]] = and_report(future.result(), advance)
    left = [(path, target) for path, target in jobs if path not in results]
    if left and not results:
        # Workers cannot even start: typically a script without ``if __name__ == "__main__":``, which they import.
        log.warning("analysis processes could not be started, the runs are analysed one after the other")
        for path, target in left:
            results[path] = and_report(analyse_run(path, exports, force=force, target=target), advance)
    else:
        for path, _ in left:
            problem = "its analysis process died, possibly for lack of memory; analyse it alone"
            results[path] = and_report(RunResult(path, False, problem=f"{path}: {problem}"), advance)
    return [results[path] for path, _ in jobs]


def and_report(result: RunResult, advance: Callable[[], None]) -> RunResult:
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
def progress(total: int) -> Iterator[Callable[[], None]]:
    """A progress bar over the runs, where somebody is looking."""
    if total < 2 or sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("analysing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("analysing", total=total)
        yield lambda: progress.advance(task)
