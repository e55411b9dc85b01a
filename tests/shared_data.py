"""Where recorded captures lie that are too large for the repository, and what becomes of a test where they are absent.

They are in ``shared/data`` beside the checkout. The environment variable ``STEPLENS_SHARED_DATA`` names another folder, or none
when it is empty. Where nobody named a folder, a test that needs one is skipped; a folder that was named has to have everything.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "STEPLENS_SHARED_DATA"
ABSENT = "the shared test data is not beside this checkout"

_NAMED = os.environ.get(VARIABLE)
_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" if _NAMED is None else Path(_NAMED).resolve()


#: whether the test that runs has asked for one
asked = False


def find_shared(*parts: str) -> Path | None:
    """A file or folder of the shared test data, or None where it is absent."""
    global asked
    asked = True
    path = _FOLDER.joinpath(*parts)
    return path if _NAMED != "" and path.exists() else None


def shared(*parts: str) -> Path:
    """A file or folder of the shared test data; where it is absent, the test is skipped, or fails in a folder that was named.

    It is for tests, fixtures and what they call: while a module is imported, it would take all tests of that module along.
    """
    path = find_shared(*parts)
    if path is None and _NAMED:
        pytest.fail(f"{_FOLDER.joinpath(*parts)} is missing; {VARIABLE} says that the shared test data is there", pytrace=False)
    if path is None:
        pytest.skip(ABSENT)
    return path
