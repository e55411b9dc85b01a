"""Reads ``dynamic_shape_info_<rank>.json``: times and shapes of operators of nets whose shapes change from step to step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from steplens.readers.common.side_files import as_list, as_object
from steplens.readers.mindspore.minddata_cpu import json_object
from steplens.trace.health import OPERATOR_TIMES, WARNING, HealthLog

_LARGEST = 1e15

#: one run of an operator or a kernel; duration in us
RUNS = {
    "level": pl.String,
    "step": pl.Int64,
    **dict.fromkeys(("side", "type", "name", "full_name"), pl.String),
    "duration_us": pl.Float64,
    **dict.fromkeys(("shapes", "block_dim", "grid_dim"), pl.String),
}
#: sums per step and type; the key of "kernel" sums is the kernel's name
SUMS = {
    "level": pl.String,
    "step": pl.Int64,
    "type": pl.String,
    "total_us": pl.Float64,
    "count": pl.Int64,
    "average_us": pl.Float64,
    "full_name": pl.String,
}


def read_dynamic_shape(path: Path, health: HealthLog) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs (columns ``RUNS``) and sums (``SUMS``) of operators and kernels.

    Files of an NPU list times per operator instead, one per step, in ms: run k is of step k then, and the sums are means.
    """
    members = json_object(path, health)
    runs: list[tuple[Any, ...]] = []
    sums: list[tuple[Any, ...]] = []
    damaged = 0
    if any(key in members for key in ("operator", "kernel", "operator_type", "kernel_type")):
        for level in ("operator", "kernel"):
            damaged += _gpu_runs(level, members.get(level), runs) + _gpu_sums(level, members.get(f"{level}_type"), sums)
    else:
        damaged += _add_npu_operators(members, runs, sums)
    if damaged:
        health.add("damaged_records", WARNING, damaged, f"rows of {path.name} are damaged and were left out", OPERATOR_TIMES)
    return pl.DataFrame(runs, schema=RUNS, orient="row"), pl.DataFrame(sums, schema=SUMS, orient="row")


def _to_step(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isdigit() and len(text) < 10 else None


def _to_number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and -_LARGEST < value < _LARGEST else None


def _to_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _gpu_runs(level: str, steps: Any, runs: list[tuple[Any, ...]]) -> int:
    damaged = 0
    for key, listed in as_object(steps).items():
        step = _to_step(key)
        for run in listed if isinstance(listed, list) else [None]:
            length = _to_number(run.get("dur")) if isinstance(run, dict) else None
            if step is None or length is None or not isinstance(run, dict):
                damaged += 1
                continue
            shapes = run.get("shape_info")
            text = json.dumps(shapes) if isinstance(shapes, list) else None
            names = [_to_text(run.get(key)) for key in ("op_side", "op_type", "op_name", "op_full_name")]
            runs.append((level, step, *names, length, text, _to_text(run.get("block_dim")), _to_text(run.get("grid_dim"))))
    return damaged


def _gpu_sums(level: str, steps: Any, sums: list[tuple[Any, ...]]) -> int:
    damaged = 0
    for key, types in as_object(steps).items():
        step = _to_step(key)
        for type_, values in as_object(types).items():
            numbers = [_to_number(value) for value in as_list(values)[:3]]
            if step is None or len(numbers) < 3 or None in numbers:
                damaged += 1
                continue
            total, count, average = numbers
            sums.append((level, step, type_, total, int(count or 0), average, _to_text(values[3]) if len(values) > 3 else None))
    return damaged


def _add_npu_operators(members: dict[str, Any], runs: list[tuple[Any, ...]], sums: list[tuple[Any, ...]]) -> int:
    damaged = 0
    for type_, listed in members.items():
        if type_ == "op_type":
            for name, means in as_object(listed).items():
                for step, mean in enumerate(as_list(means), start=1):
                    value = _to_number(mean)
                    sums.append(("operator", step, name, None, None, None if value is None else value * 1000, None))
            continue
        for operators in as_list(listed):
            for name, detail in as_object(operators).items():
                times, shapes = (as_list(as_object(detail).get(key)) for key in ("op_exe_time", "op_shape"))
                for step, time in enumerate(times, start=1):
                    value = _to_number(time)
                    if value is None:
                        damaged += 1
                        continue
                    shape = shapes[step - 1] if step <= len(shapes) else None
                    short = name.rsplit("/", 1)[-1]
                    runs.append(("operator", step, "npu", type_, short, name, value * 1000, json.dumps(shape), None, None))
    return damaged
