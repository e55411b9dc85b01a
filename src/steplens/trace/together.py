"""Answers that rest on several traces at once, worked out once for these traces: every rank is asked about by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import polars as pl

from steplens.trace.trace import AnswersByName, Trace, answer_name

Made = TypeVar("Made")

#: a larger table is worked out again rather than kept as long as its traces
_MOST_BYTES = 64 << 20


def once_for_traces(make: Callable[[Sequence[Trace]], Made], traces: Sequence[Trace]) -> Made:
    """``make(traces)``, worked out once for these very traces in this order. Nobody may change what this returns.

    Args:
        make: what is asked; the first of the traces keeps the answer.
        traces: of one run.
    """
    if not traces:
        return make(traces)
    answers = _known_of(traces)
    if make in answers.made:
        return cast(Made, answers.made[make])
    name = answer_name(make)
    accepted = None if answers.accepted is None or name is None else answers.accepted.find_answer(name)
    result = make(traces) if accepted is None else accepted[0]
    if not isinstance(result, pl.DataFrame) or result.estimated_size() <= _MOST_BYTES:
        answers.made[make] = result
    return cast(Made, result)


def known_together(traces: Sequence[Trace]) -> dict[str, Any]:
    """What was worked out of these very traces so far and has a name (``answer_name``), by it."""
    by_name = {answer_name(make): answer for make, answer in list(_known_of(traces).made.items())}
    return {name: answer for name, answer in by_name.items() if name is not None}


def accept_together(traces: Sequence[Trace], answers: AnswersByName) -> None:
    """Let answers about these very traces that were kept be those of ``once_for_traces``."""
    _known_of(traces).accepted = answers


def accepted_together(traces: Sequence[Trace]) -> AnswersByName | None:
    """The answers that ``accept_together`` was given."""
    return _known_of(traces).accepted


@dataclass
class _Known:
    """What is known of some traces together: worked out here, and kept."""

    traces: tuple[Trace, ...]
    made: dict[Callable[[Sequence[Trace]], Any], Any] = field(default_factory=dict)
    accepted: AnswersByName | None = None


def _known_of(traces: Sequence[Trace]) -> _Known:
    together = tuple(traces)
    of_sets = traces[0].once(_answer_cache)
    # thousands of traces take long to hash; those of a run are mostly the very same tuple
    answers = next((answers for answers in of_sets if answers.traces is together or answers.traces == together), None)
    if answers is None:
        answers = _Known(together)
        of_sets.append(answers)
    return answers


def _answer_cache(_: Trace) -> list[_Known]:
    return []
