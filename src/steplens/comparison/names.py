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


def join_by_name(before: pl.DataFrame, after: pl.DataFrame, time: str) -> pl.DataFrame:
    """Names with calls and time of both sides per step, the largest change first; what one has none of counts as 0.

    Columns: name, before_calls, ``before_<time>``, after_calls, ``after_<time>`` (null where a side has none of it) and
    difference_ns, after less before.

    Args:
        before: what ``sum_per_step`` gives of the earlier side.
        after: the same of the later one.
        time: the column of times, ns.
    """
    renamed = {"calls": "before_calls", time: f"before_{time}", "calls_after": "after_calls", f"{time}_after": f"after_{time}"}
    joined = before.join(after, on="name", how="full", coalesce=True, suffix="_after").rename(renamed)
    joined = joined.with_columns(difference_ns=pl.col(f"after_{time}").fill_null(0) - pl.col(f"before_{time}").fill_null(0))
    return joined.sort(pl.col("difference_ns").abs(), pl.col("name"), descending=[True, False])


def sum_per_step(
    traces: Sequence[Trace], statistics: Statistics, calls: str, time: str, keys: Sequence[str] = ("name",)
) -> pl.DataFrame:
    """What is counted in the chosen steps of all traces, per step; in the whole recordings where there are no steps.

    Args:
        traces: of a side.
        statistics: what gives rows by ``keys``.
        calls: its column of counts, ``calls`` here.
        time: its column of times, ns.
        keys: what tells rows apart.
    """
    step_numbers = [chosen_step_times(trace)["step"].to_list() for trace in traces]
    count = sum(map(len, step_numbers))
    parts = [
        statistics(trace, steps=steps if count else None).select(*keys, pl.col(calls).alias("calls"), time)
        for trace, steps in zip(traces, step_numbers, strict=True)
    ]
    return pl.concat(parts).group_by(*keys).agg(pl.exclude(*keys).sum()).with_columns(pl.exclude(*keys) / max(count, 1))
