"""Turns recorded data into results: in a process of its own after collection, or at any time later.

steplens.analyse("result")                           # a run directory or a folder of them
steplens.analyse("capture", recompute=True)          # results of another profiler, computed again beside them
python -m steplens.offline analyse RUN_DIR
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from steplens.collect.common import log, paths
from steplens.common import rundir
from steplens.common.errors import InputError, check_readable
from steplens.common.executors import TaskExecutor
from steplens.common.storage.files import is_remote, list_remote, locate_path
from steplens.offline.mindspore.ranks import analyse_rank
from steplens.offline.one_run import RECOMPUTED, analyse_run, in_place, source_of
from steplens.offline.outcome import RunResult, exit_code
from steplens.offline.processes import Job, analyse_all, log_failures, process_number, progress_bar
from steplens.offline.settings import is_complete, read_settings
from steplens.readers import detect
from steplens.readers.mindspore.mindspore_find import MindSporeSource
from steplens.writers.result import DATABASE, TEXT

__all__ = ["RunResult", "analyse", "analyse_run", "exit_code", "is_complete", "read_settings"]


def analyse(
    profiler_path: str | os.PathLike[str],
    max_process_number: int | None = None,
    export_type: str | Sequence[str] | None = None,
    *,
    force: bool = False,
    recompute: bool = False,
    output: str | os.PathLike[str] | None = None,
    executor: TaskExecutor | None = None,
) -> list[RunResult]:
    """Write the result files of everything in ``profiler_path``.

    Raw data gets its results into its own run directory. A run whose result is complete and newer than its raw data is
    left alone, so an interrupted analysis goes on where it stopped. A run that cannot be read, such as one whose process
    was killed while its window was open, does not keep the others from being analysed.

    The results of another profiler are never changed: new ones are written only with ``recompute`` or ``output``, into a
    folder of their own, and compared with those that are there. The same holds for a trace file.

    Args:
        profiler_path: a run directory, a folder that holds some, or a trace file; or the URL of one, which needs ``output``.
        max_process_number: how many runs are analysed at a time: no more than there are cores; half of them by default and for
            invalid values.
        export_type: "text", "db" or a list of them; None is what the run was recorded with.
        force: analyse complete runs again.
        recompute: like ``force``, and compute again what holds results only.
        output: folder for the results, one run directory each, in place of the runs' own; "recomputed" in the current
            directory where one is needed and none is given.
        executor: where runs are analysed: a ``concurrent.futures.Executor``, or what has its ``submit``. Its processes have to
            see the paths under the same names. None is this machine.

    Returns:
        one entry per run, in order of path.

    Raises:
        InputError: the path does not exist or holds nothing that steplens reads.
    """
    top = locate_path(profiler_path)
    paths.warn_if_unusual(top, "profiler_path")
    list_remote(top)
    check_readable(top)
    folder = None if output is None else Path(output)
    if is_remote(top) and folder is None:
        raise InputError(top, "lies where no results can be written", "Say where they go: --out FOLDER")
    if is_remote(top):
        executor = None
    elif executor is not None:
        # its processes work in other folders
        top, folder = top.absolute(), None if folder is None else folder.absolute()
    exports = _export_types(export_type)
    jobs = _list_jobs(top, exports, force=force or recompute, recompute=recompute, output=folder)
    # processes that are started by others, and those of an executor, do not know what the paths of another place stand for
    workers = 1 if is_remote(top) else process_number(max_process_number)
    with progress_bar(len(jobs)) as advance:

        def report_finished_run(result: RunResult) -> None:
            advance()
            log_failures(result)

        return analyse_all(jobs, workers, report_finished_run, executor)


def _list_jobs(top: Path, exports: list[str] | None, *, force: bool, recompute: bool, output: Path | None) -> list[Job]:
    """What is to be done for every run below ``top``: first the ranks of folders that several share, then the others."""
    if top.is_file() and output is None and not recompute:
        raise InputError(top, "is a trace file, whose results need a folder of their own", "Say where: --out FOLDER")
    ranks: list[Job] = []
    runs: list[Job] = []
    folder = output or (Path(RECOMPUTED).absolute() if top.is_absolute() else Path(RECOMPUTED))
    for capture in map(source_of, detect.find_traces(top)):
        if isinstance(capture.where, MindSporeSource):
            ranks.append(Job(capture.path, partial(analyse_rank, capture.where, exports, force, recompute, output)))
            continue
        # the run directory that its results go to; None is its own
        target = None
        if output is not None or (recompute and not in_place(capture)):
            inside = (
                capture.path.relative_to(top) if capture.path != top and top in capture.path.parents else Path(capture.path.name)
            )
            name = inside.name if inside.name.endswith(rundir.RUN_SUFFIX) else inside.name.split(".")[0] + rundir.RUN_SUFFIX
            target = folder / inside.parent / name
            if target.resolve() == capture.path.resolve():
                raise InputError(target, "is the run itself", "Give another output folder")
        runs.append(Job(capture.path, partial(analyse_run, capture.path, exports, force=force, target=target)))
    return [*ranks, *runs]


def _export_types(given: str | Sequence[str] | None) -> list[str] | None:
    if given is None:
        return None
    items = [str(getattr(item, "value", item)) for item in ([given] if isinstance(given, str) else given)]
    wrong = [item for item in items if item not in (TEXT, DATABASE)]
    if wrong or not items:
        log.warning(f"export_type {given!r} is not {TEXT!r}, {DATABASE!r} or a list of them, the recorded one is used")
        return None
    return items
