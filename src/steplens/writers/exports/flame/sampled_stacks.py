"""Sampled Python stacks as flame graphs have them, of traces without the calls themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.trace.building.nesting import Int64Array
from steplens.trace.schema import STACK_SAMPLING_RATE
from steplens.trace.trace import Trace
from steplens.writers.exports.flame.call_tree import Stacks

#: the frame of samples whose stack is not known
_UNKNOWN = "(unknown stack)"


@dataclass(frozen=True)
class SampledStacks:
    """The samples of a trace, in the order of threads and times.

    Attributes:
        lanes: names of the threads.
        names: of frames.
        stacks: of each thread those that it was in, and those around them; ``of_call`` is that of each sample.
        start_ns: Unix time of each sample.
        time_ns: that each stands for.
        samples: periods that each stands for.
        cpu_ns: processor time of the thread since its sample before.
    """

    lanes: list[str]
    names: list[str]
    stacks: Stacks
    start_ns: Int64Array
    time_ns: Int64Array
    samples: Int64Array
    cpu_ns: Int64Array


def sampled_stacks(trace: Trace) -> SampledStacks | None:
    """The sampled stacks of a trace; None where none were sampled, or the calls themselves were recorded."""
    if "python" in trace or "python_samples" not in trace:
        return None
    rate = trace.meta_value(STACK_SAMPLING_RATE)
    if not isinstance(rate, int | float) or not 0 < rate < 1e6:
        return None
    names = trace.required("threads").select("pid", "tid", thread="name").unique(["pid", "tid"])
    samples = trace.required("python_samples").join(names, on=["pid", "tid"], how="left").sort("pid", "tid", "time_ns").collect()
    table = trace.required("python_stacks").sort("id").collect()
    lanes = samples.select("pid", "tid", thread=pl.col("thread").fill_null(pl.format("thread {}", "tid"))).unique(
        maintain_order=True
    )
    lane = samples.join(lanes.with_row_index("lane"), on=["pid", "tid"], how="left", maintain_order="left")["lane"].to_numpy()
    distinct = table["name"].cast(pl.String).unique(maintain_order=True)
    frames = table["name"].cast(pl.String).replace_strict(distinct, np.arange(len(distinct)), return_dtype=pl.Int64).to_numpy()
    count = samples["samples"].to_numpy()
    return SampledStacks(
        lanes=lanes["thread"].to_list(),
        names=[*distinct.to_list(), _UNKNOWN],
        stacks=_number_stacks(lane.astype(np.int64), samples["stack"], table, frames),
        start_ns=samples["time_ns"].to_numpy(),
        time_ns=np.rint(count * (1e9 / rate)).astype(np.int64),
        samples=count,
        cpu_ns=samples["processor_ns"].fill_null(0).to_numpy(),
    )


def _number_stacks(lane: Int64Array, stack: pl.Series, table: pl.DataFrame, frames: Int64Array) -> Stacks:
    """The stacks of each lane, a parent before its children; behind those that there are, one of an unknown frame.

    Args:
        lane: of each sample.
        stack: the id of each sample's.
        table: ``python_stacks``, in the order of the ids.
        frames: the number of the name of each of its rows.
    """
    unknown = table.height
    place = np.full(int(table["id"].max() or 0) + 1, unknown)  # type: ignore[arg-type]
    place[table["id"].to_numpy()] = np.arange(unknown)
    around = np.r_[place[table["parent"].fill_null(0).to_numpy()], -1]
    # so has one whose parent was damaged
    around[:-1][table["parent"].is_null().to_numpy() | (around[:-1] >= np.arange(unknown))] = -1
    frame = np.r_[frames, frames.max(initial=-1) + 1]
    first = _first_of_equal(around.tolist(), frame.tolist())
    around = np.where(around >= 0, first[around], -1)
    node = first[np.where(stack.is_null().to_numpy(), unknown, place[stack.fill_null(0).to_numpy()])]
    lanes = int(lane.max(initial=-1)) + 1
    parents, names, of_lane = [np.full(lanes, -1)], [np.full(lanes, -1)], [np.arange(lanes)]
    of_sample = np.empty(len(lane), dtype=np.int64)
    total = lanes
    for number in range(lanes):
        rows = np.flatnonzero(lane == number)
        used = np.zeros(unknown + 1, dtype=bool)
        level = np.unique(node[rows])
        while len(level):
            used[level] = True
            level = np.unique(around[level])
            level = level[(level >= 0) & ~used[level]]
        present = np.flatnonzero(used)
        numbers = np.full(unknown + 2, number)
        numbers[present] = np.arange(total, total + len(present))
        # a stack without one around it is in its lane
        numbers[-1] = number
        parents.append(numbers[around[present]])
        names.append(frame[present])
        of_lane.append(np.full(len(present), number))
        of_sample[rows] = numbers[node[rows]]
        total += len(present)
    parent, name, lane_of = (np.concatenate(part).astype(np.int64) for part in (parents, names, of_lane))
    return Stacks(parent, name, lane_of, of_sample)


def _first_of_equal(around: list[int], frame: list[int]) -> Int64Array:
    """Of each stack the first one with the same frames: samples tell lines apart, and these graphs do not.

    Args:
        around: of each stack the one around it, before it; -1 for none.
        frame: of each the name of its innermost frame.
    """
    numbers: dict[tuple[int, int], int] = {}
    first: list[int] = []
    for number, (parent, name) in enumerate(zip(around, frame, strict=True)):
        first.append(numbers.setdefault((first[parent] if parent >= 0 else -1, name), number))
    return np.array(first, dtype=np.int64)
