"""Open files that are kept while a window is open, so that it can be saved in a program that has used up all that it may have."""

from __future__ import annotations

import contextlib
import os

#: saving has no more than this many open at a time
_COUNT = 8


class SpareFiles:
    """Holds them until :meth:`give_back`; none where there are none left."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        with contextlib.suppress(OSError):
            self._descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            while len(self._descriptors) < _COUNT:
                self._descriptors.append(os.dup(self._descriptors[0]))

    def give_back(self) -> None:
        """Close them."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __del__(self) -> None:
        self.give_back()
