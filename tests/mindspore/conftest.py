"""Real MindSpore: programs run by the interpreter of its own environment (``make test`` makes it), results read here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .programs import NETWORK

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = ROOT / ".bench" / "mindspore" / "bin" / "python"

Run = Callable[..., subprocess.CompletedProcess[str]]


def run_program(folder: Path, text: str, *arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program that begins with ``NETWORK`` in ``folder``; it must end with ``code``."""
    if not INTERPRETER.exists():
        pytest.skip(f"MindSpore's environment {INTERPRETER.parent.parent} is not there; make test sets it up")
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "train.py"
    program.write_text(text)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MS_", "RANK", "PROFILING"))}
    made = subprocess.run(
        [str(INTERPRETER), str(program), *arguments], cwd=folder, env={**clean, "GLOG_v": "3", **environment},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert made.returncode == code, f"code {made.returncode}\n{made.stdout}\n{made.stderr}"
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program behind ``NETWORK`` in a folder of its own."""

    def execute(text: str, *arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_program(tmp_path, NETWORK + text, *arguments, code=code, **environment)

    return execute


@pytest.fixture(scope="session", params=["graph", "pynative"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``RECORDING`` left in one of the two modes: two windows, with raw data kept."""
    from .programs import RECORDING

    folder = tmp_path_factory.mktemp(request.param)
    run_program(folder, NETWORK + RECORDING, request.param)
    return folder
