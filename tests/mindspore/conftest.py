"""Real MindSpore: programs run by the interpreter of its own environment (``make test`` makes it), results read here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .interpreter import make_once, run_in_interpreter, server
from .programs import NETWORK, RECORDING

Run = Callable[..., subprocess.CompletedProcess[str]]
#: gives the folder in which a program has run once, for all tests that only read it or copy it
Recorded = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def end_of_the_fork_server() -> Iterator[None]:
    """The process behind the programs lives as long as the tests."""
    yield
    server.end()


def run_program(
    folder: Path, text: str, *arguments: str, code: int = 0, fresh: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in ``folder``; it must end with ``code``.

    Args:
        folder: is made where it is missing.
        text: the program.
        arguments: its arguments.
        code: its exit code.
        fresh: in an interpreter that has imported nothing, as where the calls that lead to the program matter.
        environment: variables beside the usual ones; MindSpore reads its own when it is imported, so these are always fresh.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "train.py"
    program.write_text(text)
    if fresh or any(name.startswith("MS_") for name in environment):
        made = run_in_interpreter(program, *arguments, **environment)
    else:
        (made,) = server.run({"program": program, "arguments": arguments, "environment": environment})
    assert made.returncode == code, f"code {made.returncode}\n{made.stdout}\n{made.stderr}"
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program behind ``NETWORK`` in a folder of its own."""

    def execute(text: str, *arguments: str, **more: str | int | bool) -> subprocess.CompletedProcess[str]:
        return run_program(tmp_path, NETWORK + text, *arguments, **more)

    return execute


@pytest.fixture(scope="session")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Runs a program behind ``NETWORK`` once for all processes of this run of the tests."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def record(name: str, text: str, *arguments: str, fresh: bool = False) -> Path:
        def make(folder: Path) -> None:
            done = run_program(folder, NETWORK + text, *arguments, fresh=fresh)
            (folder / "stdout").write_text(done.stdout)
            (folder / "stderr").write_text(done.stderr)

        return make_once(base / "mindspore" / name, make)

    return record


@pytest.fixture(scope="session", params=["graph", "pynative"])
def recorded(request: pytest.FixtureRequest, recorded_once: Recorded) -> Path:
    """What ``RECORDING`` left in one of the two modes: two windows, with raw data kept."""
    return recorded_once(request.param, RECORDING, request.param)
