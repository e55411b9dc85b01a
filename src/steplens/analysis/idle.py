"""Why the device was idle inside a step: every gap between two tasks attributed to what held the next task back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.analysis import names
from steplens.analysis.order import in_order
from steplens.analysis.overlap import Int64Array, Intervals, length_inside, merged, union
from steplens.analysis.steps import computing_tasks
from steplens.trace.schema import DATALOADER_PREFIX, KIND_COPY, SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

COPY = "copy"
GARBAGE_COLLECTION = "garbage collection"
DATA = "data"
SYNCHRONIZATION = "synchronization"
ALLOCATION = "allocation"
CALLS = "calls"
PYTHON = "python"
LAUNCH = "launch"
DEPENDENCY = "dependency"
UNKNOWN = "unknown"
#: in the order in which they are looked for, where several apply
CAUSES = (COPY, GARBAGE_COLLECTION, DATA, SYNCHRONIZATION, ALLOCATION, CALLS, PYTHON, LAUNCH, DEPENDENCY, UNKNOWN)

#: runtime calls that wait for the device, and those that ask its driver for memory
SYNCHRONIZATION_NAME = r"(?i)synchronize|^aclrtsync|stream sync|context sync|^(cuda|hip)memcpy$|^hipmemcpywithstream$"
ALLOCATION_NAME = r"(?i)malloc|^(cuda|hip)(host)?free|^cumem(alloc|free|create|map)"


def idle_causes(trace: Trace) -> pl.DataFrame:
    """Idle time of the device per step and cause, in ns; per step it adds up to ``free_ns`` of ``analysis.steps``.

    A gap lies between two stretches of computing or communication of a step, on all streams together. With a its start, b
    its end, and L the time when the host launched the task that ends it:

    1. while the device copies, the cause is ``copy``;
    2. from a to L the host is late. What it was doing, first match: ``garbage collection``; waiting for ``data``; a call
       that waits for the device (``synchronization``) or allocates its memory (``allocation``); other operator and
       runtime ``calls``; none of them, which is ``python``;
    3. from L to b the task was on its way: ``launch``;
    4. a task that was launched before the gap began waited for something on the device: ``dependency``;
    5. without L the cause is ``unknown``.

    Where the CPU is the device nothing launches its tasks: they begin when the host comes to them, so that L is b. Its gaps
    are ``garbage collection``, ``data``, ``calls`` (dispatching, on the way to an operator that works) and ``python``.

    Source: ``kernels``, ``communication``, ``ops``, ``api``, ``gc``.

    Returns:
        step, cause and idle_ns, for causes that occur, in order of step and ``CAUSES``.
    """
    schema = {"step": pl.Int64, "cause": pl.String, "idle_ns": pl.Int64}
    steps = trace.steps
    if steps is None or not steps.height:
        return pl.DataFrame(schema=schema)
    tasks = _tasks(trace)
    if not trace.has_accelerator:
        tasks = tasks.with_columns(launch_ns="start_ns")
    copies = _merged(trace.required("kernels").filter(pl.col("kind") == KIND_COPY))
    host = _host(trace)
    found = _causes(tasks, copies, host)
    rows = [(step, cause, lengths[cause]) for step, lengths in found for cause in CAUSES if lengths.get(cause)]
    return pl.DataFrame(rows, schema=schema, orient="row")


def idle_after(trace: Trace, times_ns: Int64Array) -> Int64Array:
    """How long the device does nothing around each of ``times_ns``, at which the host has just waited for it.

    From the end of the last task that began before the time to the start of the first one after it; 0 where the device is
    still busy then, and before the first and after the last task. Times within one gap share it: the first has it, the
    others have 0.

    Args:
        trace: of an accelerator.
        times_ns: sorted, shape (n,).

    Returns:
        ns, shape (n,).
    """
    tasks = computing_tasks(trace).select("start_ns", "end_ns").drop_nulls().sort("start_ns").collect()
    starts, ends = tasks["start_ns"].to_numpy(), np.maximum.accumulate(tasks["end_ns"].to_numpy())
    after = np.searchsorted(starts, times_ns, side="right")
    inside = (after > 0) & (after < len(starts)) & np.r_[True, after[1:] != after[:-1]][: len(after)]
    gaps = np.zeros(len(after), dtype=np.int64)
    gaps[inside] = np.maximum(starts[after[inside]] - ends[after[inside] - 1], 0)
    return gaps


def _tasks(trace: Trace) -> pl.DataFrame:
    """What counts as work of a step, in order of step and start."""
    columns = ["step", "start_ns", "end_ns", "launch_ns"]
    operations = trace.required("communication").select(columns)
    every = pl.concat([computing_tasks(trace).select(columns), operations])
    own = every.drop_nulls(["step", "end_ns"]).filter(pl.col("end_ns") > pl.col("start_ns"))
    # of two that start at once the task comes before the operation, whose launch nobody knows
    return in_order(own.collect(), "step", "start_ns")


def _host(trace: Trace) -> dict[str, Intervals]:
    """When the host did what, by cause; on all threads."""
    ops, api = trace.required("ops"), trace.required("api")
    call = pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]) & (pl.col("depth").fill_null(0) >= 0)
    name, runtime = pl.col("name"), names.of_runtime(trace)
    waits = names.containing(runtime, SYNCHRONIZATION_NAME)
    allocates = [one for one in names.containing(runtime, ALLOCATION_NAME) if one not in set(waits)]
    return {
        GARBAGE_COLLECTION: _merged(trace.required("gc")),
        DATA: _merged(ops.filter(name.is_in(names.with_prefix(names.of_calls(trace), DATALOADER_PREFIX)))),
        SYNCHRONIZATION: _merged(api.filter(name.is_in(waits))),
        ALLOCATION: _merged(api.filter(name.is_in(allocates))),
        CALLS: union(_merged(ops.filter(call)), _merged(api)),
    }


def _merged(rows: pl.LazyFrame) -> Intervals:
    frame = rows.select("start_ns", "end_ns").drop_nulls().collect()
    return merged(frame)


def _gaps(tasks: pl.DataFrame) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The gaps of all steps, of tasks in order of step and start.

    Returns:
        When each begins, the row of the task that ends it (of those that start then the first), and the row of the step's first
        task; in order of step and time.
    """
    start, end, step = (tasks[column].to_numpy() for column in ("start_ns", "end_ns", "step"))
    borders = np.flatnonzero(np.diff(step, prepend=step[:1] - 1))
    reach = np.concatenate([np.maximum.accumulate(own) for own in np.split(end, borders[1:])])
    fresh = start[1:] > reach[:-1]
    fresh[borders[1:] - 1] = False
    row = np.flatnonzero(fresh) + 1
    return reach[row - 1], row, borders[np.searchsorted(borders, row, side="right") - 1]


def _causes(tasks: pl.DataFrame, copies: Intervals, host: dict[str, Intervals]) -> Iterator[tuple[int, dict[str, int]]]:
    """Steps with their idle ns by cause, in order of step.

    What several intervals of the host cover goes to the first of them: what a cause adds to all before it is its own.
    """
    begin, row, first = _gaps(tasks)
    if not len(row):
        return
    launch = tasks["launch_ns"].gather(pl.Series(row))
    known, at = launch.is_not_null().to_numpy(), launch.fill_null(0).to_numpy()
    end = tasks["start_ns"].to_numpy()[row]
    early = known & (at <= begin)
    late = known & ~early
    split = np.clip(at, begin, end)
    copying = length_inside(copies, begin, end)
    before = length_inside(copies, begin, split)
    found = {
        COPY: copying,
        UNKNOWN: np.where(known, 0, end - begin - copying),
        DEPENDENCY: np.where(early, end - begin - copying, 0),
        LAUNCH: np.where(late, end - split - (copying - before), 0),
    }
    covered, covers = before, copies
    for cause, intervals in host.items():
        if not len(intervals.start):
            continue
        covers = union(covers, intervals)
        more = length_inside(covers, begin, split)
        found[cause] = np.where(late, more - covered, 0)
        covered = more
    found[PYTHON] = np.where(late, split - begin - covered, 0)
    borders = np.flatnonzero(np.diff(first, prepend=-1))
    sums = {cause: np.add.reduceat(lengths, borders).tolist() for cause, lengths in found.items()}
    for place, step in enumerate(tasks["step"].gather(pl.Series(first[borders])).to_list()):
        yield step, {cause: lengths[place] for cause, lengths in sums.items()}
