"""Which process is meant, and whether it still lives: a process id alone is used again after a while."""

from __future__ import annotations

import os
from dataclasses import dataclass

#: position of the start time behind the name, in /proc/<pid>/stat
_STATE_FIELD = 0
_START_FIELD = 19


@dataclass(frozen=True)
class Process:
    """One process.

    Attributes:
        pid: its number.
        start: when it began, in clock ticks since the machine started; 0 where the system does not say.
    """

    pid: int
    start: int

    @property
    def name(self) -> str:
        """Text for file names."""
        return f"{self.pid}-{self.start}"

    def alive(self) -> bool:
        """Whether this very process still runs; one that has ended and waits for its parent does not."""
        if self.pid <= 0:
            return False
        state_and_start = _read_state_and_start(self.pid)
        if state_and_start is not None:
            state, start = state_and_start
            return state not in "ZX" and self.start in (0, start)
        if os.path.isdir("/proc/self"):
            return False
        try:
            os.kill(self.pid, 0)
        except PermissionError:
            return True
        except OSError:
            return False
        return True


def current_process() -> Process:
    """The calling process."""
    return process_of_pid(os.getpid())


def process_of_pid(pid: int) -> Process:
    """The process that has the number ``pid`` now."""
    state_and_start = _read_state_and_start(pid)
    return Process(pid, state_and_start[1] if state_and_start is not None else 0)


def from_name(name: str) -> Process | None:
    """The process whose :attr:`Process.name` is ``name``; None if it is no such name."""
    pid, dash, start = name.partition("-")
    if not dash or not pid.isdecimal() or not start.isdecimal() or len(name) > 40:
        return None
    return Process(int(pid), int(start))


def _read_state_and_start(pid: int) -> tuple[str, int] | None:
    """State letter and start time of a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            text = handle.read(4096)
    except OSError:
        return None
    # The name of a program may hold spaces and brackets; what follows the last bracket does not.
    fields = text[text.rfind(b")") + 1 :].split()
    try:
        return fields[_STATE_FIELD].decode("ascii"), int(fields[_START_FIELD])
    except (IndexError, ValueError):
        return None
