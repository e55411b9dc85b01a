"""Programs of a host that launches tasks on the streams of a device: when each runs follows from the queue, as on a real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from steplens.comparison.recordings import Recording, find_recordings
from steplens.trace.trace import Trace

from ..writers.builder import BACKWARD, BASE_NS, MAIN, PID, build, kernel, op, own_times

STEPS = 14
#: before the first one that is marked, so that it finds the device as the others do
UNMARKED = 2
#: how long a launch takes the host, and until the task begins where the device waits for it, us
LAUNCH_US, UNDERWAY_US = 4.0, 2.0
#: between two tasks of a stream, us
BETWEEN_US = 1.0
#: the host is so many tasks ahead at most: launching one more takes until the device has come so far
QUEUE = 10
#: steps differ by so much of the length of each task, and of the time before the first call in us
SPREAD = (0.0, 0.004, -0.003, 0.002, -0.005, 0.001)
COMPUTE, COMMUNICATION, COPY = 7, 20, 15
#: columns of moments
_MOMENTS = ("start_ns", "end_ns", "launch_ns", "time_ns", "from_ns", "to_ns", "enqueue_start_ns", "enqueue_end_ns",
            "dequeue_start_ns", "dequeue_end_ns")  # fmt: skip
_KINDS = {COMPUTE: "compute", COMMUNICATION: "communication", COPY: "copy"}


@dataclass(frozen=True)
class Task:
    """What a call launches.

    Attributes:
        name: of the kernel.
        us: how long it runs.
        stream: it begins behind what its stream has, and behind what ``after`` has then.
        after: streams of which it waits for an event.
    """

    name: str
    us: float
    stream: int = COMPUTE
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class HostCall:
    """An operator call of the host: a gap before it, its own time, its tasks, the calls inside of it, and a wait at its end.

    Attributes:
        waits: the call of the runtime with which it waits for all streams; empty of none.
        allocates_us: how long it asks the driver for memory.
        is_operator: else Python, which nothing records but the calls of the runtime.
    """

    name: str
    tasks: tuple[Task, ...] = ()
    own_us: float = 8.0
    gap_us: float = 4.0
    inside: tuple[HostCall, ...] = ()
    shapes: str = "8,8;8,8"
    types: str = "float;float"
    scope: int = 0
    sequence: int = -1
    waits: str = ""
    allocates_us: float = 0.0
    is_operator: bool = True


@dataclass
class Simulation:
    """A host and the streams of its device; times in us."""

    factor: float
    time_us: float = 0.0
    spread: float = 0.0
    sequence: int = 0
    ends_us: dict[int, float] = field(default_factory=dict)
    ops: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    api: list[dict[str, Any]] = field(default_factory=list)

    def call(self, call: HostCall, step: int | None, parent: int = -1, depth: int = 0) -> None:
        """Run a call, and launch what it does."""
        self.time_us += call.gap_us
        begin, place = self.time_us, len(self.ops)
        if call.is_operator:
            self.ops.append({})
        thread = BACKWARD if call.scope == 1 else MAIN
        self.time_us += call.own_us
        if call.allocates_us:
            self._call_runtime("cudaMalloc", call.allocates_us, thread)
        for task in call.tasks:
            self._launch(task, place if call.is_operator else None, step, thread)
        for inner in call.inside:
            self.call(inner, step, place if call.is_operator else parent, depth + 1)
        if call.waits:
            waited_us = max(max(self.ends_us.values(), default=0.0) + 3.0 - self.time_us, 2.0)
            self._call_runtime(call.waits, waited_us, thread)
        if call.is_operator:
            self.ops[place] = op(
                call.name, begin, self.time_us, parent=parent, depth=depth, step=step, tid=thread, scope=call.scope,
                sequence=call.sequence + self.sequence if call.sequence >= 0 else -1, input_shapes=call.shapes,
                input_types=call.types,
            )  # fmt: skip

    def _launch(self, task: Task, place: int | None, step: int | None, thread: int) -> None:
        launched_us = self.time_us
        name = "cudaLaunchKernel" if task.stream != COPY else "cudaMemcpyAsync"
        full_us = (self.kernels[-QUEUE]["end_ns"] - BASE_NS) / 1000 if len(self.kernels) >= QUEUE else 0.0
        self._call_runtime(name, LAUNCH_US + max(full_us - self.time_us, 0.0), thread, correlation=len(self.kernels) + 1)
        queues = [self.ends_us.get(stream, 0.0) for stream in (task.stream, *task.after)]
        begin = max(self.time_us + UNDERWAY_US, max(queues) + BETWEEN_US)
        self.ends_us[task.stream] = begin + task.us * self.factor * (1.0 + self.spread)
        row = kernel(
            task.name, begin, self.ends_us[task.stream], op=place, step=step, core="GPU", stream=task.stream,
            launch_ns=_ns(launched_us), correlation=len(self.kernels) + 1,
        )  # fmt: skip
        self.kernels.append({**row, "kind": _KINDS[task.stream], "bytes": 4096 if task.stream == COPY else None})

    def _call_runtime(self, name: str, us: float, thread: int, correlation: int = 0) -> None:
        start_us, self.time_us = self.time_us, self.time_us + us
        self.api.append({"name": name, "start_ns": _ns(start_us), "end_ns": _ns(self.time_us), "tid": thread,
                         "correlation": correlation})  # fmt: skip


def device_program(calls: Sequence[HostCall], pid: int = PID, factor: float = 1.0) -> Trace:
    """A trace of steps that make these calls each, on a GPU.

    Args:
        calls: of each step.
        pid: of the process.
        factor: by which its device is slower than that of another process.
    """
    simulation = Simulation(factor)
    marks = []
    for number in range(UNMARKED + STEPS):
        step = number - UNMARKED if number >= UNMARKED else None
        begin = simulation.time_us
        simulation.sequence += 100
        simulation.spread = SPREAD[number % len(SPREAD)]
        simulation.time_us += 5.0 + 100.0 * simulation.spread
        for call in calls:
            simulation.call(call, step)
        simulation.time_us += 6.0
        if step is not None:
            marks.append({"id": step, "start_ns": _ns(begin), "end_ns": _ns(simulation.time_us), "pid": pid, "tid": MAIN})
    meta = {"rank": 0, "pid": pid, "whole_steps": True}
    ops, api = ([{**row, "pid": pid} for row in rows] for rows in (simulation.ops, simulation.api))
    return build(meta=meta, ops=ops, api=api, kernels=simulation.kernels, steps=marks)


def _ns(time_us: float) -> int:
    return BASE_NS + round(time_us * 1000)


def recorded_on_device(calls: Sequence[HostCall]) -> list[Recording]:
    """A program as the recordings of a side: two processes."""
    return find_recordings([device_program(calls, PID + number, 1.0 + 0.002 * number) for number in range(2)])


def insert_time(trace: Trace, at_ns: Sequence[int], extra_ns: int, pid: int) -> Trace:
    """A trace in which more time passes at some moments: what lies across one takes longer, what lies behind it comes later.

    Args:
        trace: to be copied.
        at_ns: the moments.
        extra_ns: what passes at each.
        pid: number of the process of the copy.
    """
    moments = np.sort(np.asarray(at_ns, dtype=np.int64))

    def move_times(column: pl.Series) -> pl.Series:
        passed = np.searchsorted(moments, column.fill_null(0).to_numpy(), side="left") * extra_ns
        return (column + pl.Series(passed)).alias(column.name)

    frames = {}
    for name in trace:
        frame = trace.table(name)
        if frame is None or name == "meta":
            continue
        times = [column for column in frame.columns if column in _MOMENTS]
        frames[name] = frame.with_columns([move_times(frame[column]) for column in times])
    meta = trace.required("meta").filter(pl.col("key") != "pid").collect()
    own_pid = pl.DataFrame({"key": ["pid"], "value": [str(pid)]}, schema=meta.schema)
    return Trace(trace.source, {**frames, "kernels": own_times(frames["kernels"].with_columns(self_ns=None)),
                                "meta": pl.concat([meta, own_pid])})  # fmt: skip
