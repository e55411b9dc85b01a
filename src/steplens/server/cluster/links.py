"""What communication cost every rank, every link and every operation, step by step."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import polars as pl
from fastapi import Query
from pydantic import BaseModel
from typing_extensions import TypedDict

from steplens.analysis.cluster.rank_communication import cost_steps, operation_links, rank_costs, rank_edges, rank_operations
from steplens.server.cluster.cluster import Job, Limit, Offset, StageNumber, StepNumber, job_of, trace_of_rank
from steplens.server.http import documented
from steplens.server.http.errors import Refusal
from steplens.server.many.kept_route import kept_router
from steplens.server.requests import Chosen
from steplens.server.tables import columns

router = kept_router("/api/runs/{run}/communication", "communication")

RankNumber = Annotated[int, Query(ge=0, le=1 << 31)]
_End = Annotated[int | None, Query(ge=0, le=1 << 31)]
_SORTED = ("source", "destination", "transport", "time_ns", "bytes", "bytes_per_s")
#: so many operations of a step at most
_MOST = 2000


class Cost(TypedDict):
    """What communication cost one rank."""

    rank: int
    stage: int
    communication_ns: float
    exposed_ns: float | None
    overlapped_ns: float | None
    transfer_ns: float | None
    wait_ns: float | None
    unexplained_ns: float
    communication_share: float | None
    steps: int
    measured_by: Literal["library", "arrival"] | None


class Costs(BaseModel):
    """What communication cost every rank in a step.

    Attributes:
        job: how it is spread over ranks.
        steps: numbers of the steps that some rank has measured.
        rows: of ``analysis.cluster.rank_communication.rank_costs``: rank, stage, communication_ns and what it consists of
            (transfer_ns, wait_ns, unexplained_ns), exposed_ns, overlapped_ns, communication_share (transfer of transfer and
            wait), steps (how many the figures are of), measured_by ("library", "arrival" or null).
        no_data: ranks of the run that have not measured the step.
    """

    job: Job
    steps: list[int]
    rows: Annotated[list[dict[str, Any]], documented.as_type(list[Cost])]
    no_data: list[int]


class RankLink(TypedDict):
    """What lies between two ranks."""

    source: int
    destination: int
    transport: str
    time_ns: float
    bytes: float | None
    bytes_per_s: float | None
    source_stage: int
    destination_stage: int


class Links(BaseModel):
    """What lies between each two ranks.

    Attributes:
        kind: "link" (data moved), "wait" (one waited for the other), "" where nothing is known.
        rows: source, destination, transport, time_ns, bytes, bytes_per_s, source_stage, destination_stage.
        matching: how many rows match.
        sources: ranks that links begin at, before filters.
        destinations: ranks that links lead to, before filters.
        transports: kinds of link, before filters.
    """

    kind: Annotated[str, documented.as_type(Literal["link", "wait", ""])]
    rows: Annotated[list[dict[str, Any]], documented.as_type(list[RankLink])]
    matching: int
    sources: list[int]
    destinations: list[int]
    transports: list[str]


class CommunicationOperation(TypedDict):
    """What one operation cost a rank."""

    operation: str
    calls: int
    transfer_ns: float
    wait_ns: float
    bytes: float | None
    bytes_per_s: float | None


class Operations(BaseModel):
    """The operations of a rank: operation, calls, transfer_ns, wait_ns, bytes, bytes_per_s, the longest first; and how many."""

    rows: Annotated[list[dict[str, Any]], documented.as_type(list[CommunicationOperation])]
    matching: int


class OperationLink(TypedDict):
    """A link that an operation moved data over."""

    operation: str
    source: int
    destination: int
    transport: str
    time_ns: float
    bytes: float
    bytes_per_s: float | None


@router.get("/costs")
def communication_costs(chosen: Chosen, step: StepNumber = None, stage: StageNumber = None) -> Costs:
    """How long every rank moved data and waited, in one step or on average."""
    traces = chosen.run.traces
    costs = chosen.frame_of_run(rank_costs, step)
    ranks_with_costs = set(costs["rank"].to_list())
    rows = costs if stage is None else costs.filter(stage=stage)
    return Costs(
        job=job_of(chosen),
        steps=chosen.answer(("cost_steps",), lambda: cost_steps(traces)),
        rows=columns.json_records(rows),
        no_data=sorted({trace.rank for trace in traces if trace.rank >= 0} - ranks_with_costs),
    )


@router.get("/links")
def communication_links(
    chosen: Chosen,
    step: StepNumber = None,
    stage: StageNumber = None,
    source: _End = None,
    destination: _End = None,
    transport: Annotated[str | None, Query(max_length=64)] = None,
    sort: Annotated[str, Query(max_length=64, description=" or ".join(_SORTED))] = "source",
    descending: bool = False,
    offset: Offset = 0,
    limit: Limit = 1000,
) -> Links:
    """The links between ranks: time, bytes and bandwidth of each; filtered, sorted, one page of them."""
    if sort not in _SORTED:
        raise Refusal(422, f"links cannot be sorted by {sort[:64]!r}", "sort", f"One of {', '.join(_SORTED)}")
    edges = chosen.frame_of_run(rank_edges, step)
    rows = edges
    for name, value in (("source", source), ("destination", destination), ("transport", transport)):
        rows = rows if value is None else rows.filter(pl.col(name) == value)
    if stage is not None:
        rows = rows.filter((pl.col("source_stage") == stage) | (pl.col("destination_stage") == stage))
    ordered = rows.sort(sort, "source", "destination", "transport", descending=[descending, False, False, False], nulls_last=True)
    return Links(
        kind=edges["kind"][0] if edges.height else "",
        rows=columns.json_records(ordered.slice(offset, limit).drop("kind")),
        matching=rows.height,
        sources=sorted(edges["source"].unique().to_list()),
        destinations=sorted(edges["destination"].unique().to_list()),
        transports=sorted(edges["transport"].unique().to_list()),
    )


@router.get("/operations")
def operations_of_rank(chosen: Chosen, rank: RankNumber = 0, step: StepNumber = None, limit: Limit = 100) -> Operations:
    """What each communication operation cost one rank."""
    trace_of_rank(chosen, rank)
    operations = chosen.frame_of_run(rank_operations, rank, step)
    return Operations(rows=columns.json_records(operations.head(limit)), matching=operations.height)


@router.get("/operation_links")
def links_of_operation(
    chosen: Chosen,
    rank: RankNumber = 0,
    operation: Annotated[str | None, Query(max_length=1024, description="name; all operations without it")] = None,
    step: StepNumber = None,
) -> Annotated[list[dict[str, Any]], documented.as_type(list[OperationLink])]:
    """The links that an operation of a rank moved data over; rows of ``analysis.cluster.rank_communication.operation_links``."""
    trace_of_rank(chosen, rank)
    return columns.json_records(operation_links(chosen.run.traces, rank, operation, step).head(_MOST))
