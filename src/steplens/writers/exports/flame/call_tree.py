"""Every call of every thread in one tree: operator calls and the Python frames around them, as arrays."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.trace.building.nesting import Int64Array, Nesting, child_sums, lane_numbers, nest_calls
from steplens.trace.trace import Trace
from steplens.writers.common.output import main_pid

#: how Kineto and Ascend name Python frames
_PYTHON_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>.+)$", re.DOTALL)


#: how often calls are cut to enclose others; what is left then begins where its predecessor ends
_ROUNDS = 20


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
    """Calls that nest properly, sorted by (lane, start, -end); all arrays have one entry per call.

    Two calls of a lane may overlap without one enclosing the other: a range is opened in a function and closed behind it, the
    clocks of two recorders differ. Then either the later one ends where the earlier one does, and is part of it, or it begins
    there, whichever takes less away.

    Attributes:
        lanes: the lanes, in order of their calls.
        names: distinct names.
        frame: position of a call's name in ``names``.
        start: Unix ns; likewise ``end``.
        nesting: who encloses whom.
        self_ns: duration without that of the direct children.
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
    matched = _PYTHON_FRAME.match(name)
    return Frame(matched["function"], matched["file"], int(matched["line"])) if matched else Frame(name, "", 0)


def host_calls(trace: Trace) -> CallTree:
    """Operator calls, annotations, modules and Python frames of every thread.

    Where times are equal a Python frame encloses an operator call, and the call that was recorded first the other one.
    """
    pid = main_pid(trace)
    columns = ("name", "start_ns", "end_ns", "pid", "tid")
    frames = trace.required("python").select(*columns, device_ns=pl.lit(0, dtype=pl.Int64))
    calls = trace.required("ops").select(*columns, device_ns=pl.col("device_self_ns").fill_null(0))
    rows = pl.concat([frames, calls]).with_columns(pl.col("pid").fill_null(pid), pl.col("tid").fill_null(0)).collect()
    thread_names = {(pid, tid): name for pid, tid, name in trace.required("threads").collect().iter_rows()}
    return _build_tree(rows, ["pid", "tid"], lambda pid, tid: thread_names.get((pid, tid)) or f"thread {tid}", "process")


def device_tasks(trace: Trace) -> CallTree:
    """The tasks of every stream of every device."""
    rows = trace.required("kernels").select(
        "name", "start_ns", "end_ns", pl.col("device").fill_null(0).cast(pl.Int64), pl.col("stream").fill_null(0), device_ns=0
    )
    return _build_tree(rows.collect(), ["device", "stream"], lambda _, stream: f"stream {stream}", "device")


def _build_tree(rows: pl.DataFrame, keys: list[str], lane_name: Callable[[int, int], str], group: str) -> CallTree:
    rows = rows.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
    rows, lane, nesting = _nest_calls(rows, keys)
    first, second = (rows[key].to_numpy() for key in keys)
    bounds = np.flatnonzero(np.r_[True, lane[1:] != lane[:-1], True]) if len(lane) else np.zeros(1, np.int64)
    several = len(np.unique(first)) > 1
    branches = []
    for low, high in itertools.pairwise(bounds.tolist()):
        name = lane_name(int(first[low]), int(second[low]))
        branches.append(Lane(f"{name} of {group} {first[low]}" if several else name, low, high))
    start, end = _in_turn(branches, nesting, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    codes = rows["name"].fill_null("").to_physical().to_numpy()
    _, where, frame = np.unique(codes, return_index=True, return_inverse=True)
    duration = end - start
    return CallTree(
        lanes=branches,
        names=rows["name"].fill_null("").gather(where).cast(pl.String).to_list(),
        frame=frame.astype(np.int64),
        start=start,
        end=end,
        nesting=nesting,
        self_ns=duration - child_sums(nesting.parent, duration),
        device_ns=rows["device_ns"].cast(pl.Int64).to_numpy(),
    )


def _nest_calls(rows: pl.DataFrame, keys: list[str]) -> tuple[pl.DataFrame, Int64Array, Nesting]:
    """The rows in order, their lanes and nesting; calls that nearly enclose another one's end are cut to enclose it."""
    order = [*keys, "start_ns", "end_ns"]
    for _ in range(_ROUNDS):
        rows = rows.sort(order, descending=[False] * (len(keys) + 1) + [True], maintain_order=True)
        start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        lane = lane_numbers(*(rows[key].to_numpy() for key in keys))
        nesting = nest_calls(lane, start, end)
        before = _sibling_before(lane, nesting.parent)
        reach = end[np.maximum(before, 0)]
        nearly = (before >= 0) & (reach > start) & (end - reach < reach - start)
        if not nearly.any():
            break
        rows = rows.with_columns(end_ns=pl.Series(np.where(nearly, reach, end)))
    return rows, lane, nesting


def _sibling_before(lane: Int64Array, parent: Int64Array) -> Int64Array:
    """The call before each call below the same parent, -1 for the first one. It is the one of them that ends last."""
    group = np.where(parent >= 0, parent, -1 - lane)
    order = np.argsort(group, kind="stable")
    before = np.full(len(parent), -1, dtype=np.int64)
    same = group[order[1:]] == group[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def _in_turn(found: list[Lane], nesting: Nesting, start: Int64Array, end: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Times with which no call begins before its predecessor has ended, unless that encloses it."""
    start, end = start.copy(), end.copy()
    for lane in found:
        begins, ends = event_positions(nesting, lane)
        at = np.empty(2 * len(begins), dtype=np.int64)
        at[begins], at[ends] = start[lane.first : lane.last], end[lane.first : lane.last]
        at = np.maximum.accumulate(at)
        start[lane.first : lane.last], end[lane.first : lane.last] = at[begins], at[ends]
    return start, end


def event_positions(nesting: Nesting, lane: Lane) -> tuple[Int64Array, Int64Array]:
    """Where the beginning and the end of each call of a lane stand in the sequence of all of them.

    Nobody has to walk: in front of the beginning of call i lie i beginnings, and the ends of all of them but its ancestors; in
    front of its end, the beginnings up to the end of its subtree, and the ends of all of them but its ancestors and itself.

    Returns:
        positions of beginnings and ends, each of shape (calls of the lane,).
    """
    rows = slice(lane.first, lane.last)
    depth = nesting.depth[rows]
    begins = 2 * np.arange(lane.last - lane.first, dtype=np.int64) - depth
    ends = 2 * (nesting.subtree_end[rows] - lane.first) - depth - 1
    return begins, ends


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


def number_stacks(tree: CallTree) -> Stacks:
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
        parent_nodes = np.where(above >= 0, of_call[np.maximum(above, 0)], lane_of[rows])
        keys, number = np.unique(parent_nodes * width + tree.frame[rows], return_inverse=True)
        of_call[rows] = number + total
        parents.append(keys // width)
        frames.append(keys % width)
        of_lane.append(np.concatenate(of_lane)[keys // width])
        total += len(keys)
    parent, frame, lane = (np.concatenate(part).astype(np.int64) for part in (parents, frames, of_lane))
    return Stacks(parent, frame, lane, of_call)
