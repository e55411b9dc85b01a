"""Reads what ``steplens.mindspore`` recorded: the windows of one rank below ``FRAMEWORK/``, into one trace.

Every window is a folder of the files that MindSpore's CPU profiler wrote (``mindspore_cpu``) and ``window.json``, which has
what MindSpore does not know: the steps, the waits for data, when the window was open. A recorded data pipeline is a folder of its
own. The files of MindSpore's own 2.10 profiler, which lie in ``FRAMEWORK/`` itself, are one window without ``window.json``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import json_text
from steplens.common.errors import InputError
from steplens.common.listings import list_folder
from steplens.common.storage.files import open_file
from steplens.formats.mindspore import FILES
from steplens.formats.mindspore import PIPELINE_FILE as PIPELINE_FILE
from steplens.formats.mindspore import RAW_DIRECTORY as RAW_DIRECTORY
from steplens.formats.mindspore import WINDOW_FILE as WINDOW_FILE
from steplens.readers.common.side_files import add_findings, read_json
from steplens.readers.common.trace_rows import meta_rows, source_rows
from steplens.readers.mindspore import minddata
from steplens.readers.mindspore.folders import list_children, nothing_to_read
from steplens.readers.mindspore.mindspore_folder import open_folder
from steplens.readers.mindspore.windows import mindspore_cpu, mindspore_python
from steplens.readers.steplens_run.run_directory import open_window
from steplens.trace.building.build import build_trace
from steplens.trace.health import (
    ERROR,
    EVERYTHING,
    INFO,
    MEMORY,
    OPERATOR_CALLS,
    STEP_AVERAGES,
    STEP_PHASES,
    STEP_TIMES,
    USER_MARKS,
    WARNING,
    HealthLog,
)
from steplens.trace.schema import DATALOADER_PREFIX, PARTIAL_STEPS, PROCESS_IDENTITY, SCOPE_USER, STEP_PREFIX
from steplens.trace.trace import Trace

_WINDOW = re.compile(r"^window_(\d{1,9})_(\d{1,9})$")
_PIPELINE = re.compile(r"^pipeline_(\d{1,9})_(\d{1,9})$")
#: the finding by which ``analysis.steps`` knows that the last step is not complete
STOPPED_INSIDE = "stopped_inside_step"
_LATEST_NS = 1 << 62
_SPAN = {"start_ns": pl.Int64, "end_ns": pl.Int64}
_UP_TO = "up to their last launch is counted"
#: so many steps are named in a message
_NAMED = 10
#: ids of processes and threads lie below
_IDENTIFIERS = 1 << 32
#: findings that only the windows show
_OF_RECORDING = (
    "missing_data_pipeline",
    "missing_python_calls",
    "unbalanced_python_calls",
    "window_lost",
    "missing_file",
    "damaged_records",
    "damaged_side_file",
    "renumbered_steps",
    "not_collected",
    STOPPED_INSIDE,
    "incomplete_steps",
)
#: of window.json, what becomes of it in ``meta``
_META = (
    "pid", PROCESS_IDENTITY, "hostname", "ms_version", "steplens_version", "context_mode", "config", "world_size",
    "user_metadata",
)  # fmt: skip


def ranks(path: Path) -> list[int]:
    """The ranks whose windows a run directory holds."""
    raw = path / RAW_DIRECTORY
    rank_numbers = {number for kind in (_WINDOW, _PIPELINE) for (number, _), _ in _window_folders(raw, kind)}
    if rank_numbers:
        return sorted(rank_numbers)
    return sorted(rank for family, rank in open_folder(raw).files if family == "cpu_operators") if raw.is_dir() else []


def sources(path: Path, rank: int) -> list[Path]:
    """The files that decide what is read of a rank."""
    raw = path / RAW_DIRECTORY
    files = [file for kind in (_WINDOW, _PIPELINE) for (number, _), folder in _window_folders(raw, kind) if number == rank
           for file in _visible_files(folder)]  # fmt: skip
    return files or open_folder(raw).of_rank(rank)


def read_trace(path: Path, rank: int, step_list: Sequence[int] | None = None) -> Trace:
    """The trace of one rank: all of its windows.

    Args:
        path: the run directory.
        rank: the rank.
        step_list: only these of the recorded steps, consecutive, counted from 1.

    Raises:
        InputError: no window can be read, or there is no such step.
    """
    health = HealthLog()
    raw = path / RAW_DIRECTORY
    windows = [folder for (number, _), folder in _window_folders(raw, _WINDOW) if number == rank]
    pipelines = [folder for (number, _), folder in _window_folders(raw, _PIPELINE) if number == rank]
    meta: dict[str, Any] = {"source_format": "mindspore_windows", "rank": rank}
    parts: dict[str, list[pl.DataFrame]] = {}
    spans = [_read_window(folder, rank, parts, meta, health) for folder in windows or [raw]]
    for folder in pipelines:
        _read_pipeline(folder, rank, parts, meta, [span for span in spans if span is not None], health)
    tables = {name: pl.concat(frames, how="diagonal_relaxed") for name, frames in parts.items()}
    if not any(tables[name].height for name in tables):
        raise _missing_windows_error(path, rank, health)
    if "steps" in tables:
        tables["steps"] = _number_steps(tables["steps"], health)
        ranges = step_ranges(tables["steps"])
        tables["ops"] = pl.concat([tables["ops"], ranges], how="diagonal_relaxed") if "ops" in tables else ranges
    if step_list is not None:
        tables = _select_steps(tables, step_list, path)
    if "steps" in tables:
        tables["steps"] = _report_parts(tables["steps"], meta, health)
    tables["meta"] = meta_rows(meta)
    return build_trace(path, tables, health, cpu_is_device=False)


def _missing_windows_error(path: Path, rank: int, health: HealthLog) -> InputError:
    """Why the windows of a rank give no trace, and what helps."""
    if any(finding.check != "not_collected" for finding in health.findings):
        return nothing_to_read(path, f"windows of rank {rank}", health)
    reasons = list(dict.fromkeys(finding.message for finding in health.findings))
    reasons.append("call start() before the steps that are to be recorded, and stop() behind them")
    return InputError(path, f"has nothing that was recorded of rank {rank}", "; ".join(reasons))


def _read_window(
    folder: Path, rank: int, parts: dict[str, list[pl.DataFrame]], meta: dict[str, Any], health: HealthLog
) -> tuple[int, int] | None:
    """Add the tables of one window; gives the time it was open."""
    state = read_json(folder / WINDOW_FILE, health) if (folder / WINDOW_FILE).is_file() else {}
    add_findings(state, health)
    if state.get("state") == "recording":
        message, _ = open_window(f"the window {folder.name}", state)
        health.add("window_lost", ERROR, 1, message, EVERYTHING)
    meta.update({key: state[key] for key in _META if key in state})
    pid = _state_identifier(state, "pid", rank)
    span = _window_span(state)
    launches = folder / FILES["cpu_operators"].format(rank=rank)
    window_tables: dict[str, pl.DataFrame] = {}
    if launches.is_file():
        shapes = folder / FILES["cpu_framework"].format(rank=rank)
        window_tables = mindspore_cpu.read_tables(launches, shapes if shapes.is_file() else None, rank, health, pid=pid)
        for name, frame in window_tables.items():
            parts.setdefault(name, []).append(frame)
    elif state.get("empty") is True:
        health.add("not_collected", INFO, 1, f"nothing was launched in the window {folder.name}{_describe_span(span)}")
    elif state.get("state") == "collected" and state.get("operators") is not False:
        message = f"{launches.name} of {folder.name} is missing, and with it every launch of that window"
        health.add("missing_file", ERROR, 1, message, OPERATOR_CALLS)
    record = folder / FILES["cpu_memory"].format(rank=rank)
    if record.is_file() and (state.get("memory") is True or not state):
        memory = mindspore_cpu.read_memory(record, rank, health)
        if span is not None and memory.height:
            # MindSpore's list of pool events grows over all windows of a process and cannot be cleared
            memory = memory.filter(pl.col("time_ns").is_between(*span))
        if memory.height:
            parts.setdefault("memory", []).append(memory)
    elif state.get("memory") is True and state.get("state") == "collected" and state.get("empty") is not True:
        message = f"{record.name} of {folder.name} is missing: memory was asked for and not recorded"
        health.add("missing_file", WARNING, 1, message, MEMORY)
    for table in ("cpu_op_type_info", "cpu_op_detail_info"):
        file = folder / f"{table}_{rank}.csv"
        if file.is_file() and not state:
            with open_file(file) as handle:
                frame = pl.read_csv(handle, infer_schema=False, truncate_ragged_lines=True, ignore_errors=True)
            parts.setdefault("source_tables", []).append(source_rows(table, frame))
    calls = mindspore_python.read_calls(folder, pid, _state_identifier(state, "tid", 0), health)
    if calls.height:
        earlier = sum(frame.height for frame in parts.get("python", []))
        parts.setdefault("python", []).append(calls.with_columns(pl.col("id", "parent") + earlier))
    _add_steps(state, pid, window_tables.get("kernels", pl.DataFrame()), parts, health)
    _add_waits(state, pid, parts, health)
    _add_marks(state, pid, parts, health)
    return span


def _read_pipeline(
    folder: Path,
    rank: int,
    parts: dict[str, list[pl.DataFrame]],
    meta: dict[str, Any],
    spans: list[tuple[int, int]],
    health: HealthLog,
) -> None:
    state = read_json(folder / PIPELINE_FILE, health)
    offset = state.get("clock_offset_ns")
    offset = offset if type(offset) is int and abs(offset) < _LATEST_NS else None
    pipeline_tables = minddata.tables(folder, rank, health, clock_offset_ns=offset)
    if "meta" in pipeline_tables:
        meta.update({key: json_text.loads_stored(value) for key, value in pipeline_tables.pop("meta").iter_rows()})
    for name, frame in pipeline_tables.items():
        if name in ("pipeline_batches", "pipeline_samples") and spans and offset is not None:
            # the pipeline is recorded from the first window to the last one; what lies between them was not asked for
            is_inside = pl.any_horizontal([pl.col("time_ns").is_between(*span) for span in spans])
            frame = frame.filter(is_inside | pl.col("time_ns").is_null())
        if frame.height:
            parts.setdefault(name, []).append(frame)


def _add_steps(
    state: dict[str, Any], pid: int, launches: pl.DataFrame, parts: dict[str, list[pl.DataFrame]], health: HealthLog
) -> None:
    rows, lost = _valid_rows(state.get("steps"), 3)
    # of a step that the window cuts, the part without any launch is no step: the script stopped behind it, or began before it
    is_told, cut = isinstance(state.get("partial_steps"), list), _integer_set(state.get("partial_steps"))
    unended = _integer_set(state.get("unended_steps"))
    launches = launches.select("start_ns", "end_ns") if launches.height else pl.DataFrame(schema=_SPAN)
    rows = [_recorded_part(row, launches, row[0] in unended) if row[0] in cut else row for row in rows]
    rows = [row for row in rows if row]
    if lost:
        health.add("damaged_side_file", WARNING, lost, f"steps in {WINDOW_FILE} are damaged", STEP_TIMES)
    if rows:
        frame = pl.DataFrame(rows, schema={"id": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
        tid = _state_identifier(state, "tid", 0)
        ended = pl.Series([row[0] not in unended for row in rows])
        # MindSpore's own windows do not tell
        is_whole = pl.Series([row[0] not in cut | unended if is_told else None for row in rows], dtype=pl.Boolean)
        frame = frame.with_columns(pid=pl.lit(pid, pl.Int64), tid=pl.lit(tid, pl.Int64), ended=ended, whole=is_whole)
        parts.setdefault("steps", []).append(frame)


def _recorded_part(row: list[int], launches: pl.DataFrame, unended: bool) -> list[int]:
    """A step that a window cuts, without a known end up to its last launch; nothing where nothing was launched in it."""
    launches_inside = launches.filter(pl.col("start_ns").is_between(row[1], row[2]))
    if not launches_inside.height:
        return []
    return [*row[:2], min(int(launches_inside["end_ns"].max()), row[2])] if unended else row  # type: ignore[arg-type]


def _integer_set(value: Any) -> set[int]:
    return set(value) if isinstance(value, list) and all(type(item) is int for item in value) else set()


def _report_parts(steps: pl.DataFrame, meta: dict[str, Any], health: HealthLog) -> pl.DataFrame:
    """Say of which steps there is only a part, and which have no known end; gives the steps without the columns that tell."""
    ordered = steps.sort("start_ns")
    if not ordered["whole"].has_nulls():
        meta[PARTIAL_STEPS] = ordered.filter(~pl.col("whole"))["id"].to_list()
    cut = ordered.filter(~pl.col("whole") & pl.col("ended"))["id"].to_list()
    if cut:
        message = f"recording began or ended inside steps: {_join_numbers(cut)}; they are no part of averages"
        health.add("incomplete_steps", WARNING, len(cut), message, STEP_TIMES)
    numbers = ordered.filter(~pl.col("ended"))["id"].to_list()
    if numbers and numbers[-1] == ordered["id"][-1]:
        message = f"the last recorded step ({numbers.pop()}) has no known end: recording or its loop ended inside it; {_UP_TO}"
        health.add(STOPPED_INSIDE, WARNING, 1, message, STEP_AVERAGES)
    if numbers:
        message = f"steps have no known end, since recording or their loops ended inside them: {_join_numbers(numbers)}; {_UP_TO}"
        health.add("incomplete_steps", WARNING, len(numbers), message, (STEP_TIMES, STEP_AVERAGES))
    return steps.drop("ended", "whole")


def _join_numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:_NAMED])) + (" ..." if len(numbers) > _NAMED else "")


def _add_waits(state: dict[str, Any], pid: int, parts: dict[str, list[pl.DataFrame]], health: HealthLog) -> None:
    """Waits for data become the calls that every other source has for them, on the thread of the training loop."""
    rows, lost = _valid_rows(state.get("waits"), 3)
    if lost:
        health.add("damaged_side_file", WARNING, lost, f"waits for data in {WINDOW_FILE} are damaged", STEP_PHASES)
    if not rows:
        return
    tid = _state_identifier(state, "tid", 0)
    frame = pl.DataFrame(rows, schema={"batch": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    parts.setdefault("ops", []).append(
        frame.select(
            "start_ns",
            "end_ns",
            name=pl.lit(f"{DATALOADER_PREFIX}Iterator.__next__"),
            pid=pl.lit(pid, pl.Int64),
            tid=pl.lit(tid, pl.Int64),
            scope=pl.lit(SCOPE_USER, pl.UInt8),
        )
    )


def _number_steps(steps: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    ordered = steps.sort("start_ns", maintain_order=True)
    unique = ordered.unique("id", keep="first", maintain_order=True)
    if unique.height < ordered.height:
        # windows of two loops that both count from 1
        message = "step numbers occur more than once, because several loops were recorded; steps are numbered in order of time"
        health.add("renumbered_steps", WARNING, ordered.height - unique.height, message, STEP_TIMES)
        return ordered.with_columns(id=pl.int_range(1, pl.len() + 1))
    return ordered


def recorded_findings(trace: Trace) -> list[dict[str, Any]]:
    """What the health of a trace says of the recording itself, which its results do not show once the windows are gone."""
    findings = trace.required("health").filter(pl.col("check").cast(pl.String).is_in(_OF_RECORDING)).collect()
    return findings.to_dicts()


def step_ranges(steps: pl.DataFrame) -> pl.DataFrame:
    """Steps as the calls ``ProfilerStep#<id>`` that every other source has for them, and by which timelines tell them."""
    return steps.select(
        "start_ns",
        "end_ns",
        "pid",
        "tid",
        name=pl.format(STEP_PREFIX + "{}", "id"),
        scope=pl.lit(SCOPE_USER, pl.UInt8),
    )


def add_loop(state: dict[str, Any], pid: int, parts: dict[str, list[pl.DataFrame]], health: HealthLog) -> None:
    """Add the steps and the waits for data of ``profiler_info_<rank>.json``, which has them when the windows are gone."""
    rows, _ = _valid_rows(state.get("steps"), 3)
    _add_steps({**state, "steps": rows, "partial_steps": []}, pid, pl.DataFrame(), parts, health)
    _add_waits(state, pid, parts, health)


def _add_marks(state: dict[str, Any], pid: int, parts: dict[str, list[pl.DataFrame]], health: HealthLog) -> None:
    recorded_marks = state.get("marks")
    if not isinstance(recorded_marks, list) or not recorded_marks:
        return
    rows = [row for row in recorded_marks if isinstance(row, list) and len(row) == 5]
    good = [row for row in rows if all(isinstance(text, str) for text in row[:2])
            and all(type(number) is int and 0 <= number < _LATEST_NS for number in row[2:]) and row[2] <= row[3]]  # fmt: skip
    if lost := len(recorded_marks) - len(good):
        health.add("damaged_side_file", WARNING, lost, f"marks in {WINDOW_FILE} are damaged", USER_MARKS)
    if good:
        schema = {"domain": pl.String, "message": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64, "tid": pl.Int64}
        frame = pl.DataFrame(good, schema=schema, orient="row")
        parts.setdefault("marks", []).append(frame.with_columns(pid=pl.lit(pid, pl.Int64)))


_TIMES = {"ops": "start_ns", "kernels": "start_ns", "memory": "time_ns", "marks": "start_ns", "pipeline_batches": "time_ns",
          "pipeline_samples": "time_ns"}  # fmt: skip


def _select_steps(tables: dict[str, pl.DataFrame], step_list: Sequence[int], path: Path) -> dict[str, pl.DataFrame]:
    """The tables with what lies in some steps."""
    count = tables["steps"].height if "steps" in tables else 0
    if max(step_list) > count:
        raise InputError(path, f"holds {count} steps; step {max(step_list)} was asked for", f"Give steps from 1 to {count}")
    steps = tables["steps"].slice(min(step_list) - 1, len(step_list))
    begin, end = steps["start_ns"][0], steps["end_ns"][-1]
    cut = dict(tables)
    for name, column in _TIMES.items():
        if name in cut:
            cut[name] = cut[name].filter(pl.col(column).is_between(begin, end, closed="left") | pl.col(column).is_null())
    if "python" in cut:
        # also the callers that everything runs in
        cut["python"] = cut["python"].filter(pl.col("start_ns") < end, pl.col("end_ns") > begin)
    return {**cut, "steps": steps}


def _state_identifier(state: dict[str, Any], key: str, otherwise: int) -> int:
    """The id of a process or thread, where it can be one."""
    value = state.get(key)
    return value if type(value) is int and 0 <= value < _IDENTIFIERS else otherwise


def _valid_rows(value: Any, width: int) -> tuple[list[list[int]], int]:
    """The rows that are so many numbers, with start not behind end; and how many are not."""
    if not isinstance(value, list):
        return [], 0
    good = [
        row
        for row in value
        if isinstance(row, list)
        and len(row) == width
        and all(type(number) is int and 0 <= number < _LATEST_NS for number in row)
        and row[-2] <= row[-1]
    ]
    return good, len(value) - len(good)


def _window_span(state: dict[str, Any]) -> tuple[int, int] | None:
    begin, end = state.get("begin_ns"), state.get("end_ns")
    return (begin, end) if type(begin) is int and type(end) is int and 0 <= begin <= end < _LATEST_NS else None


def _describe_span(span: tuple[int, int] | None) -> str:
    """When a window was open, in words."""
    if span is None:
        return ""
    begin = time.strftime("%H:%M:%S", time.localtime(span[0] // 1_000_000_000))
    return f" (from {begin} on, for {(span[1] - span[0]) / 1e9:.3g} s)"


def _window_folders(raw: Path, kind: re.Pattern[str]) -> list[tuple[tuple[int, int], Path]]:
    matches = ((kind.match(child.name), child) for child in list_children(raw))
    return sorted(
        ((int(name[1]), int(name[2])), child) for name, child in matches if name and child.is_dir() and not child.is_symlink()
    )


def _visible_files(folder: Path) -> list[Path]:
    return [file for file in list_folder(folder).entry_paths if file.is_file() and not file.name.startswith(".")]
