"""Where the built front end lies, and what to do where it was not built; imports nothing of the server."""

from __future__ import annotations

from pathlib import Path

from steplens.common.errors import InputError

#: where the build of the front end lies
STATIC = Path(__file__).resolve().parents[1] / "static"


def check_built(folder: Path) -> None:
    """Raise where the front end was not built.

    Args:
        folder: of the built front end.

    Raises:
        InputError: it has no page; it says how to get one.
    """
    page = folder / "index.html"
    if not page.is_file():
        raise InputError(page, "the pages are not built", how_to_build(folder))


def how_to_build(folder: Path) -> str:
    """One sentence on how to get the pages, in a checkout and elsewhere."""
    checkout = next((parent for parent in folder.parents if (parent / "web" / "package.json").is_file()), None)
    if checkout is not None:
        return f"Run make web in {checkout}"
    return "Install a released package (pip install --force-reinstall 'steplens[view]'); in a checkout make web builds them"
