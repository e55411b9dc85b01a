"""The training thread: the one on which the steps run."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from steplens.analysis.tools import names
from steplens.analysis.tools.once import once_per_trace
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


@once_per_trace
def training_thread(trace: Trace) -> TrainingThread | None:
    """The thread of the first step; where that calls nothing, and without steps, the thread with the most calls.

    None where there are no calls.
    """
    # the ranges of the steps themselves do not make a thread the one that trains
    is_step = pl.col("name").is_in(names.with_prefix(names.of_calls(trace), STEP_PREFIX))
    calls = trace.required("ops").filter(~is_step)
    steps = trace.table("steps")
    first = None if steps is None else next(steps.select("pid", "tid").drop_nulls().iter_rows(), None)
    of_steps = None if first is None else TrainingThread(*first)
    if of_steps is not None and calls.filter(of_steps.is_own()).select("pid").head(1).collect().height:
        return of_steps
    threads = calls.drop_nulls(["pid", "tid"]).group_by("pid", "tid").agg(calls=pl.len())
    most = threads.sort("calls", "tid", descending=[True, False]).select("pid", "tid").head(1).collect()
    return TrainingThread(*most.row(0)) if most.height else of_steps
