"""Memory that grows from step to step, and who allocated what was never freed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.analysis.tools.groups import first_rows, numbered
from steplens.analysis.tools.order import in_order
from steplens.trace.health import MEMORY

_LEAST_STEPS = 5
_LEAST_BYTES = 16 << 10
#: share of the steps in which memory must grow
_STEADY = 0.8
#: the first steps create what stays: optimizer states, caches
_WARM_UP = 1
#: growth by this share of what is allocated within a hundred steps will end the job
_HIGH_GROWTH = 0.5
_CENTURY = 100


def judge(facts: Facts) -> Iterator[Finding]:
    """What is allocated at the end of each step: a leak adds about as much in every step, a warm-up or a cache does not."""
    if facts.steps.height < _LEAST_STEPS or "memory" not in facts.trace:
        return
    levels = facts.once(levels_at_step_ends)
    for (kind, device), at_end in levels.group_by("device_type", "device", maintain_order=True):
        growth = at_end["allocated"].diff().drop_nulls()[_WARM_UP:]
        if len(growth) < _LEAST_STEPS - 1 - _WARM_UP or (growth > 0).sum() < _STEADY * len(growth):
            continue
        slope = float(growth.median())  # type: ignore[arg-type]
        if slope < _LEAST_BYTES:
            continue
        level = float(at_end["allocated"][-1])
        name = f"{kind} {device}" if device is not None and device >= 0 else str(kind)
        yield Finding(
            rule=RULE.name,
            subject=name.lower().replace(" ", ""),
            confidence=min(0.5 + 0.08 * len(growth), 0.95),
            evidence=(
                Evidence("growth", slope, "bytes", tuple(at_end["step"].to_list()), tuple(_never_freed(facts, kind, device))),
                Evidence("allocated_at_the_end", level, "bytes", per_step=False),
            ),
            step_ns=facts.step_ns,
            values={"device": name},
            urgency=HIGH if slope * _CENTURY > _HIGH_GROWTH * level else MEDIUM,
        )


def levels_at_step_ends(facts: Facts) -> pl.DataFrame:
    """What was allocated at the end of every whole step: step, device_type, device, allocated; per device in order of time."""
    columns = ["device_type", "device", "time_ns", "allocated"]
    events = facts.trace.required("memory").filter(pl.col("allocated").is_not_null()).select(columns).collect()
    events = in_order(events, "time_ns")
    ends = facts.steps.select("step", time_ns=pl.col("start_ns") + pl.col("duration_ns")).sort("time_ns")
    allocator, count = numbered(events, ["device_type", "device"])
    first = first_rows(allocator, count)
    each = [
        ends.join_asof(events.filter(pl.Series(allocator == number)), on="time_ns", strategy="backward").drop_nulls("allocated")
        for number in sorted(np.flatnonzero(first >= 0).tolist(), key=first.tolist().__getitem__)
    ]
    empty = ends.clear().join(events.clear(), on="time_ns")
    return pl.concat([empty, *each]).with_columns(pl.col("device_type").cast(pl.String))


def _never_freed(facts: Facts, kind: object, device: object) -> list[str]:
    """Operators and lines whose blocks were still there at the end, by size, those of the last step left out."""
    last = facts.steps["start_ns"].max()
    begin = facts.steps["start_ns"].sort()[min(_WARM_UP, facts.steps.height - 1)]
    own = pl.col("device_type").cast(pl.String).eq_missing(pl.lit(kind)) & pl.col("device").eq_missing(pl.lit(device))
    events = facts.trace.required("memory").filter(own & pl.col("allocated").is_not_null())
    rows = events.select("time_ns", "address", "bytes", "op").sort("time_ns").collect()
    final = rows.group_by("address", maintain_order=True).last()
    left = final.filter((pl.col("bytes") > 0) & pl.col("time_ns").is_between(begin, last, closed="left"))
    ops = facts.trace.required("ops").select(op="id", name=pl.col("name").cast(pl.String), stack=pl.col("stack").cast(pl.String))
    named = left.lazy().join(ops, on="op", how="left").collect()
    line = pl.col("stack").str.split(";").list.first()
    place = pl.coalesce(pl.when(line.str.len_chars() > 0).then(line), "name")
    sums = named.with_columns(place=place).drop_nulls("place").group_by("place").agg(pl.col("bytes").sum())
    return sums.sort("bytes", "place", descending=[True, False])["place"].head(3).to_list()


RULE = Rule("memory_growth", judge, (MEMORY,))
