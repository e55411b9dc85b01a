"""Answers about a trace that were kept or worked out elsewhere, as ``Trace.once`` asks for them.

A job has thousands of traces, each with dozens of small answers. In memory they are compressed, against those of the first trace,
from which they differ in numbers and little else; of those that were made frames and objects again only the last ones stay so.
"""

from __future__ import annotations

import threading
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from steplens.common import expansion
from steplens.trace.cache.answer_values import MOST_BYTES, decode_answer

#: bytes of answers of all traces together, as they are encoded, of which the objects stay: these take several times as much
_DECODED_BYTES = 4 << 20
_LEVEL = 3
#: as far as compression looks back
_WINDOW_BYTES = 32 << 10


class SharedAnswers:
    """What the accepted answers of all traces of a run share.

    Args:
        decoded_bytes: of answers of so many bytes, of all traces together, the objects stay in memory.
    """

    def __init__(self, decoded_bytes: int = _DECODED_BYTES) -> None:
        self._most_bytes = decoded_bytes
        self._bytes = 0
        self._decoded: OrderedDict[tuple[int, str], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()  # traces are judged side by side
        self._first: dict[str, bytes] = {}
        self._layouts: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}

    def compress_answer(self, name: str, answer: bytes) -> bytes:
        """An answer, compressed against the first one of its name."""
        reference = self._first.setdefault(name, answer[-_WINDOW_BYTES:])
        packer = zlib.compressobj(_LEVEL, zdict=reference)
        return packer.compress(answer) + packer.flush()

    def expand_answer(self, name: str, content: bytes) -> bytes:
        """The answer again."""
        return expansion.expand_bytes(content, MOST_BYTES, dictionary=self._first[name])

    def share_layout(self, layout: dict[str, int]) -> dict[str, int]:
        """The same dictionary for all that are equal: traces are mostly asked the same."""
        return self._layouts.setdefault(tuple(layout.items()), layout)

    def find_decoded(self, owner: int, name: str) -> tuple[Any] | None:
        """An answer of a trace, in a tuple; None where it is not there (any more)."""
        try:
            return (self._decoded[owner, name][0],)
        except KeyError:
            return None

    def add_decoded(self, owner: int, name: str, answer: Any, encoded_bytes: int) -> None:
        """Keep an answer, in place of those that were added first where there are too many."""
        with self._lock:
            replaced = self._decoded.pop((owner, name), None)
            self._decoded[owner, name] = answer, encoded_bytes
            self._bytes += encoded_bytes - (0 if replaced is None else replaced[1])
            while self._bytes > self._most_bytes and len(self._decoded) > 1:
                self._bytes -= self._decoded.popitem(last=False)[1][1]


class AcceptedAnswers:
    """What is known of one trace, by name.

    Args:
        answers: of ``answer_values.encode_answer``.
        shared: what all traces of the run share.
        owner: the number of the trace among them.
    """

    def __init__(self, answers: Mapping[str, bytes], shared: SharedAnswers, owner: int) -> None:
        first_names: dict[bytes, str] = {}
        for name, answer in answers.items():
            # several questions often have one answer
            first_names.setdefault(answer, name)
        places = {name: place for place, name in enumerate(first_names.values())}
        contents = [shared.compress_answer(name, answer) for answer, name in first_names.items()]
        self._shared = shared
        self._owner = owner
        self._place = shared.share_layout({name: places[first_names[answer]] for name, answer in answers.items()})
        self._names = shared.share_layout(places)
        self._content = b"".join(contents)
        self._ends = array("I", (0,))
        for content in contents:
            self._ends.append(self._ends[-1] + len(content))

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, name: object) -> bool:
        return name in self._place

    def find_answer(self, name: str) -> tuple[Any] | None:
        """The answer of a name, in a tuple; None where there is none that can be read."""
        if name not in self._place:
            return None
        answer = self._shared.find_decoded(self._owner, name)
        if answer is None:
            try:
                encoded = self._expand_place(self._place[name])
                answer = (decode_answer(encoded),)
            except ValueError:  # worked out again
                return None
            self._shared.add_decoded(self._owner, name, answer[0], len(encoded))
        return answer

    def encode_all(self) -> dict[str, bytes]:
        """All of them, as they were given."""
        return {name: self._expand_place(place) for name, place in self._place.items()}

    def _expand_place(self, place: int) -> bytes:
        content = self._content[self._ends[place] : self._ends[place + 1]]
        return self._shared.expand_answer(list(self._names)[place], content)


class JobAnswers:
    """What is known of all traces of a run together, by name: a few answers, which are made objects when somebody asks.

    Args:
        contents: of ``answer_values.encode_answer``.
    """

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = contents

    def __contains__(self, name: object) -> bool:
        return name in self.contents

    def find_answer(self, name: str) -> tuple[Any] | None:
        """The answer of a name, in a tuple; None where there is none that can be read."""
        try:
            return (decode_answer(self.contents[name]),)
        except (KeyError, ValueError):  # worked out again
            return None
