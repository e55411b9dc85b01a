"""The last line of a program that recorded: where its windows are, and the commands that show them.

Of the ranks of a job that write to one folder the lowest says it, and once, however many windows and profilers there were.
"""

from __future__ import annotations

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
    global _process
    if _process != os.getpid():
        _folders.clear()
        _process = os.getpid()
    _folders.setdefault(rundir.absolute_path(folder), rank)


def say_next_command() -> None:
    """Write the line, if this process has anything to say that no other says; nothing the next time."""
    if _process != os.getpid():
        return
    places = [place for folder, rank in _folders.items() if (place := _place_to_name(folder, rank)) is not None]
    _folders.clear()
    if places and not log.is_quiet():
        (path, is_mixed), command = places[-1], program_name()
        last = path_text(path)
        more = f" and {len(places) - 1} other folders" if len(places) > 1 else ""
        warning = f". {last} holds windows of earlier programs too: give every training a folder of its own" if is_mixed else ""
        log.write_line(
            f"steplens: the recorded steps are in {last}{more}; next: {command} view {last} (in the browser) "
            f"or {command} summary {last} (in the terminal){warning}"
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
    windows = []
    try:
        runs = rundir.find_run_directories(folder)
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
