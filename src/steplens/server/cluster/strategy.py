"""How a network is spread over devices: pipeline stages, the graph of a stage, and one operator of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import polars as pl
from fastapi import Query
from pydantic import BaseModel
from typing_extensions import TypedDict

from steplens.analysis.cluster.strategy import collapse_scopes, stage_operators, stages, transfers
from steplens.common import json_text
from steplens.server.http import documented
from steplens.server.http.errors import Refusal
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen
from steplens.server.tables import columns

router = create_router("/api/runs/{run}/strategy", "strategy")

Stage = Annotated[int, Query(ge=1, le=1 << 31, description="pipeline stage, from 1")]
_MOST_TRANSFERS = 1000


class StageRow(TypedDict):
    """What a pipeline stage consists of."""

    stage: int
    ranks: list[int]
    recorded: int
    operators: int
    with_strategy: int
    redistributions: int
    gradient_aggregations: int
    sends: int
    receives: int


class StageTransfer(TypedDict):
    """What one stage sends to another."""

    source: int
    destination: int
    tag: str
    send: str
    receive: str


class Stages(BaseModel):
    """The pipeline of a job; without a parallel strategy both lists are empty.

    Attributes:
        parallel_type: as the source names it, such as "auto_parallel".
        stages: rows of ``analysis.cluster.strategy.stages``.
        transfers: rows of ``analysis.cluster.strategy.transfers``, at most 1000.
    """

    parallel_type: str
    stages: Annotated[list[dict[str, Any]], documented.as_type(list[StageRow])]
    transfers: Annotated[list[dict[str, Any]], documented.as_type(list[StageTransfer])]


class StrategyNode(TypedDict):
    """A closed scope or an operator."""

    id: str
    kind: Literal["scope", "operator"]
    name: str
    scope: str
    type: str
    role: str
    strategy: str
    operators: int
    redistributions: int
    gradient_aggregations: int
    with_strategy: int


class StrategyEdge(TypedDict):
    """Connections between two nodes."""

    source: str
    destination: str
    count: int


class StrategyGraph(BaseModel):
    """The graph of a stage with closed scopes; see ``analysis.cluster.strategy.Drawn``."""

    nodes: Annotated[list[dict[str, Any]], documented.as_type(list[StrategyNode])]
    edges: Annotated[list[dict[str, Any]], documented.as_type(list[StrategyEdge])]
    left_out: int


class OperatorEnd(TypedDict):
    """An operator that another one is connected to."""

    node: str
    name: str


class StrategyOperator(BaseModel):
    """One operator.

    Attributes:
        node: its id.
        name: full name.
        type: of operator.
        scope: path of its scope.
        role: "gradient_aggregation", "redistribution" or "".
        strategy: for each input, into how many parts each of its dimensions is cut; null without one.
        groups: communication groups, of all ranks.
        ranks: ranks of the stage that have it.
        output_type: of its output.
        output_shape: as the source has it.
        inputs: id, name of the operators that it takes from.
        outputs: id, name of the operators that take from it.
        attributes: name -> value, as JSON.
    """

    node: str
    name: str
    type: str
    scope: str
    role: str
    strategy: Annotated[list[Any] | None, documented.as_type(list[list[int]] | None)]
    groups: list[str]
    ranks: list[int]
    output_type: str
    output_shape: str
    inputs: Annotated[list[dict[str, Any]], documented.as_type(list[OperatorEnd])]
    outputs: Annotated[list[dict[str, Any]], documented.as_type(list[OperatorEnd])]
    attributes: dict[str, str]


class StrategyHit(BaseModel):
    """An operator that was found: id, name, type, scope."""

    node: str
    name: str
    type: str
    scope: str


class StrategyHits(BaseModel):
    """Operators whose name or type holds the text, and how many there are."""

    hits: list[StrategyHit]
    matching: int


@router.get("")
def strategy_stages(chosen: Chosen) -> Stages:
    """The pipeline stages with what they consist of, and what they send to each other."""
    traces = chosen.run.traces
    strategies = (trace.meta_value("parallel_strategy") for trace in traces)
    kinds = (strategy.get("parallel_type") for strategy in strategies if isinstance(strategy, dict))
    return Stages(
        parallel_type=next((str(kind) for kind in kinds if kind), ""),
        stages=columns.json_records(chosen.frame_of_run(stages)),
        transfers=columns.json_records(chosen.frame_of_run(transfers).head(_MOST_TRANSFERS)),
    )


@router.get("/graph")
def strategy_graph(
    chosen: Chosen,
    stage: Stage = 1,
    expanded: Annotated[list[str] | None, Query(max_length=200, description="paths of scopes to open")] = None,
    most: Annotated[int, Query(ge=1, le=1000)] = 300,
) -> StrategyGraph:
    """The merged graph of a stage; a closed scope stands for its operators."""
    graph = collapse_scopes(chosen.frame_of_run(stage_operators, stage), expanded or (), most)
    return StrategyGraph(
        nodes=columns.json_records(graph.nodes), edges=columns.json_records(graph.edges), left_out=graph.left_out
    )


@router.get("/operator")
def strategy_operator(chosen: Chosen, node: Annotated[str, Query(max_length=1024)], stage: Stage = 1) -> StrategyOperator:
    """Everything about one operator."""
    operators = chosen.frame_of_run(stage_operators, stage)
    matches = operators.filter(pl.col("node") == node)
    if matches.is_empty():
        raise Refusal(404, f"stage {stage} has no operator {node[:64]!r}", "node", "GET ./strategy/graph lists them")
    row = matches.row(0, named=True)
    ends = operators.select("node", "name")
    derived = {
        "strategy": json_text.loads_stored(row["strategy"]) if row["strategy"] else None,
        "inputs": ends.filter(pl.col("node").is_in(row["inputs"])).to_dicts(),
        "outputs": ends.filter(operators["inputs"].list.contains(node)).head(_MOST_TRANSFERS).to_dicts(),
        "attributes": json_text.loads_stored(row["attributes"] or "{}"),
    }
    return StrategyOperator(**{**row, **derived})


@router.get("/find")
def strategy_find(
    chosen: Chosen,
    text: Annotated[str, Query(min_length=1, max_length=256)],
    stage: Stage = 1,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> StrategyHits:
    """Operators of a stage whose name or type holds a text, in either case of letters."""
    folded = text.lower()
    is_match = pl.any_horizontal(pl.col(name).str.to_lowercase().str.contains(folded, literal=True) for name in ("name", "type"))
    hits = chosen.frame_of_run(stage_operators, stage).filter(is_match).select("node", "name", "type", "scope")
    return StrategyHits(hits=[StrategyHit(**row) for row in hits.head(limit).to_dicts()], matching=hits.height)
