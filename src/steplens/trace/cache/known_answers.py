"""Everything small that was worked out about the traces of a run, kept for whoever asks the same questions the next time.

What a question is about several traces together (``trace.together``) is not among it. For jobs of thousands of ranks, whose
answers take little memory, see ``accepted_answers``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from steplens.common.step_points import named_points
from steplens.trace.cache.answer_values import decode_answer, encode_answer, estimate_bytes
from steplens.trace.cache.kept_answers import pack_answers, read_answers, write_answers
from steplens.trace.trace import Trace

#: what has a row for each event: other answers are made of it, and it is read again where somebody asks for more
_OF_EVENTS = ("device_work", "phase_of_calls", "phase_intervals", "of_calls", "of_runtime", "queue_waits", "device_parts")
#: what is known of a trace beside answers
STATE = ("_nothing_judged", "_shared_answers", "_kept_count", "_is_prepared", "_answer_cache")
NOT_KEPT = (*_OF_EVENTS, *STATE)
#: a larger answer is worked out again rather than kept; what calls take in each of 600 steps are 5 MB, compressed some 300 KB
_MOST_BYTES = 16 << 20


class KnownAnswers:
    """Answers of ``Trace.once``, by ``trace.answer_name``.

    Args:
        contents: of ``answer_values.encode_answer``, by name.
    """

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = contents
        self._decoded: dict[str, tuple[Any]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self.contents

    def find_answer(self, name: str) -> tuple[Any] | None:
        """An answer, in a tuple; None where there is none that can be read."""
        if name not in self._decoded:
            try:
                self._decoded[name] = (decode_answer(self.contents[name]),)
            except (KeyError, ValueError):  # worked out again
                return None
        return self._decoded[name]


def run_context(traces: Sequence[Trace]) -> str | None:
    """What kept answers about a trace depend on besides it: the others, with which it is decided which steps figures are of.

    None where nothing is kept, or the traces are a part of a run.
    """
    if set(traces[0].companions) != set(traces) or any(trace.kept is None for trace in traces):
        return None
    prints = [trace.kept.fingerprint for trace in traces if trace.kept is not None]
    # points that the environment names move the parts of the step trace
    return hashlib.sha256("\0".join([*prints, repr(named_points(os.environ))]).encode()).hexdigest()


def accept_known(traces: Sequence[Trace], kind: str) -> None:
    """Let the traces of a run answer what was asked about them before; not where they have other answers already.

    Args:
        traces: of a run, all of them.
        kind: who asked: a word for the names of files.
    """
    context = run_context(traces) if traces else None
    if context is None:
        return
    for trace in traces:
        contents = read_answers(trace.kept, context, kind) if trace.kept is not None and trace.accepted is None else None
        if contents is not None:
            trace.accept_answers(KnownAnswers(contents))


def keep_known(traces: Sequence[Trace], kind: str) -> None:
    """Keep what is known about the traces of a run by now, where that is more than was kept.

    Args:
        traces: of a run, all of them.
        kind: as for ``accept_known``.
    """
    context = run_context(traces) if traces else None
    if context is None:
        return
    for trace in traces:
        before = trace.accepted.contents if isinstance(trace.accepted, KnownAnswers) else {}
        fresh = {
            name: content
            for name, answer in trace.known_answers().items()
            if name not in before
            and name.rpartition(":")[2] not in NOT_KEPT
            and estimate_bytes(answer) <= _MOST_BYTES
            and (content := encode_answer(answer)) is not None
            and len(content) <= _MOST_BYTES
        }
        if trace.kept is not None and fresh:
            write_answers(trace.kept, context, pack_answers({**before, **fresh}), kind)
