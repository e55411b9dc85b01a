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
    answers = traces[0].once(_answer_cache)
    key = make, tuple(traces)
    if key in answers:
        return cast(Made, answers[key])
    result = make(traces)
    if not isinstance(result, pl.DataFrame) or result.estimated_size() <= _MOST_BYTES:
        answers[key] = result
    return result


def _answer_cache(_: Trace) -> dict[tuple[Callable[[Sequence[Trace]], Any], tuple[Trace, ...]], Any]:
    return {}
