"""The training thread: the one on which the steps run."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from steplens.analysis.tools import names
from steplens.analysis.tools.once import once_per_trace
from steplens.trace.building.framework import MINDSPORE, trace_framework
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_MODULE, STEP_PREFIX
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

    On a CPU a thread of MindSpore's runtime is none: it runs what the training thread launched. None where there are no calls.
    """
    # the ranges of the steps themselves do not make a thread the one that trains
    is_step = pl.col("name").is_in(names.with_prefix(names.of_calls(trace), STEP_PREFIX))
    calls = trace.required("ops").filter(~is_step)
    steps = trace.table("steps")
    first = None if steps is None else next(steps.select("pid", "tid").drop_nulls().iter_rows(), None)
    of_steps = None if first is None else TrainingThread(*first)
    if of_steps is not None and calls.filter(of_steps.is_own()).select("pid").head(1).collect().height:
        return of_steps
    if trace_framework(trace) == MINDSPORE and not trace.has_accelerator:
        return of_steps
    threads = calls.drop_nulls(["pid", "tid"]).group_by("pid", "tid").agg(calls=pl.len())
    most = threads.sort("calls", "tid", descending=[True, False]).select("pid", "tid").head(1).collect()
    return TrainingThread(*most.row(0)) if most.height else of_steps


@once_per_trace
def records_host(trace: Trace) -> bool:
    """Whether the operators that the training thread calls were recorded, so that time without any is Python's.

    MindSpore on a CPU records what its runtime's workers run, and capturing the device alone records no operator.
    """
    thread = training_thread(trace)
    if thread is None:
        return False
    is_call = pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD, SCOPE_MODULE])
    return trace.required("ops").filter(thread.is_own() & is_call).select("pid").head(1).collect().height > 0
