"""The batches of the data pipeline at one place, and one of its operations with all that is known of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Query
from pydantic import BaseModel

from steplens.advice import Finding
from steplens.advice.rules.pipeline_operations import kind_of
from steplens.analysis.data_loading.data_pipeline import operations
from steplens.analysis.data_loading.pipeline_flow import BATCHES, PlaceKind, batches_at_place
from steplens.analysis.data_loading.pipeline_queues import pipeline_operation
from steplens.server import advice
from steplens.server.advice import FindingShown
from steplens.server.http import documented
from steplens.server.http.errors import not_found
from steplens.server.http.routing import create_router
from steplens.server.memory import curves
from steplens.server.requests import Chosen, Points, TraceNumber
from steplens.server.tables import columns

router = create_router("/api/runs/{run}/pipeline", "pipeline")

#: how long an operation waits for the advice about it
_PATIENCE_S = 1.0
Kind = Annotated[PlaceKind, Query(description="the place that the batches pass")]


class BatchCurve(BaseModel):
    """One figure of the batches, in buckets with their exact extremes.

    Attributes:
        name: "queue_size", "get_ns", "push_ns", "total_ns" or "wait_ns".
        mean: over the batches that have it.
        batch: number of the first batch of each bucket.
        min: of each bucket.
        max: of each bucket.
        last: of each bucket.
    """

    name: str
    mean: float
    batch: list[int]
    min: list[float]
    max: list[float]
    last: list[float]


class BatchCurves(BaseModel):
    """The batches at one place; a curve for each figure that was recorded."""

    kind: str
    batches: int
    curves: list[BatchCurve]


class Neighbour(BaseModel):
    """An operation on the other side of a queue."""

    operation: str
    id: int
    type: str
    workers: int | None


class OperationShown(BaseModel):
    """One operation; see ``analysis.data_loading.pipeline_queues.PipelineOperation``.

    Attributes:
        operation, id, type, workers: its name, and what that is of.
        capacity: of its output queue; null where it has none.
        usage: mean size / capacity.
        mean_size: mean size of its queue.
        samples: how often its queue was looked at.
        interval_ms: between two samples; null where unknown.
        parent: the operation that takes from it; null for the last one.
        children: the operations that it takes from.
        remedy: what helps if it is the slow one: "source", "generator", "map", "batch" or "other".
        findings: advice that names it.
    """

    operation: str
    id: int
    type: str
    workers: int | None
    capacity: int | None
    usage: float | None
    mean_size: float | None
    samples: int
    interval_ms: float | None
    parent: Neighbour | None
    children: list[Neighbour]
    remedy: Annotated[str, documented.as_type(Literal["source", "generator", "map", "batch", "other"])]
    findings: list[FindingShown]


@router.get("/batches")
def pipeline_batches(chosen: Chosen, kind: Kind, trace: TraceNumber = 0, points: Points = 500) -> BatchCurves:
    """Queue sizes and costs of the batches at one place, in their order."""
    batch_rows = batches_at_place(chosen.trace(trace), kind)
    page = []
    for name in list(BATCHES)[1:]:
        rows = batch_rows.select("batch", name).drop_nulls()
        if not rows.height:
            continue
        place: Any = rows["batch"].to_numpy()
        value = rows[name].cast(float).to_numpy()
        curve: Any = curves.reduce_series(place, value, int(place[0]), int(place[-1]) + 1, points)
        page.append(BatchCurve(name=name, mean=float(np.mean(value)), batch=curve["time_ns"], **curve))
    return BatchCurves(kind=kind, batches=batch_rows.height, curves=page)


@router.get("/operation")
def pipeline_one(
    chosen: Chosen,
    op: Annotated[int, Query(ge=0, le=1 << 31, description="id of the operation")],
    trace: TraceNumber = 0,
) -> OperationShown:
    """One operation: its workers, its queue, what adjoins it, and what helps if it is slow."""
    tables = chosen.trace(trace)
    with not_found(f"op {op}", "GET /api/runs/{run}/pipeline lists them"):
        operation = pipeline_operation(tables, op)
    operations_by_id = {
        row["id"]: row for row in columns.json_records(operations(tables).select("operation", "id", "type", "workers"))
    }
    judged = advice.advise_on_run_within(chosen, _PATIENCE_S)
    findings = [
        finding
        for finding in (judged.findings if judged is not None else ())
        if _is_about_operation(finding, operation.name_with_number)
    ]
    derived = {
        "operation": operation.name_with_number,
        "mean_size": sum(operation.sizes) / len(operation.sizes) if operation.sizes else None,
        "samples": len(operation.sizes),
        "parent": operations_by_id[operation.parent[0]] if operation.parent is not None else None,
        "children": [operations_by_id[child] for child in operation.children if child in operations_by_id],
        "remedy": kind_of(operation.type, not operation.children),
        "findings": [advice.finding_shown(finding) for finding in findings],
    }
    return OperationShown.model_validate({**vars(operation), **derived})


def _is_about_operation(finding: Finding, operation: str) -> bool:
    return operation in finding.subject.split("/") or any(operation in evidence.places for evidence in finding.evidence)
