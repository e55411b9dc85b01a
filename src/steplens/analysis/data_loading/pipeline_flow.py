"""How data reaches the training: data processing, the queue on the host, the transfer, the queue of the device, and get_next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from steplens.analysis.data_loading.data_pipeline import queue_summary
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

PlaceKind = Literal["iterate", "send", "receive"]
#: the places that a batch passes, in order
PLACES: tuple[PlaceKind, ...] = ("iterate", "send", "receive")
BATCHES = table_schema("batch, queue_size, get_ns, push_ns, total_ns, wait_ns")
COSTS = ("get_ns", "push_ns", "total_ns", "wait_ns")


@dataclass(frozen=True)
class Place:
    """One place that batches pass, with the queue in front of it.

    Attributes:
        kind: "iterate" (the loop takes the batch on the host), "send" (it goes to the device's queue) or "receive" (the device
            takes it).
        batches: batches with a known queue size.
        empty: of them those that found the queue empty.
        not_empty: the others.
        full: those that found it full; None where the capacity is unknown.
        capacity: of the queue; None where unknown.
        mean_size: elements in the queue, mean over these batches; None without any.
        costs: "get_ns", "push_ns", "total_ns", "wait_ns" -> mean over the batches that have it, ns; only what was recorded.
    """

    kind: PlaceKind
    batches: int
    empty: int
    not_empty: int
    full: int | None
    capacity: int | None
    mean_size: float | None
    costs: dict[str, float]


def batches_at_place(trace: Trace, kind: str) -> pl.DataFrame:
    """The batches at one place in their order, columns as in ``BATCHES``; null is what was not recorded."""
    rows = trace.required("pipeline_batches").filter(pl.col("kind").cast(pl.String) == kind).sort("batch", "time_ns")
    return rows.select(cast_columns(BATCHES)).collect()


def recorded_places(trace: Trace) -> list[Place]:
    """The places at which batches were recorded, in the order in which a batch passes them."""
    edges = []
    for kind in PLACES:
        rows = batches_at_place(trace, kind)
        if not rows.height:
            continue
        summary = queue_summary(trace, kind)
        mean = {name: rows[name].mean() for name in COSTS}
        size = rows["queue_size"].mean()
        capacity = trace.required("pipeline_batches").filter(pl.col("kind").cast(pl.String) == kind)
        largest = capacity.select(pl.col("queue_capacity").max()).collect().item()
        count, empty = (summary.batches, summary.empty) if summary is not None else (0, 0)
        edges.append(
            Place(
                kind=kind,
                batches=count,
                empty=empty,
                not_empty=count - empty,
                full=summary.full if summary is not None else None,
                capacity=largest,
                mean_size=float(size) if isinstance(size, (int, float)) else None,
                costs={name: float(value) for name, value in mean.items() if isinstance(value, (int, float))},
            )
        )
    return edges
