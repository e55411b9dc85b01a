"""Configuration folders, jobs in other processes and ways to wait for them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steplens.collect.dynamic import client, configuration
from steplens.collect.dynamic.client import Participant
from steplens.collect.dynamic.job import job_folder

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[2] / "src"
FAKE_JOB = HERE / "fake_job.py"

PATIENCE_S = 180.0


def until(condition: Callable[[], Any], what: str | Callable[[], str] = "", patience_s: float = PATIENCE_S) -> Any:
    """Wait until ``condition`` returns something true, and return it."""
    limit = time.monotonic() + patience_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < limit, f"waited in vain {what() if callable(what) else what}"
        time.sleep(0.01)


class Folder:
    """A configuration folder, as a user sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results = path.parent / "results"

    @property
    def file(self) -> Path:
        return self.path / job_folder.CONFIGURATION_FILE

    def edit(self, **fields: Any) -> None:
        """Save the documented defaults with some fields changed; captures begin at the next step, unless told otherwise."""
        given = {"start_step": -1, "prof_dir": str(self.results), **fields}
        self.path.mkdir(exist_ok=True)
        # in one piece: a busy machine may leave more time between emptying a file and writing it than a save takes to settle
        written = self.path / "edited"
        written.write_text(json.dumps({**configuration.TEMPLATE, **given}))
        written.replace(self.file)

    def processes(self) -> list[Participant]:
        return client.find_participants(self.path)

    def requests(self) -> list[dict[str, Any]]:
        """The requests of the first process, oldest first."""
        return [dict(request) for participant in self.processes()[:1] for request in participant.requests]

    def ended(self, count: int = 1, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Wait until so many requests of the first process have ended, and return all of them."""
        ended = ("done", "failed", "refused", "missed", "superseded")
        return until(
            lambda: (found := self.requests()) and sum(item["state"] in ended for item in found) >= count and found,
            "for requests to end",
            patience_s,
        )

    def describe(self) -> str:
        """Everything there is to know, for a test that fails."""
        return "\n".join([*map(str, self.processes()), self.log("dp_"), self.log("monitor_dp_")])

    def log(self, prefix: str = "dp_") -> str:
        return "".join(path.read_text() for path in sorted((self.path / "log").glob(f"{prefix}*.log")))


class Job:
    """A program that runs, in a session of its own; what it prints goes to a file, so that it never waits for a reader."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._output = Path(tempfile.mkstemp(dir=folder, suffix=".output")[1])
        with self._output.open("wb") as handle:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def output(self) -> str:
        return self._output.read_text()

    def ranks(self) -> list[int]:
        """Process ids of the ranks, which the program prints first."""
        # the whole line: what is written word by word may be read in between
        return [int(word) for word in until(lambda: self.output().rpartition("\n")[0], "for the ranks").split("\n")[0].split()]

    def finish(self) -> str:
        """Wait for its end, which must be a good one, and return what it printed."""
        code = self.process.wait(timeout=PATIENCE_S)
        assert code == 0, f"exit code {code}\n{self.output()}"
        return self.output()

    def kill(self) -> None:
        """Kill it as the system does when memory is short, and everything it started, in whatever session."""
        below = descendants(self.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def descendants(pid: int) -> list[int]:
    """The processes that ``pid`` started, and those that they started: torchrun gives each worker a session of its own."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, pending = [], [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


class Jobs:
    """Starts programs and leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Job] = []

    def start(self, *command: object, env: dict[str, str] | None = None) -> Job:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **(env or {})}
        self._started.append(Job([str(word) for word in command], self._folder, environment))
        return self._started[-1]

    def fake(self, folder: Folder, *arguments: object) -> Job:
        """Start a job of ``fake_job.py``."""
        return self.start(sys.executable, FAKE_JOB, folder.path, *arguments)

    def end(self) -> None:
        for job in self._started:
            job.kill()
