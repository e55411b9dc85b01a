"""Which commit of git is checked out in a folder, and whether its files are those of the commit."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

_PATIENCE_S = 20
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def find_commit(folder: Path, left_out: Path) -> tuple[str, bool]:
    """The commit that is checked out around a folder, and whether any file that it holds was changed since.

    Args:
        folder: anywhere in the checkout.
        left_out: a folder whose files do not count: that of baselines, which change as they are saved.

    Returns:
        The commit, empty where there is none or no git.
    """
    answer = _ask_git(folder, "rev-parse", "--show-toplevel", "HEAD")
    top, _, commit = (answer or "").strip().rpartition("\n")
    if not _COMMIT.fullmatch(commit):
        return "", False
    beside = os.path.relpath(left_out.resolve(), Path(top).resolve())
    exclusion = [] if beside.startswith(os.pardir) else [f":(exclude,top,literal){beside}"]
    return commit, _ask_git(Path(top), "diff", "--quiet", "--no-ext-diff", "--no-textconv", "HEAD", "--", ".", *exclusion) is None


def _ask_git(folder: Path, *arguments: str) -> str | None:
    """What git answers; None where it fails."""
    # reading alone: no index is refreshed, and no monitor of the repository is started
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None
