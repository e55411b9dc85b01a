"""Speedscope's own format: calls as they followed each other, one profile per thread and per stream of a device.

Where Python stacks were sampled and calls of Python were not recorded, each thread has a profile of its samples as well.

https://www.speedscope.app/file-format-schema.json; times are ns after the first event of the trace.
"""

from __future__ import annotations

import json
from typing import IO

import numpy as np
import polars as pl

from steplens.trace.building.devices import device_kind
from steplens.trace.building.nesting import Int64Array
from steplens.trace.schema import CORE_CPU
from steplens.writers.common.output import NothingToWriteError
from steplens.writers.common.rows import ROWS_PER_CHUNK, write_rows
from steplens.writers.exports.flame.call_tree import CallTree, Lane, device_tasks, event_positions, frame_of, host_calls
from steplens.writers.exports.flame.sampled_stacks import SampledStacks, sampled_stacks
from steplens.writers.exports.subject import Subject

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(subject: Subject, handle: IO[bytes]) -> None:
    """Write the whole file.

    Raises:
        NothingToWriteError: the trace has no calls and no device tasks.
    """
    trace = subject.trace
    kind = device_kind(trace)
    # the tasks of the CPU are calls of its threads
    devices = device_tasks(trace) if kind != CORE_CPU else None
    trees = [tree for tree in (host_calls(trace), devices) if tree is not None and len(tree.start)]
    sampled = sampled_stacks(trace)
    if not trees and sampled is None:
        raise NothingToWriteError("the trace has no calls")
    origin = min((int(tree.start.min()) for tree in trees), default=0)
    end = max((int(tree.end.max()) for tree in trees), default=0) - origin
    offsets = np.cumsum([0, *(len(tree.names) for tree in trees)])
    names = [name for tree in trees for name in tree.names] + (sampled.names if sampled is not None else [])
    handle.write(json.dumps({"$schema": _SCHEMA, "exporter": "steplens", "name": subject.name}).encode()[:-1])
    handle.write(f', "activeProfileIndex": {_lane_with_most_calls(trees)}, "shared": {{"frames": ['.encode())
    for number, name in enumerate(names):
        handle.write(b",\n" if number else b"\n")
        handle.write(json.dumps(_frame_entry(name), ensure_ascii=False).encode())
    handle.write(b']}, "profiles": [')
    number = 0
    for tree, offset in zip(trees, offsets.tolist(), strict=False):
        prefix = "" if tree is trees[0] else f"{kind} "
        for lane in tree.lanes:
            head = {"type": "evented", "name": prefix + lane.name, "unit": "nanoseconds", "startValue": 0, "endValue": end}
            handle.write((",\n" if number else "\n").encode() + json.dumps(head, ensure_ascii=False).encode()[:-1])
            handle.write(b', "events": [')
            _write_events(tree, lane, offset, origin, handle)
            handle.write(b"]}")
            number += 1
    if sampled is not None:
        _write_sampled(sampled, int(offsets[-1]), number, handle)
    handle.write(b"]}\n")


def _frame_entry(name: str) -> dict[str, str | int]:
    frame = frame_of(name)
    return {"name": frame.function, "file": frame.file, "line": frame.line} if frame.file else {"name": name}


def _lane_with_most_calls(trees: list[CallTree]) -> int:
    """The profile to show first: the lane with most calls."""
    sizes = [lane.last - lane.first for tree in trees for lane in tree.lanes]
    return sizes.index(max(sizes)) if sizes else 0


def _write_sampled(sampled: SampledStacks, offset: int, number: int, handle: IO[bytes]) -> None:
    """A profile of samples of each thread: what it was in, and for how long.

    Args:
        sampled: the samples.
        offset: of their frames among all.
        number: of profiles before.
        handle: open binary file.
    """
    paths: list[list[int]] = []
    for parent, frame in zip(sampled.stacks.parent.tolist(), sampled.stacks.frame.tolist(), strict=True):
        paths.append([] if frame < 0 else [*paths[parent], frame + offset])
    lane = sampled.stacks.lane[sampled.stacks.of_call]
    for place, name in enumerate(sampled.lanes):
        rows = np.flatnonzero(lane == place)
        stack, time_ns = sampled.stacks.of_call[rows], sampled.time_ns[rows]
        # samples of one stack that follow one another are one
        first = np.flatnonzero(np.r_[True, stack[1:] != stack[:-1]])
        weights = np.add.reduceat(time_ns, first)
        profile = {
            "type": "sampled",
            "name": f"Python samples, {name}",
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": int(weights.sum()),
            "samples": [paths[row] for row in stack[first].tolist()],
            "weights": weights.tolist(),
        }
        handle.write((",\n" if number + place else "\n").encode() + json.dumps(profile, ensure_ascii=False).encode())


def _write_events(tree: CallTree, lane: Lane, offset: int, origin: int, handle: IO[bytes]) -> None:
    opens, frame, at = event_sequence(tree, lane)
    rows = pl.DataFrame({"opens": opens, "frame": frame + offset, "at": at - origin})
    first = True
    for part in rows.iter_slices(ROWS_PER_CHUNK):
        heads = pl.Series(['\n{"type":"C","frame":', '\n{"type":"O","frame":']).gather(part["opens"].cast(pl.UInt32))
        part = part.with_columns(head=pl.concat_str(pl.lit(","), heads))
        if first:
            # the only event without one before it
            write_rows(handle, part[:1], heads[:1], pl.col("frame"), ("at", pl.col("at")), "}")
            part, first = part[1:], False
        write_rows(handle, part, pl.col("head"), pl.col("frame"), ("at", pl.col("at")), "}")


def event_sequence(tree: CallTree, lane: Lane) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The calls of a lane as one sequence of beginnings (1) and ends (0), balanced and in order of time.

    Returns:
        what it is, the name and the time (Unix ns) of each, shape (2 n,).
    """
    rows = slice(lane.first, lane.last)
    begins, ends = event_positions(tree.nesting, lane)
    opens = np.zeros(2 * len(begins), dtype=np.int64)
    opens[begins] = 1
    frame, at = np.empty_like(opens), np.empty_like(opens)
    frame[begins] = frame[ends] = tree.frame[rows]
    at[begins], at[ends] = tree.start[rows], tree.end[rows]
    return opens, frame, at
