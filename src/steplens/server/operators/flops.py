"""How much arithmetic a rank does, how fast, and in which part of the model."""

from __future__ import annotations

from typing import Any

import polars as pl
from pydantic import BaseModel

from steplens.analysis.device.device_peaks import device_peak
from steplens.analysis.operators.flop_tree import flop_tree
from steplens.analysis.operators.rank_flops import operator_work, work_of
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen, TraceNumber
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


class Flops(BaseModel):
    """Arithmetic of one rank.

    Attributes:
        work: of a step; null where nothing tells.
        cube: of matrix units; null where the device did not count it.
        vector: of vector units; null where the device did not count it.
        peak_name: the device as its data sheet has it; null where it is not known.
        peak_flops_per_s: in float32; null where it is not known.
        nodes: the scopes, parents before children.
        left_out: deeper nodes that are not among them.
    """

    work: Work | None
    cube: Units | None
    vector: Units | None
    peak_name: str | None
    peak_flops_per_s: float | None
    nodes: list[Node]
    left_out: int


@router.get("/flops")
def flops(chosen: Chosen, trace: TraceNumber = 0) -> Flops:
    """Operations of a step, of both kinds of units, and of every scope of the model."""
    tables = chosen.trace(trace)
    done = work_of(tables)
    tree = chosen.frame_of_trace(flop_tree, trace)
    counted = operator_work(tables)
    peak = device_peak(tables)
    return Flops(
        work=Work.model_validate(done) if done is not None else None,
        cube=_summarize_units(counted, "cube"),
        vector=_summarize_units(counted, "vector"),
        peak_name=None if peak is None else peak.name,
        peak_flops_per_s=None if peak is None else peak.float32,
        nodes=[Node(**row) for row in columns.json_records(tree.head(_MOST_NODES))],
        left_out=max(tree.height - _MOST_NODES, 0),
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
