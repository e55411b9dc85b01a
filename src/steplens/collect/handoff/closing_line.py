"""The last line of a program that recorded: where its windows are, and the commands that show them.

Of the ranks of a job that write to one folder the lowest says it, and once, however many windows and profilers there were.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path

from steplens.collect.common import log
from steplens.common import json_text, rundir

#: folders with windows of this process, and its rank in each; of a forked child they are its parent's
_folders: dict[Path, int] = {}
_process = 0
_began_ns = 0
#: windows of one job begin in the same step: a rank that began its one longer ago belongs to an earlier job
_SAME_JOB_NS = 600_000_000_000


def add_window(folder: Path, rank: int) -> None:
    """A window was recorded; name its folder when the program ends.

    Args:
        folder: where its run directory is, or will be.
        rank: of this process; -1 where it is no part of a job.
    """
    global _process, _began_ns
    if _process != os.getpid():
        _folders.clear()
        _process, _began_ns = os.getpid(), time.time_ns()
    _folders.setdefault(rundir.absolute_path(folder), rank)


def say_next_command() -> None:
    """Write the line, if this process has anything to say that no other says; nothing the next time."""
    if _process != os.getpid():
        return
    folders = [
        path_text(folder) for folder, rank in _folders.items() if folder.is_dir() and not _lower_rank_says_it(folder, rank)
    ]
    _folders.clear()
    if folders and not log.is_quiet():
        last, command = folders[-1], program_name()
        more = f" and {len(folders) - 1} other folders" if len(folders) > 1 else ""
        log.write_line(
            f"steplens: the recorded steps are in {last}{more}; next: {command} view {last} (in the browser) "
            f"or {command} summary {last} (in the terminal)"
        )


def _lower_rank_says_it(folder: Path, rank: int) -> bool:
    """Whether a lower rank of the same job has a window in ``folder``: one that was opened while this process had its own."""
    if rank <= 0:
        return False
    try:
        runs = rundir.find_run_directories(folder)
    except OSError:  # it is gone
        return False
    for run in runs:
        try:
            state = json_text.loads((run / rundir.RAW_DIRECTORY / rundir.STATE_FILE).read_bytes())
        except (OSError, ValueError):
            continue
        its_rank, start_ns = (state.get("rank"), state.get("start_ns")) if isinstance(state, dict) else (None, None)
        if (
            isinstance(its_rank, int)
            and isinstance(start_ns, int)
            and 0 <= its_rank < rank
            and start_ns > _began_ns - _SAME_JOB_NS
        ):
            return True
    return False


def path_text(path: Path) -> str:
    """A path for the shell that started this program: relative to its folder where it lies below that."""
    # the program may have changed its own
    start = Path(os.environ.get("PWD") or os.sep)
    is_below = start.is_absolute() and start != Path(os.sep) and path.is_relative_to(start)
    return shlex.quote(str(path.relative_to(start) if is_below else path))


def program_name() -> str:
    """How the command line is called in the shell that started this program."""
    if shutil.which("steplens"):
        return "steplens"
    beside = Path(sys.executable or os.sep).with_name("steplens")
    return path_text(beside) if beside.is_file() else "python -m steplens"
