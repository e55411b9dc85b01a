"""The training thread: the one on which the steps run."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from steplens.analysis import names
from steplens.trace.schema import STEP_PREFIX
from steplens.trace.trace import Trace


@dataclass(frozen=True)
class TrainingThread:
    """A thread of the recorded process, by the numbers of process and thread in the tables."""

    pid: int
    tid: int

    def is_own(self) -> pl.Expr:
        """Whether a row (pid, tid) is of the thread."""
        return (pl.col("pid") == self.pid) & (pl.col("tid") == self.tid)


def training_thread(trace: Trace) -> TrainingThread | None:
    """The thread of the first step; where that calls nothing, and without steps, the thread with the most calls.

    None where there are no calls.
    """
    return trace.once(_training_thread)


def _training_thread(trace: Trace) -> TrainingThread | None:
    # the ranges of the steps themselves do not make a thread the one that trains
    is_step = pl.col("name").is_in(names.with_prefix(names.of_calls(trace), STEP_PREFIX))
    calls = trace.required("ops").filter(~is_step).group_by("pid", "tid").agg(calls=pl.len())
    threads = calls.drop_nulls().sort("calls", "tid", descending=[True, False]).select("pid", "tid").collect()
    steps = trace.required("steps").select("pid", "tid").drop_nulls().head(1).collect()
    if steps.height and (not threads.height or threads.join(steps, on=["pid", "tid"], how="semi").height):
        return TrainingThread(*steps.row(0))
    return TrainingThread(*threads.row(0)) if threads.height else None
