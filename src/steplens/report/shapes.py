"""The changing shapes of a report: every type from step to step, and its runs, of very many the shortest and the longest."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl

from steplens.analysis.operators import dynamic_shape
from steplens.report.parts import Parts
from steplens.server.operators import shapes
from steplens.server.runs import OpenedRun

LEVELS: tuple[Literal["operator", "kernel"], ...] = ("operator", "kernel")
#: runs of one trace and level
_MOST_RUNS = 60_000


def collect_shape_changes(shown: OpenedRun, trace: int, parts: Parts) -> None:
    """Put what the page of changing shapes asks for into a report, of a trace at every level."""
    for level in LEVELS:
        listed = [item.type for item in shapes.shape_types(shown, trace, level).types]
        if not listed:
            continue
        series = shapes.shape_series(shown, listed, trace, level)
        runs = dynamic_shape.runs(shown.trace(trace), level, listed)
        longest_runs = _extreme_runs(runs.drop_nulls(["step", "duration_ns"]), _MOST_RUNS)
        totals = dict(runs.group_by("type").len().rows())
        body = {
            "steps": series[0].step,
            "types": [
                {"type": item.type, "total": totals.get(item.type, 0), **item.model_dump(exclude={"type", "step"})}
                for item in series
            ],
            "runs": _run_columns(longest_runs, listed),
        }
        piece = f"shapes/{shown.id}/{trace}/{level}"
        parts.add_some(piece, body, "shapes", shown.id, trace, level, longest_runs.height, runs.height)


def _extreme_runs(runs: pl.DataFrame, most: int) -> pl.DataFrame:
    """Runs in their order: all of the types with few, of each other type the shortest and the longest of many stretches."""
    if runs.height <= most:
        return runs
    numbered = runs.with_row_index("place")
    counts = sorted(numbered.group_by("type").len()["len"].to_list())
    room, cap = most, most
    for place, count in enumerate(counts):
        cap = room // (len(counts) - place)
        if count > cap:
            break
        room -= count
    return (
        pl.concat([shapes.extreme_runs(of_type, max(cap, 2)) for of_type in numbered.partition_by("type")])
        .sort("place")
        .drop("place")
    )


def _run_columns(runs: pl.DataFrame, types: list[str]) -> dict[str, Any]:
    """Names and shapes once each; types by their place in the list."""
    place = {name: at for at, name in enumerate(types)}
    columns: dict[str, Any] = {"step": runs["step"].to_list(), "type": [place[type_name] for type_name in runs["type"]]}
    columns["duration_ns"] = runs["duration_ns"].to_list()
    for name in ("name", "shapes"):
        distinct = runs[name].unique(maintain_order=True).to_list()
        at = {text: number for number, text in enumerate(distinct)}
        columns[f"{name}_texts"], columns[name] = distinct, [at[text] for text in runs[name]]
    return columns
