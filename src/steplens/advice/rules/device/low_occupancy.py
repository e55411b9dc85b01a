"""Kernels with fewer thread blocks than the GPU has multiprocessors: most of the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import per_step, steps_of, top
from steplens.analysis.device.core_utilization import task_metrics
from steplens.trace.health import KERNEL_DETAILS, KERNEL_TIMES
from steplens.trace.schema import CORE_CUDA, CORE_ROCM

_COLUMNS = {"blocks_per_sm": ("blocks per SM",), "occupancy": ("est. achieved occupancy %",)}
_MOST_OCCUPANCY = 20.0
#: shorter kernels end before their number of blocks matters
_SHORT_NS = 10_000
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """Kernels of 10 us and more with less than one block per multiprocessor and an estimated occupancy below 20 %.

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
    if lost < _LEAST_SHARE * facts.step_ns or few.is_empty():
        return
    occupancy = float((few["occupancy"] * few["duration_ns"]).sum()) / max(float(few["duration_ns"].sum()), 1)
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=(
            Evidence("in_few_blocks", per_step(facts, few), "ns", steps_of(few), top(few, "name", "lost_ns")),
            Evidence("kernels_of_few_blocks", few.height / facts.steps.height, "count"),
            Evidence("occupancy", occupancy, "%", per_step=False),
        ),
        saving=Saving.up_to(lost),
        step_ns=facts.step_ns,
        part="computing_ns",
    )


RULE = Rule("low_occupancy", judge, (KERNEL_DETAILS, KERNEL_TIMES), devices=(CORE_CUDA, CORE_ROCM))
