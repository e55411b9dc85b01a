"""Memory: the peaks, the series that can be drawn, and what was alive at a moment."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import polars as pl
from fastapi import Query
from pydantic import BaseModel

from steplens.analysis.memory.memory import user_of
from steplens.analysis.memory.memory_overview import memory_overview
from steplens.analysis.step_trace.step_trace import step_trace
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen, Moment, TraceNumber, json_response
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns, tables

router = create_router("/api/runs/{run}/memory", "memory")

#: steps whose points are sent
_MOST_STEPS = 5000
#: allocations that one answer lists
_MOST = 1000


class Alive(BaseModel):
    """What was allocated at a moment.

    Attributes:
        time_ns: the moment.
        allocations: how many allocations were alive.
        bytes: their sum; what was allocated before the recording is not in it.
        by_owner: per operator that owns them, the largest first: name (null outside every call), device_type, device,
            allocations and bytes. The owner is who wanted the memory, as ``analysis.memory.memory_peak`` has it.
        largest: the largest of them; rows of the table ``allocations`` whose ``name`` is that of the owner.
        unlisted: what allocators had counted beyond them: from before the recording, or not recorded one by one: device_type,
            device, component, allocated_bytes (the allocator's total) and rest_bytes, where there is more than what is alive.
    """

    time_ns: int
    allocations: int
    bytes: int
    by_owner: list[dict[str, Any]]
    largest: list[dict[str, Any]]
    unlisted: list[dict[str, Any]]


class DeviceMemory(BaseModel):
    """Memory of one device; see ``analysis.memory.memory_overview``. ``peak_ns`` counts from the origin of the trace."""

    device_type: str | None
    device: int | None
    capacity_bytes: int | None
    static_bytes: int | None
    peak_bytes: int | None
    peak_ns: int | None
    peak_step: int | None
    allocations: int | None
    releases: int | None


class StepPoints(BaseModel):
    """A step on the time line, ns from the origin: its start, first forward and last backward operator, and end."""

    step: int
    start_ns: int
    forward_ns: int | None
    backward_ns: int | None
    end_ns: int


class MemoryOverview(BaseModel):
    """The devices, and the steps to mark on their curves (the first ones of very many)."""

    devices: list[DeviceMemory]
    steps: list[StepPoints]


@router.get("", response_model=MemoryOverview)
def memory(chosen: Chosen, trace: TraceNumber = 0) -> Any:
    """Capacity, what stays, and the peak of every device; and where the steps begin, turn and end."""
    overview = chosen.frame_of_trace(memory_overview, trace)
    origin = chosen.origins[trace]
    points = chosen.frame_of_trace(step_trace, trace).head(_MOST_STEPS)
    moments = ("start_ns", "forward_ns", "backward_ns", "end_ns")
    return json_response(
        {
            "devices": columns.json_records(overview.with_columns(pl.col("peak_ns") - origin)),
            "steps": columns.json_records(points.select("step", *(pl.col(name) - origin for name in moments))),
        }
    )


@router.get("/alive", response_model=Alive)
def alive(chosen: Chosen, time_ns: Moment, trace: TraceNumber = 0, limit: Annotated[int, Query(ge=1, le=_MOST)] = 100) -> Any:
    """The allocations that had begun and not ended at a moment."""
    ends = pl.coalesce("release_ns", "active_release_ns")
    is_alive = (pl.col("allocation_ns") <= time_ns) & (ends.is_null() | (ends > time_ns))
    allocations = chosen.frame(("owned", "allocations", trace), partial(_owned_allocations, chosen, trace))
    alive_allocations = allocations.filter(is_alive)
    keys = ["name", "device_type", "device"]
    owners = (
        columns.names_as_text(alive_allocations.lazy())
        .group_by(keys)
        .agg(allocations=pl.len().cast(pl.Int64), bytes=pl.col("bytes").sum())
    )
    largest = alive_allocations.sort("bytes", "allocation_ns", descending=[True, False]).head(limit)
    return json_response(
        {
            "time_ns": time_ns,
            "allocations": alive_allocations.height,
            "bytes": int(alive_allocations["bytes"].sum()),
            "by_owner": columns.json_records(
                owners.sort("bytes", *keys, descending=[True, False, False, False]).head(limit).collect()
            ),
            "largest": columns.json_records(largest),
            "unlisted": columns.json_records(_unlisted_memory(chosen, trace, time_ns, alive_allocations)),
        }
    )


def _owned_allocations(chosen: OpenedRun, trace: int) -> pl.DataFrame:
    """The table ``allocations`` with who wanted the memory, where that is known, instead of who allocated it."""
    allocations = tables.table_frame(chosen, "allocations", trace)
    opened = chosen.trace(trace)
    operators = opened.required("ops").select(pl.col("name").cast(pl.String)).collect()["name"]
    is_call = pl.col("op").is_between(0, operators.len(), closed="left")
    calls = allocations.select(pl.when(is_call).then("op")).to_series()
    owners = operators.gather(user_of(opened, calls))
    return allocations.with_columns(name=pl.coalesce(owners, pl.col("name").cast(pl.String)))


def _unlisted_memory(chosen: OpenedRun, trace: int, time_ns: int, alive_allocations: pl.DataFrame) -> pl.DataFrame:
    """What every allocator had counted at a moment, less what is alive of it, where something is left."""
    allocator = ["device_type", "device", "component"]
    moment = time_ns + chosen.origins[trace]
    events = chosen.trace(trace).required("memory").filter(pl.col("time_ns") <= moment, pl.col("allocated").is_not_null())
    totals = events.sort("time_ns", maintain_order=True).group_by(allocator).agg(allocated_bytes=pl.col("allocated").last())
    listed = alive_allocations.lazy().group_by(allocator).agg(listed=pl.col("bytes").sum())
    names = pl.col("device_type", "component").cast(pl.String)
    both = totals.with_columns(names).join(listed.with_columns(names), on=allocator, how="left", nulls_equal=True)
    more = both.with_columns(rest_bytes=pl.col("allocated_bytes") - pl.col("listed").fill_null(0)).drop("listed")
    return more.filter(pl.col("rest_bytes") > 0).sort("rest_bytes", *allocator, descending=[True, False, False, False]).collect()
