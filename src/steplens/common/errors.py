"""The error classes of steplens: one for bad input, one for bad command lines, one for its own defects while it reads."""

from __future__ import annotations

from pathlib import Path

from steplens.common.links import dead_link
from steplens.common.stand_ins import told_path

#: characters of a foreign error's text in a sentence
_LONGEST = 300


class SteplensError(Exception):
    """Anything steplens refuses to do, said in one sentence a user can act on.

    Attributes:
        exit_code: what the command line returns for it; 2 means bad input.
    """

    exit_code = 2


class InputError(SteplensError):
    """A file or folder cannot be used: says which one, what is wrong and what to do.

    Args:
        path: the file or folder at fault.
        problem: what is wrong with it, without a full stop.
        remedy: what the user can do about it; empty when there is nothing to do.
    """

    def __init__(self, path: str | Path, problem: str, remedy: str = "") -> None:
        self.path = Path(path)
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{told_path(path)}: {problem}" + (f". {remedy}" if remedy else ""))


class DefectError(InputError):
    """Something failed in a way that nobody foresaw: a defect of steplens or of an installed package, which costs one file.

    Args:
        path: the file or folder that was being read or exported.
        error: what happened.
        package: the installed package whose code failed; empty for that of steplens.
        action: what was being done with the file.
    """

    def __init__(self, path: str | Path, error: BaseException, package: str = "", action: str = "read") -> None:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        what = what if len(what) <= _LONGEST else what[: _LONGEST - 3] + "..."
        remedy = "Please report it to its makers, or remove that package" if package else "Please report it"
        super().__init__(path, f"could not be {action}: {what}; this is a defect of {package or 'steplens'}", remedy)


def check_exists(path: Path) -> None:
    """Whether there is such a file or folder.

    Raises:
        InputError: there is none, or a folder around it is closed to this user.
    """
    try:
        exists = path.exists()
    except PermissionError as error:
        raise InputError(
            path, f"cannot be reached ({error.strerror})", "Check the permissions of the folders it is in"
        ) from error
    if not exists:
        if (dead := dead_link(path)) is not None:
            raise InputError(*dead, "Check where it leads")
        raise InputError(path, "does not exist", "Check the path")


def check_readable(path: Path) -> None:
    """Whether there is such a file or folder, and no pipe or device.

    Raises:
        InputError: as ``check_exists``; or it is something else than a file or a folder.
    """
    check_exists(path)
    if path.is_dir() or path.is_file():
        return
    kind = "a pipe" if path.is_fifo() else "a socket" if path.is_socket() else "a device"
    raise InputError(path, f"is {kind}, and neither a file nor a folder", "Write what comes from there to a file and give that")
