"""Hand-made Ascend timelines: arrays of events with exactly known times, in µs after ``OFF``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OFF = 1_736_408_883_704_643_212
PID = 3_096_504
MAIN, BACKWARD, DEQUEUE = 3_096_504, 3_105_075, 3_099_702

Event = dict[str, Any]


def layer(sort: int, device: int, pid: int = PID) -> int:
    """Process id of a layer."""
    return pid << 10 | sort << 5 | device


CANN, HARDWARE, COMMUNICATION, OVERLAP = layer(7, 31), layer(14, 0), layer(16, 0), layer(31, 0)


def ns(us: float) -> int:
    return OFF + round(us * 1000)


def at(us: float) -> str:
    return f"{ns(us) // 1000}.{ns(us) % 1000:03d}"


def process(pid: int, name: str, label: str = "", sort: int = 0) -> list[Event]:
    events: list[Event] = [{"name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}, "ph": "M"}]
    if label:
        events.append({"name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}, "ph": "M"})
    return [*events, {"name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": sort}, "ph": "M"}]


def thread(pid: int, tid: int, name: str) -> Event:
    return {"name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}, "ph": "M"}


def span(name: str, pid: int, tid: int, start_us: float, duration_us: float, cat: str = "", **args: Any) -> Event:
    event = {"name": name, "pid": pid, "tid": tid, "ts": at(start_us), "dur": duration_us, "args": args, "ph": "X"}
    return {**event, "cat": cat} if cat else event


def task(name: str, start_us: float, duration_us: float, core: str = "AI_CORE", stream: int = 2, **args: Any) -> Event:
    members = {"Model Id": 4294967295, "Task Type": core, "Physic Stream Id": stream, "Task Id": 7, "Subtask Id": 4294967295}
    return span(name, HARDWARE, stream, start_us, duration_us, **{**members, **args})


def call(name: str, start_us: float, duration_us: float, connection: int, level: str = "node", tid: int = DEQUEUE) -> Event:
    return span(name, CANN, tid, start_us, duration_us, **{"Thread Id": tid, "level": level, "connection_id": connection})


def arrow(category: str, number: Any, start: tuple[int, int, float], end: tuple[int, int, float]) -> list[Event]:
    """Both ends: (pid, tid, µs)."""
    fixed = {"name": category, "cat": category, "id": number}
    tail = {"ph": "s", "pid": start[0], "tid": start[1], "ts": at(start[2])}
    head = {"ph": "f", "bp": "e", "pid": end[0], "tid": end[1], "ts": at(end[2])}
    return [{**fixed, **tail}, {**fixed, **head}]


def launch(connection: int, launch_us: float, start_us: float, *, tid: int = DEQUEUE, stream: int = 2) -> list[Event]:
    return arrow("HostToDevice", str(connection << 32), (CANN, tid, launch_us), (HARDWARE, stream, start_us))


def operator(name: str, start_us: float, duration_us: float, tid: int = MAIN, **args: Any) -> Event:
    return span(name, PID, tid, start_us, duration_us, "cpu_op", **{"Sequence number": -1, "Fwd thread id": 0, **args})


def queued(number: int, enqueue_us: float, dequeue_us: float, name: str = "aclnnMm", tid: int = MAIN) -> list[Event]:
    return [
        span("Enqueue", PID, tid, enqueue_us, 1, "enqueue", correlation_id=number),
        span(f"Dequeue@{name}", PID, DEQUEUE, dequeue_us, 2, "dequeue", correlation_id=number),
    ]


def head() -> list[Event]:
    return [
        *process(PID, "Python", "CPU", 0),
        *process(CANN, "CANN", "CPU", 7),
        *process(HARDWARE, "Ascend Hardware", "NPU 0", 14),
        *process(COMMUNICATION, "Communication", "NPU 0", 16),
        *process(OVERLAP, "Overlap Analysis", "NPU 0", 31),
        thread(COMMUNICATION, 0, "Group g0 Communication"),
        thread(COMMUNICATION, 1, "Plane 0"),
    ]


def write(path: Path, events: Sequence[Event], separators: tuple[str, str] = (", ", ": ")) -> Path:
    path.write_text(json.dumps(list(events), separators=separators, ensure_ascii=False), encoding="utf-8")
    return path
