"""Versions beside each other: what lies in them, what is left behind, and what cannot be checked out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steplens.bench.checkouts import ProgramError, check_out
from steplens.common.errors import SteplensError

from .conftest import git


def test_versions_and_the_files_as_they_lie_here(repository: Path) -> None:
    (repository / "src" / "model.py").write_text("width = 3\n")
    (repository / "notes.txt").write_text("not committed\n")
    with check_out(["narrow", "."], links=["data.txt"]) as (base, head):
        assert (base.folder / "src" / "model.py").read_text() == "width = 256\n"
        assert (head.folder / "src" / "model.py").read_text() == "width = 3\n"
        assert (head.folder / "notes.txt").read_text() == "not committed\n" and not (base.folder / "notes.txt").exists()
        assert all((version.folder / "data.txt").read_text() == "data\n" for version in (base, head))
        assert base.commit == git(repository, "rev-parse", "narrow") and base.full_name == f"narrow ({base.commit[:12]})"
        assert head.full_name == "working tree" and len(str(base.folder)) == len(str(head.folder))
        assert base.environment["PYTHONPATH"] == os.pathsep.join([str(base.folder), str(base.folder / "src")])
        around = base.folder.parent
    assert not around.exists() and git(repository, "worktree", "list").count("\n") == 0
    # nothing of the user's own was touched
    assert (repository / "src" / "model.py").read_text() == "width = 3\n" and git(repository, "stash", "list") == ""


def test_the_folder_that_corresponds_to_this_one(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository / "src")
    with check_out(["narrow", "main"]) as versions:
        assert all(version.folder.name == "src" and (version.folder / "model.py").is_file() for version in versions)


def test_the_setup_runs_in_each(repository: Path) -> None:
    with check_out(["narrow", "main"], setup="cp train.py built.py") as versions:
        assert all((version.folder / "built.py").is_file() for version in versions)
    with (
        pytest.raises(ProgramError, match=r"--setup failed in narrow .* with exit code 3") as failed,
        check_out(["narrow", "main"], setup="echo no compiler; exit 3"),
    ):
        pass
    assert failed.value.last_lines == ("no compiler",) and git(repository, "worktree", "list").count("\n") == 0


@pytest.mark.parametrize(
    ("name", "links", "problem"),
    [
        ("nowhere", [], "'nowhere' is no branch, tag or commit"),
        ("--upload-pack=touch x", [], "is no branch, tag or commit"),
        ("narrow", ["missing"], "--link missing: there is nothing of that name"),
        ("narrow", ["../outside"], "--link ../outside: is not in the repository"),
    ],
)
def test_what_cannot_be_checked_out(repository: Path, name: str, links: list[str], problem: str) -> None:
    with pytest.raises(SteplensError, match=problem), check_out([name, "main"], links):
        pass
    assert git(repository, "worktree", "list").count("\n") == 0


def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(SteplensError, match="--base-command"), check_out(["main", "."]):
        pass
