"""Checks over the traces of one run: ranks, their steps, and whether they were captured in the same way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from steplens.common import json_text
from steplens.trace import health
from steplens.trace.building.checks.common import Tables, format_duration
from steplens.trace.trace import Trace, is_distributed

#: operations at whose end every rank has heard of every other, so that they end everywhere at about one time; a broadcast ends at
#: its root when that has sent, and a reduction to one rank ends elsewhere before it ends there
_ENDS_TOGETHER = r"(?i)all_?reduce|all_?gather|reduce_?scatter|barrier|all_?to_?all([^v]|$)"
#: steps that begin nearer to each other begin together
_OFFSET_NS = 1_000_000
#: this share of the collectives must agree on an offset, since a sampled trace pairs some that are not the same
_AGREEING = 0.4
_LEAST = 3
#: and within this share of it (or within what counts as nothing)
_SCATTER = 0.02
_NAMED = 8

#: what every part of a run should have in common, by key of ``meta``
_COMMON = (
    "source_format",
    "schemaVersion",
    "steplens_version",
    "torch_version",
    "torch_npu_version",
    "cann_version",
    "record_shapes",
    "profile_memory",
    "with_stack",
)
_TABLES = "tables"
_COMPARED_TABLES = ("ops", "python", "api", "kernels", "communication", "memory")


def rank_unknown(tables: Tables) -> Iterator[health.HealthFinding]:
    """A trace of a distributed job says which rank it is of."""
    meta = tables.get("meta")
    values: dict[str, Any] = {}
    if meta is not None:
        rank_values = meta.filter(pl.col("key").is_in(["rank", "world_size", "distributedInfo"]))
        values = {key: _decode_json(value) for key, value in rank_values.iter_rows()}
    rank = values.get("rank")
    if isinstance(rank, int) and rank >= 0:
        return
    if is_distributed(values, "communication" in tables):
        message = "the trace is of a distributed job and does not say of which rank"
        yield health.finding("rank_unknown", health.WARNING, 1, message, health.RANK_COMPARISON)


def recorded_ranks(traces: Sequence[Trace]) -> tuple[set[int], int]:
    """The ranks that say which they are, and how many the job has, as far as the traces tell; 0 where none says it.

    Where none tells the size of the job, the links do over which the ranks communicated.
    """
    ranks = {trace.recorded_rank for trace in traces if trace.recorded_rank >= 0}
    return ranks, max([*_job_sizes(traces), max(ranks) + 1]) if ranks else 0


def is_size_told(traces: Sequence[Trace]) -> bool:
    """Whether traces tell how many ranks their job has."""
    return bool(_job_sizes(traces))


def _job_sizes(traces: Sequence[Trace]) -> list[int]:
    sizes = [value for trace in traces if isinstance(value := trace.meta_value("world_size"), int)]
    return sizes or [number + 1 for trace in traces if (number := _highest_linked(trace)) is not None]


def _highest_linked(trace: Trace) -> int | None:
    if "communication_matrix" not in trace:
        return None
    ends = trace.required("communication_matrix").select(pl.max_horizontal(pl.col("source", "destination").max()))
    number = ends.collect().item()
    return number if isinstance(number, int) and 0 <= number < 1 << 20 else None


def missing_ranks(traces: Sequence[tuple[Path, Trace]]) -> Iterator[health.HealthFinding]:
    """Every rank of the job is there. A few of many ranks are a sample, most of them a loss."""
    ranks, size = recorded_ranks([trace for _, trace in traces])
    if not ranks:
        return
    missing = [rank for rank in range(min(size, 1 << 20)) if rank not in ranks]
    if not missing:
        return
    if len(ranks) == 1:
        message = f"one rank ({next(iter(ranks))}) of {size} is here"
    else:
        numbers = ", ".join(map(str, missing[:_NAMED])) + (" ..." if len(missing) > _NAMED else "")
        message = f"{len(ranks)} of {size} ranks are here, {len(missing)} missing: {numbers}"
    severity = health.WARNING if len(ranks) > 1 and 2 * len(ranks) >= size else health.INFO
    yield health.finding("missing_ranks", severity, len(missing), message, health.RANK_COMPARISON)


def duplicated_ranks(traces: Sequence[tuple[Path, Trace]]) -> Iterator[health.HealthFinding]:
    """Traces of one rank are of different windows: they do not overlap in time."""
    spans: dict[int, list[tuple[int, int, Path]]] = {}
    for path, trace in traces:
        if trace.recorded_rank < 0:
            continue
        low, high = recorded_span(trace)
        if low is not None and high is not None:
            spans.setdefault(trace.rank, []).append((low, high, path))
    for rank, windows in spans.items():
        windows.sort(key=lambda window: window[:2])
        for (_, end, rank_before), (start, _, rank_behind) in itertools.pairwise(windows):
            if start < end:
                message = f"{rank_before.name} and {rank_behind.name} both say that they are rank {rank}, at the same time"
                yield health.finding("duplicated_ranks", health.WARNING, 1, message, health.RANK_COMPARISON)


def different_steps(traces: Sequence[tuple[Path, Trace]]) -> Iterator[health.HealthFinding]:
    """All ranks recorded the same steps."""
    steps: dict[int, set[int]] = {}
    for _, trace in traces:
        if trace.recorded_rank >= 0 and "steps" in trace:
            steps.setdefault(trace.rank, set()).update(step_bounds(trace)["id"])
    if len(steps) < 2:
        return
    common, all_steps = set.intersection(*steps.values()), set.union(*steps.values())
    if common != all_steps:
        different = sorted(all_steps - common)
        message = f"{len(different)} steps were not recorded by every rank, the first is step {different[0]}"
        yield health.finding(
            "different_steps", health.WARNING, len(different), message, health.RANK_COMPARISON, health.STEP_AVERAGES
        )


def ends_together(operation: pl.Expr) -> pl.Expr:
    """Whether operations end on all ranks at about one time.

    Args:
        operation: what they do, or else their names, as texts.
    """
    return operation.str.contains(_ENDS_TOGETHER).fill_null(False)


@dataclass(frozen=True)
class AgreedOffset:
    """By how much later one thing happens than another, again and again.

    Attributes:
        offset_ns: ns.
        agreeing: how many agree on it.
    """

    offset_ns: float
    agreeing: int


def agreed_offset(distance: pl.Series, tolerance_ns: int) -> AgreedOffset | None:
    """What most of some distances agree on; None where it is nothing that is worth a word, or they do not agree.

    The middle of the shortest interval that holds two fifths of the distances. Half of them would do, were it not for traces
    that hold a sample of the collectives, which pairs some that are not the same. The interval must be narrow.

    Args:
        distance: ns.
        tolerance_ns: less than this is nothing.
    """
    if len(distance) < _LEAST:
        return None
    values = distance.sort().to_numpy()
    held = max(int(np.ceil(_AGREEING * len(values))), _LEAST)
    widths = values[held - 1 :] - values[: len(values) - held + 1]
    first = int(np.argmin(widths))
    offset = float(values[first : first + held].mean())
    is_agreed = abs(offset) > tolerance_ns and widths[first] <= max(tolerance_ns, _SCATTER * abs(offset))
    return AgreedOffset(offset, held) if is_agreed else None


def step_start_offset(traces: Mapping[int, Sequence[Trace]], ranks: Sequence[int]) -> Iterator[health.HealthFinding]:
    """Whether the steps of ranks that exchange no messages with the lowest one begin where its steps do, within half a step.

    Args:
        traces: by rank, of all ranks.
        ranks: which of them to compare with the lowest.
    """
    reference = min(traces)
    apart: list[tuple[int, int, float, float]] = []
    steps_of_reference = _concatenate_steps(traces[reference]) if ranks else pl.DataFrame()
    for rank in ranks:
        both = _concatenate_steps(traces[rank]).join(steps_of_reference, on="id", suffix="_reference")
        if both.height:
            offset = _median_value(both["start_ns"] - both["start_ns_reference"])
            usual = _median_value(both["end_ns_reference"] - both["start_ns_reference"])
            if abs(offset) > max(usual / 2, _OFFSET_NS):
                apart.append((rank, both.height, offset, usual))
    if len(apart) > _NAMED:
        rank, count, offset, usual = max(apart, key=lambda rank: abs(rank[2]))
        message = (
            f"steps begin at other times on {len(apart)} ranks than on rank {reference}, {describe_offset(offset)} on rank "
            f"{rank}, and last {format_duration(usual)}: the clocks differ, or the ranks do not take their steps together"
        )
        yield health.finding("rank_clock_offset", health.WARNING, len(apart), message, health.RANK_COMPARISON)
        return
    for rank, count, offset, usual in apart:
        message = (
            f"{count} steps begin {describe_offset(offset)} on rank {rank} than on rank {reference}, "
            f"and last {format_duration(usual)}: the clocks differ, or the ranks do not take their steps together"
        )
        yield health.finding("rank_clock_offset", health.WARNING, count, message, health.RANK_COMPARISON)


def describe_offset(offset_ns: float) -> str:
    """By how much one thing is after another: "3 ms later"."""
    return f"{format_duration(abs(offset_ns))} {'later' if offset_ns > 0 else 'earlier'}"


def mixed_captures(traces: Sequence[tuple[Path, Trace]]) -> Iterator[health.HealthFinding]:
    """All traces come from the same versions and were captured with the same options."""
    if len(traces) < 2:
        return
    described = [trace.once(describe_recording) for _, trace in traces]
    differing = []
    for key in sorted({key for description in described for key in description}):
        compared = described
        if key == _TABLES:
            # where no work was recorded, such as between two steps, there is nothing of some kinds
            compared = [description for (_, trace), description in zip(traces, described, strict=True) if "kernels" in trace]
        values = {json.dumps(description.get(key), sort_keys=True) for description in compared}
        if len(values) > 1:
            values_text = (
                " and ".join(sorted(values)) if len(values) == 2 and sum(map(len, values)) < 60 else f"{len(values)} values"
            )
            differing.append(f"{key} ({values_text})")
    if differing:
        keys_text = ", ".join(differing[:_NAMED]) + (" ..." if len(differing) > _NAMED else "")
        message = f"the traces of this run differ in {len(differing)} of what they should have in common: {keys_text}"
        yield health.finding(
            "mixed_captures", health.WARNING, len(differing), message, health.RANK_COMPARISON, health.RUN_OPTIONS
        )


def describe_recording(trace: Trace) -> dict[str, Any]:
    """How a trace was recorded, of what the traces of a run should have in common."""
    description = {key: value for key in _COMMON if (value := trace.meta_value(key)) is not None}
    config = trace.meta_value("config")
    for group in config.values() if isinstance(config, dict) else ():
        if isinstance(group, dict):
            description.update(group)
    description[_TABLES] = [name for name in _COMPARED_TABLES if name in trace]
    return description


def _concatenate_steps(traces: Sequence[Trace]) -> pl.DataFrame:
    return pl.concat([step_bounds(trace) for trace in traces])


def step_bounds(trace: Trace) -> pl.DataFrame:
    """id, start_ns and end_ns of the steps of a rank, which are asked of all ranks at once."""
    return trace.once(_step_bounds)


def _step_bounds(trace: Trace) -> pl.DataFrame:
    return trace.required("steps").select("id", "start_ns", "end_ns").collect()


def recorded_span(trace: Trace) -> tuple[int | None, int | None]:
    """When the recording of a rank begins and ends, ns; None where nothing tells."""
    return trace.once(_recorded_span)


def _recorded_span(trace: Trace) -> tuple[int | None, int | None]:
    name = next((name for name in ("steps", "ops", "kernels") if name in trace), None)
    if name is None:
        return None, None
    return trace.required(name).select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)


def _median_value(values: pl.Series) -> float:
    return float(values.median())  # type: ignore[arg-type]


def _decode_json(text: str) -> Any:
    try:
        return json_text.loads_stored(text)
    except ValueError:
        return None
