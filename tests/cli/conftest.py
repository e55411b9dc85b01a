"""The template of the command-line tests: write files, run the command, look at what it says."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from ..command_line import Completed, run_command, run_process, run_warm_process
from ..once import once

TRAIN = """
    import sys
    import torch

    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 32)).sum().backward()
        optimizer.step()
        scheduler.step()
    print("trained", steps)
"""


@dataclass
class Cli:
    """Runs ``steplens`` in a folder of its own.

    Attributes:
        folder: where.
        processes: whether each command is a process of its own, as it is for a user; see ``tests/command_line.py``.
    """

    folder: Path
    processes: bool = False

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    def trace(self, name: str, events: list[dict[str, Any]], **header: Any) -> Path:
        return self.write(name, json.dumps({"schemaVersion": 1, **header, "traceEvents": events}))

    def run(self, *arguments: str | Path, expect: int = 0, env: dict[str, str] | None = None) -> Completed:
        # a script that is recorded ends with its process
        run = run_process if self.processes or arguments[:1] == ("run",) else run_command
        return self._expect(run(*arguments, folder=self.folder, env=env), expect)

    def record(self, *arguments: str | Path, expect: int = 0) -> Completed:
        """``steplens run`` for a script that trains: its process has PyTorch before the script imports it."""
        return self._expect(run_warm_process("run", *arguments, folder=self.folder), expect)

    @staticmethod
    def _expect(done: Completed, code: int) -> Completed:
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def refused(self, *arguments: str | Path) -> str:
        """Run a command on bad input; return the one sentence it says."""
        done = self.run(*arguments, expect=2)
        assert "Traceback" not in done.stderr + done.stdout
        lines = done.stderr.splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("steplens: ")
        return lines[0]

    def json(self, *arguments: str | Path, expect: int = 0) -> dict[str, Any]:
        return json.loads(self.run(*arguments, "--json", expect=expect).stdout)

    def run_directories(self, folder: str = "result") -> list[Path]:
        return sorted((self.folder / folder).glob("*_ascend_pt"))


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def process_cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, processes=True)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A folder with ``result``: three steps of a real script, recorded with shapes, memory and modules, and analysed."""

    pytest.importorskip("torch")

    def make(folder: Path) -> None:
        cli = Cli(folder)
        cli.write("train.py", TRAIN)
        cli.record("--record-shapes", "--profile-memory", "--with-modules", "--profiler-level", "Level1", "train.py")

    # a copy, because commands write beside what they read
    recording = once(tmp_path_factory, "cli", make)
    return Cli(Path(shutil.copytree(recording, tmp_path_factory.mktemp("recorded"), dirs_exist_ok=True)))


def event(name: str, start_us: float, duration_us: float, category: str = "cpu_op", tid: int = 7) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, "ts": start_us, "dur": duration_us, "args": {}}


@pytest.fixture
def events() -> list[dict[str, Any]]:
    """Two steps of a tiny trace."""
    found = []
    for step, start in ((1, 1000.0), (2, 1100.0)):
        found.append(event(f"ProfilerStep#{step}", start, 100, "user_annotation"))
        found.append(event("aten::mm", start + 10, 40))
        found.append(event("Optimizer.step#SGD.step", start + 60, 20, "user_annotation"))
    return found
