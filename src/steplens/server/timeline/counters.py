"""Series over time beside the lanes: memory, sampled counters, queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from steplens.analysis.device.queue import queue_length
from steplens.trace.trace import Trace


@dataclass(frozen=True)
class Series:
    """One series.

    Attributes:
        label: what it is called; identifies it within its trace.
        unit: of its values.
        samples: time_ns (Unix) and value (Float64), sorted by time.
    """

    label: str
    unit: str
    samples: pl.DataFrame


def list_series(trace: Trace) -> list[Series]:
    """Every series of a trace, in a fixed order."""
    return [curve for source in SOURCES for curve in source(trace)]


def _memory_series(trace: Trace) -> list[Series]:
    rows = trace.required("memory").with_columns(pl.col("device_type", "component").cast(pl.String)).collect()
    curves = []
    for key, part in rows.partition_by(["device_type", "device", "component"], as_dict=True, maintain_order=True).items():
        place = " ".join(str(value) for value in key if value is not None)
        for total in ("allocated", "reserved", "active"):
            curves += _series_of_column(f"memory {total}, {place}", "bytes", part, total)
    return sorted(curves, key=lambda one: one.label)


def _counter_series(trace: Trace) -> list[Series]:
    keys = ["group", "name", "unit", "device"]
    rows = trace.required("counters").with_columns(pl.col("group", "name", "unit").cast(pl.String)).collect()
    curves = []
    for (group, name, unit, device), part in rows.partition_by(keys, as_dict=True, maintain_order=True).items():
        place = "" if device is None else f", device {device}"
        curves += _series_of_column(f"{group or 'counter'}: {name}{place}", unit or "", part, "value")
    return sorted(curves, key=lambda one: one.label)


def _pipeline_series(trace: Trace) -> list[Series]:
    keys = ["scope", "op", "name", "unit"]
    rows = trace.required("pipeline_samples").with_columns(pl.col("scope", "name", "unit").cast(pl.String)).collect()
    curves = []
    for (scope, op, name, unit), part in rows.partition_by(keys, as_dict=True, maintain_order=True).items():
        place = scope if op is None else f"{scope} {op}"
        curves += _series_of_column(f"data pipeline: {name}, {place}", unit or "", part, "value")
    return sorted(curves, key=lambda one: one.label)


def _queue_series(trace: Trace) -> list[Series]:
    if not trace.has_accelerator:
        return []
    parts = queue_length(trace).partition_by(["device", "stream"], as_dict=True, maintain_order=True)
    return [
        curve
        for (device, stream), part in parts.items()
        for curve in _series_of_column(f"launched and waiting tasks, device {device} stream {stream}", "tasks", part, "length")
    ]


def _series_of_column(label: str, unit: str, part: pl.DataFrame, column: str) -> list[Series]:
    samples = part.select("time_ns", value=pl.col(column).cast(pl.Float64)).drop_nulls().sort("time_ns", maintain_order=True)
    return [Series(label, unit, samples)] if samples.height else []


SOURCES: tuple[Callable[[Trace], list[Series]], ...] = (_memory_series, _queue_series, _counter_series, _pipeline_series)
