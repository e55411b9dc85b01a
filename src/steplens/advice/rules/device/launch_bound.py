"""Stretches of kernels that the GPU finishes faster than the host launches them, in steps that are all alike: a graph's case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import matching, per_step
from steplens.analysis.tools.order import in_order
from steplens.analysis.tools.overlap import Int64Array
from steplens.trace.health import HOST_AGAINST_DEVICE, KERNEL_WAITS, RUNTIME_CALLS
from steplens.trace.schema import CORE_CUDA, CORE_ROCM, KIND_OTHER

_COLUMNS = ("device", "stream", "step", "name", "start_ns", "end_ns", "launch_ns", "duration_ns")
_LEAST_TASKS = 20
#: between the start of a launch and that of its kernel on an idle device
_LATENCY_NS = 5_000
#: a longer gap has other reasons than launching
_LONGEST_GAP_NS = 100_000
#: so many kernels in a row may find work before them, as the second kernel of an operator does
_WITHIN = 3
#: what lies between two kernels of a graph
_OF_A_GRAPH_NS = 1_000
_LEAST_SHARE = 0.03
#: what a graph cannot contain: waiting for the device, asking for its memory
_FORBIDDEN = r"(?i)synchronize|malloc|^(cuda|hip)free|^cumem(alloc|free|create|map)|^(cuda|hip)memcpy$"


def judge(facts: Facts) -> Iterator[Finding]:
    """Stretches of 20 kernels and more that were each launched when the device had nothing left to do.

    1. A kernel is late when the device was idle before it and it was launched no earlier than 5 us before that idle time.
    2. A stretch is a row of late kernels, at most three apart, that no gap of 100 us and no call interrupts that a graph must
       not contain.
    3. A graph leaves about 1 us between two kernels: the rest of the gaps is the price.

    Said only where most steps launch the same kernels in the same order, or where there is but one step.
    """
    tasks = facts.tasks.filter(pl.col("kind") != KIND_OTHER).select(_COLUMNS)
    if tasks.height < _LEAST_TASKS or not _steps_are_alike(facts, tasks):
        return
    tasks = in_order(tasks, "device", "start_ns")
    start, launch = tasks["start_ns"].to_numpy(), tasks["launch_ns"].fill_null(0).to_numpy()
    device = tasks["device"].fill_null(0).to_numpy().astype(np.int64)
    before = _ends_before(device, tasks["end_ns"].to_numpy())
    gap = np.where(before > 0, start - before, 0)
    late = (gap > 0) & (gap < _LONGEST_GAP_NS) & (launch >= before - _LATENCY_NS)
    index = np.flatnonzero(late)
    if len(index) < _LEAST_TASKS:
        return
    forbidden = np.sort(matching(facts.runtime, _FORBIDDEN)["start_ns"].to_numpy())
    passed = np.searchsorted(forbidden, launch[index])
    wide = np.r_[0, np.cumsum(gap >= _LONGEST_GAP_NS)][index + 1]
    step = tasks["step"].to_numpy()[index]
    apart = np.diff(index) > _WITHIN
    for changes in (passed, wide, step, device[index]):
        apart |= changes[1:] != changes[:-1]
    stretch = np.cumsum(np.r_[True, apart]) - 1
    sizes, idle = np.bincount(stretch), np.bincount(stretch, weights=np.maximum(gap[index] - _OF_A_GRAPH_NS, 0))
    long = sizes >= _LEAST_TASKS
    total = per_step(facts, pl.DataFrame({"step": step[np.flatnonzero(np.r_[True, apart])][long], "idle": idle[long]}), "idle")
    if total < _LEAST_SHARE * facts.step_ns:
        return
    members = long[stretch]
    lengths = tasks["duration_ns"].to_numpy()[index][members]
    yield Finding(
        rule=RULE.name,
        confidence=0.8 if facts.steps.height > 1 else 0.5,
        evidence=(
            Evidence("gaps_between_launches", total, "ns", tuple(sorted(set(step[members].tolist())))),
            Evidence("late_kernels", float(sizes[long].sum()) / facts.steps.height, "count"),
            Evidence("launch_bound_stretches", float(long.sum()) / facts.steps.height, "count"),
            Evidence("task_length", float(np.median(lengths)), "ns", per_step=False),
        ),
        saving=Saving(total / 2, 0.8 * total, total),
        step_ns=facts.step_ns,
        part="idle_ns",
    )


def _ends_before(device: Int64Array, end: Int64Array) -> Int64Array:
    """The latest end of the tasks before each task on its device; 0 for the first."""
    first = np.r_[True, device[1:] != device[:-1]]
    borders = np.flatnonzero(first)
    latest = np.concatenate([np.maximum.accumulate(part) for part in np.split(end, borders[1:])])
    return np.where(first, 0, np.r_[0, latest[:-1]])


def _steps_are_alike(facts: Facts, tasks: pl.DataFrame) -> bool:
    """Whether at least half of the steps, and two, launch the same kernels in the same order; ``tasks`` as facts have them."""
    if facts.steps.height < 2:
        return True
    # within a step they are in order of device, stream and start
    codes = in_order(tasks.select("step", code=pl.col("name").to_physical()), "step")
    borders = np.flatnonzero(np.diff(codes["step"].to_numpy())) + 1
    orders = [part.tobytes() for part in np.split(codes["code"].to_numpy(), borders)]
    most = max(Counter(orders).values())
    return most >= 2 and 2 * most >= len(orders)


RULE = Rule(
    "launch_bound",
    judge,
    (KERNEL_WAITS, RUNTIME_CALLS, HOST_AGAINST_DEVICE),
    devices=(CORE_CUDA, CORE_ROCM),
    explains=("host_bound_sequences", "device_waits_for_host"),
)
