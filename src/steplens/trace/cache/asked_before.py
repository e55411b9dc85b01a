"""Tables of a run of one trace as they were answered, kept for whoever asks for them again: without what works them out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from steplens.common.extensions import installed_versions
from steplens.trace.cache.answer_values import decode_answer, encode_answer, estimate_bytes
from steplens.trace.cache.kept_answers import pack_answers, read_answers, write_answers
from steplens.trace.cache.known_answers import run_context
from steplens.trace.kept_tables import KeptTables
from steplens.trace.trace import Trace

Made = TypeVar("Made")

_KIND = "asked"
#: what takes less is not worth a file
_WORTH_S = 0.005
#: a larger answer is worked out again rather than kept
_MOST_BYTES = 1 << 20


class AskedBefore:
    """What was asked of the traces of a run before.

    Args:
        traces: all of the run; of several nothing is kept here.
    """

    def __init__(self, traces: Sequence[Trace]) -> None:
        context = run_context(traces) if len(traces) == 1 else None
        self._kept: KeptTables | None = None if context is None else traces[0].kept
        # an installed package may answer in place of ours
        self._context = hashlib.sha256("\0".join([context or "", *installed_versions()]).encode()).hexdigest()
        self._contents: dict[str, bytes] = {}
        if self._kept is not None:
            self._contents = read_answers(self._kept, self._context, _KIND) or {}

    def answer_question(self, question: str, work_out: Callable[[], Made]) -> Made:
        """The answer to a question, which depends on nothing but the traces and the program.

        Args:
            question: names it, with all that was asked for.
            work_out: gives a frame or plain values; what it raises is raised again each time.
        """
        if question in self._contents:
            try:
                return cast(Made, decode_answer(self._contents[question]))
            except ValueError:  # worked out again
                pass
        began = time.perf_counter()
        answer = work_out()
        if self._kept is not None and time.perf_counter() - began >= _WORTH_S and estimate_bytes(answer) <= _MOST_BYTES:
            content = encode_answer(answer)
            if content is not None and len(content) <= _MOST_BYTES:
                self._contents[question] = content
                write_answers(self._kept, self._context, pack_answers(self._contents), _KIND)
        return answer
