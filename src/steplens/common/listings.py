"""What lies in folders, listed once for as long as somebody says: a command looks at tens of thousands of names several times.

Outside of ``listed_once`` every question is one to the file system, so that whoever watches a folder sees it as it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_KNOWN: ContextVar[dict[Hashable, Any] | None] = ContextVar("what is known of folders", default=None)


@dataclass(frozen=True)
class Listing:
    """The entries of a folder, by name.

    Attributes:
        folder: the folder.
        entries: everything in it, with what the file system said of its kind.
    """

    folder: Path
    entries: tuple[os.DirEntry[str], ...]

    @cached_property
    def entry_names(self) -> frozenset[str]:
        """Their names."""
        return frozenset(entry.name for entry in self.entries)

    @cached_property
    def entry_paths(self) -> tuple[Path, ...]:
        """Their paths, in order."""
        return tuple(self.folder / entry.name for entry in self.entries)


@contextlib.contextmanager
def listed_once() -> Iterator[None]:
    """Within this, in this thread, every folder is listed once, and what ``remember_once`` is asked for is made once."""
    if _KNOWN.get() is not None:
        yield
        return
    token = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(token)


def list_folder(folder: Path) -> Listing:
    """What a folder holds.

    Raises:
        OSError: it cannot be listed.
    """
    return remember_once(("folder", os.fspath(folder)), lambda: _scan_folder(folder))


def entry_names(folder: Path) -> frozenset[str]:
    """The names of what a folder holds.

    Raises:
        OSError: it cannot be listed.
    """
    # names alone are had in half of the time
    return frozenset(os.listdir(folder)) if _KNOWN.get() is None else list_folder(folder).entry_names


def remember_once(key: Hashable, make: Callable[[], T]) -> T:
    """What was made for a key before, within ``listed_once``; else it is made.

    Args:
        key: names what is made, and of what.
        make: makes it, from what folders hold.
    """
    memory = _KNOWN.get()
    if memory is None:
        return make()
    if key not in memory:
        memory[key] = make()
    made: T = memory[key]
    return made


def _scan_folder(folder: Path) -> Listing:
    with os.scandir(folder) as entries:
        return Listing(folder, tuple(sorted(entries, key=lambda entry: entry.name)))
