"""Every call of every thread in one tree: operator calls and the Python frames around them, as arrays."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.trace.nesting import Int64Array, Nesting, child_sums, lanes, nest
from steplens.trace.trace import Trace
from steplens.writers.output import main_pid

#: how Kineto and Ascend name Python frames
_PYTHON_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>.+)$", re.DOTALL)


@dataclass(frozen=True)
class Lane:
    """One row of calls that nest: a thread or a stream.

    Attributes:
        name: what to call it.
        first: row of its first call in the tree.
        last: row behind its last call.
    """

    name: str
    first: int
    last: int


@dataclass(frozen=True)
class CallTree:
    """Calls sorted by (lane, start, -end); all arrays have one entry per call.

    Attributes:
        lanes: the lanes, in order of their calls.
        names: distinct names.
        frame: position of a call's name in ``names``.
        start: Unix ns; likewise ``end``.
        nesting: who encloses whom.
        self_ns: duration without that of the direct children, never negative.
        device_ns: length of the device tasks that the call itself launched.
    """

    lanes: list[Lane]
    names: list[str]
    frame: Int64Array
    start: Int64Array
    end: Int64Array
    nesting: Nesting
    self_ns: Int64Array
    device_ns: Int64Array


@dataclass(frozen=True)
class Frame:
    """What a name says: function, file and line; the last two are empty and 0 for what is no Python function."""

    function: str
    file: str
    line: int


def frame_of(name: str) -> Frame:
    """The function, file and line in the name of a call."""
    found = _PYTHON_FRAME.match(name)
    return Frame(found["function"], found["file"], int(found["line"])) if found else Frame(name, "", 0)


def host_calls(trace: Trace) -> CallTree:
    """Operator calls, annotations, modules and Python frames of every thread.

    Where times are equal a Python frame encloses an operator call, and the call that was recorded first the other one.
    """
    pid = main_pid(trace)
    columns = ("name", "start_ns", "end_ns", "pid", "tid")
    frames = trace.required("python").select(*columns, device_ns=pl.lit(0, dtype=pl.Int64))
    calls = trace.required("ops").select(*columns, device_ns=pl.col("device_self_ns").fill_null(0))
    rows = pl.concat([frames, calls]).with_columns(pl.col("pid").fill_null(pid), pl.col("tid").fill_null(0)).collect()
    named = {(pid, tid): name for pid, tid, name in trace.required("threads").collect().iter_rows()}
    return _tree(rows, ["pid", "tid"], lambda pid, tid: named.get((pid, tid)) or f"thread {tid}", "process")


def device_tasks(trace: Trace) -> CallTree:
    """The tasks of every stream of every device."""
    rows = trace.required("kernels").select(
        "name", "start_ns", "end_ns", pl.col("device").fill_null(0).cast(pl.Int64), pl.col("stream").fill_null(0), device_ns=0
    )
    return _tree(rows.collect(), ["device", "stream"], lambda _, stream: f"stream {stream}", "device")


def _tree(rows: pl.DataFrame, keys: list[str], lane_name: Callable[[int, int], str], group: str) -> CallTree:
    rows = rows.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
    rows = rows.sort([*keys, "start_ns", "end_ns"], descending=[False] * (len(keys) + 1) + [True], maintain_order=True)
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    first, second = (rows[key].to_numpy() for key in keys)
    lane = lanes(first, second)
    nesting = nest(lane, start, end)
    bounds = np.flatnonzero(np.r_[True, lane[1:] != lane[:-1], True]) if len(lane) else np.zeros(1, np.int64)
    several = len(np.unique(first)) > 1
    found = []
    for low, high in itertools.pairwise(bounds.tolist()):
        name = lane_name(int(first[low]), int(second[low]))
        found.append(Lane(f"{name} of {group} {first[low]}" if several else name, low, high))
    codes = rows["name"].fill_null("").to_physical().to_numpy()
    distinct, frame = np.unique(codes, return_inverse=True)
    # one row that has each name
    _, where = np.unique(codes, return_index=True)
    names = rows["name"].fill_null("").gather(where).cast(pl.String).to_list()
    assert len(names) == len(distinct)
    duration = end - start
    return CallTree(
        lanes=found,
        names=names,
        frame=frame.astype(np.int64),
        start=start,
        end=end,
        nesting=nesting,
        self_ns=np.maximum(duration - child_sums(nesting.parent, duration), 0),
        device_ns=rows["device_ns"].cast(pl.Int64).to_numpy(),
    )


@dataclass(frozen=True)
class Stacks:
    """The distinct paths from the root of a lane to a call, numbered so that a parent comes before its children.

    Attributes:
        parent: stack without its last call; -1 for the stack of a lane, which holds no call.
        frame: name of the last call, -1 for the stack of a lane.
        lane: the lane that a stack is of.
        of_call: stack of each call of the tree.
    """

    parent: Int64Array
    frame: Int64Array
    lane: Int64Array
    of_call: Int64Array


def stacks(tree: CallTree) -> Stacks:
    """Number the stacks of a tree, level by level: the cost depends on the depth, not on the number of stacks."""
    count = len(tree.lanes)
    lane_of = np.repeat(np.arange(count), [lane.last - lane.first for lane in tree.lanes])
    parents, frames, of_lane = [np.full(count, -1)], [np.full(count, -1)], [np.arange(count)]
    of_call = np.full(len(tree.frame), -1, dtype=np.int64)
    order = np.argsort(tree.nesting.depth, kind="stable")
    depth = tree.nesting.depth[order]
    bounds = np.flatnonzero(np.r_[True, depth[1:] != depth[:-1], True]) if len(order) else np.zeros(1, np.int64)
    width = len(tree.names) + 1
    total = count
    for low, high in itertools.pairwise(bounds):
        rows = order[low:high]
        above = tree.nesting.parent[rows]
        below = np.where(above >= 0, of_call[np.maximum(above, 0)], lane_of[rows])
        keys, number = np.unique(below * width + tree.frame[rows], return_inverse=True)
        of_call[rows] = number + total
        parents.append(keys // width)
        frames.append(keys % width)
        of_lane.append(np.concatenate(of_lane)[keys // width])
        total += len(keys)
    parent, frame, lane = (np.concatenate(part).astype(np.int64) for part in (parents, frames, of_lane))
    return Stacks(parent, frame, lane, of_call)
