"""The memory that MindSpore planned for its graphs, node by node."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import polars as pl
from fastapi import Path, Query
from pydantic import BaseModel

from steplens.analysis.memory.memory_graphs import graph_curve, graph_tensors, memory_graphs, tensors_at
from steplens.server.http.errors import not_found
from steplens.server.http.routing import create_router
from steplens.server.memory import curves
from steplens.server.requests import Chosen, Points, TraceNumber
from steplens.server.tables import columns

router = create_router("/api/runs/{run}/memory/graphs", "memory")

_REMEDY = "GET /api/runs/{run}/memory/graphs lists them"
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
def planned_graphs(chosen: Chosen, trace: TraceNumber = 0) -> list[PlannedGraph]:
    """Every graph whose memory was planned."""
    return [PlannedGraph(**row) for row in columns.json_records(chosen.frame_of_trace(memory_graphs, trace))]


@router.get("/{graph}")
def planned_curve(chosen: Chosen, graph: GraphNumber, trace: TraceNumber = 0, points: Points = 1000) -> NodeCurve:
    """How much memory is in use at every node of a graph."""
    tables = chosen.trace(trace)
    with not_found("graph", _REMEDY):
        values = chosen.frame(("memory_graph", trace, graph), lambda: pl.DataFrame({"bytes": graph_curve(tables, graph)}))
    count = values.height
    curve: Any = curves.reduce_series(
        np.arange(count, dtype=np.int64), values["bytes"].cast(pl.Float64).to_numpy(), 0, max(count, 1), points
    )
    return NodeCurve(nodes=count, node=curve["time_ns"], **curve)


@router.get("/{graph}/tensors")
def planned_tensors(
    chosen: Chosen,
    graph: GraphNumber,
    node: Annotated[int, Query(ge=0, le=1 << 53, description="number of the node, from 0")],
    trace: TraceNumber = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> NodeTensors:
    """The tensors that live at a node of a graph, the largest first."""
    with not_found("graph", _REMEDY):
        tensors = chosen.frame_of_trace(graph_tensors, trace, graph)
    alive_tensors = tensors_at(tensors, node)
    page = [Tensor(**row) for row in columns.json_records(alive_tensors.head(limit))]
    return NodeTensors(node=node, count=alive_tensors.height, bytes=int(alive_tensors["bytes"].sum()), tensors=page)
