"""How cores are used: their clock, their share of the blocks, and what runs on the AI CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import rule
from steplens.advice.rules.tools.tasks import (
    SHORT_NS,
    counted_evidence,
    per_step,
    timed_evidence,
    top_values,
    with_source_lines,
    with_top_values,
)
from steplens.analysis.device.core_utilization import task_metrics
from steplens.analysis.tools.overlap import merged, subtract
from steplens.trace.building.devices import NPU
from steplens.trace.health import COUNTERS, KERNEL_DETAILS, KERNEL_TIMES
from steplens.trace.schema import CORE_CUDA, CORE_ROCM

_AI_CPU = ("AI_CPU", "AICPU", "KERNEL_AICPU")
_WIDE_TYPES = r"(?i)double|int64|complex"


@rule(rests_on=(KERNEL_DETAILS, KERNEL_TIMES), devices=(NPU,))
def aicpu_operators(facts: Facts) -> Iterator[Finding]:
    """Operators that run on the AI CPU, the slow general processor of an Ascend device, and not on its AI cores.

    At most the time goes in which the AI CPU works and nothing else does; the AI cores need some of it for the same work.

    Said where the longest such task takes 20 us or more.
    """
    tasks = facts.computing
    slow = tasks.filter(pl.col("core").is_in(_AI_CPU))
    if not (slow["duration_ns"] >= SHORT_NS).any():
        return
    other_tasks = tasks.filter(~pl.col("core").is_in(_AI_CPU))
    alone = subtract(merged(slow), merged(other_tasks))
    steps = max(facts.steps.height, 1)
    evidence = [
        timed_evidence(facts, "on_aicpu", slow, "type"),
        replace(counted_evidence("aicpu_tasks", with_source_lines(facts, slow), "line", steps), steps=()),
    ]
    wide = slow.filter(pl.col("input_types").cast(pl.String).str.contains(_WIDE_TYPES))
    if wide.height:
        share = 100 * float(wide["duration_ns"].sum()) / max(float(slow["duration_ns"].sum()), 1)
        evidence.append(with_top_values(Evidence("aicpu_wide_types", share, "%", per_step=False), wide, "input_types"))
    saving = Saving.up_to(facts.typical_length_ns(alone))
    values = {"operators": ", ".join(top_values(slow, "type"))}
    yield facts.make_finding(aicpu_operators.name, evidence, saving, confidence=0.9, part="computing_ns", values=values)


_COUNTER = "AI Core Freq"
_CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV")


@rule(rests_on=(COUNTERS, KERNEL_TIMES), devices=(NPU,))
def core_frequency(facts: Facts, *, least_drop: float = 0.05) -> Iterator[Finding]:
    """AI cores that run slower than they are rated: too hot, short of power, or throttled.

    Tasks that began while the clock was at least 5 % below the rated one, which is the highest seen where none is recorded.

    What is bound by arithmetic takes rated / clock times as long as it would; what waits for memory loses nothing. The
    clock holds from one sample to the next.
    """
    samples = facts.trace.required("counters").filter(
        (pl.col("group") == _COUNTER) & (pl.col("value") > 0) & pl.col("value").is_finite()
    )
    clock = samples.select("time_ns", "value").drop_nulls().sort("time_ns").collect()
    tasks = facts.computing.filter(pl.col("core").is_in(_CORES))
    if clock.is_empty() or tasks.is_empty() or not facts.step_ns:
        return
    rated = float(facts.profile.core_mhz or clock["value"].max())  # type: ignore[arg-type]
    before = np.searchsorted(clock["time_ns"].to_numpy(), tasks["start_ns"].to_numpy(), side="right") - 1
    mhz = np.where(before >= 0, clock["value"].to_numpy()[np.maximum(before, 0)], rated)
    tasks = tasks.with_columns(mhz=pl.Series(mhz), lost_ns=pl.col("duration_ns") * (1 - pl.Series(mhz) / rated))
    slow = tasks.filter(pl.col("mhz") <= (1 - least_drop) * rated)
    if slow.is_empty():
        return
    length = float(slow["duration_ns"].sum())
    mean = float((slow["mhz"] * slow["duration_ns"]).sum()) / length if length else rated
    evidence = [
        timed_evidence(facts, "below_rated_clock", slow, "type"),
        Evidence("clock", mean, "MHz", per_step=False),
        Evidence("rated_clock", rated, "MHz", per_step=False),
    ]
    saving = Saving.up_to(per_step(facts, slow, "lost_ns"))
    values = {"percent": round(100 * (1 - mean / rated))}
    yield facts.make_finding(
        core_frequency.name,
        evidence,
        saving,
        confidence=0.9 if facts.profile.core_mhz else 0.6,
        part="computing_ns",
        values=values,
    )


_COLUMNS = {"blocks_per_sm": ("blocks per SM",), "occupancy": ("est. achieved occupancy %",)}
_MOST_OCCUPANCY = 20.0
#: shorter kernels end before their number of blocks matters
_SHORT_NS = 10_000


@rule(rests_on=(KERNEL_DETAILS, KERNEL_TIMES), devices=(CORE_CUDA, CORE_ROCM))
def low_occupancy(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Kernels with fewer thread blocks than the GPU has multiprocessors: most of the device has nothing to do.

    Kernels of 10 us and more with less than one block per multiprocessor and an estimated occupancy below 20 %.

    Spread over all multiprocessors their work takes blocks-per-multiprocessor of the time. Kernels with enough blocks and
    many registers have a low occupancy on purpose and do not count. Kernels of other streams may run meanwhile.
    """
    grids = task_metrics(facts.trace, _COLUMNS)
    if grids.is_empty():
        return
    tasks = facts.computing.filter(pl.col("duration_ns") >= _SHORT_NS).join(grids, left_on="id", right_on="kernel")
    few = tasks.filter((pl.col("blocks_per_sm") < 1) & (pl.col("occupancy") < _MOST_OCCUPANCY))
    few = few.with_columns(lost_ns=pl.col("duration_ns") * (1 - pl.col("blocks_per_sm").clip(0, 1)))
    lost = per_step(facts, few, "lost_ns")
    if lost < least_share * facts.step_ns or few.is_empty():
        return
    occupancy = float((few["occupancy"] * few["duration_ns"]).sum()) / max(float(few["duration_ns"].sum()), 1)
    evidence = [
        timed_evidence(facts, "in_few_blocks", few, "name", weight="lost_ns"),
        Evidence("kernels_of_few_blocks", few.height / facts.steps.height, "count"),
        Evidence("occupancy", occupancy, "%", per_step=False),
    ]
    yield facts.make_finding(low_occupancy.name, evidence, Saving.up_to(lost), confidence=0.7, part="computing_ns")


_CUBE, _VECTOR, _MIXED = ("AI_CORE", "MIX_AIC"), ("AI_VECTOR_CORE",), "MIX_AIC"


@rule(rests_on=(KERNEL_DETAILS, KERNEL_TIMES), devices=(NPU,))
def uneven_blocks(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Operators whose blocks do not divide evenly among the cores: in their last round some cores have nothing to do.

    With b blocks on c cores, equal blocks take ceil(b / c) rounds where b / c would do.

    So at most 1 - b / (c * ceil(b / c)) of a task goes. Tasks below 20 us are left out, since more blocks would not make
    them shorter; without the number of cores (``info.json``) nothing is said.
    """
    cube = facts.profile.cube_cores
    if cube is None:
        return
    cores = pl.when(pl.col("core").is_in(_VECTOR)).then(facts.profile.vector_cores or cube).otherwise(cube)
    tasks = facts.computing.filter(
        pl.col("core").is_in([*_CUBE, *_VECTOR]) & (pl.col("blocks") > 0) & (pl.col("duration_ns") >= SHORT_NS)
    ).with_columns(cores=cores.cast(pl.Int64))
    even = pl.col("blocks") % pl.col("cores") == 0
    if facts.profile.vector_cores:
        even |= (pl.col("core") == _MIXED) & (pl.col("mix_blocks").fill_null(1) % facts.profile.vector_cores == 0)
    rounds = (pl.col("blocks") + pl.col("cores") - 1) // pl.col("cores")
    uneven = tasks.filter(~even).with_columns(lost_ns=pl.col("duration_ns") * (1 - pl.col("blocks") / (pl.col("cores") * rounds)))
    lost = per_step(facts, uneven, "lost_ns")
    if lost < least_share * facts.step_ns or not facts.step_ns:
        return
    evidence = [
        timed_evidence(facts, "in_uneven_blocks", uneven, "type", weight="lost_ns"),
        Evidence("uneven_tasks", uneven.height / facts.steps.height, "count"),
    ]
    values = {"cores": cube, "vector_cores": facts.profile.vector_cores or cube}
    yield facts.make_finding(uneven_blocks.name, evidence, Saving.up_to(lost), confidence=0.7, part="computing_ns", values=values)
