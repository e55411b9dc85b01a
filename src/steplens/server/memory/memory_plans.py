"""The memory that MindSpore planned for its graphs, node by node."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import polars as pl
from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from steplens.analysis.memory.memory_graphs import graph_curve, graph_tensors, memory_graphs, tensors_at
from steplens.server.http.errors import PROBLEMS, Refusal
from steplens.server.memory import curves
from steplens.server.requests import Chosen, Points, Runs, TraceNumber
from steplens.server.tables import columns

router = APIRouter(prefix="/api/runs/{run}/memory/graphs", tags=["memory"], responses=PROBLEMS)

GraphNumber = Annotated[int, Path(ge=0, le=1 << 53, description="one of GET /api/runs/{run}/memory/graphs")]


class PlannedGraph(BaseModel):
    """One planned graph; see ``analysis.memory.memory_graphs.memory_graphs``."""

    graph: int
    nodes: int
    tensors: int
    capacity_bytes: int | None
    static_bytes: int
    peak_bytes: int
    peak_node: int | None
    forward_node: int | None
    backward_node: int | None
    forward_name: str | None
    backward_name: str | None


class NodeCurve(BaseModel):
    """Bytes in use at the nodes of a graph, in buckets with their exact extremes; ``node`` is the first of each."""

    nodes: int
    node: list[int]
    min: list[float]
    max: list[float]
    last: list[float]


class Tensor(BaseModel):
    """A tensor with the nodes from and to which it lives, and what puts it out or works in it."""

    tensor: int
    owner: str | None
    kind: str | None
    type: str | None
    bytes: int
    life_start: int
    life_end: int


class NodeTensors(BaseModel):
    """The tensors that live at a node; ``tensors`` are the largest of them."""

    node: int
    count: int
    bytes: int
    tensors: list[Tensor]


@router.get("")
def planned_graphs(chosen: Chosen, runs: Runs, trace: TraceNumber = 0) -> list[PlannedGraph]:
    """Every graph whose memory was planned."""
    tables = chosen.trace(trace)
    graphs = runs.frame(chosen, ("memory_graphs", trace), lambda: memory_graphs(tables))
    return [PlannedGraph(**row) for row in columns.json_records(graphs)]


@router.get("/{graph}")
def planned_curve(chosen: Chosen, runs: Runs, graph: GraphNumber, trace: TraceNumber = 0, points: Points = 1000) -> NodeCurve:
    """How much memory is in use at every node of a graph."""
    tables = chosen.trace(trace)
    try:
        values = runs.frame(chosen, ("memory_graph", trace, graph), lambda: pl.DataFrame({"bytes": graph_curve(tables, graph)}))
    except ValueError as error:
        raise _unknown_graph(error) from None
    count = values.height
    curve: Any = curves.reduce_series(
        np.arange(count, dtype=np.int64), values["bytes"].cast(pl.Float64).to_numpy(), 0, max(count, 1), points
    )
    return NodeCurve(nodes=count, node=curve["time_ns"], **{name: curve[name] for name in ("min", "max", "last")})


@router.get("/{graph}/tensors")
def planned_tensors(
    chosen: Chosen,
    runs: Runs,
    graph: GraphNumber,
    node: Annotated[int, Query(ge=0, le=1 << 53, description="number of the node, from 0")],
    trace: TraceNumber = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> NodeTensors:
    """The tensors that live at a node of a graph, the largest first."""
    tables = chosen.trace(trace)
    try:
        tensors = runs.frame(chosen, ("memory_graph_tensors", trace, graph), lambda: graph_tensors(tables, graph))
    except ValueError as error:
        raise _unknown_graph(error) from None
    alive_tensors = tensors_at(tensors, node)
    page = [Tensor(**row) for row in columns.json_records(alive_tensors.head(limit))]
    return NodeTensors(node=node, count=alive_tensors.height, bytes=int(alive_tensors["bytes"].sum()), tensors=page)


def _unknown_graph(error: ValueError) -> Refusal:
    return Refusal(404, str(error), "graph", "GET /api/runs/{run}/memory/graphs lists them")
