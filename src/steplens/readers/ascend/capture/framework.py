"""The tables of ``FRAMEWORK/``: what the framework recorded on the host under the Ascend PyTorch Profiler.

Operator calls, Python calls, the task queue, allocator events, garbage collections and parameters, with times on the Unix
clock. Nothing here needs data of the device.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.formats.ascend_terms import PTA
from steplens.readers.ascend.capture import framework_files as files
from steplens.readers.ascend.capture.framework_files import UNDECODABLE, Int64Array, Texts, read_flat, read_tagged
from steplens.readers.ascend.capture.python_replay import replay_calls
from steplens.readers.ascend.prof_directory import Clock
from steplens.trace.health import CALL_STACKS, ERROR, INFO, MEMORY, WARNING, HealthLog
from steplens.trace.schema import ALLOCATE, BLOCK_FREE, FREE, MODULE_PREFIX, NAME

#: parts the class of a module from the number of the instance
_MODULE_MARK = "######"
#: stands for the end of recording, not for a call
_EXIT = "__torch_npu_profiler_python_tracer_exit"

#: the largest of: enqueue start, enqueue end, dequeue start, dequeue end
_DEQUEUE_END = 3
_DEVICE_TYPES = {0: "CPU", 20: "NPU"}
_CPU, _NPU = 0, 20
_COMPONENTS = {0: PTA, 1: "WORKSPACE"}
_EVENTS = {0: ALLOCATE, 1: FREE, 2: BLOCK_FREE}


def read_framework(
    folder: Path, clock: Clock, health: HealthLog, *, physical_device: int | None = None
) -> dict[str, pl.DataFrame]:
    """The raw tables of one ``FRAMEWORK`` directory; a table without rows is left out.

    Args:
        folder: the directory.
        clock: from recorded times to Unix ns.
        health: gets what was lost.
        physical_device: the device behind every logical index, where the run used a single one.
    """
    tables = {
        "ops": read_operator_calls(folder, clock, health),
        "task_queue": task_queue(folder, clock, health),
        "python": python_calls(folder, clock, health),
        "memory": read_allocator_events(folder, clock, health, physical_device),
        "gc": read_garbage_collections(folder, clock, health),
        "source_tables": read_parameter_tables(folder, health),
    }
    return {name: frame for name, frame in tables.items() if frame.height}


def read_operator_calls(folder: Path, clock: Clock, health: HealthLog) -> pl.DataFrame:
    """``ops`` from torch.op_range: one row per call, on the thread that started it."""
    records = read_tagged(folder, files.OP_RANGE, health)
    fixed = records.fixed
    times, plausible = _to_unix_times(clock, [fixed["start"], fixed["end"]], files.OP_RANGE, health)
    texts = {name: _without_empty(column) for name, column in records.texts.items() if name != "name"}
    sequence = pl.Series(fixed["sequence"])
    frame = pl.DataFrame(
        {
            "name": _replace_missing_names(records.texts["name"]),
            "start_ns": times[0],
            "end_ns": times[1],
            "pid": _to_signed(fixed["pid"]),
            "tid": _to_signed(fixed["start_tid"]),
            "scope": fixed["scope"],
            "sequence": sequence.set(sequence < 0, None),
            "forward_tid": _to_signed(fixed["forward_tid"]),
            "input_shapes": texts["shapes"].series("input_shapes", NAME),
            "input_types": texts["types"].series("input_types", NAME),
            "stack": texts["stack"].series("stack", NAME),
            "module": texts["module"].series("module", NAME),
        }
    )
    return _filter_rows(frame, plausible)


def task_queue(folder: Path, clock: Clock, health: HealthLog) -> pl.DataFrame:
    """``task_queue`` from torch.op_mark: one row per task, with whichever of its two halves were recorded.

    A start and the next end of the same thread, task name and half belong together; of several starts before an end the
    last one counts. Halves are joined by correlation id. The name is the dequeue's, where there is one.
    """
    records = read_tagged(folder, files.OP_MARK, health)
    fixed = records.fixed
    (time,), keep = _to_unix_times(clock, [fixed["time"]], files.OP_MARK, health)
    keep &= fixed["category"] <= _DEQUEUE_END
    category = fixed["category"].astype(np.int64)
    name = records.texts["name"]
    half, is_end = category // 2, category % 2 == 1
    group, groups = _number_row_groups(half * keep, fixed["pid"], fixed["tid"], name.codes)
    rows = np.flatnonzero(keep)
    if (np.diff(time[rows]) < 0).any():
        rows = rows[np.argsort(time[rows], kind="stable")]
    # numpy sorts 16 bit numbers by radix
    rows = rows[np.argsort(group[rows].astype(np.uint16) if groups <= 1 << 16 else group[rows], kind="stable")]
    paired = (group[rows[:-1]] == group[rows[1:]]) & ~is_end[rows[:-1]] & is_end[rows[1:]]
    starts, ends = rows[:-1][paired], rows[1:][paired]
    unmatched = len(category) - 2 * len(starts)
    if unmatched:
        message = "marks of the task queue have no counterpart and were left out"
        health.add("unmatched_marks", WARNING, unmatched, message, files.OP_MARK.unsafe)
    sides = []
    for number, side in enumerate(("enqueue", "dequeue")):
        mine = half[starts] == number
        begin, end = starts[mine], ends[mine]
        columns = {
            f"{side}_tid": _to_signed(fixed["tid"][begin]),
            f"{side}_start_ns": time[begin],
            f"{side}_end_ns": time[end],
            "pid": _to_signed(fixed["pid"][begin]),
            "correlation": _to_signed(fixed["correlation"][begin]),
            "name": Texts(name.codes[begin], name.distinct).series("name", NAME),
        }
        sides.append(pl.DataFrame(columns).sort(f"{side}_start_ns", maintain_order=True))
    return _joined_sides(sides[0].drop("name"), sides[1], health)


def _number_row_groups(*columns: npt.NDArray[Any]) -> tuple[Int64Array, int]:
    """A number per row that is equal where all columns are, and a bound above these numbers."""
    group, bound = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        distinct = np.unique(column)
        group, bound = group * len(distinct) + np.searchsorted(distinct, column), bound * len(distinct)
        if bound >> 31:
            # there are no more groups than rows, so the next product fits 64 bits
            distinct = np.unique(group)
            group, bound = np.searchsorted(distinct, group), len(distinct)
    return group, bound


def _joined_sides(enqueues: pl.DataFrame, dequeues: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    """Enqueues and dequeues with the same process and correlation id as rows of ``task_queue``."""
    keys = ["pid", "correlation"]
    if any(side.select(keys).is_duplicated().any() for side in (enqueues, dequeues)):
        # A repeated id pairs first with first, second with second: a plain join would pair each with each.
        nth = pl.int_range(pl.len()).over(keys).alias("nth")
        enqueues, dequeues = enqueues.with_columns(nth), dequeues.with_columns(nth)
        keys.append("nth")
    joined = enqueues.join(dequeues, on=keys, how="full", coalesce=True)
    halves = int((joined["enqueue_tid"].is_null() | joined["dequeue_tid"].is_null()).sum())
    if halves:
        message = "tasks of the queue were recorded on one of its two sides only"
        health.add("half_queued_tasks", INFO, halves, message, files.OP_MARK.unsafe)
    order = pl.coalesce("enqueue_start_ns", "dequeue_start_ns")
    return joined.drop("nth", strict=False).sort(order, maintain_order=True)


def python_calls(folder: Path, clock: Clock, health: HealthLog) -> pl.DataFrame:
    """``python`` from torch.python_tracer_func and torch.python_tracer_hash: one row per call.

    Rows are in order of (pid, tid, start); ids count them and are unique in the run; a call without caller has no parent.
    A call of a module is named ``nn.Module: <class>_<n>``: n (``module_id``) numbers the instances of the class in the
    order in which the thread called them. See ``python_replay.replay`` for how calls and returns are matched.
    """
    events = read_flat(folder, files.PYTHON_CALLS, health)
    if not len(events):
        return pl.DataFrame()
    (time,), plausible = _to_unix_times(clock, [events["time"]], files.PYTHON_CALLS, health)
    if not plausible.all():
        events, time = events[plausible], time[plausible]
    code, names = _call_names(folder, events["key"], health)
    pid, tid, is_call = events["pid"].astype(np.int64), events["tid"].astype(np.int64), events["tag"] % 2 == 0
    # records are the largest part of a capture with stacks: nothing of them is kept that is not needed
    del events
    exits = np.flatnonzero(np.array([name == _EXIT for name in names], dtype=bool))
    calls = replay_calls(time, pid, tid, code, is_call, skipped=np.isin(code, exits) if len(exits) else None)
    del time, pid, tid, code, is_call
    for count, subject in (
        (calls.cut_short, "calls have no return of their own and end with their caller"),
        (calls.unmatched, "returns have no call and were left out"),
    ):
        if count:
            health.add("unbalanced_python_calls", WARNING, count, f"Python {subject}, so records were lost", CALL_STACKS)
    name_code, module_id, texts = _module_names(calls.thread, calls.code, names)
    return pl.DataFrame(
        {
            "id": np.arange(len(calls.code), dtype=np.int64),
            "name": pl.Series(texts, dtype=pl.String).cast(NAME).gather(name_code),
            "start_ns": calls.start,
            "end_ns": calls.end,
            "pid": calls.pid,
            "tid": calls.tid,
            "parent": _null_if_negative(calls.parent),
            "module_id": _null_if_negative(module_id),
        }
    )


def _call_names(folder: Path, keys: npt.NDArray[np.uint64], health: HealthLog) -> tuple[Int64Array, list[str]]:
    """For each key the index of its text, and the texts."""
    records = read_tagged(folder, files.PYTHON_NAMES, health)
    column = records.texts["name"]
    text_of = {
        key: column.distinct[code]
        for key, code in zip(records.fixed["key"].tolist(), column.codes.tolist(), strict=True)
        if code >= 0
    }
    distinct = np.unique(keys)
    names = [text_of.get(key, UNDECODABLE) for key in distinct.tolist()]
    nameless = sum(key not in text_of for key in distinct.tolist())
    if nameless:
        message = f'Python functions have no name in {files.PYTHON_NAMES.prefix} and read as "{UNDECODABLE}"'
        health.add("nameless_python_calls", WARNING, nameless, message, CALL_STACKS)
    # a search among few distinct keys is cheaper than the sort of all by which numpy would number them
    return np.searchsorted(distinct, keys), names


def _module_names(thread: Int64Array, code: Int64Array, names: list[str]) -> tuple[Int64Array, Int64Array, list[str]]:
    """Names of calls where modules are numbered: (index into the texts, number of the instance or -1, the texts)."""
    is_module = np.array([_MODULE_MARK in name for name in names], dtype=bool)
    module_id = np.full(len(code), -1, dtype=np.int64)
    rows = np.flatnonzero(is_module[code]) if len(code) else np.empty(0, dtype=np.int64)
    if not len(rows):
        return code, module_id, names
    instance, first, inverse = np.unique(thread[rows] * len(names) + code[rows], return_index=True, return_inverse=True)
    number_of: dict[tuple[int, str], int] = {}
    number = np.empty(len(instance), dtype=np.int64)
    texts = list(names)
    for position in np.argsort(first, kind="stable").tolist():
        on_thread, of_name = divmod(int(instance[position]), len(names))
        class_name = names[of_name].partition(_MODULE_MARK)[0]
        number[position] = number_of.get((on_thread, class_name), 0)
        number_of[on_thread, class_name] = int(number[position]) + 1
    texts += [
        f"{MODULE_PREFIX}{names[of_name].partition(_MODULE_MARK)[0]}_{of_class}"
        for of_name, of_class in zip((instance % len(names)).tolist(), number.tolist(), strict=True)
    ]
    inverse = inverse.reshape(-1)
    code = code.copy()
    code[rows] = len(names) + inverse
    module_id[rows] = number[inverse]
    return code, module_id, texts


def read_allocator_events(folder: Path, clock: Clock, health: HealthLog, physical_device: int | None) -> pl.DataFrame:
    """``memory`` from torch.memory_usage: the events of the framework's own allocators.

    Events of the CPU have signed sizes and no kind. Events of an external allocator are no part of the totals beside
    them and are left out.
    """
    fixed = read_tagged(folder, files.MEMORY_USAGE, health).fixed
    (time,), plausible = _to_unix_times(clock, [fixed["time"]], files.MEMORY_USAGE, health)
    external = fixed["allocator"] != 0
    if external.any():
        health.add("external_allocator", INFO, int(external.sum()), "events of an external allocator were left out")
    kinds = ((fixed["device_type"], _DEVICE_TYPES), (fixed["component"], _COMPONENTS), (fixed["event"], _EVENTS))
    is_known = np.logical_and.reduce([np.isin(column, list(values)) for column, values in kinds])
    if not is_known.all():
        message = f"records of {files.MEMORY_USAGE.prefix} have an unknown device, component or kind and were left out"
        health.add("unknown_memory_events", WARNING, int((~is_known).sum()), message, MEMORY)
    device_type, component, event = (
        pl.Series(column).replace_strict(values, default=None, return_dtype=pl.String).cast(NAME) for column, values in kinds
    )
    on_cpu = pl.Series(fixed["device_type"] == _CPU)
    device = pl.Series(fixed["device"]).cast(pl.Int32)
    if physical_device is not None:
        device = device.set(pl.Series(fixed["device_type"] == _NPU), physical_device)
    frame = pl.DataFrame(
        {
            "time_ns": time,
            "event": event.set(on_cpu, None),
            "device_type": device_type,
            "device": device,
            "stream": fixed["stream"],
            "pid": _to_signed(fixed["pid"]),
            "tid": _to_signed(fixed["tid"]),
            "component": component,
            **{column: fixed[column] for column in ("address", "bytes", "allocated", "reserved", "active")},
        }
    )
    return _filter_rows(frame, plausible & is_known & ~external)


def read_garbage_collections(folder: Path, clock: Clock, health: HealthLog) -> pl.DataFrame:
    """``gc`` from torch.gc_record; the process's first thread has the process's id, and collections are put there."""
    fixed = read_flat(folder, files.COLLECTIONS, health)
    # the collector takes its times itself, so they may be ns where everything else is a counter
    clock = clock.fitting(fixed["start"].astype(np.int64))
    times, plausible = _to_unix_times(clock, [fixed["start"], fixed["end"]], files.COLLECTIONS, health)
    pid = _to_signed(fixed["pid"])
    return _filter_rows(pl.DataFrame({"start_ns": times[0], "end_ns": times[1], "pid": pid, "tid": pid}), plausible)


def read_parameter_tables(folder: Path, health: HealthLog) -> pl.DataFrame:
    """``source_tables`` rows of torch.param_tensor_info: the parameters of modules and optimizers, as recorded."""
    records = read_tagged(folder, files.PARAMETERS, health)
    columns = {name: [*column.distinct, None] for name, column in records.texts.items()}
    rows = [
        json.dumps({"key": key, "module": columns["module"][module], "optimizer": columns["optimizer"][optimizer]})
        for key, module, optimizer in zip(
            records.fixed["key"].tolist(),
            records.texts["module"].codes.tolist(),
            records.texts["optimizer"].codes.tolist(),
            strict=True,
        )
    ]
    return pl.DataFrame(
        {"table": ["param_tensor_info"] * len(rows), "row": range(len(rows)), "record": rows},
        schema={"table": pl.String, "row": pl.Int32, "record": pl.String},
    )


def _to_unix_times(
    clock: Clock, columns: list[npt.NDArray[Any]], source: files.FlatFormat, health: HealthLog
) -> tuple[list[Int64Array], npt.NDArray[np.bool_]]:
    """The columns as Unix ns, and which rows have times that a clock can show."""
    raw = [column.astype(np.int64) for column in columns]
    plausible = np.logical_and.reduce([clock.covers(column) for column in raw])
    if not plausible.all():
        message = f"records of {source.prefix} have times that no clock can show and were left out"
        health.add("impossible_times", ERROR, int((~plausible).sum()), message, source.unsafe)
        raw = [np.where(plausible, column, 0) for column in raw]
    return [clock.unix_ns(column) for column in raw], plausible


def _filter_rows(frame: pl.DataFrame, keep: npt.NDArray[np.bool_]) -> pl.DataFrame:
    return frame if keep.all() else frame.filter(pl.Series(keep))


def _to_signed(column: npt.NDArray[Any]) -> pl.Series:
    """An unsigned column as Int64."""
    return pl.Series(column.astype(np.int64))


def _replace_missing_names(column: Texts) -> pl.Series:
    """The names, where a record without one reads like one that cannot be decoded."""
    nameless = column.codes < 0
    if nameless.any():
        codes = np.where(nameless, len(column.distinct), column.codes).astype(np.int32)
        column = Texts(codes, [*column.distinct, UNDECODABLE])
    return column.series("name", NAME)


def _without_empty(column: Texts) -> Texts:
    """The column with null for an empty text."""
    if "" not in column.distinct:
        return column
    empty = column.distinct.index("")
    return Texts(np.where(column.codes == empty, -1, column.codes).astype(np.int32), column.distinct)


def _null_if_negative(values: Int64Array) -> pl.Series:
    """Numbers as a column, -1 as null."""
    series = pl.Series(values)
    result: pl.Series = series.set(series < 0, None)
    return result
