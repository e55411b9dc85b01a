"""``steplens bench``: two versions of a real program, and programs that cannot be benched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import steplens as package

from ..bench.conftest import TAKES_STEPS, git, repository  # noqa: F401


def steplens(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # of the tests' own paths it has steplens alone
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "steplens", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_wider_layer(repository: Path) -> None:  # noqa: F811
    pytest.importorskip("torch")
    ended = steplens(
        repository,
        "bench", "--base", "narrow", "--head", "main", "--rounds", "6", "--steps", "8", "--skip", "2", "--record", "3", "--link",
        "data.txt", "--fail-on", "step>20%", "--json", "--markdown", "report.md", "--junit", "junit.xml", "--", "train.py",
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    found = json.loads(ended.stdout)
    # 16 times as much work in the matrix products
    assert found["step"]["verdict"] == "slower" and found["step"]["low"] > 0.5
    assert found["base"]["commit"] == git(repository, "rev-parse", "narrow") and found["base"]["command"] == ["train.py"]
    assert [limit["verdict"] for limit in found["limits"]] == ["exceeded"]
    assert len(found["rounds"]) == 6 and all(round_["head"]["steps"] == 8 for round_ in found["rounds"])
    # at full speed a step takes no longer than where it is recorded
    recorded = found["recorded"]
    assert recorded["before"]["recordings"] == 6 and recorded["after"]["step_ns"] > 0.7 * found["head"]["step_ns"]
    assert "aten::mm" in [row["name"] for row in recorded["operators"]]
    assert "round 6 of 6 at most" in ended.stderr
    assert git(repository, "worktree", "list").count("\n") == 0
    # reports say what was timed, and of which versions
    text = (repository / "report.md").read_text("utf-8")
    assert text.startswith("### `narrow (") and "→ `main (" in text
    assert "6 runs of 8 steps" in text and "**Of 1 limit 1 is exceeded.** **A step is" in text and "`aten::mm`" in text
    assert '<failure message="exceeded: ' in (repository / "junit.xml").read_text("utf-8")
    folder = Path(found["folder"])
    assert json.loads((folder / "bench.json").read_text())["step"] == found["step"]
    # what is recorded is no part of the working tree, which the next bench copies
    assert git(repository, "status", "--porcelain", "--untracked-files=all").split() == ["??", "junit.xml", "??", "report.md"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--", "train.py"), "give the earlier version with --base"),
        (("--base", "narrow"), "give the command that runs the program"),
        (("--base", "narrow", "--base-command", "x", "--", "train.py"), "not both"),
        (("--base-command", "'", "--head-command", "x"), "is no command line"),
        (("--base", "narrow", "--record", "2", "--", "train.py"), "3 recorded steps are the least"),
        (("--base", "narrow", "--record", "0", "--fail-on", "forward>1%", "--", "train.py"), "needs recorded steps"),
        (("--base", "narrow", "--fail-on", "steps", "--", "train.py"), "is no limit"),
        (("--base", "narrow", "--", "no-such-program"), "no-such-program cannot be started"),
        (("--base", "narrow", "--", sys.executable, "-c", "print('nothing to train')"), "took no step that was noticed"),
        (
            ("--base", "narrow", "--", sys.executable, "-c", "raise SystemExit('no data')"),
            "ended with exit code 1",
        ),
    ],
)
def test_what_cannot_be_benched(repository: Path, arguments: tuple[str, ...], problem: str) -> None:  # noqa: F811
    ended = steplens(repository, "bench", "--rounds", "6", "--markdown", "report.md", *arguments)
    assert ended.returncode == 2 and problem in " ".join(ended.stderr.split()), ended.stderr
    assert "Traceback" not in ended.stderr and git(repository, "worktree", "list").count("\n") == 0
    assert not list((repository / "bench").glob("*"))


def test_nothing_is_recorded(repository: Path) -> None:  # noqa: F811
    (repository / "takes_steps.py").write_text(TAKES_STEPS + "take_steps(6)\n")
    words = ("--steps", "3", "--skip", "2", "--rounds", "6", "--record", "0", "--json")
    ended = steplens(repository, "bench", *words, "--base-command", "takes_steps.py", "--head-command", "takes_steps.py")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["recorded"] is None and len(found["rounds"]) == 6
    assert json.loads((Path(found["folder"]) / "bench.json").read_text())["step"] == found["step"]


def test_a_program_that_hangs_or_takes_too_few_steps(repository: Path) -> None:  # noqa: F811
    pytest.importorskip("torch")
    ended = steplens(repository, "bench", "--base", "narrow", "--rounds", "6", "--link", "data.txt", "--", "train.py", "7")
    assert ended.returncode == 2 and "took 7 steps at most, and 42 are needed" in ended.stderr, ended.stderr
    ended = steplens(repository, "bench", "--base", "narrow", "--rounds", "6", "--patience", "1", "--", "sleep", "60")
    assert ended.returncode == 2 and "took more than 1 s" in ended.stderr
