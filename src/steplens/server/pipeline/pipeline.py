"""The data pipeline: its operations, what holds it up, and its queues over time."""

from __future__ import annotations

from typing import Annotated, Any

import polars as pl
from fastapi import Query
from pydantic import BaseModel
from typing_extensions import TypedDict

from steplens.analysis.data_loading.data_pipeline import operations
from steplens.analysis.data_loading.pipeline_flow import Place, recorded_places
from steplens.analysis.data_loading.pipeline_verdict import held_up_by, keeps_up
from steplens.server.http import documented
from steplens.server.http.errors import Refusal
from steplens.server.http.routing import create_router
from steplens.server.memory import curves
from steplens.server.requests import Chosen, Points, TraceNumber
from steplens.server.tables import columns

router = create_router("/api/runs/{run}/pipeline", "pipeline")


class Operation(TypedDict):
    """An operation of the pipeline; ``operation`` is its one name, of type and number."""

    operation: str
    id: int
    type: str | None
    workers: int | None
    parent: int | None
    children: list[int] | None
    queue_capacity: int | None
    mean_size: float | None
    usage: float | None
    empty_share: float | None


class Pipeline(BaseModel):
    """The data pipeline of one trace.

    Attributes:
        operations: rows of the table ``pipeline``, from the last operation before the training loop to the sources; ``children``
            are the ids of those that an operation takes from.
        bottlenecks: ids of the operations that hold up the others (``pipeline_verdict.held_up_by``); none where it keeps up.
        keeps_up: whether the training found batches waiting for it; false where no queue of batches was recorded, too.
        places: what a batch passes between the pipeline, the host and the device, as far as it was recorded, in order.
    """

    operations: Annotated[list[dict[str, Any]], documented.as_type(list[Operation])]
    bottlenecks: list[int]
    keeps_up: bool
    places: list[Place]


class QueueCurve(BaseModel):
    """The size of an operation's queue, sample by sample.

    Attributes:
        samples: how many samples there are.
        capacity: of the queue; None where it is unknown.
        sample: number of the first sample of each bucket.
        min: smallest size of each bucket.
        max: largest size of each bucket.
        last: last size of each bucket.
    """

    samples: int
    capacity: int | None
    sample: list[int]
    min: list[float]
    max: list[float]
    last: list[float]


@router.get("")
def pipeline(chosen: Chosen, trace: TraceNumber = 0) -> Pipeline:
    """The operations, which of them hold up the others, and the places that batches pass."""
    tables = chosen.trace(trace)
    pipeline_operations = operations(tables)
    return Pipeline(
        operations=columns.json_records(pipeline_operations),
        bottlenecks=held_up_by(tables),
        keeps_up=keeps_up(tables),
        places=recorded_places(tables),
    )


@router.get("/queue")
def queue(
    chosen: Chosen,
    op: Annotated[int, Query(ge=0, le=1 << 31, description="id of the operation")],
    trace: TraceNumber = 0,
    points: Points = 500,
) -> QueueCurve:
    """The size of the output queue of one operation over its samples."""
    tables = chosen.trace(trace)
    operation_rows = tables.required("pipeline_ops").filter(pl.col("id") == op).collect()
    if operation_rows.is_empty():
        raise Refusal(404, "the data pipeline has no such operation", f"op {op}", "GET /api/runs/{run}/pipeline lists them")
    rows = tables.required("pipeline_samples").filter((pl.col("op") == op) & (pl.col("name").cast(pl.String) == "queue_size"))
    samples = rows.select("sample", pl.col("value").cast(pl.Float64)).drop_nulls().sort("sample").collect()
    place = samples["sample"].cast(pl.Int64).to_numpy()
    last = int(place[-1]) + 1 if len(place) else 1
    curve: Any = curves.reduce_series(place, samples["value"].to_numpy(), 0, last, points)
    capacity = operation_rows["queue_capacity"][0]
    return QueueCurve(samples=samples.height, capacity=capacity, sample=curve["time_ns"], **curve)
