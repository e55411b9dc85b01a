"""Opens what a command is asked about, and shows on a terminal how far the reading of a large file is.

What a command that read a large run leaves behind is here, too: its timelines laid out, so that ``steplens view`` shows them at
once.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from steplens.cli.text.text import clean
from steplens.collect.common import log
from steplens.common import rundir
from steplens.common.storage.files import shown_cache
from steplens.readers.common import reading
from steplens.readers.glance import refuse_hopeless

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from steplens.run import Run

#: what takes no longer needs no word
_QUIET_S = 0.5


def open_with_progress(path: Path, rank: int | None = None, scheduler: str = "") -> Run:
    """``steplens.open``, with a bar on a terminal while a large file is read.

    Args:
        path: what to open.
        rank: which rank of it will be asked about; None is all of them.
        scheduler: where ranks are read and judged (``common.executors.named_executor``); empty is this machine.

    Raises:
        InputError: it cannot be opened, or is known to have no such rank.
    """
    refuse_hopeless(path)
    if rank is not None:
        from steplens.readers.ranks import refuse_rank

        refuse_rank(path, rank)
    import steplens

    executor = None
    if scheduler:
        from steplens.common.executors import named_executor

        executor = named_executor(scheduler)
    began = time.time()
    with show_progress():
        run = steplens.open(path) if executor is None else steplens.open(path, executor=executor)
    _say_where_kept(run, began)
    return run


def _say_where_kept(run: Run, began: float) -> None:
    """Say on a terminal that tables were just put beside captures that steplens did not record."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    folders = set()
    for source, trace in zip(run.sources, run.traces, strict=True):
        if trace.kept is not None and not (source.path / rundir.RAW_DIRECTORY).is_dir():
            with contextlib.suppress(OSError):
                if trace.kept.folder.stat().st_ctime >= began:
                    folders.add(shown_cache(trace.kept.folder.parent))
    for folder in sorted(folders)[:1]:
        more = f" and {len(folders) - 1} more folders" if len(folders) > 1 else ""
        log.write_line(f"steplens: tables of what was read are kept in {clean(str(folder))}{more}, so that it opens at once")


@contextlib.contextmanager
def show_progress() -> Iterator[None]:
    """While this lasts, how far reading is stands on stderr, if that is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    bar = _Bar()
    try:
        with reading.told_to(bar.show_file):
            yield
    finally:
        bar.take_away()


@contextlib.contextmanager
def show_work(what: str) -> Iterator[None]:
    """While this lasts, a line on stderr says what is done, if that is a terminal and it takes longer than a moment."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(clean(what))
    timer = threading.Timer(_QUIET_S, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # one that fires now has to be through before the line is taken away
        timer.join()
        status.stop()


def keep_timelines(run: Run) -> None:
    """Lay out the timelines that are not there yet, beside the tables of their traces; to be called when all is printed.

    It takes less than a tenth of what reading took, and nothing where a run is small or was laid out before.
    """
    from steplens.timeline.presence import may_be_missing

    sys.stdout.flush()
    if all(trace.kept is None for trace in run.traces):
        return
    # what that asks of a rank is kept with its answers
    are_missing = [may_be_missing(trace) for trace in run.traces]
    if len(run.traces) > 1:
        # of one trace nothing is kept, and the rules of advice take long to import
        from steplens.advice.prepare import keep_answers

        keep_answers(run)
    if not any(are_missing):
        return
    from steplens.timeline.prebuild import lay_out
    from steplens.timeline.time_origin import trace_origins

    for trace, origin_ns in zip(run.traces, trace_origins(run.traces), strict=True):
        # the command has done what it was asked for; whoever shows the run is told what is wrong
        with contextlib.suppress(Exception):
            lay_out(trace, origin_ns)


class _Bar:
    """A line that says which file is read, and how much of it was."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._progress: Progress | None = None
        self._tasks: dict[Path, TaskID] = {}

    def show_file(self, path: Path, done: int, total: int) -> None:
        """A listener of ``reading``."""
        if self._progress is None:
            if time.monotonic() - self._began < _QUIET_S:
                return
            self._progress = _start_progress()
        if path not in self._tasks:
            for task in self._tasks.values():
                self._progress.remove_task(task)
            self._tasks = {path: self._progress.add_task(f"reading {clean(path.name)}", total=total)}
        self._progress.update(self._tasks[path], completed=done)

    def take_away(self) -> None:
        """Take the line away."""
        if self._progress is not None:
            self._progress.stop()


def _start_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(binary_units=True), TimeElapsedColumn()
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.start()
    return progress
