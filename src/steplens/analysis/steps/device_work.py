"""What the device does for a training: computing, communicating, copying, and which step launched it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import Int64Array, Intervals, merge_intervals, subtract, union
from steplens.trace.building.steps import step_of
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY
from steplens.trace.trace import Trace

#: kinds of work in order of precedence: what happens at once counts as the first of them
COMPUTING, COMMUNICATION, COPY = range(3)
_KINDS = {KIND_COMPUTE: COMPUTING, KIND_COMMUNICATION: COMMUNICATION, KIND_COPY: COPY}
_LASTS = pl.col("end_ns") > pl.col("start_ns")
#: place of a step that is none
NO_STEP = -1


@dataclass(frozen=True)
class DeviceWork:
    """Everything that occupied the devices of a process; waits and event records do not.

    Attributes:
        start_ns, end_ns: of every task and communication operation, device clock, shape (n,).
        kind: COMPUTING, COMMUNICATION or COPY.
        launched_in: row (in ``steps``) of the step that launched it: the step in which the runtime call with its correlation, or
            the operator that it is linked to, lies; ``NO_STEP`` where its launch is not known or lies outside of all steps.
        is_launch_known: whether its launch is known, inside or outside of a step.
        are_launches_told: whether the source tells launches at all; then work without one was launched outside of the recording.
        given_step: row of the step that the source or the time of the task says; ``NO_STEP`` outside of all.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    kind: Int64Array
    launched_in: Int64Array
    is_launch_known: npt.NDArray[np.bool_]
    are_launches_told: bool
    given_step: Int64Array

    def intervals(self, kind: int) -> Intervals:
        """When work of a kind runs, on all streams together."""
        is_kind = self.kind == kind
        return merge_intervals(self.start_ns[is_kind], self.end_ns[is_kind])


@dataclass(frozen=True)
class DeviceParts:
    """When the device does what; every instant is in one part at most.

    Attributes:
        computing: any stream computes.
        communication: of the rest, when anything communicates: exposed communication.
        copy: of the rest, when anything copies or sets memory: exposed copies.
        overlapped: when it computes and communicates at once.
    """

    computing: Intervals
    communication: Intervals
    copy: Intervals
    overlapped: Intervals

    @property
    def busy(self) -> Intervals:
        """When the device does anything."""
        return union(union(self.computing, self.communication), self.copy)


def computing_tasks(trace: Trace) -> pl.LazyFrame:
    """The device tasks that compute: no copies, no communication, no waiting."""
    return trace.required("kernels").filter(pl.col("kind") == KIND_COMPUTE)


@once_per_trace
def device_work(trace: Trace) -> DeviceWork:
    """The work of the devices of one process; see ``DeviceWork``. Worked out once per trace.

    Source: ``kernels`` of the kinds compute, communication and copy, and ``communication``.
    """
    columns = ["start_ns", "end_ns", "launch_ns", "op", "step"]
    tasks = trace.required("kernels").select(*columns, kind=pl.col("kind").cast(pl.String).replace_strict(
        _KINDS, default=None, return_dtype=pl.Int64
    ))  # fmt: skip
    parts = [tasks.filter(pl.col("kind").is_not_null() & _LASTS)]
    if "communication" in trace:
        operations = trace.required("communication").select(*columns, kind=pl.lit(COMMUNICATION, dtype=pl.Int64))
        parts.append(operations.filter(_LASTS))
    work = pl.concat(parts).collect()
    steps = trace.required("steps").select("id", "start_ns", "end_ns").collect()
    launched = pl.Series([None], dtype=pl.Int64).new_from_index(0, work.height)
    is_launch_known = work["launch_ns"].is_not_null()
    if steps.height and trace.has_accelerator:
        by_time = step_of(work["launch_ns"].fill_null(-1).to_numpy(), steps.sort("start_ns"))
        step_of_call = trace.required("ops").select("step").collect()["step"]
        # a damaged source may name calls that it does not have
        call = work["op"].set(~work["op"].is_between(0, step_of_call.len() - 1).fill_null(False), None)
        by_call = step_of_call.gather(call) if step_of_call.len() else launched
        launched = pl.select(pl.when(is_launch_known).then(by_time).otherwise(by_call)).to_series()
        is_launch_known = is_launch_known | work["op"].is_not_null()
    return DeviceWork(
        work["start_ns"].to_numpy(),
        work["end_ns"].to_numpy(),
        work["kind"].to_numpy(),
        _rows_of(launched, steps["id"]),
        is_launch_known.to_numpy(),
        bool(is_launch_known.any()) or (_are_numbered(trace, "api") and _are_numbered(trace, "kernels")),
        _rows_of(work["step"], steps["id"]),
    )


@once_per_trace
def device_parts(trace: Trace) -> DeviceParts:
    """When the device does what; worked out once per trace."""
    work = device_work(trace)
    computing, communication, copy = (work.intervals(kind) for kind in (COMPUTING, COMMUNICATION, COPY))
    exposed = subtract(communication, computing)
    return DeviceParts(computing, exposed, subtract(copy, union(computing, communication)), subtract(communication, exposed))


@once_per_trace
def exposed_communication(trace: Trace) -> Intervals:
    """When the device communicates and computes nothing; small beside ``device_parts``, and all that comparing ranks asks."""
    return device_parts(trace).communication


def _are_numbered(trace: Trace, table: str) -> bool:
    """Whether rows say which launch and which task belong together, whether or not the other one is there."""
    return bool(trace.required(table).select(pl.col("correlation").is_not_null().any()).collect().item())


def _rows_of(numbers: pl.Series, ids: pl.Series) -> Int64Array:
    """Row in ``ids`` of each number; ``NO_STEP`` where it is none of them."""
    if not ids.len():
        return np.full(len(numbers), NO_STEP, dtype=np.int64)
    order = ids.arg_sort().to_numpy().astype(np.int64)
    sorted_ids = ids.to_numpy()[order]
    asked_ids = numbers.fill_null(sorted_ids[0] - 1).to_numpy()
    place = np.minimum(np.searchsorted(sorted_ids, asked_ids), len(sorted_ids) - 1)
    return np.where(sorted_ids[place] == asked_ids, order[place], NO_STEP)
