"""What git does not keep and programs need, such as their data: linked from the repository into the checkouts of versions."""

from __future__ import annotations

import os
from pathlib import Path

from steplens.common.errors import SteplensError


def find_linked(top: Path, link: str) -> Path:
    """Where in the repository something lies that is to be linked, relative to its top.

    Args:
        top: of the repository, without links.
        link: what the user calls it, relative to the top or absolute.

    Raises:
        SteplensError: it is not in the repository, or not there.
    """
    source = Path(os.path.normpath(top / link))
    # the way of the user to the repository may lead through links
    tops = [folder for folder in source.parents if os.path.realpath(folder) == str(top)]
    if not tops:
        raise SteplensError(f"--link {link}: is not in the repository; name what lies in {top}, relative to it")
    if not source.exists():
        raise SteplensError(f"--link {link}: there is nothing of that name in {top}")
    return source.relative_to(tops[-1])


def link_into(top: Path, checkout: Path, path: Path) -> None:
    """Link something of the repository into a checkout.

    Where git keeps a part of a folder, the checkout has that already and gets the rest: ``data/.gitkeep``, or the empty folder
    of a submodule.

    Args:
        top: of the repository.
        checkout: of a version.
        path: as of ``find_linked``.

    Raises:
        SteplensError: the checkout has a file there, or cannot be written to.
    """
    source, target = top / path, checkout / path
    if target.exists() and target.samefile(source):
        return
    try:
        if target.is_symlink() and not target.exists():
            # git keeps a link that leads to nothing from here
            target.unlink()
        if os.path.lexists(target) and not _are_folders(source, target):
            raise SteplensError(
                f"--link {path}: git keeps it, so that each version has its own; name what git ignores, or leave the option out"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        _link_missing(source, target)
    except OSError as error:
        raise SteplensError(f"--link {path}: {error.filename or checkout}: {error.strerror}") from None


def _link_missing(source: Path, target: Path) -> None:
    if not os.path.lexists(target):
        target.symlink_to(source)
    elif _are_folders(source, target):
        for entry in source.iterdir():
            # a submodule's own, which leads to its repository from one place only
            if entry.name != ".git":
                _link_missing(entry, target / entry.name)


def _are_folders(source: Path, target: Path) -> bool:
    return source.is_dir() and target.is_dir() and not target.is_symlink()
