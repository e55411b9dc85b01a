"""The layers of trace_view.json below the framework: runtime calls, device tasks, collectives, their overlap, counters.

Clients recognise a layer by exactly the name of its process, so runs on CPU and GPU use the names of an NPU too; the
label of the process says what the device really is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from steplens.analysis.steps.work import computing_tasks
from steplens.analysis.tools.overlap import Intervals, merge_intervals, merged, subtract
from steplens.formats.ascend_terms import CALL_PREFIXES, KERNEL_PREFIX, MODULE_MEMORY, NODE, NOT_AVAILABLE, OLDER_LAYERS, OS_LAYER
from steplens.trace.schema import CORE_CPU, KIND_COMPUTE, KIND_COPY
from steplens.trace.trace import Trace
from steplens.writers.common.links import hardware_tasks
from steplens.writers.common.output import LEVEL0, LEVEL_NONE, NPU, device_kind, used_devices
from steplens.writers.common.rows import shared
from steplens.writers.device_tasks import device_tasks
from steplens.writers.trace_view.trace_communication import COMMUNICATION_SORT, with_lanes, write_communication
from steplens.writers.trace_view.trace_events import (
    DURATION,
    HOST,
    View,
    arrows,
    head,
    number_argument,
    process,
    quoted,
    thread,
)

FREE = "Free"
OVERLAP_LANES = ("Computing", "Communication", "Communication(Not Overlapped)", FREE)

_CANN_SORT = 7
_OS_SORT = 13
_HARDWARE_SORT = 14
_OVERLAP_SORT = 31

#: calls of the operating system are a process of their own
_OS_PROCESS = "OS Runtime API"

#: place of the process of each group of counters; the others come behind everything
_COUNTER_SORTS = {
    "CPU Usage": 9,
    "Memory Usage": 10,
    "Network Usage": 11,
    "Disk Usage": 12,
    "AI Core Freq": 15,
    "NPU MEM": 17,
    "DDR": 18,
    "Acc PMU": 19,
    "HCCS": 20,
    "NIC": 21,
    "RoCE": 22,
    "PCIe": 23,
    "HBM": 24,
    "Stars Soc Info": 25,
    "Stars Chip Trans": 26,
    "LLC": 27,
    "SIO": 28,
    "QoS": 29,
}
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
    _write_calls(view, calls.filter(of_system), _OS_PROCESS, _OS_SORT)
    calls = calls.filter(~of_system)
    pid = _write_calls(view, calls, "CANN", _CANN_SORT)
    known = calls.lazy().drop_nulls("correlation")
    # of several calls of one task the launch itself is the one of the lowest layer that launches: "node"
    first = (
        known.sort(pl.col("layer").cast(pl.String) != NODE, maintain_order=True)
        .select("correlation", from_ns="start_ns", from_tid="tid", pid=pl.lit(pid))
        .unique("correlation", keep="first", maintain_order=True)
    )
    pairs = _targets(view).lazy().drop_nulls("correlation").join(first, on="correlation", maintain_order="left")
    _to_device(view, pairs.with_row_index("id", 1).collect(), "HostToDevice", "HostToDevice")


def _write_calls(view: View, calls: pl.DataFrame, name: str, sort: int) -> int:
    """A process of runtime calls; returns its id."""
    pid = view.device_pid(sort, HOST)
    if calls.is_empty():
        return pid
    view.metadata(process(pid, name, "CPU", sort))
    for tid in calls["tid"].unique().sort():
        view.metadata(thread(pid, tid, f"Thread {tid}"))
    layer_name = pl.col("layer").cast(pl.String).replace(OLDER_LAYERS)
    prefix = layer_name.replace_strict(CALL_PREFIXES, default="", return_dtype=pl.String)
    names = calls.select(pl.concat_str(prefix, pl.col("name").cast(pl.String).fill_null(""))).to_series()
    start = ',"args":{'
    layer = shared(calls["layer"], lambda layer: f'{start}"level":{quoted(layer)},"Thread Id":', f'{start}"Thread Id":')
    view.rows(
        calls,
        head(names),
        f'{pid},"tid":',
        pl.col("tid"),
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        DURATION,
        layer,
        pl.col("tid"),
        number_argument("connection_id", "correlation", calls),
        "}}",
    )
    return pid


def _device_tasks(view: View) -> None:
    kind = device_kind(view.trace)
    kernels = device_tasks(view.trace).filter(hardware_tasks(view.trace)).collect()
    if kernels.is_empty():
        return
    lanes = kernels.select(pl.col("device").fill_null(0), _STREAM).unique().sort("device", "stream")
    for device in lanes["device"].unique(maintain_order=True):
        view.metadata(process(view.device_pid(_HARDWARE_SORT, device), "Ascend Hardware", f"{kind} {device}", _HARDWARE_SORT))
    for device, stream in lanes.iter_rows():
        view.metadata(thread(view.device_pid(_HARDWARE_SORT, device), stream, f"Stream {stream}"))
    types = kernels.select(_task_type()).to_series()
    core = shared(types.fill_null(NOT_AVAILABLE), lambda core: f',"args":{{"Task Type":{quoted(core)},"Physic Stream Id":')
    view.rows(
        kernels,
        head(kernels["name"]),
        _hardware_pid(view),
        ',"tid":',
        _STREAM,
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        DURATION,
        core,
        _STREAM,
        ',"Task Id":',
        pl.coalesce("task_id", pl.col("id").cast(pl.Int64)),
        number_argument("Model Id", "model_id", kernels),
        number_argument("Subtask Id", "context_id", kernels),
        number_argument("connection_id", "correlation", kernels),
        "}}",
    )


def _task_type() -> pl.Expr:
    """What a timeline calls the type of a task: the scheduler's word; the core where that is the word of a database."""
    core, recorded = pl.col("core").cast(pl.String), pl.col("task_type").cast(pl.String)
    return pl.coalesce(pl.when(~recorded.str.starts_with(KERNEL_PREFIX)).then(recorded), core, recorded)


def _hardware_pid(view: View) -> pl.Expr:
    return pl.lit(view.device_pid(_HARDWARE_SORT, 0)) + pl.col("device").fill_null(0).cast(pl.Int64)


def _targets(view: View) -> pl.DataFrame:
    """Where an arrow to a device task ends: correlation, op, start_ns, to_pid and to_tid.

    On an NPU a collective is drawn on the lane of its group, elsewhere among the device tasks.
    """
    tasks = device_tasks(view.trace)
    ends = [pl.col("correlation", "op", "start_ns"), _hardware_pid(view).alias("to_pid"), _STREAM.alias("to_tid")]
    if device_kind(view.trace) != NPU:
        return tasks.select(ends).collect()
    tasks = tasks.filter(pl.col("kind").cast(pl.String).is_in([KIND_COMPUTE, KIND_COPY]))
    pid = pl.lit(view.device_pid(COMMUNICATION_SORT, 0)) + pl.col("device").cast(pl.Int64)
    calls = with_lanes(view)
    collectives = calls.select("correlation", "op", "start_ns", to_pid=pid, to_tid=pl.col("lane").cast(pl.Int64))
    return pl.concat([tasks.select(ends).collect(), collectives])


def _to_device(view: View, pairs: pl.DataFrame, name: str, category: str) -> None:
    arrows(view, pairs, name, category, to_pid=pl.col("to_pid"), to_tid=pl.col("to_tid"))


def _launches(view: View) -> None:
    """An arrow from the operator call to each device task that it launched.

    MindSpore's launches on a CPU are call and task at once: an arrow of each to itself would be a fifth of the file.
    """
    ops = view.trace.ops
    if ops is None or _launches_are_tasks(view.trace):
        return
    launched = _targets(view).filter((pl.col("op") >= 0) & (pl.col("op") < ops.height)).with_row_index("id", 1)
    launched = launched.with_columns(
        ops["start_ns"].gather(launched["op"]).alias("from_ns"),
        ops["tid"].gather(launched["op"]).alias("from_tid"),
        ops["pid"].gather(launched["op"]).alias("pid"),
    )
    _to_device(view, launched, "torch_to_npu", "async_npu")


def _launches_are_tasks(trace: Trace) -> bool:
    return device_kind(trace) == CORE_CPU and str(trace.meta_values().get("source_format", "")).startswith("mindspore")


def overlap_lanes(device: int, computing: pl.LazyFrame, communication: pl.LazyFrame) -> tuple[Intervals, ...]:
    """The lanes of one device, as in ``OVERLAP_LANES``: merged computing, merged communication, its uncovered part, gaps."""
    computes, communicates = _busy(computing, device), _busy(communication, device)
    return computes, communicates, subtract(communicates, computes), _gaps(computes, communicates)


def _overlap(view: View) -> None:
    """Four lanes per device: merged computing, merged communication, its uncovered part, and what neither covers."""
    for device in used_devices(view.trace):
        lanes = overlap_lanes(device, computing_tasks(view.trace), view.trace.required("communication"))
        pid = view.device_pid(_OVERLAP_SORT, device)
        view.metadata(process(pid, "Overlap Analysis", f"{device_kind(view.trace)} {device}", _OVERLAP_SORT))
        for tid, (name, intervals) in enumerate(zip(OVERLAP_LANES, lanes, strict=True)):
            view.metadata(thread(pid, tid, name))
            view.rows(
                pl.DataFrame({"start_ns": intervals.start, "end_ns": intervals.end}),
                f', {{"ph":"X","name":"{name}","pid":{pid},"tid":{tid},"ts":',
                view.ts("start_ns"),
                ',"dur":',
                DURATION,
                "}",
            )


def _busy(tasks: pl.LazyFrame, device: int) -> Intervals:
    spans = tasks.filter(pl.col("device").fill_null(0) == device).select("start_ns", "end_ns").collect()
    return merged(spans)


def _gaps(computing: Intervals, communication: Intervals) -> Intervals:
    """From the first task to the last, what neither set covers."""
    busy = merge_intervals(*(np.concatenate(pair) for pair in zip(computing, communication, strict=True)))
    return Intervals(busy.end[:-1], busy.start[1:])


def _counters(view: View) -> None:
    """Samples of bandwidth, memory, frequency ...: a process per group and device, a track per counter."""
    samples = view.trace.required("counters").filter(pl.col("value").is_finite()).collect()
    samples = samples.with_columns(
        pl.col("device").fill_null(0), pl.col("group", "name", "unit").cast(pl.String).fill_null("")
    ).filter(pl.col("group") != MODULE_MEMORY)
    if samples.is_empty():
        return
    kind = device_kind(view.trace)
    groups = samples.select("group", "device").unique(maintain_order=True)
    pids, other = [], _OTHER_COUNTERS_PID + view.part.first_counter
    for group, device in groups.iter_rows():
        sort = _COUNTER_SORTS.get(group)
        other += sort is None
        pids.append(other if sort is None else view.device_pid(sort, device))
        view.metadata(process(pids[-1], group, f"{kind} {device}", 36 if sort is None else sort))
        view.metadata(thread(pids[-1], 0, group))
    samples = samples.join(groups.with_columns(counter_pid=pl.Series(pids)), on=["group", "device"], maintain_order="left")
    names = shared(samples["name"], lambda name: f', {{"ph":"C","name":{quoted(name)},"pid":')
    keys = samples.select(pl.concat_str("name", pl.lit("\0"), "unit")).to_series()
    members = shared(keys, lambda key: f',"args":{{{quoted(_member(*key.rsplit(chr(0), 1)))}:')
    view.rows(
        samples,
        names,
        pl.col("counter_pid"),
        ',"tid":0,"ts":',
        view.ts("time_ns"),
        members,
        pl.col("value"),
        "}}",
    )


def _member(name: str, unit: str) -> str:
    """What the value of a counter is called: ``Read(MB/s)`` of ``HBM 0/Read``, ``KB`` of ``APP/DDR``."""
    if "/" in unit or unit == "%":
        return f"{name.rpartition('/')[2]}({unit})"
    return unit or _UNNAMED


LAYERS: tuple[Callable[[View], None], ...] = (
    _runtime_calls,
    _device_tasks,
    write_communication,
    _overlap,
    _counters,
    _launches,
)
