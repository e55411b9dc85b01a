"""Operators of a net whose shapes change: their times from step to step, and single runs with their shapes."""

from __future__ import annotations

from typing import Annotated, Literal

import polars as pl
from fastapi import Query
from pydantic import BaseModel

from steplens.analysis.operators import dynamic_shape
from steplens.server.http.errors import Refusal
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen, TraceNumber
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns

router = create_router("/api/runs/{run}/shapes", "shapes")

#: types whose runs are shown together
_MOST_TYPES = 20
#: types that are listed
_MOST_LISTED = 2000

Level = Annotated[Literal["operator", "kernel"], Query(description="operators of the framework, or kernels of the device")]
Types = Annotated[list[str], Query(max_length=_MOST_TYPES, description="types of operators, names of kernels")]


class TypeShown(BaseModel):
    """One type of operator over all steps: runs, their time, and how many shapes they had (null where none was recorded)."""

    type: str
    steps: int
    count: int
    total_ns: float
    shapes: int | None


class TypeList(BaseModel):
    """The types there are.

    Attributes:
        types: those with the most time, in order of appearance.
        first: those to show first.
        steps: how many steps there are.
        left_out: types with less time that are not listed.
    """

    types: list[TypeShown]
    first: list[str]
    steps: int
    left_out: int


class TypeSeries(BaseModel):
    """One type from step to step: mean time of a run (0 in a step without it), runs, and different shapes."""

    type: str
    step: list[int]
    average_ns: list[float]
    count: list[int]
    shapes: list[int | None]


class RunShown(BaseModel):
    """One run of an operator; ``shapes`` are those of its inputs, null where they were not recorded."""

    step: int
    type: str
    name: str
    duration_ns: float
    shapes: str | None


class RunList(BaseModel):
    """Runs of some types.

    Attributes:
        runs: in order; of a long list the shortest and the longest of every stretch, so that no extreme is lost.
        total: how many there are.
    """

    runs: list[RunShown]
    total: int


@router.get("")
def shape_types(chosen: Chosen, trace: TraceNumber = 0, level: Level = "operator") -> TypeList:
    """The types of operators or kernels that ran in steps."""
    sums = _sums_by_type(chosen, trace, level)
    order = {name: place for place, name in enumerate(dynamic_shape.types_of(sums))}
    grouped = (
        sums.group_by("type")
        .agg(
            steps=pl.col("step").n_unique(),
            count=pl.col("count").sum(),
            total_ns=pl.col("total_ns").sum(),
            shapes=pl.col("shapes").max(),
        )
        .sort("total_ns", "type", descending=[True, False])
    )
    listed = sorted(columns.json_records(grouped.head(_MOST_LISTED)), key=lambda row: order[row["type"]])
    return TypeList(
        types=[TypeShown(**row) for row in listed],
        first=[row["type"] for row in listed[: dynamic_shape.SHOWN_TYPES]],
        steps=sums["step"].n_unique() if sums.height else 0,
        left_out=max(grouped.height - _MOST_LISTED, 0),
    )


@router.get("/series")
def shape_series(chosen: Chosen, types: Types, trace: TraceNumber = 0, level: Level = "operator") -> list[TypeSeries]:
    """Some types from step to step."""
    sums = _sums_by_type(chosen, trace, level)
    unknown = sorted(set(types) - set(sums["type"].to_list()))
    if unknown:
        raise Refusal(404, "no such type ran in a step", f"types {unknown[0][:200]}", "GET /api/runs/{run}/shapes lists them")
    distinct_types = list(dict.fromkeys(types))
    frames = dynamic_shape.series(sums, distinct_types)
    return [
        TypeSeries(type=type_name, **frame.to_dict(as_series=False))
        for type_name, frame in zip(distinct_types, frames, strict=True)
    ]


@router.get("/runs")
def shape_runs(
    chosen: Chosen,
    types: Types,
    trace: TraceNumber = 0,
    level: Level = "operator",
    name: Annotated[str, Query(max_length=500, description="part of the name, in either case of letters")] = "",
    points: Annotated[int, Query(ge=2, le=20_000)] = 4000,
) -> RunList:
    """Single runs of some types with their shapes."""
    runs_of_shapes = dynamic_shape.runs(chosen.trace(trace), level, types)
    if name:
        held = pl.col("name").str.to_lowercase().str.contains(name.lower(), literal=True)
        runs_of_shapes = runs_of_shapes.filter(held)
    rows = extreme_runs(runs_of_shapes.drop_nulls(["step", "duration_ns"]), points)
    return RunList(runs=[RunShown(**row) for row in columns.json_records(rows)], total=runs_of_shapes.height)


def _sums_by_type(shown: OpenedRun, trace: int, level: str) -> pl.DataFrame:
    return shown.frame_of_trace(dynamic_shape.sums, trace, level).drop_nulls(["step", "type"])


def extreme_runs(runs: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most so many runs: of every stretch of equal length the shortest and the longest."""
    if runs.height <= most:
        return runs
    stretches = max(most // 2, 1)
    numbered = runs.with_row_index("row").with_columns(stretch=pl.col("row") * stretches // runs.height)
    place = pl.col("row").gather(pl.concat_list(pl.col("duration_ns").arg_min(), pl.col("duration_ns").arg_max()).explode())
    extreme_rows = numbered.group_by("stretch").agg(place.unique()).explode("row").sort("row")["row"]
    return runs[extreme_rows.to_numpy()]
