"""Reads ``PROF_*`` directories of the CANN that MindSpore 2.0 used: one file per kind, model and iteration.

``device_<n>/timeline/<kind>_<device>_<model>_<iteration>.json`` with the kinds step_trace, task_time, hccl and msprof (all of
them together). Times are us of the monotonic clock, which ``start_info`` ties to Unix time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common.errors import InputError
from steplens.formats.ascend_capture import EXPORT_DIRECTORY, PROF_NAME
from steplens.readers.ascend.prof_directory import device_info, open_prof
from steplens.readers.ascend.timeline.ascend_timeline import read_timeline
from steplens.readers.common.event_decoder import EventDecoder
from steplens.readers.common.json_events import JsonEventFile
from steplens.readers.common.side_files import as_object
from steplens.readers.common.trace_rows import meta_rows
from steplens.readers.mindspore.device_logs.legacy_device import step_tables
from steplens.readers.mindspore.folders import list_children, nothing_to_read
from steplens.readers.mindspore.minddata_cpu import json_object
from steplens.trace.building.build import build_trace
from steplens.trace.building.communication_marks import COMMUNICATION_CORE, communication_kind
from steplens.trace.health import (
    COMMUNICATION_TIMES,
    ERROR,
    EVERYTHING,
    INFO,
    RANK_COMPARISON,
    STEP_DEVICE_TIMES,
    STEP_PHASES,
    STEP_TIMES,
    WARNING,
    HealthLog,
)
from steplens.trace.schema import KIND_COMMUNICATION, SCHEMA
from steplens.trace.trace import Trace

_FILE = re.compile(r"^(step_trace|task_time|hccl|msprof)_(\d{1,9})_(\d{1,12})_(\d{1,12})\.json$")
_DEVICE = re.compile(r"^device_(\d{1,9})$")
_ITERATION = re.compile(r"^Iteration (\d{1,12})$")
_REDUCE = re.compile(r"^Reduce_(\d{1,12})_(\d{1,9})$")
_LATEST_NS = 1 << 61
_OPERATION = re.compile(r"(?i)(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all\w*|broadcast|receive|send)")

_TYPE = r"([A-Za-z]\w*)-op\d+$"

_POINTS = ("Iteration ID", "FP Start", "BP End", "Iteration End")


def find_prof_directories(path: Path) -> list[Path]:
    """The ``PROF_*`` directories of this kind at or directly below ``path``."""
    candidates = [path, *list_children(path)]
    return [folder for folder in candidates if PROF_NAME.match(folder.resolve().name) and detect(folder)]


def detect(path: Path) -> bool:
    """Whether ``path`` is a ``PROF_*`` directory with timelines per iteration, and no later export."""
    if not path.is_dir() or (path / EXPORT_DIRECTORY).is_dir():
        return False
    return any(_FILE.match(file.name) for _, folder in _device_folders(path) for file in list_children(folder / "timeline"))


def rank_of(path: Path) -> int:
    """The rank that a ``PROF_*`` directory says it is of, else the number of its device."""
    device, folder = next(iter(_device_folders(path)), (0, path))
    file = folder / f"info.json.{device}"
    rank = json_object(file, HealthLog()).get("rank_id") if file.is_file() else None
    return rank if type(rank) is int and 0 <= rank < 1 << 31 else device


def sources(path: Path) -> list[Path]:
    """The files that decide what is read of a ``PROF_*`` directory."""
    timelines, side = [], []
    for number, folder in _device_folders(path):
        timelines += [file for file in list_children(folder / "timeline") if _FILE.match(file.name)]
        side += [folder / f"{name}.{number}" for name in ("info.json", "start_info", "end_info")]
    return [*timelines, *(file for file in side if file.is_file())]


def read_trace(path: Path) -> Trace:
    """The trace of a ``PROF_*`` directory.

    Raises:
        InputError: it holds no timelines, of several devices, or none that can be read.
    """
    device_folders = [
        (number, folder)
        for number, folder in _device_folders(path)
        if any(map(_match_timeline, list_children(folder / "timeline")))
    ]
    if len(device_folders) != 1:
        problem = "holds timelines of several devices" if device_folders else "holds no timelines per iteration"
        raise InputError(path, problem, "Give one PROF directory with device_<n>/timeline")
    device, folder = device_folders[0]
    health = HealthLog()
    info = json_object(folder / f"info.json.{device}", health) if (folder / f"info.json.{device}").is_file() else {}
    offset_ns, is_offset_known = _clock_offset(folder, device, health)
    files = _timeline_files(folder)
    tables = _step_tables(files.get("step_trace", []), device, offset_ns, health)
    device_tables = _device_tasks(files, offset_ns, health)
    operations = _collective_operations(files.get("hccl") or files.get("msprof", []), offset_ns, health)
    if "kernels" in device_tables or operations.height:
        parts = [device_tables.get("kernels", pl.DataFrame()), _communication_kernels(operations)]
        tables["kernels"] = pl.concat([part for part in parts if part.height], how="diagonal_relaxed").with_columns(
            device=pl.lit(device, dtype=pl.Int32)
        )
    if operations.height:
        tables["communication"] = operations.with_columns(device=pl.lit(device, dtype=pl.Int32))
    _report_steps(tables, files, health)
    if not {"kernels", "step_points"} & set(tables):
        raise nothing_to_read(path, "timelines", health)
    for name in ("api", "threads"):
        if name in device_tables:
            tables[name] = device_tables[name]
    meta: dict[str, Any] = {"source_format": "mindspore_prof", "device_ids": [device], "rank": rank_of(path)}
    for key, source in (("hostname", "hostname"), ("pid", "pid"), ("chip", "platform_version")):
        if isinstance(info.get(source), (str, int)):
            meta[key] = int(info[source]) if key == "pid" and str(info[source]).isdigit() else info[source]
    if cores := device_info([open_prof(path)]):
        meta["device_info"] = cores
    meta["model_ids"] = sorted({int(name[3]) for name in map(_match_timeline, list_children(folder / "timeline")) if name})
    meta["monotonic_offset_ns"] = offset_ns if is_offset_known else None
    tables["meta"] = meta_rows(meta)
    return build_trace(path, tables, health, cpu_is_device=False)


def _match_timeline(file: Path) -> re.Match[str] | None:
    return _FILE.match(file.name)


def _device_folders(path: Path) -> list[tuple[int, Path]]:
    return [(int(name[1]), child) for child in list_children(path) if (name := _DEVICE.match(child.name)) and child.is_dir()]


def _timeline_files(folder: Path) -> dict[str, list[Path]]:
    """Kind -> timelines, by model and iteration."""
    files_of: dict[str, list[tuple[int, int, Path]]] = {}
    for file in list_children(folder / "timeline"):
        if name := _match_timeline(file):
            files_of.setdefault(name[1], []).append((int(name[3]), int(name[4]), file))
    return {kind: [file for _, _, file in sorted(files)] for kind, files in files_of.items()}


def _clock_offset(folder: Path, device: int, health: HealthLog) -> tuple[int, bool]:
    """Unix time minus the monotonic clock, ns, and whether it is known."""
    path = folder / f"start_info.{device}"
    start = json_object(path, health) if path.is_file() else {}
    begin, monotonic = (str(start.get(key, "")) for key in ("collectionTimeBegin", "clockMonotonicRaw"))
    if begin.isdigit() and monotonic.isdigit() and len(begin) < 17 and len(monotonic) < 19:
        offset_ns = int(begin) * 1000 - int(monotonic)
        if abs(offset_ns) < _LATEST_NS:
            return offset_ns, True
    message = f"{path.name} does not say when recording began; times are those of the host's monotonic clock"
    health.add("unknown_clock", WARNING, 1, message, RANK_COMPARISON)
    return 0, False


def _device_tasks(files: dict[str, list[Path]], offset_ns: int, health: HealthLog) -> dict[str, pl.DataFrame]:
    """Device tasks, from the timelines of their own or from those of everything; calls of CANN from the latter."""
    task_tables: dict[str, pl.DataFrame] = {}
    for kind in ("msprof", "task_time"):
        if kind in files:
            task_health = HealthLog() if kind == "msprof" and "task_time" in files else health
            try:
                tables = read_timeline(files[kind], task_health, base_ns=offset_ns)
            except InputError as error:
                health.add("unreadable_file", ERROR, 1, f"{error.path.name} {error.problem}", EVERYTHING)
                continue
            task_tables.update({name: tables[name] for name in ("kernels", "api", "threads") if name in tables})
    if "kernels" in task_tables:
        # the step trace is drawn among the streams
        tasks = task_tables["kernels"].filter(pl.col("core").is_not_null())
        # these timelines have no types, but MindSpore's names end in them
        tasks = tasks.with_columns(type=pl.col("name").cast(pl.String).str.extract(_TYPE))
        task_tables["kernels"] = tasks.drop("launch_ns", "launch_pid", "launch_tid", "correlation", strict=False)
    return {name: frame for name, frame in task_tables.items() if frame.height}


def _report_steps(tables: dict[str, pl.DataFrame], files: dict[str, list[Path]], health: HealthLog) -> None:
    """Every file of the step trace lists all iterations; tasks were exported for some of them."""
    if "steps" not in tables or not (files.get("task_time") or files.get("msprof")):
        return
    exported = {int(name[4]) for kind in ("task_time", "msprof") for name in map(_match_timeline, files.get(kind, [])) if name}
    without = tables["steps"].filter(~pl.col("id").is_in(list(exported))).height
    if without:
        message = "steps have points and no tasks: the tasks of their iterations were not exported"
        health.add("steps_without_tasks", WARNING, without, message, STEP_DEVICE_TIMES)


def _read_events(paths: list[Path], health: HealthLog) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Events with a duration, times as decimals."""
    for path in paths:
        file = JsonEventFile(path)
        decoder = EventDecoder[dict[str, Any]](dict[str, Any], float_hook=Decimal)
        try:
            for piece in file:
                for event in decoder.events(piece):
                    if event.get("ph") == "X" and isinstance(event.get("name"), str):
                        yield path, event
        except InputError as error:
            health.add("unreadable_file", ERROR, 1, f"{path.name} {error.problem}", (STEP_TIMES, COMMUNICATION_TIMES))
            continue
        if file.stopped:
            health.extend([file.stopped])
        elif file.truncated or decoder.damaged:
            message = f"{path.name} is damaged: {file.lost_bytes} bytes and {decoder.damaged} events of it were not read"
            health.add("truncated_file", ERROR, 1, message, (STEP_TIMES, COMMUNICATION_TIMES))


def _to_ns(value: Any, offset_ns: int = 0) -> int | None:
    """Us (number or text) to ns; None for what is no time."""
    if type(value) not in (int, str, Decimal):
        return None
    try:
        number = Decimal(value)
        if not number.is_finite() or abs(number) * 1000 >= _LATEST_NS:
            return None
        time_ns = round(number * 1000) + offset_ns
        return time_ns if abs(time_ns) < _LATEST_NS else None
    except (InvalidOperation, ValueError, OverflowError):
        return None


def _step_tables(paths: list[Path], device: int, offset_ns: int, health: HealthLog) -> dict[str, pl.DataFrame]:
    """Points and collectives of iterations. Every file lists the iterations around its own; each counts once per model."""
    points: dict[tuple[int, int], tuple[int | None, ...]] = {}
    reduces: dict[tuple[int, int, int], tuple[int | None, int | None]] = {}
    for path, event in _read_events(paths, health):
        name = _match_timeline(path)
        arguments = as_object(event.get("args"))
        model = int(name[3]) if name else 0
        if matched := _ITERATION.match(event["name"]):
            number = arguments.get("Iteration ID")
            step = number if type(number) is int and 0 <= number < 1 << 62 else int(matched[1])
            times = [event.get("ts"), *(arguments.get(key) for key in _POINTS[1:])]
            points[model, step] = tuple(_to_ns(value, offset_ns) for value in times)
        elif matched := _REDUCE.match(event["name"]):
            number = matched[2]
            bounds = (arguments.get(f"Reduce {side} {number}") for side in ("Start", "End"))
            start, end = (_to_ns(value, offset_ns) for value in bounds)
            reduces[model, int(matched[1]), int(number)] = (start, end)
    rows = [(step, model, *times) for (model, step), times in sorted(points.items())]
    frame = pl.DataFrame(rows, schema=SCHEMA["step_points"], orient="row")
    complete = frame.drop_nulls(["start_ns", "forward_ns", "end_ns"]).filter(pl.col("end_ns") >= pl.col("start_ns"))
    if lost := frame.height - complete.height:
        health.add("incomplete_steps", WARNING, lost, "iterations lack a point and were left out", (STEP_TIMES, STEP_PHASES))
    marks = [(step, model, None, index, f"Reduce_{index}", *times) for (model, step, index), times in sorted(reduces.items())]
    collectives = pl.DataFrame(marks, schema={**SCHEMA["step_collectives"], "name": pl.String()}, orient="row")
    collectives = collectives.drop_nulls(["start_ns", "end_ns"]).filter(pl.col("end_ns") >= pl.col("start_ns"))
    collectives = collectives.join(complete.select("step", "model_id"), on=["step", "model_id"], how="semi")
    return step_tables(complete, collectives, device)


def _collective_operations(paths: list[Path], offset_ns: int, health: HealthLog) -> pl.DataFrame:
    """Collectives, one row each: what stands in the lanes of HCCL without being one of its inner tasks."""
    rows = []
    for _, event in _read_events(paths, health):
        name = event["name"]
        arguments = event.get("args")
        if arguments or _OPERATION.search(name) is None or name.startswith("Reduce_"):
            continue
        start, length = _to_ns(event.get("ts"), offset_ns), _to_ns(event.get("dur"))
        if start is not None and length is not None and length >= 0:
            rows.append((name, _OPERATION.findall(name)[-1].lower().replace("_", ""), start, start + length))
    schema = {"name": pl.String, "operation": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row").unique(["name", "start_ns", "end_ns"], maintain_order=True)
    if not frame.height and paths:
        health.add("no_communication", INFO, 1, "the timelines name no collective", COMMUNICATION_TIMES)
    return frame.with_columns(kind=communication_kind(pl.col("name")), stream=pl.lit(None, dtype=pl.Int64))


def _communication_kernels(operations: pl.DataFrame) -> pl.DataFrame:
    marks = {"kind": pl.lit(KIND_COMMUNICATION), "core": pl.lit(COMMUNICATION_CORE)}
    return operations.select("name", "start_ns", "end_ns", "stream", **marks)
