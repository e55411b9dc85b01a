"""The last line of a program that recorded: where its windows are, and the commands that show them.

Of the ranks of a job that write to one folder the lowest says it, and once, however many windows and profilers there were.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from steplens.collect.common import log
from steplens.common import json_text, rundir

#: folders with windows of this process, and its rank in each; of a forked child they are its parent's
_folders: dict[Path, int] = {}
#: folders that hold results of this process alone, or of all ranks together
_results: list[Path] = []
_process = 0
#: when this process began, as far as recording is concerned
_BEGAN_NS = time.time_ns()
#: ranks of one job do not begin at the same moment
_SAME_JOB_NS = 30_000_000_000


@dataclass(frozen=True)
class _Window:
    """A run directory, and what its state file says of it."""

    path: Path
    rank: int
    start_ns: int

    @property
    def is_of_this_job(self) -> bool:
        return self.start_ns > _BEGAN_NS - _SAME_JOB_NS


def add_window(folder: Path, rank: int) -> None:
    """A window was recorded; name its folder when the program ends.

    Args:
        folder: where its run directory is, or will be.
        rank: of this process; -1 where it is no part of a job.
    """
    _forget_parent()
    _folders.setdefault(rundir.absolute_path(folder), rank)


def add_results(folder: Path, rank: int) -> None:
    """Results were made that lie in a folder as a whole; name it when the program ends, if this is rank 0 or no part of a job."""
    _forget_parent()
    folder = rundir.absolute_path(folder)
    if rank <= 0 and folder not in _results:
        _results.append(folder)


def _forget_parent() -> None:
    """Of a forked child: what was noted is its parent's."""
    global _process
    if _process != os.getpid():
        _folders.clear()
        _results.clear()
        _process = os.getpid()


def say_next_command() -> None:
    """Write the line, if this process has anything to say that no other says; nothing the next time."""
    if _process != os.getpid():
        return
    places = [place for folder, rank in _folders.items() if (place := _place_to_name(folder, rank)) is not None]
    places += [(folder, False) for folder in _results]
    _folders.clear()
    _results.clear()
    if places:
        path, is_mixed = places[-1]
        last = path_text(path)
        warning = f". {last} holds windows of earlier programs too: give every training a folder of its own" if is_mixed else ""
        write_closing_line(last, others=len(places) - 1, note=warning)


def write_closing_line(path: str, *, others: int = 0, note: str = "") -> None:
    """Where the recorded steps are, and what shows them, unless lines of progress are muted.

    Args:
        path: a file or folder as the shell that started this program writes it.
        others: so many other folders hold some as well.
        note: what else there is to say of ``path``, with what is between it and the line.
    """
    command = program_name()
    more = f" and {others} other folder{'s' if others > 1 else ''}" if others else ""
    log.report_progress(
        f"the recorded steps are in {path}{more}; next: {command} view {path} (in the browser) "
        f"or {command} summary {path} (in the terminal){note}"
    )


def _place_to_name(folder: Path, rank: int) -> tuple[Path, bool] | None:
    """What to show of a folder, and whether windows of earlier programs are shown with it.

    None where a lower rank of the same job has a window there as well, and says it.
    """
    windows = _windows_in(folder)
    ours = [window for window in windows if window.is_of_this_job]
    if not ours or any(0 <= window.rank < rank for window in ours):
        return None
    if len(ours) == len(windows):
        return folder, False
    return (ours[0].path, False) if len(ours) == 1 else (folder, True)


def _windows_in(folder: Path) -> list[_Window]:
    try:
        runs = rundir.find_run_directories(folder)
        windows = [_mindspore_window(run) for run in sorted(folder.glob(f"*{rundir.MINDSPORE_RUN_SUFFIX}"))]
    except OSError:  # it is gone
        return []
    for run in runs:
        try:
            state = json_text.loads((run / rundir.RAW_DIRECTORY / rundir.STATE_FILE).read_bytes())
        except (OSError, ValueError):
            state = None
        rank, start_ns = (state.get("rank"), state.get("start_ns")) if isinstance(state, dict) else (None, None)
        windows.append(_Window(run, rank if isinstance(rank, int) else -1, start_ns if isinstance(start_ns, int) else 0))
    return windows


def _mindspore_window(run: Path) -> _Window:
    """A run directory of MindSpore's profiler; its results may be all that is left of it, so its name says when it began."""
    stamp = run.name.removesuffix(rundir.MINDSPORE_RUN_SUFFIX).rpartition("_")[2]
    with contextlib.suppress(ValueError, OverflowError):
        start_ns = int(time.mktime(time.strptime(stamp[:14], "%Y%m%d%H%M%S"))) * 1_000_000_000
        ranks = [path.stem.rpartition("_")[2] for path in run.glob(f"{rundir.INFO_PREFIX}_*.json")]
        return _Window(run, min((int(rank) for rank in ranks if rank.isdecimal()), default=-1), start_ns)
    return _Window(run, -1, 0)


def path_text(path: Path) -> str:
    """A path for the shell that started this program: relative to its folder where it lies below that."""
    # the program may have changed its own
    start = Path(os.environ.get("PWD") or os.sep)
    is_below = start.is_absolute() and start != Path(os.sep) and start in path.parents
    return shlex.quote(str(path.relative_to(start) if is_below else path))


def program_name() -> str:
    """How the command line is called in the shell that started this program."""
    if shutil.which("steplens"):
        return "steplens"
    beside = Path(sys.executable or os.sep).with_name("steplens")
    return path_text(beside) if beside.is_file() else "python -m steplens"
