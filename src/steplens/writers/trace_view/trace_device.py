"""The layers of trace_view.json below the framework: runtime calls, device tasks, collectives, their overlap, counters.

Clients recognise a layer by exactly the name of its process, so runs on CPU and GPU use the names of an NPU too; the
label of the process says what the device really is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from steplens.analysis.steps.device_work import computing_tasks
from steplens.analysis.tools.overlap import Intervals, merge_intervals, merged, subtract
from steplens.formats import trace_view
from steplens.formats.ascend_terms import CALL_PREFIXES, KERNEL_PREFIX, MODULE_MEMORY, NODE, NOT_AVAILABLE, OLDER_LAYERS, OS_LAYER
from steplens.trace.schema import CORE_CPU, KIND_COMPUTE, KIND_COPY
from steplens.writers.common.json_events import number_member, process_metadata, thread_metadata
from steplens.writers.common.links import hardware_tasks
from steplens.writers.common.output import LEVEL0, LEVEL_NONE, NPU, device_kind, used_devices
from steplens.writers.common.rows import shared_texts, write_rows
from steplens.writers.common.text import json_string
from steplens.writers.device_tasks import device_tasks
from steplens.writers.trace_view.trace_communication import with_lanes, write_communication
from steplens.writers.trace_view.trace_events import View, event_head, write_arrows
from steplens.writers.trace_view.trace_parts import COUNTERS_OF_PART

#: process ids of the other groups: no process id, shifted by the place of a layer, reaches as far
_OTHER_COUNTERS_PID = 1 << 44

#: what the value of a counter without unit is called
_UNNAMED = "value"

_STREAM = pl.col("stream").fill_null(0)


def _runtime_calls(view: View) -> None:
    """Runtime and driver calls with arrows to what they launched; pruned at Level0, as the reference does."""
    calls = view.trace.api
    if calls is None or calls.is_empty() or view.output.level in (LEVEL_NONE, LEVEL0):
        return
    calls = calls.with_columns(pl.col("tid").fill_null(0))
    of_system = pl.col("layer").cast(pl.String).eq_missing(OS_LAYER)
    _write_calls(view, calls.filter(of_system), trace_view.OS_RUNTIME)
    calls = calls.filter(~of_system)
    pid = _write_calls(view, calls, trace_view.CANN)
    linked_calls = calls.lazy().drop_nulls("correlation")
    # of several calls of one task the launch itself is the one of the lowest layer that launches: "node"
    first = (
        linked_calls.sort(pl.col("layer").cast(pl.String) != NODE, maintain_order=True)
        .select("correlation", from_ns="start_ns", from_tid="tid", pid=pl.lit(pid))
        .unique("correlation", keep="first", maintain_order=True)
    )
    pairs = _arrow_ends(view).lazy().drop_nulls("correlation").join(first, on="correlation", maintain_order="left")
    write_arrows(view, pairs.with_row_index("id", 1).collect(), trace_view.HOST_TO_DEVICE, trace_view.HOST_TO_DEVICE)


def _write_calls(view: View, calls: pl.DataFrame, name: str) -> int:
    """A process of runtime calls; returns its id."""
    if calls.is_empty():
        return view.device_pid(trace_view.PLACES[name], trace_view.HOST)
    pid = view.layer(name, trace_view.HOST, "CPU")
    for tid in calls["tid"].unique().sort():
        view.metadata(thread_metadata(pid, tid, f"Thread {tid}"))
    layer_name = pl.col("layer").cast(pl.String).replace(OLDER_LAYERS)
    prefix = layer_name.replace_strict(CALL_PREFIXES, default="", return_dtype=pl.String)
    names = calls.select(pl.concat_str(prefix, pl.col("name").cast(pl.String).fill_null(""))).to_series()
    start = ',"args":{'
    layer = shared_texts(
        calls["layer"], lambda layer: f'{start}"level":{json_string(layer)},"Thread Id":', f'{start}"Thread Id":'
    )
    view.calls(
        calls,
        event_head(names),
        str(pid),
        pl.col("tid"),
        layer,
        pl.col("tid"),
        number_member("connection_id", "correlation", calls),
    )
    return pid


def _device_tasks(view: View) -> None:
    kind = device_kind(view.trace)
    kernels = device_tasks(view.trace).filter(hardware_tasks(view.trace)).collect()
    if kernels.is_empty():
        return
    lanes = kernels.select(pl.col("device").fill_null(0), _STREAM).unique().sort("device", "stream")
    for device in lanes["device"].unique(maintain_order=True):
        view.layer(trace_view.HARDWARE, device, f"{kind} {device}")
    for device, stream in lanes.iter_rows():
        pid = view.device_pid(trace_view.PLACES[trace_view.HARDWARE], device)
        view.metadata(thread_metadata(pid, stream, f"Stream {stream}"))
    types = kernels.select(_task_type()).to_series()
    start, end = f',"args":{{"{trace_view.MEMBERS["task_type"]}":', f',"{trace_view.MEMBERS["physical_stream"]}":'
    core = shared_texts(types.fill_null(NOT_AVAILABLE), lambda core: start + json_string(core) + end)
    view.calls(
        kernels,
        event_head(kernels["name"]),
        view.pids(trace_view.HARDWARE),
        _STREAM,
        core,
        _STREAM,
        (trace_view.MEMBERS["task"], pl.coalesce("task_id", pl.col("id").cast(pl.Int64))),
        number_member(trace_view.MEMBERS["model"], "model_id", kernels),
        number_member(trace_view.MEMBERS["subtask"], "context_id", kernels),
        number_member("connection_id", "correlation", kernels),
    )


def _task_type() -> pl.Expr:
    """What a timeline calls the type of a task: the scheduler's word; the core where that is the word of a database."""
    core, recorded = pl.col("core").cast(pl.String), pl.col("task_type").cast(pl.String)
    return pl.coalesce(pl.when(~recorded.str.starts_with(KERNEL_PREFIX)).then(recorded), core, recorded)


def _arrow_ends(view: View) -> pl.DataFrame:
    """Where an arrow to a device task ends: correlation, op, start_ns, to_pid and to_tid.

    On an NPU a collective is drawn on the lane of its group, elsewhere among the device tasks.
    """
    tasks = device_tasks(view.trace)
    ends = [pl.col("correlation", "op", "start_ns"), view.pids(trace_view.HARDWARE).alias("to_pid"), _STREAM.alias("to_tid")]
    if device_kind(view.trace) != NPU:
        return tasks.select(ends).collect()
    tasks = tasks.filter(pl.col("kind").cast(pl.String).is_in([KIND_COMPUTE, KIND_COPY]))
    calls = with_lanes(view)
    collectives = calls.select(
        "correlation", "op", "start_ns", to_pid=view.pids(trace_view.COMMUNICATION), to_tid=pl.col("lane").cast(pl.Int64)
    )
    return pl.concat([tasks.select(ends).collect(), collectives])


def _write_launch_arrows(view: View) -> None:
    """An arrow from the operator call to each device task that it launched.

    MindSpore's launches on a CPU are call and task at once: an arrow of each to itself would be a fifth of the file.
    """
    ops = view.trace.ops
    is_mindspore = str(view.trace.meta_value("source_format")).startswith("mindspore")
    if ops is None or (is_mindspore and device_kind(view.trace) == CORE_CPU):
        return
    launched = _arrow_ends(view).filter((pl.col("op") >= 0) & (pl.col("op") < ops.height)).with_row_index("id", 1)
    columns = {"from_ns": "start_ns", "from_tid": "tid", "pid": "pid"}
    launched = launched.with_columns(**{name: ops[column].gather(launched["op"]) for name, column in columns.items()})
    write_arrows(view, launched, "torch_to_npu", trace_view.OPERATOR_TO_DEVICE)


def overlap_lanes(device: int, computing: pl.LazyFrame, communication: pl.LazyFrame) -> tuple[Intervals, ...]:
    """The lanes of one device, as in ``OVERLAP_LANES``: merged computing, merged communication, its uncovered part, gaps."""
    computes, communicates = _busy_intervals(computing, device), _busy_intervals(communication, device)
    return computes, communicates, subtract(communicates, computes), _idle_intervals(computes, communicates)


def _write_overlap_lanes(view: View) -> None:
    """Four lanes per device: merged computing, merged communication, its uncovered part, and what neither covers."""
    for device in used_devices(view.trace):
        lanes = overlap_lanes(device, computing_tasks(view.trace), view.trace.required("communication"))
        pid = view.layer(trace_view.OVERLAP, device, f"{device_kind(view.trace)} {device}")
        for tid, (name, intervals) in enumerate(zip(trace_view.OVERLAP_LANES, lanes, strict=True)):
            view.metadata(thread_metadata(pid, tid, name))
            spans = pl.DataFrame({"start_ns": intervals.start, "end_ns": intervals.end})
            view.calls(spans, f', {{"ph":"X","name":"{name}","pid":', str(pid), str(tid))


def _busy_intervals(tasks: pl.LazyFrame, device: int) -> Intervals:
    return merged(tasks.filter(pl.col("device").fill_null(0) == device).select("start_ns", "end_ns").collect())


def _idle_intervals(computing: Intervals, communication: Intervals) -> Intervals:
    """From the first task to the last, what neither set covers."""
    busy = merge_intervals(*(np.concatenate(pair) for pair in zip(computing, communication, strict=True)))
    return Intervals(busy.end[:-1], busy.start[1:])


def _write_counters(view: View) -> None:
    """Samples of bandwidth, memory, frequency ...: a process per group and device, a track per counter."""
    samples = view.trace.required("counters").filter(pl.col("value").is_finite()).collect()
    samples = samples.with_columns(
        pl.col("device").fill_null(0), pl.col("group", "name", "unit").cast(pl.String).fill_null("")
    ).filter(pl.col("group") != MODULE_MEMORY)
    if samples.is_empty():
        return
    kind = device_kind(view.trace)
    groups = samples.select("group", "device").unique(maintain_order=True)
    pids, other = [], _OTHER_COUNTERS_PID + view.part.number * COUNTERS_OF_PART
    for group, device in groups.iter_rows():
        place = trace_view.COUNTER_PLACES.get(group)
        other += place is None
        pids.append(other if place is None else view.device_pid(place, device))
        view.metadata(process_metadata(pids[-1], group, f"{kind} {device}", trace_view.LAST_PLACE if place is None else place))
        view.metadata(thread_metadata(pids[-1], 0, group))
    samples = samples.join(groups.with_columns(counter_pid=pl.Series(pids)), on=["group", "device"], maintain_order="left")
    names = shared_texts(samples["name"], lambda name: f', {{"ph":"C","name":{json_string(name)},"pid":')
    keys = samples.select(pl.concat_str("name", pl.lit("\0"), "unit")).to_series()
    members = shared_texts(keys, lambda key: f',"args":{{{json_string(_counter_member(*key.rsplit(chr(0), 1)))}:')
    ts = view.ts("time_ns")
    write_rows(view.handle, samples, names, pl.col("counter_pid"), ',"tid":0,"ts":', ts, members, pl.col("value"), "}}")


def _counter_member(name: str, unit: str) -> str:
    """What the value of a counter is called: ``Read(MB/s)`` of ``HBM 0/Read``, ``KB`` of ``APP/DDR``."""
    if "/" in unit or unit == "%":
        return f"{name.rpartition('/')[2]}({unit})"
    return unit or _UNNAMED


LAYERS: tuple[Callable[[View], None], ...] = (
    _runtime_calls,
    _device_tasks,
    write_communication,
    _write_overlap_lanes,
    _write_counters,
    _write_launch_arrows,
)
