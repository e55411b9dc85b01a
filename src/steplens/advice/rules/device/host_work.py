"""Work of the host that keeps a device waiting: allocating, compiling, shapes, collections, fetching."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, rule
from steplens.advice.rules.tools.tasks import (
    counted_evidence,
    growing_segments,
    matching_rows,
    per_step,
    steps_of,
    timed_evidence,
    with_top_values,
)
from steplens.analysis.tools.overlap import Intervals, length_inside, merge_intervals
from steplens.trace.building.devices import NPU
from steplens.trace.building.framework import PYTORCH
from steplens.trace.health import GARBAGE_COLLECTION, HOST_AGAINST_DEVICE, KERNEL_DETAILS, OPERATOR_CALLS, RUNTIME_CALLS
from steplens.trace.schema import DATALOADER_PREFIX, SCOPE_FUNCTION

_ALLOCATING = (
    r"(?i)^(AscendCL@)?aclMallocMemInner|^(AscendCL@)?aclrt(free|malloc|map|unmap|reserve)(physical|mem|$)"
    r"|^(cuda|hip)(malloc|free)(managed|pitch|host|async)?$|^cumem(alloc|free|create|release|map|unmap|setaccess)"
)


@rule(
    rests_on=(RUNTIME_CALLS, HOST_AGAINST_DEVICE),
    devices=EVERY_ACCELERATOR,
    explains=("allocation_stalls", "device_waits_for_host"),
)
def allocation_calls(facts: Facts, *, least_ns: int = 10_000_000, least_share: float = 0.01) -> Iterator[Finding]:
    """Calls that ask the driver for device memory, or give it back, inside the steps.

    Where one such call takes 10 ms in the recorded steps together, or 1 % of them.

    The price is the device's idle time meanwhile.
    """
    calls = matching_rows(facts.runtime, _ALLOCATING)
    by_name = calls.group_by("name").agg(pl.col("duration_ns").sum())
    if calls.is_empty() or not facts.step_ns:
        return
    most = int(by_name["duration_ns"].max())  # type: ignore[arg-type]
    if most < min(least_ns, least_share * facts.step_ns * facts.steps.height):
        return
    idle = facts.idle_during(calls)
    priced = idle >= least_share * facts.step_ns
    evidence = [
        timed_evidence(facts, "in_allocation_calls", calls, "name"),
        Evidence("allocation_calls", calls.height / facts.steps.height, "count"),
        Evidence("idle_while_allocating", idle, "ns"),
    ]
    saving = Saving(idle / 2, idle, idle) if priced else None
    values = {"change": growing_segments(facts.device)}
    yield facts.make_finding(allocation_calls.name, evidence, saving, confidence=0.8, part="idle_ns", values=values)


_STATIC, _DYNAMIC = "(?i)^static$", "(?i)^dynamic$"
_PREPARATION = r"(?i)_tiling$|^opcompile$|infershape"


@rule(rests_on=(KERNEL_DETAILS,), devices=(NPU,), explains=("device_waits_for_host",))
def dynamic_shapes(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Operators that are prepared anew for every call, since the device's compiler was told nothing of their shapes.

    Where no operator is flagged static. The price is the device's idle time while the host compiles operators and tiles them.

    Without recorded runtime calls the price is unknown.
    """
    tasks = matching_rows(facts.computing, _DYNAMIC, "state")
    if tasks.is_empty() or matching_rows(facts.computing, _STATIC, "state").height:
        return
    evidence = [counted_evidence("dynamic_tasks", tasks, "type", facts.steps.height)]
    calls = matching_rows(facts.runtime, _PREPARATION)
    idle = facts.idle_during(calls) if calls.height else 0.0
    if calls.height:
        evidence.append(timed_evidence(facts, "preparing_operators", calls, "name"))
    priced = idle >= least_share * facts.step_ns > 0
    yield facts.make_finding(
        dynamic_shapes.name, evidence, Saving.up_to(idle) if priced else None, confidence=0.7, part="idle_ns"
    )


_COMPILING = r"^(AscendCL@)?aclopCompileAndExecute"


@rule(rests_on=(RUNTIME_CALLS, HOST_AGAINST_DEVICE), devices=(NPU,), explains=("device_waits_for_host", "dynamic_shapes"))
def operator_compilation(facts: Facts, *, least_calls: int = 20, least_share: float = 0.01) -> Iterator[Finding]:
    """Operators that the host compiles while the training runs, call by call.

    From 20 such calls on in the recorded steps, or from 1 % of a step on; the price is the device's idle time meanwhile.
    """
    calls = matching_rows(facts.runtime, _COMPILING)
    if calls.is_empty():
        return
    idle = facts.idle_during(calls)
    priced = idle >= least_share * facts.step_ns > 0
    if calls.height < least_calls and not priced:
        return
    evidence = [
        counted_evidence("compiling_calls", calls, "name", facts.steps.height),
        Evidence("in_compiling_calls", per_step(facts, calls), "ns"),
        Evidence("idle_while_compiling", idle, "ns"),
    ]
    yield facts.make_finding(
        operator_compilation.name, evidence, Saving.up_to(idle) if priced else None, confidence=0.8, part="idle_ns"
    )


_NAME = "(?i)dataloader"
#: so many times the median is an outlier; what is slow all the time is the business of the rules about loaders
_TIMES = 5.0
#: where more of the fetches are slow, none is an outlier: workers that are too slow end together, and one wait is for all
_RARE = 0.25
#: one slow fetch is an accident, and of no step that follows
_LEAST_FETCHES = 2


@rule(rests_on=(OPERATOR_CALLS,), explains=("loader_too_slow", "loader_without_workers"), framework=PYTORCH)
def slow_fetches(facts: Facts, *, least_ns: int = 10_000_000, least_share: float = 0.01) -> Iterator[Finding]:
    """Single batches that take the loader far longer than the others.

    Fetches but the first, of 10 ms and more, that take 5 times the median: two at least, a quarter of all at most.

    The price is what they take beyond the median.
    """
    fetches = facts.containing(_NAME)
    fetches = fetches.filter(~pl.col("parent").is_in(fetches["id"].implode()).fill_null(False))
    # the first one waits until the workers have started, which is another matter
    fetches = fetches.sort("start_ns").slice(1)
    if fetches.height < 2 or not facts.step_ns:
        return
    usual = float(fetches["duration_ns"].median() or 0)  # type: ignore[arg-type]
    slow = fetches.filter((pl.col("duration_ns") >= least_ns) & (pl.col("duration_ns") >= _TIMES * usual))
    beyond = float((slow["duration_ns"] - usual).sum()) / facts.steps.height
    if beyond < least_share * facts.step_ns or slow.height < _LEAST_FETCHES or slow.height > _RARE * (fetches.height + 1):
        return
    evidence = [
        with_top_values(
            Evidence(
                "in_slow_fetches", float(slow["duration_ns"].sum()) / facts.steps.height, "ns", steps_of(slow), of_mean=True
            ),
            slow,
            "name",
        ),
        Evidence("slow_fetches", slow.height, "count", per_step=False),
        Evidence("usual_fetch", usual, "ns", per_step=False),
    ]
    yield facts.make_finding(slow_fetches.name, evidence, Saving(beyond / 2, beyond, beyond), confidence=0.7)


#: share of such a stretch that calls may take, and calls per ns in it
_BUSY_SHARE, _CALLS_PER_NS = 0.01, 1e-7


@rule(
    rests_on=(GARBAGE_COLLECTION, OPERATOR_CALLS, RUNTIME_CALLS, HOST_AGAINST_DEVICE),
    devices=EVERY_ACCELERATOR,
    explains=("device_waits_for_host",),
)
def suspected_collections(facts: Facts, *, least_ns: int = 200_000_000) -> Iterator[Finding]:
    """Long stretches in which neither device nor host does anything that was recorded: probably Python's garbage collector.

    Gaps of the device of 200 ms and more in which calls of framework and runtime take less than 1 %, one per 10 ms at most.

    Only where no collections were recorded, which would tell. Anything else that Python does alone looks the same.
    """
    if facts.trace.required("gc").select(pl.len()).collect().item():
        return
    gaps = facts.gaps
    long = gaps.end - gaps.start >= least_ns
    if not long.any():
        return
    long_gaps = Intervals(gaps.start[long], gaps.end[long])
    ops = facts.trace.required("ops").filter(
        (pl.col("scope") == SCOPE_FUNCTION) | pl.col("name").cast(pl.String).str.starts_with(DATALOADER_PREFIX)
    )
    times = pl.concat([table.select("start_ns", "end_ns") for table in (ops, facts.trace.required("api"))]).drop_nulls().collect()
    starts, ends = times["start_ns"].to_numpy(), times["end_ns"].to_numpy()
    covered = length_inside(merge_intervals(starts, ends), long_gaps.start, long_gaps.end)
    ordered = np.sort(starts)
    calls = np.searchsorted(ordered, long_gaps.end) - np.searchsorted(ordered, long_gaps.start)
    length = long_gaps.end - long_gaps.start
    quiet = (covered < _BUSY_SHARE * length) & (calls <= _CALLS_PER_NS * length)
    if not quiet.any():
        return
    total = float(length[quiet].sum()) / facts.steps.height
    begins = facts.steps["start_ns"].to_numpy()
    numbers = {facts.numbers[index] for index in np.searchsorted(np.sort(begins), long_gaps.start[quiet], side="right") - 1}
    evidence = [
        Evidence("quiet_stretches", total, "ns", tuple(sorted(numbers))),
        Evidence("number_of_stretches", int(quiet.sum()), "count", per_step=False),
    ]
    yield facts.make_finding(suspected_collections.name, evidence, Saving.up_to(total), confidence=0.4)
