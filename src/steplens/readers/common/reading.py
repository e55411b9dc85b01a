"""How far the reading of a file is, told to whoever waits for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

#: larger files are read by two processes: below, the second one takes longer to start than it saves
PARALLEL_BYTES = 96 << 20

#: the file, bytes of it that were read, and how many it has
Listener = Callable[[Path, int, int], None]

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def told_to(listener: Listener) -> Iterator[None]:
    """While this lasts, reading in this thread is told to ``listener``, some times a second."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def tell(path: Path, done: int, total: int) -> None:
    """Say that so many of the bytes of a file were read."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(path, done, total)
