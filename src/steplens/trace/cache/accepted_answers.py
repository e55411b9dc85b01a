"""Answers about a trace that were kept or worked out elsewhere, as ``Trace.once`` asks for them.

A job has thousands of traces, each with dozens of small answers: they are compressed in memory, and of those that were made
frames and objects again only the last ones stay so.
"""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Mapping
from typing import Any

from steplens.common import expansion
from steplens.trace.cache.answer_values import MOST_BYTES, decode_answer

#: of all traces together: some KB each
_MOST_DECODED = 8192
#: the fastest; of what is smaller than so many bytes nothing would be saved
_LEVEL, _LEAST_BYTES = 1, 256


class DecodedAnswers:
    """The answers of the traces of a run that were decoded last.

    Args:
        most: how many, of all traces together.
    """

    def __init__(self, most: int = _MOST_DECODED) -> None:
        self._most = most
        self._answers: dict[tuple[int, str], Any] = {}
        self._lock = threading.Lock()  # traces are judged side by side

    def find(self, owner: int, name: str) -> tuple[Any] | None:
        """An answer, in a tuple; None where it is not there (any more)."""
        try:
            return (self._answers[owner, name],)
        except KeyError:
            return None

    def add(self, owner: int, name: str, answer: Any) -> None:
        """Keep an answer, in place of the one that was added first where there are too many."""
        with self._lock:
            self._answers[owner, name] = answer
            while len(self._answers) > self._most:
                del self._answers[next(iter(self._answers))]


class AcceptedAnswers:
    """What is known of one trace, by name.

    Args:
        encoded: of ``answer_values.encode_answer``.
        decoded: what all traces of the run share.
        owner: the number of the trace among them.
    """

    def __init__(self, encoded: Mapping[str, bytes], decoded: DecodedAnswers, owner: int) -> None:
        # several questions often have one answer, and all traces are asked the same ones
        contents: dict[bytes, bytes] = {}
        self._encoded = {sys.intern(name): contents.setdefault(answer, _compress(answer)) for name, answer in encoded.items()}
        self._decoded = decoded
        self._owner = owner

    def __len__(self) -> int:
        return len(self._encoded)

    def __contains__(self, name: object) -> bool:
        return name in self._encoded

    def find(self, name: str) -> tuple[Any] | None:
        """The answer of a name, in a tuple; None where there is none that can be read."""
        if name not in self._encoded:
            return None
        found = self._decoded.find(self._owner, name)
        if found is None:
            try:
                found = (decode_answer(_expand(self._encoded[name])),)
            except ValueError:  # worked out again
                return None
            self._decoded.add(self._owner, name, found[0])
        return found

    def encoded(self) -> dict[str, bytes]:
        """All of them, as they were given."""
        return {name: _expand(content) for name, content in self._encoded.items()}


def _compress(content: bytes) -> bytes:
    """Bytes behind one that says whether they are compressed."""
    return b"\0" + content if len(content) < _LEAST_BYTES else b"\1" + zlib.compress(content, _LEVEL)


def _expand(content: bytes) -> bytes:
    return expansion.expand_bytes(content[1:], MOST_BYTES) if content[0] else content[1:]
