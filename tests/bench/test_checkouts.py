"""Versions beside each other: what lies in them, what is left behind, and what cannot be checked out."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from steplens.bench import checkouts
from steplens.bench.checkouts import ProgramError, check_out
from steplens.bench.signals import leave_on_signals
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


def test_untracked_links_and_what_is_linked_anyway(repository: Path) -> None:
    (repository / "src" / "alias").symlink_to(".")
    (repository / "large").mkdir()
    (repository / "large" / "data.bin").write_text("not copied\n")
    with check_out([".", "narrow"], links=["large", str(repository / "data.txt")]) as versions:
        assert (versions[0].folder / "src" / "alias" / "model.py").is_file()
        assert not (versions[1].folder / "src" / "alias").exists()
        for version in versions:
            assert (version.folder / "large").readlink() == repository / "large" and (version.folder / "data.txt").is_file()


def test_versions_know_the_other_checkouts(repository: Path) -> None:
    with check_out(["narrow", "main"]) as (base, head):
        assert base.foreign == (str(repository), head.checkout) and head.foreign == (str(repository), base.checkout)
        assert (head.checkout, base.checkout) == (str(head.folder), str(base.folder))


def test_worktrees_of_the_user_stay(repository: Path) -> None:
    """One whose disk is away, too, and one that the user removed in the middle takes nothing of ours along."""
    for name in ("here", "away"):
        git(repository, "worktree", "add", "--detach", "--quiet", f"../{name}", "narrow")
    (repository.parent / "away").rename(repository.parent / "disk")
    with check_out(["narrow", "main"]) as versions:
        assert git(repository, "worktree", "list").count("\n") == 4
        shutil.rmtree(versions[0].checkout)
    assert [line.split()[0] for line in git(repository, "worktree", "list").splitlines()] == [
        str(repository), str(repository.parent / "away"), str(repository.parent / "here"),
    ]  # fmt: skip


def test_a_second_signal_leaves_no_worktree(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_git = checkouts._run_git

    def run_and_ask_again(folder: Path, *arguments: str) -> str:
        if arguments[:2] == ("worktree", "remove"):
            signal.raise_signal(signal.SIGTERM)
        return run_git(folder, *arguments)

    monkeypatch.setattr(checkouts, "_run_git", run_and_ask_again)
    with pytest.raises(SystemExit), leave_on_signals(), check_out(["narrow", "main"]) as versions:
        signal.raise_signal(signal.SIGTERM)
    assert not Path(versions[0].checkout).parent.exists() and git(repository, "worktree", "list").count("\n") == 0


def test_a_working_tree_that_git_cannot_save(repository: Path) -> None:
    (repository / "new.py").write_text("")
    git(repository, "add", "--intent-to-add", "new.py")
    with (
        pytest.raises(SteplensError, match=r"of new.py git knows no more than the names .*: git add the files, or"),
        check_out(["."]),
    ):
        pass
    git(repository, "add", "new.py")
    with check_out(["."]) as (head,):
        assert (head.folder / "new.py").is_file()
    git(repository, "commit", "--quiet", "-a", "-m", "new")
    for branch, width in (("other", 1), ("main", 2)):
        git(repository, "checkout", "--quiet", "-B", branch, *(["narrow"] if branch == "other" else []))
        (repository / "src" / "model.py").write_text(f"width = {width}\n")
        git(repository, "commit", "--quiet", "-a", "-m", branch)
        if branch == "other":
            git(repository, "checkout", "--quiet", "main")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    with pytest.raises(SteplensError, match=r"of src/model.py the conflicts of a merge are not resolved"), check_out(["."]):
        pass


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
