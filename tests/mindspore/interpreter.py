"""Programs under MindSpore's interpreter: each in a process of its own, most of them forked from one that has imported it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = ROOT / ".bench" / "mindspore" / "bin" / "python"
_TIMEOUT_S = 600


def environment(**more: str) -> dict[str, str]:
    """The environment of a program: with the steplens of this checkout, and nothing that a profiler or a job has set."""
    if not INTERPRETER.exists():
        pytest.skip(f"MindSpore's environment {INTERPRETER.parent.parent} is not there; make test sets it up")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MS_", "RANK", "PROFILING"))}
    # the installation of that interpreter may be one of another checkout
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), clean.get("PYTHONPATH"))))
    return {**clean, "PYTHONPATH": paths, "GLOG_v": "3", **more}


def run_in_interpreter(program: Path, *arguments: str, **more: str) -> CompletedProcess[str]:
    """Run a program in an interpreter that has imported nothing."""
    command = [str(INTERPRETER), str(program), *arguments]
    return subprocess.run(
        command, cwd=program.parent, env=environment(**more), capture_output=True, text=True, timeout=_TIMEOUT_S
    )


class ForkServer:
    """The process of ``fork_server.py``; it is started by the first program."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, *requests: dict[str, Any]) -> list[CompletedProcess[str]]:
        """Run programs at the same time.

        Args:
            requests: of each ``program`` (a file), ``arguments``, and ``environment`` beside the usual one.
        """
        asked = []
        for number, request in enumerate(requests):
            program: Path = request["program"]
            files = {name: str(program.with_name(f".{program.stem}_{number}.{name}")) for name in ("stdout", "stderr")}
            texts = {"folder": str(program.parent), "program": str(program), "arguments": list(request.get("arguments", ()))}
            asked.append({**texts, "environment": environment(**request.get("environment", {})), **files})
        codes = self._ask(asked)
        completed = []
        for request, code in zip(asked, codes, strict=True):
            texts = [Path(request[name]).read_text(errors="replace") for name in ("stdout", "stderr")]
            completed.append(CompletedProcess([request["program"], *request["arguments"]], code, *texts))
            for name in ("stdout", "stderr"):
                Path(request[name]).unlink()
        return completed

    def _ask(self, requests: list[dict[str, Any]]) -> list[int]:
        if self._process is None:
            server = [str(INTERPRETER), str(Path(__file__).with_name("fork_server.py"))]
            # a group of its own, so that what hangs can be ended with all that it has started
            self._process = subprocess.Popen(
                server, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(requests) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], _TIMEOUT_S)[0]:
            self.end()
            raise subprocess.TimeoutExpired([request["program"] for request in requests], _TIMEOUT_S)
        codes: list[int] = json.loads(process.stdout.readline())
        return codes

    def end(self) -> None:
        """End it and what it still runs."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.communicate()


#: of this process of the tests
server = ForkServer()


def make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A folder that several processes of one run of the tests share: the first one that gets here makes what is in it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        finished = folder.with_name(f"{folder.name}.finished")
        if not finished.exists():
            # what a program left that failed
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            finished.touch()
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
