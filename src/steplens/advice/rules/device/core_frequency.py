"""AI cores that run slower than they are rated: too hot, short of power, or throttled."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import per_step, steps_of, top
from steplens.trace.building.devices import NPU
from steplens.trace.health import COUNTERS, KERNEL_TIMES

_COUNTER = "AI Core Freq"
_CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV")
_LEAST_DROP = 0.05


def judge(facts: Facts) -> Iterator[Finding]:
    """Tasks that began while the clock was at least 5 % below the rated one, which is the highest seen where none is recorded.

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
    slow = tasks.filter(pl.col("mhz") <= (1 - _LEAST_DROP) * rated)
    if slow.is_empty():
        return
    length = float(slow["duration_ns"].sum())
    mean = float((slow["mhz"] * slow["duration_ns"]).sum()) / length if length else rated
    yield Finding(
        rule=RULE.name,
        confidence=0.9 if facts.profile.core_mhz else 0.6,
        evidence=(
            Evidence("below_rated_clock", per_step(facts, slow), "ns", steps_of(slow), top(slow, "type")),
            Evidence("clock", mean, "MHz", per_step=False),
            Evidence("rated_clock", rated, "MHz", per_step=False),
        ),
        saving=Saving.up_to(per_step(facts, slow, "lost_ns")),
        step_ns=facts.step_ns,
        part="computing_ns",
        values={"percent": round(100 * (1 - mean / rated))},
    )


RULE = Rule("core_frequency", judge, (COUNTERS, KERNEL_TIMES), devices=(NPU,))
