"""Where baselines lie, and how they are named; known before anything is read."""

from __future__ import annotations

import os
import re
from pathlib import Path

from steplens.common.errors import InputError, SteplensError, check_readable
from steplens.common.storage.files import list_remote, locate_path
from steplens.common.storage.urls import is_url

#: in front of a name, where a path could stand
PREFIX = "baseline:"
#: what the names of their files end with
SUFFIX = ".baseline"
#: says in which folder they are, or at which URL
VARIABLE = "STEPLENS_BASELINES"
FOLDER = "steplens-baselines"

#: what ``RemoteTree.list_files`` says of a place without files
_MISSING, _EMPTY = "does not exist", "is an empty folder"
_NAME = re.compile(r"\w[\w.+-]{0,59}")


def baselines_folder(folder: str = "") -> str:
    """Where baselines lie: the folder or URL that is given, that of ``VARIABLE``, or ``FOLDER`` in the working directory."""
    return folder or os.environ.get(VARIABLE, "").strip() or FOLDER


def check_name(name: str) -> None:
    """Whether a baseline may have a name, which is that of its file.

    Raises:
        SteplensError: it may not.
    """
    if not _NAME.fullmatch(name):
        raise SteplensError(
            f"{name!r} cannot be the name of a baseline: up to 60 letters, digits and . _ + - can, the first a letter or a digit"
        )


def address_of(name: str, folder: str = "") -> str:
    """The path or URL of the file of a baseline.

    Raises:
        SteplensError: the name is none.
    """
    check_name(name)
    where = baselines_folder(folder)
    return f"{where.rstrip('/')}/{name}{SUFFIX}" if is_url(where) else os.path.join(where, f"{name}{SUFFIX}")


def locate_side(text: str | os.PathLike[str]) -> Path:
    """The path of what is compared: of a baseline, written ``baseline:NAME``, or of anything that can be opened, or its URL.

    Raises:
        SteplensError: the name or the URL is none.
    """
    path = os.fspath(text)
    return locate_path(address_of(path.removeprefix(PREFIX)) if path.startswith(PREFIX) else path)


def is_baseline(path: Path) -> bool:
    """Whether a path is that of a baseline, by its name."""
    return path.name.endswith(SUFFIX)


def check_baseline(path: Path) -> None:
    """Whether the file of a baseline is there.

    Raises:
        InputError: it is not, or its place cannot be reached.
    """
    if not is_there(path):
        remedy = "Save it with: steplens baseline save NAME RUN; steplens baseline list says which there are"
        raise InputError(path, "there is no such baseline", remedy)
    check_readable(path)
    if path.is_dir():
        raise InputError(path, "is a folder, and no baseline", "Give the file of one")


def is_there(path: Path) -> bool:
    """Whether there is a file or folder, here or behind a URL.

    Raises:
        InputError: its place cannot be reached.
    """
    try:
        list_remote(path)
    except InputError as error:
        # object stores have no empty folders
        if error.problem == _MISSING or error.problem.startswith(_EMPTY):
            return False
        raise
    return os.path.lexists(path)


def baseline_name(path: Path) -> str:
    """The name of a baseline, from that of its file."""
    return path.name.removesuffix(SUFFIX)


def find_baselines(folder: str = "") -> list[Path]:
    """The files of the baselines of a folder or URL, in order of name; none where there is no such folder.

    Raises:
        InputError: it cannot be listed, or is no folder.
    """
    top = locate_path(baselines_folder(folder))
    if not is_there(top):
        return []
    if not top.is_dir():
        raise InputError(top, "is no folder", "Give the folder that baselines are in")
    return sorted(path for path in top.iterdir() if path.name.endswith(SUFFIX) and path.is_file())
