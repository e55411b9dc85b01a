"""From the launching thread back to the operator: what the readers of Ascend data share.

With its task queue on, the framework hands each launch to a thread of its own: the operator's thread *enqueues* a task,
the launching thread *dequeues* it and calls the runtime. A device task is tied by its connection id to the runtime call,
and by the dequeue around that call to the enqueue, which lies inside the operator.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.trace.schema import GRADIENTS_PREFIX, SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_USER

_BACKWARD_PREFIX = "autograd::engine::evaluate_function"
#: operators are called ``namespace::name`` or, those of a library, by one word, and MindSpore's by their scope; ranges that users
#: open have freer names
_OPERATOR_NAME = r"::|^\w+$|^(Default|Gradients)/"


def through_queue(tasks: pl.DataFrame, queue: pl.DataFrame | None) -> pl.DataFrame:
    """``tasks`` with every launch point inside a dequeue moved to the start of the matching enqueue.

    Launch points outside every dequeue stay: their thread launched by itself. Dequeues of a thread do not overlap; of
    points on a border the later dequeue has it, and the end of a dequeue still belongs to it.

    Args:
        tasks: launch_ns, launch_pid and launch_tid (null where unknown), shape (n,), and any other columns.
        queue: rows of ``task_queue``, or None.
    """
    if queue is None or queue.is_empty() or tasks.is_empty():
        return tasks
    paired = queue.drop_nulls(["enqueue_start_ns", "dequeue_start_ns", "dequeue_end_ns"]).sort("dequeue_start_ns")
    is_launched = tasks["launch_ns"].is_not_null().to_numpy()
    # nulls would turn the columns into floats, which cannot hold Unix nanoseconds
    point, pid, tid = (tasks[column].fill_null(-1).to_numpy() for column in ("launch_ns", "launch_pid", "launch_tid"))
    launch, thread = point.copy(), tid.copy()
    for (queue_pid, queue_tid), rows in paired.partition_by("pid", "dequeue_tid", as_dict=True).items():
        mine = np.flatnonzero(is_launched & (pid == queue_pid) & (tid == queue_tid))
        index = np.searchsorted(rows["dequeue_start_ns"].to_numpy(), point[mine], side="right") - 1
        is_queued = (index >= 0) & (point[mine] <= rows["dequeue_end_ns"].to_numpy()[np.maximum(index, 0)])
        launch[mine[is_queued]] = rows["enqueue_start_ns"].to_numpy()[index[is_queued]]
        thread[mine[is_queued]] = rows["enqueue_tid"].to_numpy()[index[is_queued]]
    return tasks.with_columns(
        launch_ns=pl.Series(launch).set(tasks["launch_ns"].is_null(), None),
        launch_tid=pl.Series(thread).set(tasks["launch_tid"].is_null(), None),
    )


def scope_of(name: pl.Expr, forward_tid: pl.Expr) -> pl.Expr:
    """``ops.scope`` of calls from a result that keeps only their names and the thread of their forward call.

    Args:
        name: text.
        forward_tid: thread of the forward call, 0 or null for calls that are not of the backward pass.
    """
    backward = name.str.starts_with(_BACKWARD_PREFIX) | name.str.starts_with(GRADIENTS_PREFIX) | (forward_tid.fill_null(0) > 0)
    return (
        pl.when(backward)
        .then(SCOPE_BACKWARD)
        .when(~name.str.contains(_OPERATOR_NAME))
        .then(SCOPE_USER)
        .otherwise(SCOPE_FUNCTION)
        .cast(pl.UInt8)
    )
