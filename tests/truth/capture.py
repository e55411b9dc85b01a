"""What a profiler would have recorded of a simulated run, and that as a file of Kineto."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .program import Kind, Program
from .simulation import ENGINE_THREAD, TRAINING_THREAD, History, HostEvent, Mark, Simulation, Task

#: Unix ns of the time 0 of a simulation: Kineto's base, and where the clock of its microseconds stands
BASE_NS = 1_711_964_646_000_000_000
ORIGIN_US = 4_458_676_000_000
ORIGIN_NS = BASE_NS + ORIGIN_US * 1000

PROCESS = 4242
_SPACES = {"compute": "kernel", "communication": "kernel", "copy": "gpu_memcpy", "set": "gpu_memset"}
_NAMES: dict[Kind, str] = {
    "compute": "ampere_sgemm_128x64_nn",
    "communication": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    "copy": "Memcpy HtoD (Pinned -> Device)",
    "set": "Memset (Device)",
}


@dataclass(frozen=True)
class Capture:
    """The recorded part of a history.

    Attributes:
        begin: when recording began, ns of the simulation; ``end`` likewise.
        launched_by: number of the marked step that launched each of ``tasks``; None where the capture does not tell.
    """

    program: Program
    history: History
    begin: int
    end: int
    marks: list[Mark]
    tasks: list[Task]
    host: list[HostEvent]
    launched_by: list[int | None]


def record(program: Program) -> Capture:
    """Runs a program and keeps what its recording would hold."""
    history = Simulation(program).run()
    begin = _moment(history.marks, program.record_from)
    end = _moment(history.marks, program.record_until) if program.record_until else history.marks[-1].end
    marks = [mark for mark in history.marks if begin <= mark.start and mark.end <= end and mark.number not in program.unmarked]
    host = [event for event in history.host if begin <= event.start and event.end <= end and event.recorded]
    tasks = []
    for task in history.tasks:
        # a launch in front of the recording leaves its work in it; what was launched later than its end is not in it
        recorded = task.end > begin and task.launched < end and (program.drained or task.end <= end)
        if recorded:
            tasks.append(task)
    numbers = {event.correlation for event in host if event.correlation is not None}
    launched_by = []
    for task in tasks:
        step = next((mark.number for mark in marks if mark.start <= task.launched < mark.end), None)
        launched_by.append(step if task.correlation in numbers else None)
    return Capture(program, history, begin, end, marks, tasks, host, launched_by)


def _moment(marks: list[Mark], at: tuple[int, int]) -> int:
    step, percent = at
    return marks[step].start + (marks[step].end - marks[step].start) * percent // 100


def write(capture: Capture, path: Path) -> Path:
    """The capture as a Kineto trace."""
    events = [_lane(PROCESS, TRAINING_THREAD, "thread 100 (python)"), _lane(PROCESS, ENGINE_THREAD, "thread 101 (pt_autograd_0)")]
    for number, event in enumerate(capture.host):
        arguments: dict[str, Any] = {"External id": number + 1}
        if event.correlation is not None:
            arguments = {"cbid": 211, "correlation": event.correlation}
        elif event.category == "python_function":
            arguments = {"Python id": number + 1, "Python parent id": None}
            if event.name.startswith("nn.Module"):
                arguments["Python module id"] = 0
        elif event.sequence is not None:
            arguments["Sequence number"] = event.sequence
            arguments["Fwd thread id"] = 1 if event.thread == ENGINE_THREAD else 0
        events.append(_span(event.category, event.name, event.start, event.end, PROCESS, event.thread, arguments))
    for mark in capture.marks:
        events.append(
            _span(
                "user_annotation",
                f"ProfilerStep#{mark.number}",
                mark.start,
                mark.end,
                PROCESS,
                TRAINING_THREAD,
                {"External id": 0},
            )
        )
    for task in capture.tasks:
        arguments = {"device": 0, "context": 1, "stream": task.stream, "correlation": task.correlation}
        category = _SPACES[task.kind]
        if category != "kernel":
            arguments["bytes"] = 4096
        events.append(_span(category, _NAMES[task.kind], task.start, task.end, 0, task.stream, arguments))
    for sequence, start, node in capture.history.answers:
        if capture.begin <= start and node < capture.end:
            flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": sequence + 1, "pid": PROCESS}
            events.append({**flow, "ph": "s", "tid": TRAINING_THREAD, "ts": _time(start)})
            events.append({**flow, "ph": "f", "tid": ENGINE_THREAD, "ts": _time(node), "bp": "e"})
    top = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": events,
    }
    # times are decimal fractions to the digit: they are written as text first, and lose their quotes then
    path.write_text(json.dumps(top).replace('"@', "").replace('@"', ""))
    return path


def _time(nanoseconds: int) -> str:
    return f"@{ORIGIN_US + nanoseconds // 1000}.{nanoseconds % 1000:03d}@"


def _span(category: str, name: str, start: int, end: int, process: int, thread: int, arguments: dict[str, Any]) -> dict[str, Any]:
    length = f"@{(end - start) // 1000}.{(end - start) % 1000:03d}@"
    event = {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": _time(start), "dur": length}
    return {**event, "args": arguments}


def _lane(process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "ts": _time(0), "args": {"name": name}}
