"""Series over time beside the lanes: memory, sampled counters, queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

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
    curves = []
    for key, part in _partitions(trace, "memory", "device_type", "device", "component"):
        place = " ".join(str(value) for value in key if value is not None)
        for total in ("allocated", "reserved", "active"):
            curves += _series_of_column(f"memory {total}, {place}", "bytes", part, total)
    return sorted(curves, key=lambda curve: curve.label)


def _counter_series(trace: Trace) -> list[Series]:
    curves = []
    for (group, name, unit, device), part in _partitions(trace, "counters", "group", "name", "unit", "device"):
        place = "" if device is None else f", device {device}"
        curves += _series_of_column(f"{group or 'counter'}: {name}{place}", unit or "", part, "value")
    return sorted(curves, key=lambda curve: curve.label)


def _pipeline_series(trace: Trace) -> list[Series]:
    curves = []
    for (scope, op, name, unit), part in _partitions(trace, "pipeline_samples", "scope", "op", "name", "unit"):
        place = scope if op is None else f"{scope} {op}"
        curves += _series_of_column(f"data pipeline: {name}, {place}", unit or "", part, "value")
    return sorted(curves, key=lambda curve: curve.label)


def _queue_series(trace: Trace) -> list[Series]:
    if not trace.has_accelerator:
        return []
    curves = []
    for (device, stream), part in queue_length(trace).partition_by("device", "stream", as_dict=True, maintain_order=True).items():
        label = f"launched and waiting tasks, device {device} stream {stream}"
        curves += _series_of_column(label, "tasks", part, "length")
    return curves


def _partitions(trace: Trace, table: str, *keys: str) -> Iterable[tuple[tuple[Any, ...], pl.DataFrame]]:
    """The rows of a table by some of its columns, names as text, in order of their first rows."""
    rows = trace.required(table).with_columns(pl.col(pl.Categorical).cast(pl.String)).collect()
    return rows.partition_by(keys, as_dict=True, maintain_order=True).items()


def _series_of_column(label: str, unit: str, part: pl.DataFrame, column: str) -> list[Series]:
    samples = part.select("time_ns", value=pl.col(column).cast(pl.Float64)).drop_nulls().sort("time_ns", maintain_order=True)
    return [Series(label, unit, samples)] if samples.height else []


SOURCES: tuple[Callable[[Trace], list[Series]], ...] = (_memory_series, _queue_series, _counter_series, _pipeline_series)
