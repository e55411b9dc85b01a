"""How busy the processors were while the data pipeline worked: host, process and every operation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import polars as pl
from fastapi import Query
from pydantic import BaseModel

from steplens.analysis.data_loading.pipeline_cpu import cpu_means, cpu_samples, host_idle
from steplens.server.http import documented
from steplens.server.http.errors import Refusal
from steplens.server.http.routing import create_router
from steplens.server.memory import curves
from steplens.server.requests import Chosen, Points, TraceNumber

router = create_router("/api/runs/{run}/pipeline", "pipeline")

#: series in one answer
_MOST = 400
#: what tells a series apart
_KEYS = ("scope", "operation", "op", "name", "unit")
Batch = Annotated[int | None, Query(ge=0, le=1 << 53)]


class ProcessorCurve(BaseModel):
    """One figure over its samples.

    Attributes:
        scope: "host", "process" or "op".
        op: the number of the operation; null for the others, as operation.
        operation: its name.
        name: "user_utilization", "sys_utilization", "context_switch_count" ...
        unit: "%" (of one core for an operation, of all cores otherwise), "MB" or "1".
        mean: over the samples.
        samples: how many there are.
        sample: number of the first sample of each bucket.
        min: of each bucket.
        max: of each bucket.
        last: of each bucket.
    """

    scope: Annotated[str, documented.as_type(Literal["host", "process", "op"])]
    op: int | None
    operation: str | None
    name: str
    unit: str
    mean: float
    samples: int
    sample: list[int]
    min: list[float]
    max: list[float]
    last: list[float]


class Processors(BaseModel):
    """Samples of the processors.

    Attributes:
        cores: logical cores of the host; null where unknown.
        interval_ms: between two samples; null where unknown.
        first_batch: of all samples; null where they are tied to no batch.
        last_batch: of all samples.
        idle_percent: mean idle share of the host in the chosen batches; null where it was not sampled.
        curves: of the chosen batches.
        left_out: series that are not among them.
    """

    cores: int | None
    interval_ms: float | None
    first_batch: int | None
    last_batch: int | None
    idle_percent: float | None
    curves: list[ProcessorCurve]
    left_out: int


@router.get("/processors")
def processors(
    chosen: Chosen, trace: TraceNumber = 0, first: Batch = None, last: Batch = None, points: Points = 500
) -> Processors:
    """Samples of the processors, of all batches or from one batch to another."""
    if first is not None and last is not None and first > last:
        raise Refusal(422, "the first batch lies behind the last", "first", "Swap the two")
    tables = chosen.trace(trace)
    samples = chosen.frame_of_trace(cpu_samples, trace)
    selected = samples
    if first is not None:
        selected = selected.filter(pl.col("batch") >= first)
    if last is not None:
        selected = selected.filter(pl.col("batch") <= last)
    parts = selected.drop_nulls("value").partition_by(_KEYS, maintain_order=True)
    meta = tables.meta_values()
    return Processors(
        cores=_number_or_none(meta.get("cpu_processor_num")),
        interval_ms=_number_or_none(meta.get("pipeline_sampling_interval_ms")),
        first_batch=_number_or_none(samples["batch"].min()),
        last_batch=_number_or_none(samples["batch"].max()),
        idle_percent=host_idle(cpu_means(selected)),
        curves=[_processor_curve(part, points) for part in parts[:_MOST]],
        left_out=max(len(parts) - _MOST, 0),
    )


def _processor_curve(part: pl.DataFrame, points: int) -> ProcessorCurve:
    rows = part.sort("sample")
    place: Any = rows["sample"].cast(pl.Int64).to_numpy()
    curve: Any = curves.reduce_series(place, rows["value"].to_numpy(), int(place[0]), int(place[-1]) + 1, points)
    key = rows.select(*_KEYS).row(0, named=True)
    mean: Any = rows["value"].mean()
    return ProcessorCurve(**key, mean=mean, samples=rows.height, sample=curve["time_ns"], **curve)


def _number_or_none(value: Any) -> Any:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
