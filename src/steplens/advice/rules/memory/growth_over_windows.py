"""Memory that is higher in every window of a run than in the one before, where no single window shows a leak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.memory import memory_growth
from steplens.trace.health import MEMORY
from steplens.trace.run import Run
from steplens.trace.schema import CORE_CPU

_LEAST_WINDOWS = 3
_LEAST_BYTES = 1 << 20
#: growth from the first to the last window by this share of what is allocated then
_SHARE = 0.05


def judge(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """What is allocated at least at the end of the steps of a window, window after window of one rank and device.

    The least of a window is what no step gave back. What grows in every step is the leak of ``memory_growth`` and is not said
    again. Nothing is said of a CPU, whose allocator does not see what is freed between windows: its count rises without a leak.
    """
    if len(facts) < _LEAST_WINDOWS:
        return
    leaking = {found.id for part in facts for found in memory_growth.judge(part)}
    levels = pl.concat([pl.DataFrame(schema=_SCHEMA), *(_levels(part) for part in facts)])
    for (rank, kind, device), rows in levels.sort("start_ns").group_by("rank", "device_type", "device", maintain_order=True):
        name = f"{kind} {device}" if device is not None and device >= 0 else str(kind)
        subject = name.lower().replace(" ", "")
        growth = rows["least"].diff().drop_nulls()
        total = int(growth.sum())
        if f"{memory_growth.RULE.name}:{subject}" in leaking or rows.height < _LEAST_WINDOWS or not (growth > 0).all():
            continue
        if total < max(_LEAST_BYTES, _SHARE * rows["least"][-1]):
            continue
        yield Finding(
            rule=RULE.name,
            subject=f"rank{rank}:{subject}" if rank >= 0 else subject,
            confidence=min(0.4 + 0.1 * rows.height, 0.9),
            evidence=(
                Evidence("window_growth", float(growth.median() or 0), "bytes", per_step=False),  # type: ignore[arg-type]
                Evidence("allocated_at_the_end", float(rows["least"][-1]), "bytes", per_step=False),
            ),
            step_ns=facts[0].step_ns,
            values={"device": name, "windows": rows.height},
            urgency=MEDIUM if total > rows["least"][0] / 2 else LOW,
        )


_SCHEMA = {"rank": pl.Int64, "start_ns": pl.Int64, "device_type": pl.String, "device": pl.Int32, "least": pl.Int64}


def _levels(facts: Facts) -> pl.DataFrame:
    """The least that is allocated at the end of a step of one window, per device."""
    if not facts.steps.height or "memory" not in facts.trace:
        return pl.DataFrame(schema=_SCHEMA)
    ends = facts.once(memory_growth.levels_at_step_ends).filter(pl.col("device_type") != CORE_CPU)
    least = ends.group_by("device_type", "device").agg(least=pl.col("allocated").min())
    start = int(facts.steps["start_ns"].min())  # type: ignore[arg-type]
    least = least.with_columns(rank=pl.lit(facts.trace.rank, dtype=pl.Int64), start_ns=pl.lit(start, dtype=pl.Int64))
    return least.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())


RULE = Rule("growth_over_windows", rests_on=(MEMORY,), judge_run=judge)
