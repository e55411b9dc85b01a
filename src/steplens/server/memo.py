"""Answers that are worth keeping: made once whoever asks, and forgotten, longest unused first, when they take too much."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

#: locks of values that were forgotten are looked for when there are so many more locks than values
_MANY_LOCKS = 64


class AnswerCache:
    """A cache of bounded size for several threads.

    Args:
        budget_bytes: what the values may take together; the newest is kept whatever it takes.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()
        #: what the values take
        self.size_bytes = 0

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """The value of a key, made where it is not known. A second thread that asks for it waits for the first.

        Args:
            key: what it is.
            make: makes it; what it raises is not kept.
            size: bytes that it takes.
        """
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._values:
                    self._values.move_to_end(key)
                    value: T = self._values[key][0]
                    return value
            made = make()
            with self._lock:
                self._put(key, made, size(made))
                while len(self._values) > 1 and self.size_bytes > self._budget:
                    _, (_, freed) = self._values.popitem(last=False)
                    self.size_bytes -= freed
                if len(self._making) > _MANY_LOCKS + 2 * len(self._values):
                    self._making = {
                        other_key: lock for other_key, lock in self._making.items() if other_key in self._values or lock.locked()
                    }
            return made

    def replace(self, key: Hashable, value: Any, size_bytes: int) -> None:
        """Put an equal value that takes less into the place of one; nothing happens where it was forgotten meanwhile."""
        with self._lock:
            if key in self._values:
                self._put(key, value, size_bytes)

    def known(self, key: Hashable) -> Any:
        """The value of a key if it has been made; None otherwise."""
        with self._lock:
            value = self._values.get(key)
        return None if value is None else value[0]

    def _put(self, key: Hashable, value: Any, size_bytes: int) -> None:
        _, before = self._values.get(key, (None, 0))
        self._values[key] = value, size_bytes
        self.size_bytes += size_bytes - before
