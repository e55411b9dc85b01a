"""Several runs at a time, each in a process of its own; what failed is said as soon as it is known."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from steplens.collect.common import log
from steplens.common.executors import Task, TaskExecutor, map_ranks
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


@dataclass(frozen=True)
class Job:
    """What one process analyses at a time.

    Attributes:
        path: where the data is.
        analyse: writes the results, here or in another process, and never raises for what is wrong with the data.
    """

    path: Path
    analyse: Callable[[], RunResult]


def analyse_all(
    jobs: Sequence[Job], workers: int, report: Callable[[RunResult], None], executor: TaskExecutor | None = None
) -> list[RunResult]:
    """Do jobs, at most ``workers`` at a time, and report each as soon as it is done; gives their results in order of the jobs.

    With an executor its processes do them; what they lose is done here.
    """
    results: dict[int, RunResult] = {}

    def add_result(number: int, result: RunResult) -> None:
        results[number] = result
        report(result)

    if executor is not None:
        for number, result in map_ranks(_executor_of_jobs(executor, jobs), _stand_for_job, range(len(jobs))):
            add_result(number, result)
        left = [number for number in range(len(jobs)) if number not in results]
        if left:
            done_here = analyse_all([jobs[number] for number in left], workers, report)
            results.update(zip(left, done_here, strict=True))
        return [results[number] for number in range(len(jobs))]
    # A daemon process, such as a data loading worker, may not have children.
    in_pool = min(workers, len(jobs)) > 1 and not multiprocessing.current_process().daemon
    if in_pool:
        # A fork would copy the locks of whatever threads the caller has, so workers are spawned. A broken pool fails all of its
        # futures at once; what its workers left is dealt with below.
        pool = ProcessPoolExecutor(min(workers, len(jobs)), mp_context=multiprocessing.get_context("spawn"))
        with pool, contextlib.suppress(BrokenProcessPool):
            futures = {pool.submit(job.analyse): number for number, job in enumerate(jobs)}
            for future in as_completed(futures):
                add_result(futures[future], future.result())
        if not results:
            # Workers cannot even start: typically a script without ``if __name__ == "__main__":``, which they import.
            log.warning("analysis processes could not be started, the runs are analysed one after the other")
    started = bool(results)
    for number, job in enumerate(jobs):
        if started and number not in results:
            problem = f"{job.path}: its analysis process died, possibly for lack of memory; analyse it alone"
            add_result(number, RunResult(job.path, False, problem=problem))
        elif not started:
            add_result(number, job.analyse())
    return [results[number] for number in range(len(jobs))]


def _executor_of_jobs(executor: TaskExecutor, jobs: Sequence[Job]) -> TaskExecutor:
    """An executor that is given numbers of jobs and is sent the jobs, each alone."""

    def submit_job(_: Callable[..., Any], /, *arguments: Any) -> Task:
        return executor.submit(jobs[arguments[0]].analyse)

    return cast(TaskExecutor, SimpleNamespace(submit=submit_job))


def _stand_for_job(_: int) -> None:
    """Takes the place of a function of a number; jobs take none."""


def log_failures(result: RunResult) -> None:
    """Say what failed."""
    if result.problem:
        log.error(result.problem)
    else:
        for finding in (finding for finding in result.findings if finding.severity != INFO):
            say = log.error if finding.severity == ERROR else log.warning
            doubtful = f"; doubtful: {finding.unsafe}" if finding.unsafe else ""
            say(f"data of {result.path}: {finding.message}{doubtful}")
    for name, status in result.outputs.items():
        if status.status == FAILED:
            log.error(f"{result.path}: {name} was not written: {status.reason}")


@contextlib.contextmanager
def progress_bar(total: int) -> Iterator[Callable[[], None]]:
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
