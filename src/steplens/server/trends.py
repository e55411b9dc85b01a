"""What changes from step to step and moment to moment, small enough for the first page: steps, idle time and memory."""

from __future__ import annotations

from typing import Any

import polars as pl
from pydantic import BaseModel

from steplens.analysis.device.idle import idle_causes
from steplens.analysis.memory.memory_overview import memory_overview
from steplens.analysis.memory.memory_peak import ALLOCATED, memory_peak
from steplens.analysis.steps.summary import usual_device_steps, usual_step_times
from steplens.analysis.steps.times import step_times
from steplens.server.http.routing import create_router
from steplens.server.memory.curves import reduce_series
from steplens.server.requests import Chosen, TraceNumber, json_response
from steplens.server.runs import OpenedRun

router = create_router("/api/runs/{run}", "overview")

#: steps that are sent, the last ones
_MOST_STEPS = 1000
#: places of a curve
_POINTS = 240


class StepLength(BaseModel):
    """A step: its step time, and whether figures are of it (``chosen`` of the table ``steps``)."""

    step: int
    step_time_ns: float
    counted: bool


class StepIdle(BaseModel):
    """Idle time of a step of one cause; see ``analysis.device.idle``."""

    step: int
    cause: str
    idle_ns: float


class PeakOwner(BaseModel):
    """Who allocated the most of what was in use at the peak; see ``analysis.memory.memory_peak``. ``percent`` is of the peak."""

    name: str | None
    bytes: int
    percent: float | None


class MemoryTrend(BaseModel):
    """The memory in use on the device with the highest peak.

    Attributes:
        device_type, device: which that is.
        peak_bytes, peak_ns, peak_step: the peak, when it was first reached, from the origin, and in which step.
        owner: who owns the most at the peak; None where single allocations were not recorded.
        time_ns, bytes: the highest total in each of some stretches of time, from its first moment on.
    """

    device_type: str | None
    device: int | None
    peak_bytes: int
    peak_ns: int
    peak_step: int | None
    owner: PeakOwner | None
    time_ns: list[int]
    bytes: list[float]


class Trends(BaseModel):
    """How a trace went over time; ``memory`` is None where it was not recorded, ``idle`` empty where nothing is known of it."""

    steps: list[StepLength]
    idle: list[StepIdle]
    memory: MemoryTrend | None


@router.get("/trends", response_model=Trends)
def read_trends(chosen: Chosen, trace: TraceNumber = 0) -> Any:
    """Length and idle time of the steps of a trace, and its memory."""
    steps = chosen.frame_of_trace(step_times, trace).drop_nulls(["step", "step_time_ns"]).tail(_MOST_STEPS)
    idle = chosen.frame_of_trace(idle_causes, trace).filter(pl.col("step").is_in(steps["step"].implode()))
    # of a device period that recording cut only a part is known of how long the device idles
    recorded = chosen.frame_of_trace(usual_device_steps, trace)["step"]
    usual = chosen.frame_of_trace(usual_step_times, trace)["step"]
    idle = idle.filter(~pl.col("step").is_in(usual.filter(~usual.is_in(recorded.implode())).implode()))
    return json_response(
        {
            "steps": steps.select("step", "step_time_ns", counted="chosen").to_dicts(),
            "idle": idle.to_dicts(),
            "memory": _memory_trend(chosen, trace),
        }
    )


def _memory_trend(chosen: OpenedRun, number: int) -> dict[str, Any] | None:
    trace, origin_ns = chosen.trace(number), chosen.origins[number]
    devices = chosen.frame_of_trace(memory_overview, number).drop_nulls(["peak_bytes", "peak_ns"])
    if not devices.height:
        return None
    peak = devices.sort("peak_bytes", descending=True, maintain_order=True).row(0, named=True)
    is_device = pl.col("device_type").cast(pl.String).eq_missing(peak["device_type"]) & pl.col("device").eq_missing(
        peak["device"]
    )
    totals = trace.required("memory").filter(is_device, pl.col("allocated").is_not_null())
    # of several allocators of a device the one that has the peak
    component = totals.sort("allocated", descending=True).select(pl.col("component").cast(pl.String).first()).collect().item()
    events = totals.filter(pl.col("component").cast(pl.String).eq_missing(component)).select("time_ns", "allocated")
    samples = events.sort("time_ns", maintain_order=True).collect()
    times, values = samples["time_ns"].to_numpy(), samples["allocated"].cast(pl.Float64).to_numpy()
    curve = reduce_series(times - origin_ns, values, int(times[0]) - origin_ns, int(times[-1]) - origin_ns + 1, _POINTS)
    owners = memory_peak(trace).filter(is_device, pl.col("kind") == ALLOCATED, pl.col("component").eq_missing(component))
    largest = owners.sort("bytes", descending=True, maintain_order=True).select("name", "bytes", "percent").head(1).to_dicts()
    return {
        **{name: peak[name] for name in ("device_type", "device", "peak_bytes", "peak_step")},
        "peak_ns": peak["peak_ns"] - origin_ns,
        "owner": largest[0] if largest else None,
        "time_ns": curve["time_ns"],
        "bytes": curve["max"],
    }
