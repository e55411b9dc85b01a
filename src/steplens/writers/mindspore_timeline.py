"""``cpu_timeline_display_<rank>.json`` and its summary: launches, scopes and steps as Chrome trace events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from steplens.trace.trace import Trace
from steplens.writers.mindspore_operators import launches
from steplens.writers.output import TIME_BASE_KEY, Output
from steplens.writers.text import write_json

#: lanes, as MindSpore numbers them
_STEPS, _SCOPES = 100000, 100001
_STEP_NAME, _SCOPE_NAME = "Steps", "Scope Layer"
_MB = 1 << 20


def writer(limit_mb: int | None = None) -> Any:
    """The writer of cpu_timeline_display_<rank>.json.

    Args:
        limit_mb: largest size of the file, MB; events that start latest are left out, and the file says how many.
    """

    def write(output: Output, path: Path) -> None:
        events = sorted((*_launches(output), *_steps(output), *_scopes(output)), key=lambda event: (event["ts"], -event["dur"]))
        texts = [json.dumps(event, ensure_ascii=False) for event in events]
        kept = len(texts)
        if limit_mb is not None:
            room = limit_mb * _MB - 2000
            for number, text in enumerate(texts):
                room -= len(text.encode()) + 1
                if room < 0:
                    kept = number
                    break
        head = [json.dumps(event, ensure_ascii=False) for event in _metadata(output, len(texts) - kept)]
        path.write_text("[" + ",".join([*head, *texts[:kept]]) + "]", encoding="utf-8")

    return write


def write_summary(output: Output, path: Path) -> None:
    """Write cpu_timeline_summary_<rank>.json; ``total_time`` is the sum of all launches, ms."""
    rows = launches(output.trace)
    summary = {
        "total_time": int(rows["length"].sum()) / 1e6,
        "num_of_streams": rows["worker"].n_unique(),
        "num_of_ops": rows["name"].n_unique(),
        "op_exe_times": rows.height,
        "max_scope_name_num": max(name.count("/") for name in rows["name"].to_list()),
    }
    write_json(summary, path)


def _us(output: Output, time_ns: int) -> float:
    return (time_ns - output.base_ns) / 1000


def _metadata(output: Output, dropped: int) -> Iterator[dict[str, Any]]:
    workers = launches(output.trace)["worker"].unique().sort().to_list()
    base: dict[str, Any] = {TIME_BASE_KEY: output.base_ns}
    if dropped:
        base["dropped_events"] = dropped
    yield {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "CPU OP", **base}}
    lanes = [(worker, f"HostCpuOps{worker}") for worker in workers]
    for tid, name in (*lanes, (_STEPS, _STEP_NAME), (_SCOPES, _SCOPE_NAME)):
        yield {"name": "thread_name", "ph": "M", "pid": 0, "tid": tid, "args": {"name": name}}


def _launches(output: Output) -> Iterator[dict[str, Any]]:
    columns = ("short", "name", "start_ns", "length", "worker")
    for short, full, start, length, worker in launches(output.trace).select(columns).iter_rows():
        args = {"type": "HostCpuOps", "fullname": full}
        yield {"name": short, "ph": "X", "pid": 0, "tid": worker, "ts": _us(output, start), "dur": length / 1000, "args": args}


def _steps(output: Output) -> Iterator[dict[str, Any]]:
    for number, start, end in _ordered_steps(output.trace).iter_rows():
        event = {"name": str(number), "ph": "X", "pid": 0, "tid": _STEPS}
        yield {**event, "ts": _us(output, start), "dur": (end - start) / 1000}


def _ordered_steps(trace: Trace) -> pl.DataFrame:
    return trace.required("steps").sort("start_ns").select("id", "start_ns", "end_ns").collect()


def _scopes(output: Output) -> Iterator[dict[str, Any]]:
    """Neighbouring launches of one scope of one step as one event per level of the scope's name."""
    rows = launches(output.trace)
    borders = _ordered_steps(output.trace)["start_ns"].to_list()
    position = 0
    #: level -> name, start and end of the event that is open
    opened: dict[int, tuple[str, int, int]] = {}

    def close(levels: list[int]) -> Iterator[dict[str, Any]]:
        for level in levels:
            name, start, end = opened.pop(level)
            event = {"name": name.rpartition("/")[2], "ph": "X", "pid": 0, "tid": _SCOPES, "ts": _us(output, start)}
            yield {**event, "dur": (end - start) / 1000, "args": {"scope_level": level}}

    for full, start, length in rows.select("name", "start_ns", "length").iter_rows():
        if position < len(borders) and start >= borders[position]:
            yield from close(sorted(opened))
            while position < len(borders) and start >= borders[position]:
                position += 1
        parts = full.split("/")[:-1]
        scopes = ["/".join(parts[: level + 1]) for level in range(len(parts))]
        ended = [level for level in opened if level >= len(scopes) or opened[level][0] != scopes[level]]
        yield from close(sorted(ended))
        for level, scope in enumerate(scopes):
            begun = opened[level][1] if level in opened else start
            opened[level] = (scope, begun, max(start + length, opened[level][2] if level in opened else 0))
    yield from close(sorted(opened))
