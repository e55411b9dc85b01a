"""A git repository with two versions of a program that trains."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TRAIN = """\
import sys
import torch
from model import width

torch.set_num_threads(1)
layer = torch.nn.Linear(width, width)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
data = open("data.txt").read()
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000):
    layer(torch.ones(64, width)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

#: a beginning of programs that take steps without PyTorch
TAKES_STEPS = """\
import os, sys
from steplens.collect.dynamic.launched_processes import VARIABLE, Order, Watcher

def take_steps(count, behind_each=lambda: None):
    watcher = Watcher(Order.parse(os.environ[VARIABLE]))
    for _ in range(count):
        watcher._steps.count += 1
        watcher._on_step()
        behind_each()

"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The version ``narrow`` is a tag; main multiplies larger matrices; data.txt is ignored."""
    top = tmp_path / "program"
    (top / "src").mkdir(parents=True)
    (top / "train.py").write_text(TRAIN)
    (top / "src" / "model.py").write_text("width = 256\n")
    (top / ".gitignore").write_text("data.txt\n__pycache__\n")
    (top / "data.txt").write_text("data\n")
    git(top, "init", "--quiet")
    git(top, "add", "train.py", "src", ".gitignore")
    git(top, "commit", "--quiet", "-m", "narrow")
    git(top, "tag", "narrow")
    (top / "src" / "model.py").write_text("width = 1024\n")
    git(top, "commit", "--quiet", "-a", "-m", "wide")
    monkeypatch.chdir(top)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return top
