"""Answers that rest on several traces at once, worked out once for these traces: every rank is asked about by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import polars as pl

from steplens.trace.trace import Trace

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
    answers = _answers_about(traces)
    if make in answers:
        return cast(Made, answers[make])
    result = make(traces)
    if not isinstance(result, pl.DataFrame) or result.estimated_size() <= _MOST_BYTES:
        answers[make] = result
    return result


def _answers_about(traces: Sequence[Trace]) -> dict[Callable[[Sequence[Trace]], Any], Any]:
    """What is known of these traces together."""
    together = tuple(traces)
    about_sets = traces[0].once(_answer_cache)
    # thousands of traces take long to hash; those of a run are mostly the very same tuple
    answers = next((answers for of, answers in about_sets if of is together or of == together), None)
    if answers is None:
        answers = {}
        about_sets.append((together, answers))
    return answers


def _answer_cache(_: Trace) -> list[tuple[tuple[Trace, ...], dict[Callable[[Sequence[Trace]], Any], Any]]]:
    return []
