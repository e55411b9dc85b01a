"""The layers of trace_view.json that the framework recorded: calls, the task queue, Python functions, marks, collections."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from steplens.formats.ascend_terms import DEQUEUE, ENQUEUE
from steplens.formats.kineto import FORWARD_BACKWARD, OPERATOR, PYTHON
from steplens.formats.trace_view import COLLECTION, COLLECTIONS, HOST, MARKS, MEMBERS, PLACES, PYTHON_PROCESS, TASK_QUEUE
from steplens.trace.schema import SCOPE_MODULE
from steplens.writers.common.asynchronous import asynchronous_lanes
from steplens.writers.common.json_events import number_member, process_metadata, thread_metadata
from steplens.writers.common.links import forward_backward, mark_kind, queue_half
from steplens.writers.common.output import used_devices
from steplens.writers.common.rows import Shared, shared_texts
from steplens.writers.common.text import json_string, render_distinct
from steplens.writers.trace_view.trace_events import View, event_head, list_argument, write_arrows


def _name_lanes(view: View) -> None:
    """Names of the framework's processes and threads; the threads that launch for others come last."""
    lane_frames = [
        view.trace.required(table).select(pl.col("pid").fill_null(view.pid), pl.col("tid")) for table in ("ops", "python")
    ]
    queue = view.trace.required("task_queue").select("pid", "enqueue_tid", "dequeue_tid").unique().collect()
    pid = pl.col("pid").fill_null(view.pid)
    lane_frames += [queue.lazy().select(pid, tid=column) for column in ("enqueue_tid", "dequeue_tid")]
    pairs = pl.concat(lane_frames).unique().drop_nulls().sort("pid", "tid").collect()
    for process_id in pairs["pid"].unique(maintain_order=True):
        view.metadata(process_metadata(process_id, PYTHON_PROCESS, "CPU", PLACES[PYTHON_PROCESS]))
    last = int(pairs["tid"].max() or 0) + 1  # type: ignore[arg-type]
    launching = set(queue.select(pid, "dequeue_tid").iter_rows())
    for process_id, tid in pairs.iter_rows():
        view.metadata(thread_metadata(process_id, tid, f"Thread {tid}", last if (process_id, tid) in launching else None))


def _write_operator_calls(view: View) -> None:
    ops = view.trace.ops
    if ops is None:
        return
    lanes = asynchronous_lanes(view.trace)
    moved = pl.int_range(pl.len()).replace_strict(lanes, default=None, return_dtype=pl.Int64) if lanes else pl.lit(None)
    calls = ops.with_columns(lane=pl.coalesce(moved, "tid")).filter(pl.col("scope").fill_null(0) != SCOPE_MODULE)
    for number, lane in enumerate(sorted(set(lanes.values()))):
        for process_id in calls.filter(pl.col("lane") == lane)["pid"].unique().sort().drop_nulls():
            view.metadata(thread_metadata(process_id, lane, f"Asynchronous communication {number}"))
    view.calls(
        calls,
        event_head(calls["name"], OPERATOR),
        pl.col("pid"),
        pl.col("lane"),
        (MEMBERS["sequence"], pl.col("sequence").fill_null(-1)),
        (MEMBERS["forward_tid"], pl.col("forward_tid").fill_null(0)),
        *(list_argument(MEMBERS[column], calls[column]) for column in ("input_shapes", "input_types", "stack", "module")),
        number_member("flops", "flops", calls),
    )


def _task_queue(view: View) -> None:
    """Both halves of every task that was handed to a launching thread, and an arrow from the one to the other."""
    tasks = view.trace.table("task_queue")
    if tasks is None or tasks.is_empty():
        return
    tasks = tasks.with_columns(pl.col("pid").fill_null(view.pid))
    for side in (DEQUEUE, ENQUEUE):
        rows = queue_half(tasks, side)
        head = _queue_head(rows["name"], side)
        view.calls(rows, head, pl.col("pid"), pl.col("tid"), ("correlation_id", pl.col("correlation")))
    pairs = tasks.drop_nulls(["enqueue_start_ns", "enqueue_tid", "dequeue_start_ns", "dequeue_tid"]).with_row_index("id", 1)
    ends = {"to_pid": "pid", "to_tid": "dequeue_tid", "from_tid": "enqueue_tid", "from_ns": "enqueue_start_ns"}
    write_arrows(view, pairs.select("id", "pid", start_ns="dequeue_start_ns", **ends), "enqueue_to_dequeue", TASK_QUEUE)


def _queue_head(names: pl.Series, side: str) -> Shared:
    return event_head(render_distinct(names, lambda name: f"{side}@{name}" if name else side, side), side.lower())


def _forward_backward(view: View) -> None:
    """An arrow from the latest forward call of a sequence number to each backward call of it on another thread."""
    pairs = forward_backward(view.trace).with_row_index("id", 1).with_columns(to_pid="pid", to_tid="tid")
    write_arrows(view, pairs, FORWARD_BACKWARD, FORWARD_BACKWARD)


def _python_functions(view: View) -> None:
    frames = view.trace.python
    if frames is None:
        return
    view.calls(
        frames,
        event_head(frames["name"], PYTHON),
        pl.col("pid").fill_null(view.pid),
        pl.col("tid"),
        (MEMBERS["python_id"], pl.col("id")),
        (MEMBERS["python_parent"], pl.when(pl.col("parent") >= 0).then("parent")),
        number_member(MEMBERS["python_module_id"], "module_id", frames),
    )


def _write_module_calls(view: View) -> None:
    """Module calls seen by hooks, as Python functions; their parent is the enclosing module call."""
    ops = view.trace.ops
    if ops is None or not (ops["scope"] == SCOPE_MODULE).any():
        return
    is_module = (ops["scope"] == SCOPE_MODULE).fill_null(False).to_numpy()
    parents = ops["parent"].fill_null(-1).to_numpy()
    modules = ops.filter(pl.Series(is_module))
    parent = parents[is_module]
    while True:
        climbing = (parent >= 0) & ~is_module[parent]
        if not climbing.any():
            break
        parent = np.where(climbing, parents[parent], parent)
    # Ids are unique in the run: those of the Python frames come first.
    first_id = (view.trace.required("python").select(pl.col("id").max()).collect().item() or 0) + 1
    ids = pl.col("id").cast(pl.Int64) + first_id
    parent_ids = pl.select(pl.when(pl.lit(pl.Series(parent)) >= 0).then(pl.lit(pl.Series(parent)) + first_id)).to_series()
    members = (MEMBERS["python_id"], ids), (MEMBERS["python_parent"], parent_ids)
    view.calls(modules, event_head(modules["name"], PYTHON), pl.col("pid"), pl.col("tid"), *members)


def _write_marks(view: View) -> None:
    """Marks and ranges of the user, in a process of their own: a range may begin in one call and end in another."""
    marks = view.trace.marks
    if marks is None or marks.is_empty():
        return
    marks = marks.with_columns(pl.col("tid").fill_null(0))
    pid = view.layer(MARKS, HOST, "CPU")
    for tid in marks["tid"].unique().sort():
        view.metadata(thread_metadata(pid, tid, f"Thread {tid}"))
    view.calls(
        marks,
        event_head(marks["message"], "mstx"),
        str(pid),
        pl.col("tid"),
        shared_texts(
            marks["domain"], lambda domain: f',"args":{{"domain":{json_string(domain)},', ',"args":{"domain":"default",'
        ),
        pl.format('"event_type":"{}"', mark_kind()),
        number_member("Stream Id", "stream", marks),
        number_member("connection_id", "correlation", marks),
    )


def _garbage_collections(view: View) -> None:
    collections = view.trace.gc
    if collections is None or collections.is_empty():
        return
    device = min(used_devices(view.trace), default=HOST) if view.trace.has_accelerator else HOST
    pid = view.layer(COLLECTIONS, device, "CPU")
    view.metadata(thread_metadata(pid, view.pid, f"Thread {view.pid}"))
    start = f', {{"ph":"X","name":"GC","cat":"{COLLECTION}","pid":'
    view.calls(collections, start, str(pid), str(view.pid), ',"args":{')


LAYERS: tuple[Callable[[View], None], ...] = (
    _name_lanes,
    _write_operator_calls,
    _task_queue,
    _forward_backward,
    _python_functions,
    _write_module_calls,
    _write_marks,
    _garbage_collections,
)
