"""Launches: too many, followed by waits, or of sequences that could be one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, rule
from steplens.advice.rules.tools.task_rows import Rows, row_findings
from steplens.advice.rules.tools.tasks import counted_evidence, matching_rows, per_step, steps_of
from steplens.analysis.device.task_sequences import Sequence
from steplens.analysis.tools.order import in_order
from steplens.analysis.tools.overlap import Int64Array, Intervals
from steplens.trace.health import HOST_AGAINST_DEVICE, KERNEL_CALLS, KERNEL_TIMES, KERNEL_WAITS, RUNTIME_CALLS
from steplens.trace.schema import CORE_CUDA, CORE_ROCM, KIND_OTHER

_LAUNCH = r"(?i)^(cuda|cu|hip)(ext|module)*launch(kernel|cooperative)|^(Node@)?launch$|^hipExtModuleLaunch"
_WAIT = r"(?i)^(cuda|hip)(stream|device)synchronize|^cu(stream|ctx)synchronize|^(AscendCL@)?aclrtSynchronize(Stream|Device)"
#: of its gaps a device keeps some when launches no longer wait
_GAPS_REMAIN = 0.2


@rule(
    rests_on=(RUNTIME_CALLS, HOST_AGAINST_DEVICE), devices=EVERY_ACCELERATOR, explains=("device_waits_for_host", "scalar_reads")
)
def blocking_launches(facts: Facts, *, least_share: float = 0.5, least_launches: int = 20) -> Iterator[Finding]:
    """The host waits for the device after most launches: launches were made blocking, or the program keeps synchronizing.

    Where more than half of the launches are followed by a wait for the device on the same thread.

    A launch that waits leaves the device idle from the end of the task until the next launch: the price is the gaps that
    begin while the host waits like that.
    """
    waits = matching_rows(facts.runtime, _WAIT).with_columns(launch=False, wait=True)
    if waits.is_empty():
        return
    calls = pl.concat([matching_rows(facts.runtime, _LAUNCH).with_columns(launch=True, wait=False), waits])
    calls = calls.sort("pid", "tid", "start_ns").with_columns(
        blocking=pl.col("wait") & pl.col("launch").shift(1, fill_value=False).over("pid", "tid")
    )
    launches, blocking = int(calls["launch"].sum()), calls.filter("blocking")
    if launches < least_launches or blocking.height <= least_share * launches:
        return
    idle = _idle_behind(facts, blocking)
    evidence = [
        Evidence("launches_followed_by_waits", 100 * blocking.height / launches, "%", steps_of(blocking), per_step=False),
        counted_evidence("waits_after_launches", blocking, "name", facts.steps.height),
        Evidence("idle_behind_waits", idle, "ns"),
    ]
    yield facts.make_finding(
        blocking_launches.name, evidence, Saving(idle / 2, (1 - _GAPS_REMAIN) * idle, idle), confidence=0.9, part="idle_ns"
    )


def _idle_behind(facts: Facts, waits: pl.DataFrame) -> float:
    """Length of the gaps of the device that begin inside one of ``waits``, per step; waits of several threads may overlap."""
    ordered = waits.sort("start_ns")
    begins, ends = ordered["start_ns"].to_numpy(), np.maximum.accumulate(ordered["end_ns"].to_numpy())
    last = np.searchsorted(begins, facts.gaps.start, side="right") - 1
    behind = (last >= 0) & (facts.gaps.start < ends[np.maximum(last, 0)])
    return facts.typical_length_ns(Intervals(facts.gaps.start[behind], facts.gaps.end[behind]))


_MOST_BUSY = 0.4


@rule(rests_on=(KERNEL_CALLS, KERNEL_TIMES), devices=EVERY_ACCELERATOR, explains=("device_waits_for_host",))
def host_bound_sequences(facts: Facts) -> Iterator[Finding]:
    """Rows of operators that recur and run for less than half of the time from their first to their last.

    The five of ``task_rows`` with the most time between their tasks, of those that run for less than 40 % of theirs.

    As one operator they are launched once. Other streams may work in these gaps, so that the device is not idle in all of
    them.
    """
    yield from row_findings(
        facts, host_bound_sequences.name, "between_tasks_of_sequences", 0.6, _gaps_of_sequence, lambda row: row.gaps_ns, "idle_ns"
    )


def _gaps_of_sequence(_: Rows, row: Sequence) -> float:
    """The time between its tasks, ns; nothing where they run most of the time."""
    return float(row.gaps_ns) if row.busy_ns < _MOST_BUSY * row.total_ns else 0.0


_COLUMNS = ("device", "stream", "step", "name", "start_ns", "end_ns", "launch_ns", "duration_ns")
#: between the start of a launch and that of its kernel on an idle device
_LATENCY_NS = 5_000
#: a longer gap has other reasons than launching
_LONGEST_GAP_NS = 100_000
#: so many kernels in a row may find work before them, as the second kernel of an operator does
_WITHIN = 3
#: what lies between two kernels of a graph
_OF_A_GRAPH_NS = 1_000
#: what a graph cannot contain: waiting for the device, asking for its memory
_FORBIDDEN = r"(?i)synchronize|malloc|^(cuda|hip)free|^cumem(alloc|free|create|map)|^(cuda|hip)memcpy$"


@rule(
    rests_on=(KERNEL_WAITS, RUNTIME_CALLS, HOST_AGAINST_DEVICE),
    devices=(CORE_CUDA, CORE_ROCM),
    explains=("host_bound_sequences", "device_waits_for_host"),
)
def launch_bound(facts: Facts, *, least_tasks: int = 20, least_share: float = 0.03) -> Iterator[Finding]:
    """Stretches of kernels that the GPU finishes faster than the host launches them, in steps that are all alike: a graph's case.

    Stretches of 20 kernels and more that were each launched when the device had nothing left to do.

    1. A kernel is late when the device was idle before it and it was launched no earlier than 5 us before that idle time.
    2. A stretch is a row of late kernels, at most three apart, that no gap of 100 us and no call interrupts that a graph must
       not contain.
    3. A graph leaves about 1 us between two kernels: the rest of the gaps is the price.

    Said only where most steps launch the same kernels in the same order, or where there is but one step.
    """
    tasks = facts.tasks.filter(pl.col("kind") != KIND_OTHER).select(_COLUMNS)
    if tasks.height < least_tasks or not _steps_are_alike(facts, tasks):
        return
    tasks = in_order(tasks, "device", "start_ns")
    start, launch = tasks["start_ns"].to_numpy(), tasks["launch_ns"].fill_null(0).to_numpy()
    device = tasks["device"].fill_null(0).to_numpy().astype(np.int64)
    before = _ends_before(device, tasks["end_ns"].to_numpy())
    gap = np.where(before > 0, start - before, 0)
    late = (gap > 0) & (gap < _LONGEST_GAP_NS) & (launch >= before - _LATENCY_NS)
    index = np.flatnonzero(late)
    if len(index) < least_tasks:
        return
    forbidden = np.sort(matching_rows(facts.runtime, _FORBIDDEN)["start_ns"].to_numpy())
    passed = np.searchsorted(forbidden, launch[index])
    wide = np.r_[0, np.cumsum(gap >= _LONGEST_GAP_NS)][index + 1]
    step = tasks["step"].to_numpy()[index]
    apart = np.diff(index) > _WITHIN
    for changes in (passed, wide, step, device[index]):
        apart |= changes[1:] != changes[:-1]
    stretch = np.cumsum(np.r_[True, apart]) - 1
    sizes, idle = np.bincount(stretch), np.bincount(stretch, weights=np.maximum(gap[index] - _OF_A_GRAPH_NS, 0))
    long = sizes >= least_tasks
    total = per_step(facts, pl.DataFrame({"step": step[np.flatnonzero(np.r_[True, apart])][long], "idle": idle[long]}), "idle")
    if total < least_share * facts.step_ns:
        return
    members = long[stretch]
    lengths = tasks["duration_ns"].to_numpy()[index][members]
    evidence = [
        Evidence("gaps_between_launches", total, "ns", tuple(sorted(set(step[members].tolist())))),
        Evidence("late_kernels", float(sizes[long].sum()) / facts.steps.height, "count"),
        Evidence("launch_bound_stretches", float(long.sum()) / facts.steps.height, "count"),
        Evidence("task_length", float(np.median(lengths)), "ns", per_step=False),
    ]
    saving = Saving(total / 2, 0.8 * total, total)
    yield facts.make_finding(
        launch_bound.name, evidence, saving, confidence=0.8 if facts.steps.height > 1 else 0.5, part="idle_ns"
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
