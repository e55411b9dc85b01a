"""Analyses that are worked out once: for a trace, or for several together. Nobody may change what they return."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import polars as pl

from steplens.trace.together import once_for_traces
from steplens.trace.trace import Trace

Made = TypeVar("Made")


def once_per_trace(make: Callable[[Trace], Made]) -> Callable[[Trace], Made]:
    """The analysis, with an answer that is kept as long as its trace (``Trace.once``)."""

    @functools.wraps(make)
    def answer_trace(trace: Trace) -> Made:
        return trace.once(make)

    return answer_trace


def once_if_small(make: Callable[[Trace], pl.DataFrame]) -> Callable[[Trace], pl.DataFrame]:
    """The same, of an answer that may be large (``Trace.once_if_small``)."""

    @functools.wraps(make)
    def answer_trace(trace: Trace) -> pl.DataFrame:
        return trace.once_if_small(make)

    return answer_trace


def once_per_run(make: Callable[[Sequence[Trace]], Made]) -> Callable[[Sequence[Trace]], Made]:
    """The same of several traces at once (``once_for_traces``)."""

    @functools.wraps(make)
    def answer_traces(traces: Sequence[Trace]) -> Made:
        return once_for_traces(make, traces)

    return answer_traces
