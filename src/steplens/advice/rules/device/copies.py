"""Copies between host and device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, rule
from steplens.advice.rules.tools.tasks import (
    exposed_time,
    per_step,
    steps_of,
    timed_evidence,
    torch_module,
    with_source_lines,
    with_top_values,
)
from steplens.analysis.steps.device_work import computing_tasks
from steplens.analysis.tools.names import containing, distinct
from steplens.analysis.tools.overlap import merged, subtract
from steplens.trace.health import KERNEL_TIMES, STEP_DEVICE_TIMES
from steplens.trace.schema import CORE_CUDA, CORE_ROCM, KIND_COPY

#: Kineto's, ROCm's and CANN's names of a copy from the host
FROM_HOST = r"(?i)HtoD|HostToDevice|host.to.device"
#: what is no matter of when it is copied, but of the memory it is copied from: ``pageable_copies`` speaks of it
_PAGEABLE = "(?i)pageable"
#: smaller ones cost their launch and not their bytes: ``small_copies`` speaks of them
_LEAST_BYTES = 64 << 10


@rule(rests_on=(KERNEL_TIMES, STEP_DEVICE_TIMES), devices=EVERY_ACCELERATOR)
def exposed_copies(facts: Facts, *, least_share: float = 0.03) -> Iterator[Finding]:
    """The device waits for its input: it computes nothing while a batch is copied to it out of pinned memory.

    Copies of more than 64 KiB from the host, as far as the device neither computes nor communicates meanwhile.

    Copied one step ahead and on a stream of its own, a batch arrives beside the computing of the step before it: at most as much
    is saved as there is computing to hide it behind. Copies out of pageable memory cannot run beside anything.
    """
    if not facts.step_ns:
        return
    copying = facts.tasks.filter((pl.col("kind") == KIND_COPY) & (pl.col("bytes") > _LEAST_BYTES))
    names = distinct(copying["name"])
    pageable = set(containing(names, _PAGEABLE))
    copies = copying.filter(pl.col("name").is_in([name for name in containing(names, FROM_HOST) if name not in pageable]))
    if copies.is_empty():
        return
    alone = exposed_time(facts, copies)
    if alone < least_share * facts.step_ns:
        return
    hidden = min(alone, facts.median("computing_ns"))
    length = int(copies["duration_ns"].sum())
    evidence = [
        with_top_values(Evidence("copying_input_alone", alone, "ns", steps_of(copies)), with_source_lines(facts, copies), "line"),
        Evidence("copied_input", per_step(facts, copies, "bytes"), "bytes"),
        Evidence("input_bandwidth", int(copies["bytes"].sum()) / max(length, 1), "GB/s", per_step=False),
    ]
    saving = Saving(0.0, 0.8 * hidden, hidden)
    values = {"module": torch_module(facts.device)}
    yield facts.make_finding(exposed_copies.name, evidence, saving, confidence=0.7, part="exposed_copy_ns", values=values)


_PAGEABLE_TO_DEVICE = "HtoD (Pageable"
_PINNED = "HtoD (Pinned"


@rule(rests_on=(KERNEL_TIMES,), devices=(CORE_CUDA, CORE_ROCM))
def pageable_copies(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Copies to the device out of ordinary memory, which the driver first copies into pinned memory while the host waits.

    The copies' time in which the device computes and communicates nothing: out of pinned memory, they run beside its work.
    """
    copies = facts.tasks.filter(pl.col("kind") == KIND_COPY).with_columns(pl.col("name").cast(pl.String))
    pageable = copies.filter(pl.col("name").str.contains(_PAGEABLE_TO_DEVICE, literal=True))
    if pageable.is_empty():
        return
    alone = exposed_time(facts, pageable)
    if alone < least_share * facts.step_ns:
        return
    evidence = [
        timed_evidence(facts, "pageable_copies", with_source_lines(facts, pageable), "line"),
        Evidence("copied_bytes", per_step(facts, pageable, "bytes"), "bytes"),
    ]
    for evidence_name, rows in (
        ("pageable_bandwidth", pageable),
        ("pinned_bandwidth", copies.filter(pl.col("name").str.contains(_PINNED, literal=True))),
    ):
        length = int(rows["duration_ns"].sum())
        if length:
            evidence.append(Evidence(evidence_name, int(rows["bytes"].sum()) / length, "GB/s", per_step=False))
    yield facts.make_finding(pageable_copies.name, evidence, Saving.up_to(alone), confidence=0.85, part="exposed_copy_ns")


#: a copy of this size takes hardly longer than an empty one
_SMALL = 64 << 10
#: copies of one series are no further apart
_APART_NS = 200_000


@rule(
    rests_on=(KERNEL_TIMES, STEP_DEVICE_TIMES), devices=EVERY_ACCELERATOR, explains=("device_waits_for_host", "pageable_copies")
)
def small_copies(facts: Facts, *, least_copies: int = 16, least_share: float = 0.01) -> Iterator[Finding]:
    """The input goes to the device in many small copies, one after the other.

    What series of small copies take while the device does nothing else; one copy of all takes one n-th of it.
    """
    copying = facts.tasks.filter(pl.col("kind") == KIND_COPY)
    copies = copying.filter(pl.col("name").is_in(containing(distinct(copying["name"]), FROM_HOST)))
    small = copies.filter(pl.col("bytes") <= _SMALL).sort("start_ns")
    if small.is_empty() or small.height < least_copies * facts.steps.height or not facts.step_ns:
        return
    start, end = small["start_ns"].to_numpy(), small["end_ns"].to_numpy()
    first = np.r_[
        True, (start[1:] - np.maximum.accumulate(end)[:-1] > _APART_NS) | np.diff(small["step"].to_numpy()).astype(bool)
    ]
    series = small.with_columns(series=pl.Series(np.cumsum(first)))
    spans = series.group_by("series").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    tasks = computing_tasks(facts.trace).select("start_ns", "end_ns").collect()
    alone = subtract(merged(spans), merged(tasks))
    total = facts.typical_length_ns(alone)
    if total < least_share * facts.step_ns:
        return
    likely = total * (1 - spans.height / small.height)
    evidence = [
        Evidence("copying_alone", total, "ns", steps_of(small)),
        Evidence("copies", small.height / facts.steps.height, "count"),
        Evidence("bytes_of_a_copy", float(small["bytes"].median() or 0), "bytes", per_step=False),  # type: ignore[arg-type]
    ]
    yield facts.make_finding(small_copies.name, evidence, Saving(likely / 2, likely, total), confidence=0.7)
