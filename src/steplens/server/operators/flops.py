"""How much arithmetic a rank does, how fast, and in which part of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import polars as pl
from fastapi import Query
from pydantic import BaseModel

from steplens.analysis.device.device_peaks import device_peak
from steplens.analysis.operators.flop_tree import flop_tree
from steplens.analysis.operators.rank_flops import SHAPES_OF_OPERATORS, operator_work, work_of
from steplens.analysis.steps.basis import step_basis
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns

router = create_router("/api/runs/{run}", "operators")

#: nodes that are sent, from the whole down
_MOST_NODES = 3000


class Units(BaseModel):
    """What one kind of arithmetic unit of the device did, over its operators; ``best``: of one operator."""

    flops: float
    operators: int
    best_flops_per_s: float | None
    best_utilization_percent: float | None


class Work(BaseModel):
    """Operations of a step (or of the operators that the device counted); see ``analysis.operators.rank_flops``."""

    flops: float
    flops_per_s: float | None
    utilization_percent: float | None
    source: str


class Node(BaseModel):
    """One scope with everything below it; see ``analysis.operators.flop_tree``."""

    id: int
    parent: int | None
    depth: int
    name: str
    flops: float
    percent: float
    operators: int


class RankWork(BaseModel):
    """Operations of a step of one trace."""

    trace: int
    rank: int | None
    flops: float


class Flops(BaseModel):
    """Arithmetic of one rank, or the mean of all whose arithmetic is known.

    Attributes:
        work: of a step; null where nothing tells.
        ranks: what it is the mean of, the rank that does the least first.
        steps: of how many steps of the first of them the figures are means; 0 where the device counted.
        cube: of matrix units; null where the device did not count it.
        vector: of vector units; null where the device did not count it.
        peak_name: the device as its data sheet has it; null where it is not known.
        peak_flops_per_s: in float32; null where it is not known.
        nodes: the scopes, parents before children.
        left_out: deeper nodes that are not among them.
    """

    work: Work | None
    ranks: list[RankWork]
    steps: int
    cube: Units | None
    vector: Units | None
    peak_name: str | None
    peak_flops_per_s: float | None
    nodes: list[Node]
    left_out: int


@router.get("/flops")
def flops(
    chosen: Chosen, trace: Annotated[int | None, Query(ge=0, le=1 << 31, description="only of this trace")] = None
) -> Flops:
    """Operations of a step, of both kinds of units, and of every scope of the model; of all ranks their mean."""
    numbers = [trace] if trace is not None else list(range(len(chosen.run.traces)))
    counted_works = [
        (number, Work.model_validate(done)) for number in numbers if (done := work_of(chosen.trace(number))) is not None
    ]
    # ranks that somebody else counted are no part of a mean
    works = [(number, work) for number, work in counted_works if work.source == counted_works[0][1].source]
    first = works[0][0] if works else numbers[0]
    tables = chosen.trace(first)
    tree = chosen.frame_of_trace(flop_tree, first) if len(numbers) == 1 else chosen.frame_of_run(flop_tree)
    counted = operator_work(tables)
    peak = device_peak(tables)
    ranks = [RankWork(trace=number, rank=_rank_of(chosen, number), flops=work.flops) for number, work in works]
    return Flops(
        work=_mean_work([work for _, work in works]),
        ranks=sorted(ranks, key=lambda row: row.flops),
        steps=len(step_basis(tables).steps) if works and works[0][1].source == SHAPES_OF_OPERATORS else 0,
        cube=_summarize_units(counted, "cube"),
        vector=_summarize_units(counted, "vector"),
        peak_name=None if peak is None else peak.name,
        peak_flops_per_s=None if peak is None else peak.float32,
        nodes=[Node(**row) for row in columns.json_records(tree.head(_MOST_NODES))],
        left_out=max(tree.height - _MOST_NODES, 0),
    )


def _rank_of(chosen: OpenedRun, number: int) -> int | None:
    rank = chosen.trace(number).rank
    return rank if rank >= 0 else None


def _mean_work(works: Sequence[Work]) -> Work | None:
    if len(works) < 2:
        return works[0] if works else None
    rates = [work.flops_per_s for work in works if work.flops_per_s is not None]
    shares = [work.utilization_percent for work in works if work.utilization_percent is not None]
    return Work(
        flops=sum(work.flops for work in works) / len(works),
        flops_per_s=sum(rates) / len(rates) if rates else None,
        utilization_percent=sum(shares) / len(shares) if shares else None,
        source=works[0].source,
    )


def _summarize_units(counted: pl.DataFrame, kind: str) -> Units | None:
    counted_units = counted.drop_nulls(f"{kind}_flops")
    if not counted_units.height:
        return None
    best: dict[str, Any] = {
        "best_flops_per_s": counted_units[f"{kind}_flops_per_s"].max(),
        "best_utilization_percent": counted_units[f"{kind}_utilization_percent"].max(),
    }
    return Units(flops=float(counted_units[f"{kind}_flops"].sum()), operators=counted_units.height, **best)
