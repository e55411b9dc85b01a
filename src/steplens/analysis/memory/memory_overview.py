"""Memory in a few figures: how much there is, how much stays, how high it rose, and in which step that was."""

from __future__ import annotations

import polars as pl

from steplens.analysis.memory.memory import memory_summary
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import CORE_CPU
from steplens.trace.trace import Trace

COLUMNS = table_schema(
    "device_type: String, device: Int32, capacity_bytes, static_bytes, peak_bytes, peak_ns, peak_step, allocations, releases"
)
_DEVICE = ("device_type", "device")


def memory_overview(trace: Trace) -> pl.DataFrame:
    """One row per device; columns as in ``COLUMNS``, times Unix ns, sizes bytes.

    * ``capacity_bytes``: memory of the device as its driver tells; null where the source does not say;
    * ``static_bytes``: the least that was allocated at any moment of the steps, which is what stays from step to step:
      parameters, state of the optimizer. Null without steps. Of several allocators of a device that with the highest peak;
    * ``peak_bytes``, ``peak_ns``: highest total of the allocator and when it was first reached, ``peak_step`` the step then;
    * ``allocations``, ``releases``: recorded events; null where a source records totals only.

    Source: ``memory_summary``, the totals in ``memory``, and ``steps``.
    """
    steps = trace.required("steps").select("id", "start_ns", "end_ns").sort("start_ns").collect()
    events = trace.required("memory").with_columns(pl.col("device_type").cast(pl.String))
    is_inside = pl.col("time_ns").is_between(steps["start_ns"].min(), steps["end_ns"].max()) if steps.height else pl.lit(False)
    totals = (
        events.group_by(*_DEVICE, "component")
        .agg(
            most=pl.col("allocated").max(),
            static_bytes=pl.col("allocated").filter(is_inside).min(),
            allocations=(pl.col("bytes") > 0).sum(),
            releases=(pl.col("bytes") < 0).sum(),
            sizes=pl.col("bytes").count(),
        )
        .group_by(_DEVICE)
        .agg(
            pl.col("static_bytes").sort_by("most", descending=True, nulls_last=True).first(),
            *(pl.when(pl.col("sizes").sum() > 0).then(pl.col(name).sum()).alias(name) for name in ("allocations", "releases")),
        )
        .collect()
    )
    overview = memory_summary(trace).select(*_DEVICE, peak_bytes="peak_allocated", peak_ns="peak_allocated_ns")
    overview = overview.join(totals, on=_DEVICE, how="left", nulls_equal=True, maintain_order="left").with_row_index("row")
    at = overview.select("row", "peak_ns").drop_nulls().sort("peak_ns")
    reached = at.join_asof(steps, left_on="peak_ns", right_on="start_ns", strategy="backward")
    peaks = reached.filter(pl.col("peak_ns") < pl.col("end_ns")).select("row", peak_step="id")
    overview = overview.join(peaks, on="row", how="left", maintain_order="left").join(
        _device_capacities(trace), on="device", how="left", maintain_order="left"
    )
    capacity = pl.when(pl.col("device_type") != CORE_CPU).then("capacity_bytes")
    overview = overview.with_columns(capacity_bytes=capacity)
    return overview.select(cast_columns(COLUMNS))


def _device_capacities(trace: Trace) -> pl.DataFrame:
    """device, capacity_bytes."""
    properties = trace.meta_value("deviceProperties")
    sizes = {
        device_properties["id"]: device_properties["totalGlobalMem"]
        for device_properties in (properties if isinstance(properties, list) else [])
        if isinstance(device_properties, dict)
        and isinstance(device_properties.get("id"), int)
        and isinstance(device_properties.get("totalGlobalMem"), int)
    }
    schema: dict[str, pl.DataType] = {"device": COLUMNS["device"], "capacity_bytes": COLUMNS["capacity_bytes"]}
    return pl.DataFrame([{"device": device, "capacity_bytes": size} for device, size in sizes.items()], schema=schema)
