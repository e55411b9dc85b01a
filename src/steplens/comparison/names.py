"""What became of each operator and each device task, per step, matched by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import polars as pl

from steplens.analysis.steps.times import chosen_step_times
from steplens.trace.trace import Trace


class Statistics(Protocol):
    """``operators`` or ``kernel_statistics``."""

    def __call__(self, trace: Trace, *, steps: list[int] | None) -> pl.DataFrame:
        """Rows by name."""


def compare_by_name(
    before: Sequence[Trace], after: Sequence[Trace], statistics: Statistics, calls: str, time: str
) -> pl.DataFrame:
    """Names with calls and time of both sides per step, the largest change first; what one has none of counts as 0.

    Columns: name, before_calls, ``before_<time>``, after_calls, ``after_<time>`` (null where a side has none of it) and
    difference_ns, after less before.

    Args:
        before: the traces of the earlier side.
        after: those of the later one.
        statistics: what gives rows by ``name``.
        calls: its column of counts.
        time: its column of times, ns.
    """
    first, second = (sum_per_step(traces, statistics, calls, time) for traces in (before, after))
    return join_by_name(first, second, time)


def join_by_name(before: pl.DataFrame, after: pl.DataFrame, time: str) -> pl.DataFrame:
    """``compare_by_name`` of what ``sum_per_step`` gives for both sides."""
    renamed = {"calls": "before_calls", time: f"before_{time}", "calls_after": "after_calls", f"{time}_after": f"after_{time}"}
    joined = before.join(after, on="name", how="full", coalesce=True, suffix="_after").rename(renamed)
    joined = joined.with_columns(difference_ns=pl.col(f"after_{time}").fill_null(0) - pl.col(f"before_{time}").fill_null(0))
    return joined.sort(pl.col("difference_ns").abs(), pl.col("name"), descending=[True, False])


def sum_per_step(traces: Sequence[Trace], statistics: Statistics, calls: str, time: str) -> pl.DataFrame:
    """What is counted in the chosen steps of all traces, per step; in the whole recordings where there are no steps."""
    step_numbers = [chosen_step_times(trace)["step"].to_list() for trace in traces]
    count = sum(map(len, step_numbers))
    parts = [
        statistics(trace, steps=steps if count else None).select("name", pl.col(calls).alias("calls"), time)
        for trace, steps in zip(traces, step_numbers, strict=True)
    ]
    return pl.concat(parts).group_by("name").agg(pl.exclude("name").sum()).with_columns(pl.exclude("name") / max(count, 1))
