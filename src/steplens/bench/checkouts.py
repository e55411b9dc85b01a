"""Versions of a program beside each other: worktrees of a git repository, with what git does not keep linked into them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steplens.bench.links import find_linked, link_into
from steplens.bench.signals import hold_signals
from steplens.common.errors import SteplensError

#: the files as they lie there, changes that are not committed among them
WORKING_TREE = "."
#: folders of a repository from which programs import
_IMPORTED_FROM = (".", "src")
_OF_ANOTHER_TREE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
_SHORT = 12
_SHOWN_LINES = 12
_SHOWN_FILES = 5


class ProgramError(SteplensError):
    """A program did not do what it was run for.

    Attributes:
        last_lines: of what it printed.
    """

    def __init__(self, message: str, last_lines: Sequence[str]) -> None:
        super().__init__(message)
        self.last_lines = tuple(last_lines)


@dataclass(frozen=True)
class Version:
    """One of the two.

    Attributes:
        name: what the user calls it, such as "main".
        folder: where its command is run.
        commit: of git, 40 hex digits; empty where it is none.
        environment: variables that its command gets beside those of this process.
        checkout: the top of its worktree; empty where it has none.
        foreign: other checkouts of the repository, from which it is not to import anything.
    """

    name: str
    folder: Path
    commit: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    checkout: str = ""
    foreign: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Its name with the beginning of the commit."""
        return f"{self.name} ({self.commit[:_SHORT]})" if self.commit and not self.commit.startswith(self.name) else self.name


@contextlib.contextmanager
def check_out(names: Sequence[str], links: Sequence[str] = (), setup: str | None = None) -> Iterator[list[Version]]:
    """Check versions out beside each other, for as long as the context lasts.

    Each gets a worktree, detached, in folders whose names are equally long; the command runs in the folder that corresponds to
    the current one. Imports come from the worktree and its ``src``, before what is installed.

    Args:
        names: branches, tags, commits, or WORKING_TREE.
        links: what git ignores and programs need, relative to the top of the repository.
        setup: a command line for the shell that is run in each of them first.

    Raises:
        ProgramError: the setup failed.
        SteplensError: this is no repository, or a name is no commit.
    """
    top = _find_top()
    commits = [_find_commit(top, name) for name in names]
    linked = [find_linked(top, link) for link in links]
    subfolder = Path.cwd().resolve().relative_to(top)
    around = Path(tempfile.mkdtemp(prefix="steplens_bench_"))
    folders = [around / f"side{number}" for number in range(1, len(names) + 1)]
    try:
        versions = []
        for name, commit, folder in zip(names, commits, folders, strict=True):
            _run_git(top, "worktree", "add", "--detach", "--quiet", "--", str(folder), commit)
            for path in linked:
                link_into(top, folder, path)
            if name == WORKING_TREE:
                _copy_untracked(top, folder, linked)
            title = "working tree" if name == WORKING_TREE else name
            commit_told = "" if name == WORKING_TREE else commit
            foreign = tuple(str(checkout) for checkout in (top, *folders) if checkout != folder)
            version = Version(title, folder / subfolder, commit_told, _imports_from(folder), str(folder), foreign)
            if not version.folder.is_dir():
                raise SteplensError(f"{name}: has no folder {subfolder}, in which the command is to be run")
            versions.append(version)
        for version in versions:
            if setup is not None:
                _run_setup(version, setup)
        yield versions
    finally:
        with hold_signals():
            for folder in folders:
                _remove_worktree(top, folder)
            shutil.rmtree(around, ignore_errors=True)


def _find_top() -> Path:
    try:
        return Path(_run_git(Path.cwd(), "rev-parse", "--show-toplevel")).resolve()
    except SteplensError as error:
        raise SteplensError(
            f"{Path.cwd()}: --base and --head are versions of a git repository, and git finds none here ({error}); run steplens "
            "bench in the repository, or give two commands with --base-command and --head-command"
        ) from None


def _find_commit(top: Path, name: str) -> str:
    if name == WORKING_TREE:
        return _save_working_tree(top)
    try:
        return _run_git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except SteplensError:
        raise SteplensError(
            f"{name!r} is no branch, tag or commit of {top}; a branch of another repository has to be fetched first"
        ) from None


def _save_working_tree(top: Path) -> str:
    """A commit of tracked files as they are."""
    try:
        # nothing where all is committed
        return _run_git(top, "stash", "create") or _run_git(top, "rev-parse", "HEAD")
    except SteplensError as error:
        conflicts, noted = (_list_changed(top, kind) for kind in ("U", "A"))
        if conflicts:
            problem = f"of {conflicts} the conflicts of a merge are not resolved: resolve them and git add the files"
        elif noted:
            problem = f"of {noted} git knows no more than the names (git add --intent-to-add): git add the files"
        else:
            raise
        raise SteplensError(
            f"git cannot save the files as they lie here ({error}); {problem}, or name a commit instead of ."
        ) from None


def _list_changed(top: Path, kind: str) -> str:
    """Files that differ from what git has noted in a way that one of its letters stands for."""
    names = _run_git(top, "diff", "--name-only", f"--diff-filter={kind}", "-z").split("\0")
    files = list(dict.fromkeys(name for name in names if name))
    return ", ".join(files[:_SHOWN_FILES]) + (f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else "")


def _remove_worktree(top: Path, folder: Path) -> None:
    """Remove a worktree and what git notes of it, whether or not it was made, and of no other: another disk may be away."""
    with contextlib.suppress(SteplensError):
        _run_git(top, "worktree", "remove", "--force", "--force", "--", str(folder))
        return
    with contextlib.suppress(SteplensError, OSError):
        notes = top / _run_git(top, "rev-parse", "--git-common-dir") / "worktrees"
        for path in notes.glob("*/gitdir"):
            if os.path.realpath(path.parent / path.read_text().strip()) == os.path.realpath(folder / ".git"):
                shutil.rmtree(path.parent)
        # as git does with it where it is empty
        notes.rmdir()


def _copy_untracked(top: Path, folder: Path, linked: Sequence[Path]) -> None:
    """Copy files that git neither tracks nor ignores, and that are not linked."""
    for name in _run_git(top, "ls-files", "--others", "--exclude-standard", "-z").split("\0"):
        source, target = top / name, folder / name
        is_linked = any(Path(name).is_relative_to(path) for path in linked)
        if name and not is_linked and (source.is_symlink() or source.is_file()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def _imports_from(folder: Path) -> dict[str, str]:
    paths = [str(folder / name) for name in _IMPORTED_FROM if (folder / name).is_dir()]
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*(os.path.normpath(path) for path in paths), *([before] if before else [])])}


def _run_setup(version: Version, setup: str) -> None:
    ended = subprocess.run(
        setup,
        shell=True,  # the user's own line, for a shell
        cwd=version.folder,
        env={**os.environ, **version.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode:
        last_lines = ended.stdout.splitlines()[-_SHOWN_LINES:]
        raise ProgramError(f"--setup failed in {version.full_name} with exit code {ended.returncode}", last_lines)


def _run_git(folder: Path, *arguments: str) -> str:
    # set in hooks of git, where they name another tree than this one
    environment = {name: text for name, text in os.environ.items() if name not in _OF_ANOTHER_TREE}
    try:
        ended = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError:
        raise SteplensError("there is no program git") from None
    if ended.returncode:
        raise SteplensError(f"git {arguments[0]}: {ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else 'failed'}")
    return ended.stdout.strip("\n")
