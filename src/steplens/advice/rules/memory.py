"""Memory: waits for it, large blocks, and growth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, rule, run_rule
from steplens.advice.rules.tools.tasks import counted_evidence, growing_segments, steps_of
from steplens.analysis.device import idle
from steplens.analysis.memory.memory import operator_memory
from steplens.analysis.tools.groups import first_rows, number_groups
from steplens.analysis.tools.order import in_order
from steplens.run import Run
from steplens.trace.health import HOST_AGAINST_DEVICE, KERNEL_TIMES, MEMORY, OPERATOR_TIMES, RUNTIME_CALLS, STEP_DEVICE_TIMES
from steplens.trace.schema import CORE_CPU


@rule(rests_on=(HOST_AGAINST_DEVICE, KERNEL_TIMES, STEP_DEVICE_TIMES, RUNTIME_CALLS), devices=EVERY_ACCELERATOR)
def allocation_stalls(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """The device is idle while the host asks the driver for device memory inside the step.

    Steps that use the allocator's own memory again call no ``cudaMalloc``: all of this idle time can go.
    """
    causes = facts.idle.filter(pl.col("cause") == idle.ALLOCATION)
    if causes.is_empty() or not facts.step_ns:
        return
    total = facts.typical_ns(causes, "idle_ns", on_device=True)
    if total < least_share * facts.step_ns:
        return
    saving = Saving(0.7 * total, total, total)
    values = {"change": growing_segments(facts.device)}
    yield facts.make_finding(
        allocation_stalls.name,
        [Evidence("idle_allocation", total, "ns", tuple(causes["step"].to_list()))],
        saving,
        confidence=0.8,
        part="idle_ns",
        values=values,
    )


#: glibc never keeps a block of this size: each one is mapped, touched page by page for the first time, and unmapped
_NEVER_KEPT = 32 << 20
_LARGE_SHARE = 0.3


@rule(rests_on=(MEMORY, OPERATOR_TIMES), devices=("CPU",))
def large_blocks(facts: Facts, *, least_share: float = 0.1) -> Iterator[Finding]:
    """Large blocks of the CPU's memory are taken from the operating system and given back in every step.

    Operators that allocate blocks above 32 MiB, which end within the window, in every other step or more.

    How much of their time is the system's, handing out pages, a trace does not tell: no time is promised.
    """
    large = facts.trace.required("memory").select((pl.col("bytes") > _NEVER_KEPT).any()).collect().item()
    if not large or _keeps_blocks(facts):
        return
    blocks = operator_memory(facts.trace, ["CPU"]).filter((pl.col("bytes") > _NEVER_KEPT) & pl.col("release_ns").is_not_null())
    if blocks.is_empty() or not facts.step_ns:
        return
    ops = facts.named_calls.select(op="id", step="step", duration_ns="duration_ns", called=pl.col("name"))
    blocks_of_operators = blocks.select("op", "bytes").join(ops, on="op")
    steps = steps_of(blocks_of_operators)
    time = facts.typical_ns(blocks_of_operators.unique("op"))
    if 2 * len(steps) < facts.steps.height or time < least_share * facts.step_ns:
        return
    evidence = [
        counted_evidence("large_blocks", blocks_of_operators, "called", facts.steps.height, weight="bytes"),
        Evidence("bytes_of_large_blocks", float(blocks_of_operators["bytes"].sum()) / facts.steps.height, "bytes"),
        Evidence("operators_of_large_blocks", time, "ns"),
    ]
    yield facts.make_finding(
        large_blocks.name, evidence, confidence=0.6, urgency=MEDIUM if time >= _LARGE_SHARE * facts.step_ns else LOW
    )


def _keeps_blocks(facts: Facts) -> bool:
    """Whether the program was told to keep large blocks, or runs with an allocator that does."""
    allocator = facts.trace.meta_value("allocator")
    if not isinstance(allocator, dict):
        return False
    threshold = str(allocator.get("mmap_threshold", ""))
    return bool(allocator.get("preloaded")) or (threshold.isdecimal() and int(threshold) > _NEVER_KEPT)


#: share of the steps in which memory must grow
_STEADY = 0.8
#: the first steps create what stays: optimizer states, caches
_WARM_UP = 1
#: growth by this share of what is allocated within a hundred steps will end the job
_HIGH_GROWTH = 0.5
_CENTURY = 100
#: operators or lines that never freed blocks, the largest, that are named
_NAMED = 3


@rule(rests_on=(MEMORY,))
def memory_growth(facts: Facts, *, least_steps: int = 5, least_bytes: int = 16 << 10) -> Iterator[Finding]:
    """Memory that grows from step to step, and who allocated what was never freed.

    What is allocated at the end of each step: a leak adds about as much in every step, a warm-up or a cache does not.
    """
    if facts.steps.height < least_steps or "memory" not in facts.trace:
        return
    levels = facts.once(levels_at_step_ends)
    for (kind, device), at_end in levels.group_by("device_type", "device", maintain_order=True):
        growth = at_end["allocated"].diff().drop_nulls()[_WARM_UP:]
        if len(growth) < least_steps - 1 - _WARM_UP or (growth > 0).sum() < _STEADY * len(growth):
            continue
        slope = float(growth.median())  # type: ignore[arg-type]
        if slope < least_bytes:
            continue
        level = float(at_end["allocated"][-1])
        name = f"{kind} {device}" if device is not None and device >= 0 else str(kind)
        places = _never_freed(facts, kind, device)
        evidence = [
            Evidence(
                "growth",
                slope,
                "bytes",
                tuple(at_end["step"].to_list()),
                tuple(places[:_NAMED]),
                other_places=len(places[_NAMED:]),
            ),
            Evidence("allocated_at_the_end", level, "bytes", per_step=False),
        ]
        subject = name.lower().replace(" ", "")
        urgency = HIGH if slope * _CENTURY > _HIGH_GROWTH * level else MEDIUM
        yield facts.make_finding(
            memory_growth.name,
            evidence,
            confidence=min(0.5 + 0.08 * len(growth), 0.95),
            subject=subject,
            values={"device": name},
            urgency=urgency,
        )


def levels_at_step_ends(facts: Facts) -> pl.DataFrame:
    """What was allocated at the end of every whole step: step, device_type, device, allocated; per device in order of time."""
    columns = ["device_type", "device", "time_ns", "allocated"]
    events = facts.trace.required("memory").filter(pl.col("allocated").is_not_null()).select(columns).collect()
    events = in_order(events, "time_ns")
    ends = facts.steps.select("step", time_ns=pl.col("start_ns") + pl.col("duration_ns")).sort("time_ns")
    allocator, count = number_groups(events, ["device_type", "device"])
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
    of_device = pl.col("device_type").cast(pl.String).eq_missing(pl.lit(kind)) & pl.col("device").eq_missing(pl.lit(device))
    events = facts.trace.required("memory").filter(of_device & pl.col("allocated").is_not_null())
    rows = events.select("time_ns", "address", "bytes", "op").sort("time_ns").collect()
    final = rows.group_by("address", maintain_order=True).last()
    left = final.filter((pl.col("bytes") > 0) & pl.col("time_ns").is_between(begin, last, closed="left"))
    ops = facts.trace.required("ops").select(op="id", name=pl.col("name").cast(pl.String), stack=pl.col("stack").cast(pl.String))
    with_operator = left.lazy().join(ops, on="op", how="left").collect()
    line = pl.col("stack").str.split(";").list.first()
    place = pl.coalesce(pl.when(line.str.len_chars() > 0).then(line), "name")
    sums = with_operator.with_columns(place=place).drop_nulls("place").group_by("place").agg(pl.col("bytes").sum())
    return sums.sort("bytes", "place", descending=[True, False])["place"].to_list()


#: growth from the first to the last window by this share of what is allocated then
_SHARE = 0.05


@run_rule(rests_on=(MEMORY,))
def growth_over_windows(
    run: Run, facts: Sequence[Facts], *, least_windows: int = 3, least_bytes: int = 1 << 20
) -> Iterator[Finding]:
    """Memory that is higher in every window of a run than in the one before, where no single window shows a leak.

    What is allocated at least at the end of the steps of a window, window after window of one rank and device.

    The least of a window is what no step gave back. What grows in every step is the leak of ``memory_growth`` and is not said
    again. Nothing is said of a CPU, whose allocator does not see what is freed between windows: its count rises without a leak.
    """
    if len(facts) < least_windows:
        return
    leaking = {finding.id for part in facts for finding in memory_growth.judge(part)}
    levels = pl.concat([pl.DataFrame(schema=_SCHEMA), *(_least_allocated_bytes(part) for part in facts)])
    for (rank, kind, device), rows in levels.sort("start_ns").group_by("rank", "device_type", "device", maintain_order=True):
        name = f"{kind} {device}" if device is not None and device >= 0 else str(kind)
        subject = name.lower().replace(" ", "")
        growth = rows["least"].diff().drop_nulls()
        total = int(growth.sum())
        if f"{memory_growth.name}:{subject}" in leaking or rows.height < least_windows or not (growth > 0).all():
            continue
        if total < max(least_bytes, _SHARE * rows["least"][-1]):
            continue
        yield Finding(
            rule=growth_over_windows.name,
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


def _least_allocated_bytes(facts: Facts) -> pl.DataFrame:
    """The least that is allocated at the end of a step of one window, per device."""
    if not facts.steps.height or "memory" not in facts.trace:
        return pl.DataFrame(schema=_SCHEMA)
    ends = facts.once(levels_at_step_ends).filter(pl.col("device_type") != CORE_CPU)
    least = ends.group_by("device_type", "device").agg(least=pl.col("allocated").min())
    start = int(facts.steps["start_ns"].min())  # type: ignore[arg-type]
    least = least.with_columns(rank=pl.lit(facts.trace.rank, dtype=pl.Int64), start_ns=pl.lit(start, dtype=pl.Int64))
    return least.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())
