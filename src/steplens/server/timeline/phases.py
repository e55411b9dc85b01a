"""Which phase of a step the events of lanes are of, as runs along time: few, and the same at every zoom."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis.steps.phases import phase_intervals, phase_of_calls
from steplens.server.timeline.models import PhaseRuns, Phases
from steplens.timeline.layout import Timeline
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COPY
from steplens.trace.trace import Trace

#: a lane whose phases change more often has none
_MOST_RUNS = 40_000
_SETS = ("data", "forward", "backward", "optimizer", "device_wait", "between")


def find_phases(trace: Trace, timeline: Timeline) -> Phases:
    """The phases of the host by time, and those of the tasks of every stream: where a run begins, a task of its phase does.

    A task is of the phase in which the operator that launched it was called; communication and copies are phases of their own.
    """
    return Phases(host=_host_runs(trace, timeline.origin_ns), lanes=_runs_of_streams(trace, timeline))


def _host_runs(trace: Trace, origin_ns: int) -> PhaseRuns:
    host_phases = phase_intervals(trace)
    if host_phases is None:
        return PhaseRuns(start_ns=[], phase=[])
    starts, ends, names = [], [], []
    for phase in _SETS:
        intervals = getattr(host_phases, phase)
        starts.append(intervals.start)
        ends.append(intervals.end)
        names.append(np.full(len(intervals.start), phase))
    start, end, name = np.concatenate(starts), np.concatenate(ends), np.concatenate(names)
    order = np.argsort(start, kind="stable")
    start, end, name = start[order], end[order], name[order]
    # where the next phase does not begin at once there is none
    gap = np.r_[start[1:] > end[:-1], True] if len(start) else np.empty(0, dtype=bool)
    times = np.concatenate([start, end[gap]]) - origin_ns
    phases = np.concatenate([name, np.full(int(gap.sum()), "")])
    order = np.argsort(times, kind="stable")
    if len(order) > _MOST_RUNS:
        return PhaseRuns(start_ns=[], phase=[])
    return PhaseRuns(start_ns=times[order].tolist(), phase=phases[order].tolist())


def _runs_of_streams(trace: Trace, timeline: Timeline) -> dict[int, PhaseRuns]:
    lanes = [lane for lane in timeline.lanes if lane.source.id == "kernels"]
    if not lanes or cpu_is_device(trace):
        return {}
    calls = pl.DataFrame({"phase": phase_of_calls(trace)}).with_row_index("op").with_columns(pl.col("op").cast(pl.Int32))
    kind = pl.col("kind").cast(pl.String)
    phase = (
        pl.when(kind == KIND_COMMUNICATION).then(pl.lit("communication")).when(kind == KIND_COPY).then(pl.lit("copy"))
        .otherwise(pl.col("phase").fill_null(""))
    )  # fmt: skip
    tasks = (
        trace.required("kernels").select("device", "stream", "start_ns", "op", "kind").drop_nulls("start_ns").collect()
        .join(calls, on="op", how="left", maintain_order="left").with_columns(phase=phase).sort("start_ns")
    )  # fmt: skip
    runs = {}
    for lane in lanes:
        mine = tasks.filter(pl.col("device").eq_missing(lane.key["device"]) & pl.col("stream").eq_missing(lane.key["stream"]))
        changed = mine.filter((pl.col("phase") != pl.col("phase").shift(1)).fill_null(True))
        if 0 < changed.height <= _MOST_RUNS:
            starts = (changed["start_ns"] - timeline.origin_ns).to_list()
            runs[lane.id] = PhaseRuns(start_ns=starts, phase=changed["phase"].to_list())
    return runs
