"""Many ranks beside each other, few numbers of each, for pages that group, sort, search and draw them; no events are read."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import Query
from pydantic import BaseModel

from steplens.analysis.cluster.side_by_side.figures import FIGURES, rank_figures, rank_groups
from steplens.analysis.cluster.side_by_side.rank_steps import OWN, QUANTILES, known_metrics, rank_steps
from steplens.server.many.kept_route import kept_router
from steplens.server.requests import Chosen, json_response
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns

router = kept_router("/api/runs/{run}/cluster", "cluster")

_WHERE = ("trace", "rank", "stage", "host", "steps")


class GroupShown(BaseModel):
    """A process group of collectives: its name as the source has it, and its recorded ranks."""

    name: str
    ranks: list[int]


class SideBySide(BaseModel):
    """The figures of a step of every rank, by column, so that a thousand ranks are a hundred kilobytes.

    See ``analysis.cluster.side_by_side.figures``.

    Attributes:
        trace: number of the trace of each row; rank, stage (of the pipeline, from 1), host (empty where nobody knows): of it.
        steps: how many steps the figures are of.
        figures: name -> the figure of each row, ns, null where it is not known; ``step_time_ns`` is a median, others are means.
            Figures that no rank has are left out.
        stages: number of pipeline stages of the job.
        groups: process groups of some of the ranks; a rank may be in several.
    """

    trace: list[int]
    rank: list[int]
    stage: list[int | None]
    host: list[str]
    steps: list[int]
    figures: dict[str, list[float | None]]
    stages: int
    groups: list[GroupShown]


class StepsOfRanks(BaseModel):
    """A figure of every step of every rank; see ``analysis.cluster.side_by_side.rank_steps``.

    Attributes:
        metric: of ``metrics``, those that some rank has.
        trace, rank: of each row.
        steps: the first step of each column; last_steps: the last one, where several make a column.
        values: row -> value of each column, ns: of several steps the largest; null where it was not recorded.
        quantiles: of the ranks, 0 to 1; spread: quantile -> value of each column.
    """

    metric: str
    metrics: list[str]
    trace: list[int]
    rank: list[int]
    steps: list[int]
    last_steps: list[int]
    values: list[list[float | None]]
    quantiles: list[float]
    spread: list[list[float | None]]


@router.get("/side-by-side", response_model=SideBySide)
def side_by_side(chosen: Chosen) -> Any:
    """The figures of a step of every rank, and where each rank belongs."""
    return json_response(chosen.answer(("side by side",), lambda: _side_by_side(chosen), _size_of_figures))


@router.get("/rank-steps", response_model=StepsOfRanks)
def steps_of_ranks(
    chosen: Chosen, metric: Annotated[str, Query(max_length=64, description="one of ``metrics`` of the answer")] = ""
) -> Any:
    """A figure of every step of every rank; without a metric that some rank has: what a rank does itself, or the first one."""
    metrics = chosen.answer(("metrics of ranks",), lambda: known_metrics(chosen.run.traces))
    known_metric = metric if metric in metrics else OWN if OWN in metrics or not metrics else metrics[0]
    return json_response(
        chosen.answer(("rank steps", known_metric), lambda: _steps_of_ranks(chosen, known_metric, metrics), _size_of_steps)
    )


def _side_by_side(chosen: OpenedRun) -> dict[str, Any]:
    rows = rank_figures(chosen.run.traces)
    groups = rank_groups(chosen.run.traces)
    figures = [name for name in FIGURES if name not in _WHERE and rows[name].null_count() < rows.height]
    return {
        **{name: rows[name].to_list() for name in _WHERE},
        "figures": {name: [columns.json_value(value) for value in rows[name].round(0).to_list()] for name in figures},
        "stages": max(rows["stage"].drop_nulls().to_list(), default=1),
        "groups": [
            {"name": name, "ranks": members["rank"].to_list()}
            for (name,), members in groups.group_by("group", maintain_order=True)
        ],
    }


def _steps_of_ranks(chosen: OpenedRun, metric: str, metrics: list[str]) -> dict[str, Any]:
    matrix = rank_steps(chosen.run.traces, metric)
    return {
        "metric": metric,
        "metrics": metrics,
        "trace": matrix.traces,
        "rank": matrix.ranks,
        "steps": matrix.steps,
        "last_steps": matrix.last_steps,
        "values": _whole_ns(matrix.values),
        "quantiles": list(QUANTILES),
        "spread": _whole_ns(matrix.quantiles),
    }


def _whole_ns(values: npt.NDArray[np.float64]) -> list[list[float | None]]:
    return [[None if np.isnan(value) else round(value) for value in row] for row in values.tolist()]


def _size_of_figures(found: dict[str, Any]) -> int:
    return 64 * len(found["rank"]) * (len(_WHERE) + len(found["figures"]))


def _size_of_steps(found: dict[str, Any]) -> int:
    return 64 * len(found["rank"]) * (len(found["steps"]) + 2)
