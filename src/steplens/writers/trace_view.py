"""trace_view.json: the timeline, an array of Chrome trace events that MindStudio Insight and Perfetto open.

Layers, each with a process of its own: the framework ("Python"), garbage collection ("Python GC"), runtime calls
("CANN"), device tasks ("Ascend Hardware"), collectives ("Communication") and the overlap of the two ("Overlap
Analysis"). Clients recognise a layer by exactly these process names, so CPU and CUDA runs use them too; the label of
the process says what the device really is.

The file is one line. Every event but the first, a metadata event that holds the time base, starts with a comma.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from steplens.analysis.overlap import Intervals, merge_intervals, subtract
from steplens.analysis.steps import computing_tasks
from steplens.trace.schema import CORE_CPU, SCOPE_MODULE
from steplens.trace.trace import Trace
from steplens.writers.output import LEVEL0, LEVEL_NONE, TIME_BASE_KEY, NothingToWriteError, Output, devices, main_pid
from steplens.writers.text import joined, microseconds, render_distinct, write_rows

FREE = "Free"
OVERLAP_LANES = ("Computing", "Communication", "Communication(Not Overlapped)", FREE)

#: device field of a process id that belongs to the host
_HOST = 31

_GC_SORT = 1
_CANN_SORT = 7
_HARDWARE_SORT = 14
_COMMUNICATION_SORT = 16
_OVERLAP_SORT = 31


def write(output: Output, path: Path) -> None:
    """Write trace_view.json; ``ts`` and ``dur`` are numbers of µs, ``ts`` after the time base, exact to the ns."""
    with path.open("wb") as handle:
        write_events(output, handle)


def write_events(output: Output, handle: IO[bytes]) -> None:
    """Write the whole array to an open binary file; see ``write``."""
    trace = output.trace
    view = _View(output, handle, main_pid(trace))
    if not any(trace.required(table).select(pl.len()).collect().item() for table in _EVENT_TABLES):
        raise NothingToWriteError("the trace has no events")
    handle.write(b"[" + json.dumps(_metadata(TIME_BASE_KEY, view.pid, 0, base_time_ns=output.base_ns)).encode())
    for write_layer in _LAYERS:
        write_layer(view)
    handle.write(b"]")


_EVENT_TABLES = ("ops", "python", "gc", "kernels", "communication", "api", "marks")


@dataclass(frozen=True)
class _View:
    """One trace_view being written."""

    output: Output
    handle: IO[bytes]
    pid: int

    @property
    def trace(self) -> Trace:
        return self.output.trace

    def ts(self, column: str) -> pl.Expr:
        return microseconds(pl.col(column) - self.output.base_ns)

    def rows(self, frame: pl.DataFrame, *cells: str | pl.Expr | pl.Series) -> None:
        write_rows(self.handle, frame, cells)

    def metadata(self, events: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
        for event in events:
            self.handle.write(b", " + json.dumps(event, ensure_ascii=False).encode())

    def device_pid(self, sort: int, device: int) -> int:
        return self.pid << 10 | sort << 5 | device


_DURATION = microseconds(pl.col("end_ns") - pl.col("start_ns"))


def _metadata(kind: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _process(pid: int, name: str, label: str, sort: int) -> list[dict[str, Any]]:
    return [
        _metadata("process_name", pid, 0, name=name),
        _metadata("process_labels", pid, 0, labels=label),
        _metadata("process_sort_index", pid, 0, sort_index=sort),
    ]


def _thread(pid: int, tid: int, name: str, sort: int | None = None) -> list[dict[str, Any]]:
    return [
        _metadata("thread_name", pid, tid, name=name),
        _metadata("thread_sort_index", pid, tid, sort_index=tid if sort is None else sort),
    ]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _head(names: pl.Series, category: str = "") -> pl.Series:
    """Start of a complete event up to its pid; one text per distinct name."""
    middle = f',"cat":"{category}","pid":' if category else ',"pid":'
    head = ', {"ph":"X","name":'
    return render_distinct(names, lambda name: head + _quoted(name) + middle, f'{head}""{middle}')


def _list_argument(key: str, values: pl.Series) -> pl.Series | str:
    """`,"key":"..."` for rows that know the value, nothing for the others."""
    if values.null_count() == len(values):
        return ""
    return render_distinct(values, lambda text: f',"{key}":{_quoted(joined(text))}' if text else "", "")


def _number_argument(key: str, column: str, frame: pl.DataFrame) -> pl.Expr | str:
    """Like ``_list_argument`` for a column of integers."""
    if frame[column].null_count() == frame.height:
        return ""
    return pl.format(f',"{key}":{{}}', column).fill_null("")


def _operators(view: _View) -> None:
    ops = view.trace.ops
    if ops is None:
        return
    calls = ops.filter(pl.col("scope").fill_null(0) != SCOPE_MODULE)
    view.rows(
        calls,
        _head(calls["name"], "cpu_op"),
        pl.col("pid"),
        ',"tid":',
        pl.col("tid"),
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        _DURATION,
        ',"args":{"Sequence number":',
        pl.col("sequence").fill_null(-1),
        ',"Fwd thread id":',
        pl.col("forward_tid").fill_null(0),
        _list_argument("Input Dims", calls["input_shapes"]),
        _list_argument("Input type", calls["input_types"]),
        _list_argument("Call stack", calls["stack"]),
        _list_argument("Module Hierarchy", calls["module"]),
        _number_argument("flops", "flops", calls),
        "}}",
    )


def _framework_lanes(view: _View) -> None:
    """Names of the framework's processes and threads."""
    lanes = pl.concat(
        view.trace.required(table).select(pl.col("pid").fill_null(view.pid), "tid").unique() for table in ("ops", "python")
    )
    pairs = lanes.unique().drop_nulls().sort("pid", "tid").collect()
    for pid in pairs["pid"].unique(maintain_order=True):
        view.metadata(_process(pid, "Python", "CPU", 0))
    for pid, tid in pairs.iter_rows():
        view.metadata(_thread(pid, tid, f"Thread {tid}"))


def _forward_backward(view: _View) -> None:
    """An arrow from the latest forward call of a sequence number to each backward call of it on another thread."""
    calls = (
        view.trace.required("ops")
        .filter(pl.col("sequence") >= 0)
        .select("start_ns", "pid", "tid", "sequence", backward=pl.col("forward_tid").fill_null(0) > 0)
        .sort("start_ns", maintain_order=True)
    )
    forward = calls.filter(~pl.col("backward")).select("pid", "sequence", from_ns="start_ns", from_tid="tid")
    pairs = (
        calls.filter("backward")
        .join_asof(
            forward,
            left_on="start_ns",
            right_on="from_ns",
            by=["pid", "sequence"],
            strategy="backward",
            allow_exact_matches=False,
            coalesce=False,
            check_sortedness=False,
        )
        .filter(pl.col("from_ns").is_not_null() & (pl.col("from_tid") != pl.col("tid")))
        .with_row_index("id", 1)
        .collect()
    )
    _arrows(view, pairs, "fwdbwd", "fwdbwd", to_pid=pl.col("pid"), to_tid=pl.col("tid"))


def _arrows(view: _View, pairs: pl.DataFrame, name: str, category: str, to_pid: pl.Expr, to_tid: pl.Expr) -> None:
    """Both ends of every arrow, in one row: id, from pid/from_tid/from_ns, to to_pid/to_tid/start_ns."""
    fixed = f'"bp":"e","name":"{name}","cat":"{category}","id":'
    view.rows(
        pairs,
        f', {{"ph":"s",{fixed}',
        pl.col("id"),
        ',"pid":',
        pl.col("pid"),
        ',"tid":',
        pl.col("from_tid"),
        ',"ts":',
        view.ts("from_ns"),
        f'}}, {{"ph":"f",{fixed}',
        pl.col("id"),
        ',"pid":',
        to_pid,
        ',"tid":',
        to_tid,
        ',"ts":',
        view.ts("start_ns"),
        "}",
    )


def _python_functions(view: _View) -> None:
    frames = view.trace.python
    if frames is None:
        return
    view.rows(
        frames,
        _head(frames["name"], "python_function"),
        pl.col("pid").fill_null(view.pid),
        ',"tid":',
        pl.col("tid"),
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        _DURATION,
        ',"args":{"Python id":',
        pl.col("id"),
        ',"Python parent id":',
        pl.when(pl.col("parent") >= 0).then("parent"),
        _number_argument("Python module id", "module_id", frames),
        "}}",
    )


def _modules(view: _View) -> None:
    """Module calls seen by hooks, as Python functions; their parent is the enclosing module call."""
    ops = view.trace.ops
    if ops is None or not (ops["scope"] == SCOPE_MODULE).any():
        return
    is_module = (ops["scope"] == SCOPE_MODULE).fill_null(False).to_numpy()
    above = ops["parent"].fill_null(-1).to_numpy()
    modules = ops.filter(pl.Series(is_module))
    parent = above[is_module]
    while True:
        climbing = (parent >= 0) & ~is_module[parent]
        if not climbing.any():
            break
        parent = np.where(climbing, above[parent], parent)
    # Ids are unique in the run: those of the Python frames come first.
    first_id = (view.trace.required("python").select(pl.col("id").max()).collect().item() or 0) + 1
    view.rows(
        modules,
        _head(modules["name"], "python_function"),
        pl.col("pid"),
        ',"tid":',
        pl.col("tid"),
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        _DURATION,
        ',"args":{"Python id":',
        pl.col("id").cast(pl.Int64) + first_id,
        ',"Python parent id":',
        pl.select(pl.when(pl.lit(pl.Series(parent)) >= 0).then(pl.lit(pl.Series(parent)) + first_id)).to_series(),
        "}}",
    )


def _garbage_collections(view: _View) -> None:
    collections = view.trace.gc
    if collections is None or collections.is_empty():
        return
    device = min(devices(view.trace), default=_HOST) if view.trace.has_accelerator else _HOST
    pid = view.device_pid(_GC_SORT, device)
    view.metadata(_process(pid, "Python GC", "CPU", _GC_SORT) + _thread(pid, view.pid, f"Thread {view.pid}"))
    view.rows(
        collections,
        f', {{"ph":"X","name":"GC","cat":"GC","pid":{pid},"tid":{view.pid},"ts":',
        view.ts("start_ns"),
        ',"dur":',
        _DURATION,
        ',"args":{}}',
    )


def device_kind(trace: Trace) -> str:
    """What the devices of the run are: "CPU", "CUDA" or "NPU"; the label of their lanes."""
    cores = trace.required("kernels").select(pl.col("core").cast(pl.String).unique().drop_nulls()).collect()["core"].to_list()
    other = [core for core in cores if core != CORE_CPU]
    if not other:
        return "CPU"
    return "CUDA" if any("CUDA" in core.upper() or "GPU" in core.upper() for core in other) else "NPU"


def _device_tasks(view: _View) -> None:
    kernels = view.trace.kernels
    if kernels is None or kernels.is_empty():
        return
    kind = device_kind(view.trace)
    lanes = kernels.select(pl.col("device").fill_null(0), pl.col("stream").fill_null(0)).unique().sort("device", "stream")
    for device in lanes["device"].unique(maintain_order=True):
        view.metadata(_process(view.device_pid(_HARDWARE_SORT, device), "Ascend Hardware", f"{kind} {device}", _HARDWARE_SORT))
    for device, stream in lanes.iter_rows():
        view.metadata(_thread(view.device_pid(_HARDWARE_SORT, device), stream, f"Stream {stream}"))
    core = render_distinct(kernels["core"], lambda core: f',"args":{{"Task Type":{_quoted(core)},"Physic Stream Id":')
    view.rows(
        kernels,
        _head(kernels["name"]),
        _hardware_pid(view),
        ',"tid":',
        _STREAM,
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        _DURATION,
        core.fill_null(',"args":{"Task Type":"N/A","Physic Stream Id":'),
        _STREAM,
        ',"Task Id":',
        pl.col("id"),
        _number_argument("connection_id", "correlation", kernels),
        "}}",
    )


_STREAM = pl.col("stream").fill_null(0)


def _hardware_pid(view: _View) -> pl.Expr:
    return pl.lit(view.device_pid(_HARDWARE_SORT, 0)) + pl.col("device").fill_null(0).cast(pl.Int64)


def _launches(view: _View) -> None:
    """An arrow from the operator call to each device task that it launched."""
    kernels, ops = view.trace.kernels, view.trace.ops
    if kernels is None or ops is None:
        return
    launched = kernels.filter((pl.col("op") >= 0) & (pl.col("op") < ops.height)).with_row_index("id_", 1)
    launched = launched.select(
        pl.col("id_").alias("id"),
        "start_ns",
        "device",
        "stream",
        ops["start_ns"].gather(launched["op"]).alias("from_ns"),
        ops["tid"].gather(launched["op"]).alias("from_tid"),
        ops["pid"].gather(launched["op"]).alias("pid"),
    )
    _arrows(view, launched, "torch_to_npu", "async_npu", to_pid=_hardware_pid(view), to_tid=_STREAM)


def _runtime_calls(view: _View) -> None:
    """Runtime and driver calls; pruned at Level0, as the reference does."""
    calls = view.trace.api
    if calls is None or calls.is_empty() or view.output.level in (LEVEL_NONE, LEVEL0):
        return
    pid = view.device_pid(_CANN_SORT, _HOST)
    view.metadata(_process(pid, "CANN", "CPU", _CANN_SORT))
    for tid in calls["tid"].drop_nulls().unique().sort():
        view.metadata(_thread(pid, tid, f"Thread {tid}"))
    head = ',"args":{'
    layer = render_distinct(calls["layer"], lambda layer: f'{head}"level":{_quoted(layer)},"Thread Id":', f'{head}"Thread Id":')
    view.rows(
        calls,
        _head(calls["name"]),
        f'{pid},"tid":',
        pl.col("tid"),
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        _DURATION,
        layer,
        pl.col("tid"),
        _number_argument("connection_id", "correlation", calls),
        "}}",
    )
    kernels = (
        view.trace.required("kernels")
        .filter(pl.col("correlation").is_not_null())
        .select("correlation", "start_ns", "device", "stream")
    )
    first = (
        view.trace.required("api")
        .filter(pl.col("correlation").is_not_null())
        .select("correlation", from_ns="start_ns", from_tid="tid", pid=pl.lit(pid))
    )
    pairs = kernels.join(first.unique("correlation", keep="first", maintain_order=True), on="correlation", maintain_order="left")
    _arrows(
        view, pairs.with_row_index("id", 1).collect(), "HostToDevice", "HostToDevice", to_pid=_hardware_pid(view), to_tid=_STREAM
    )


def _communication(view: _View) -> None:
    calls = view.trace.communication
    if calls is None or calls.is_empty():
        return
    calls = calls.with_columns(pl.col("device").fill_null(0), group_text=pl.col("group").cast(pl.String).fill_null(""))
    lanes = calls.select("device", "group_text").unique(maintain_order=True)
    lanes = lanes.with_columns(lane=pl.int_range(pl.len()).over("device"))
    kind = device_kind(view.trace)
    for device in lanes["device"].unique().sort():
        pid = view.device_pid(_COMMUNICATION_SORT, device)
        view.metadata(_process(pid, "Communication", f"{kind} {device}", _COMMUNICATION_SORT))
    for device, group, lane in lanes.iter_rows():
        name = f"Group {group} Communication" if group else f"Group {lane} Communication"
        view.metadata(_thread(view.device_pid(_COMMUNICATION_SORT, device), lane, name))
    calls = calls.join(lanes, on=["device", "group_text"], maintain_order="left")
    view.rows(
        calls,
        _head(calls["name"]),
        pl.lit(view.device_pid(_COMMUNICATION_SORT, 0)) + pl.col("device").cast(pl.Int64),
        ',"tid":',
        pl.col("lane"),
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        _DURATION,
        render_distinct(calls["kind"], lambda kind: f',"args":{{"kind":{_quoted(kind)}', ',"args":{"kind":"N/A"'),
        _list_argument("group", calls["group"]),
        _list_argument("data_type", calls["dtype"]),
        _number_argument("ranks", "ranks", calls),
        _number_argument("size(Byte)", "bytes", calls),
        "}}",
    )


def _overlap(view: _View) -> None:
    """Four lanes per device: merged computing, merged communication, its uncovered part, and what neither covers."""
    for device in devices(view.trace):
        computing = _busy(computing_tasks(view.trace), device)
        communication = _busy(view.trace.required("communication"), device)
        lanes = (computing, communication, subtract(communication, computing), _gaps(computing, communication))
        pid = view.device_pid(_OVERLAP_SORT, device)
        view.metadata(_process(pid, "Overlap Analysis", f"{device_kind(view.trace)} {device}", _OVERLAP_SORT))
        for tid, (name, intervals) in enumerate(zip(OVERLAP_LANES, lanes, strict=True)):
            view.metadata(_thread(pid, tid, name))
            view.rows(
                pl.DataFrame({"start_ns": intervals.start, "end_ns": intervals.end}),
                f', {{"ph":"X","name":"{name}","pid":{pid},"tid":{tid},"ts":',
                view.ts("start_ns"),
                ',"dur":',
                _DURATION,
                "}",
            )


def _busy(tasks: pl.LazyFrame, device: int) -> Intervals:
    spans = tasks.filter(pl.col("device").fill_null(0) == device).select("start_ns", "end_ns").collect()
    return merge_intervals(spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy())


def _gaps(computing: Intervals, communication: Intervals) -> Intervals:
    """From the first task to the last, what neither set covers."""
    busy = merge_intervals(*(np.concatenate(pair) for pair in zip(computing, communication, strict=True)))
    return Intervals(busy.end[:-1], busy.start[1:])


_LAYERS: tuple[Callable[[_View], None], ...] = (
    _framework_lanes,
    _operators,
    _forward_backward,
    _python_functions,
    _modules,
    _garbage_collections,
    _runtime_calls,
    _device_tasks,
    _communication,
    _overlap,
    _launches,
)
