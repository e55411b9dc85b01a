"""The device's tables of a profiler database: tasks, what is known of them, collectives, runtime calls, marks, overlap.

On CPU and GPU the same tables hold the tasks of these devices.
"""

from __future__ import annotations

import polars as pl

from steplens.analysis.steps.device_work import computing_tasks
from steplens.formats import ascend_database as layout
from steplens.formats import ascend_terms as terms
from steplens.formats.ascend_database import API_TYPES, MARK_TYPES, MEMCPY_OPERATIONS, NO_TYPE
from steplens.formats.ascend_terms import MEMCPY, NO_NUMBER, NOT_AVAILABLE, OS_LAYER
from steplens.trace.schema import CORE_CPU, KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY, MARK_KINDS
from steplens.trace.trace import Trace
from steplens.writers.common.links import Connections, hardware_tasks, inner_tasks, mark_kind
from steplens.writers.common.metrics import metric_rows
from steplens.writers.common.output import NPU, Output, device_kind, used_devices, with_own_types
from steplens.writers.common.text import map_distinct
from steplens.writers.database.database_file import DatabaseFile
from steplens.writers.database.database_framework import global_tid
from steplens.writers.trace_view.trace_device import overlap_lanes

_DEFAULT_DOMAIN = "default"

#: the operator that copies, where the CPU is the device
_CPU_COPY = "aten::copy_"
#: parts of a copy's name or type -> where it goes
_DIRECTIONS = {"htod": 1, "dtoh": 2, "dtod": 3, "ptop": 3, "htoh": 0}

#: columns of COMPUTE_TASK_INFO -> columns of ``kernels``
_COMPUTE_TEXTS = {"name": "name", "taskType": "core", "opType": "type", **layout.COMPUTE_TEXTS}


def write_tasks(file: DatabaseFile, output: Output, pid: int, found: Connections) -> None:
    """TASK, one row per task of the hardware, COMPUTE_TASK_INFO for those that compute, MEMCPY_INFO, TASK_PMU_INFO.

    A task that does not compute has its name as its type; the copies of a GPU and of the CPU are called as those of an NPU,
    and MEMCPY_INFO says what those of a GPU do. A copy on the CPU computes as well: the operator runs on the cores.
    """
    trace = output.trace
    npu = device_kind(trace) == NPU
    kernels = with_own_types(trace).with_columns(connection=pl.lit(found.kernels)).filter(hardware_tasks(trace))
    tasks = kernels.sort("start_ns").collect()
    kind = pl.col("kind").cast(pl.String)
    types = tasks.select(_task_type(trace, npu)).to_series()
    rows = tasks.select(
        startNs="start_ns",
        endNs="end_ns",
        deviceId=pl.col("device").fill_null(0),
        connectionId="connection",
        globalTaskId="id",
        globalPid=pl.lit(pid, dtype=pl.Int64),
        taskType=pl.lit(file.text_ids(types, missing=NOT_AVAILABLE)),
        contextId=pl.col("context_id").fill_null(NO_NUMBER),
        streamId=pl.col("stream").fill_null(0),
        taskId=pl.coalesce("task_id", pl.col("id").cast(pl.Int64)),
        modelId=pl.col("model_id").fill_null(NO_NUMBER),
    )
    file.frame("TASK", rows)
    _write_computing(file, tasks.filter(kind.eq_missing(KIND_COMPUTE) | kind.is_null()).sort("id"), npu)
    _write_copies(file, tasks.filter(kind.eq_missing(KIND_COPY)))
    metrics = metric_rows(trace)
    file.frame("TASK_PMU_INFO", metrics.select("value", globalTaskId="kernel", name=pl.lit(file.text_ids(metrics["name"]))))


def _task_type(trace: Trace, npu: bool) -> pl.Expr:
    """What a database calls the type of a task: the scheduler's word for kernels and parts of a collective, else its name."""
    kind, name, core = (pl.col(column).cast(pl.String) for column in ("kind", "name", "core"))
    recorded = pl.coalesce(pl.col("task_type").cast(pl.String), core)
    own_word = pl.when(recorded.str.starts_with(terms.KERNEL_PREFIX)).then(recorded)
    computes = pl.coalesce(own_word, core.replace_strict(terms.KERNEL_TYPES, default=None, return_dtype=pl.String), recorded)
    named_by_scheduler = kind == KIND_COMMUNICATION
    inner = inner_tasks(trace)
    if inner is not None:
        named_by_scheduler |= pl.col("id").is_in(inner["kernel"].implode())
    return (
        pl.when((core == CORE_CPU) & (name == _CPU_COPY))
        .then(pl.lit(MEMCPY))
        .when(kind.is_null() | (kind == KIND_COMPUTE))
        .then(computes if npu else core)
        .when(named_by_scheduler)
        .then(recorded)
        .when((kind == KIND_COPY) & name.str.contains("(?i)memcpy") & pl.lit(not npu))
        .then(pl.lit(MEMCPY))
        .otherwise(name)
    )


def _write_computing(file: DatabaseFile, tasks: pl.DataFrame, npu: bool) -> None:
    tasks = tasks.unique("id", keep="first", maintain_order=True)
    texts = {column: pl.lit(file.text_ids(tasks[source], missing=NOT_AVAILABLE)) for column, source in _COMPUTE_TEXTS.items()}
    texts |= {column: pl.lit(_shape_ids(file, tasks[source], npu)) for column, source in layout.COMPUTE_SHAPES.items()}
    compiled_before = pl.Series([None], dtype=pl.Int64).new_from_index(0, tasks.height).fill_null(file.text_id("static"))
    state = file.text_ids(tasks["state"], missing=NOT_AVAILABLE) if npu else compiled_before
    attributes = pl.repeat(file.text_id(NOT_AVAILABLE), tasks.height, eager=True)
    numbers = {"globalTaskId": pl.col("id"), "blockNum": pl.col("blocks"), "mixBlockNum": pl.col("mix_blocks")}
    file.frame("COMPUTE_TASK_INFO", tasks.select(**numbers, **texts, opState=pl.lit(state), attrInfo=pl.lit(attributes)))


def _shape_ids(file: DatabaseFile, shapes: pl.Series, npu: bool) -> pl.Series:
    """Lists of dimensions are quoted, as in op_summary; a task of an NPU may be known to have none."""
    return file.text_ids(shapes, missing=NOT_AVAILABLE, render=lambda text: f'"{text}"' if text or npu else None)


def _write_copies(file: DatabaseFile, copies: pl.DataFrame) -> None:
    words = copies.select(pl.concat_str(pl.col("type", "name").cast(pl.String).fill_null(""), separator="\n")).to_series()
    rows = copies.select("id", "bytes").with_columns(operation=map_distinct(words, _memcpy_operation, NO_TYPE, pl.Int64))
    described = rows.filter(pl.col("bytes").is_not_null() | (pl.col("operation") != NO_TYPE))
    file.frame("MEMCPY_INFO", described.select(globalTaskId="id", size="bytes", memcpyOperation="operation"))


def _memcpy_operation(type_and_name: str) -> int:
    type_, _, name = type_and_name.partition("\n")
    if type_ in MEMCPY_OPERATIONS:
        return MEMCPY_OPERATIONS[type_]
    return next((number for word, number in _DIRECTIONS.items() if word in name.lower()), NO_TYPE)


def write_runtime_calls(file: DatabaseFile, output: Output, pid: int, found: Connections) -> None:
    """CANN_API, calls of CUDA and ROCm among them as those of the runtime; OSRT_API: calls of the operating system.

    A task of the CPU is its own launch. A call of no length at its start stands for it, because the clients find the step
    of a task by its launch.
    """
    calls = output.trace.required("api").with_columns(connection=pl.lit(found.api)).sort("start_ns").collect()
    layer = pl.col("layer").cast(pl.String)
    system = calls.filter(layer == OS_LAYER)
    runtime_calls = calls.filter(~layer.eq_missing(OS_LAYER))
    types = {layer: API_TYPES[layer] for layer in terms.CALL_PREFIXES}
    rows = runtime_calls.select(
        startNs="start_ns",
        endNs="end_ns",
        type=layer.replace(terms.OLDER_LAYERS).replace_strict(types, default=API_TYPES["runtime"], return_dtype=pl.Int64),
        globalTid=global_tid(pid),
        connectionId="connection",
        name=pl.lit(file.text_ids(runtime_calls["name"], missing=NOT_AVAILABLE)),
    )
    file.frame("CANN_API", rows.sort("connectionId"))
    if runtime_calls.is_empty() and device_kind(output.trace) == CORE_CPU:
        launches = _own_launches(output.trace, found).with_columns(
            name=pl.lit(file.text_id(terms.LAUNCH)), type=pl.lit(API_TYPES[terms.NODE], dtype=pl.Int64), globalTid=global_tid(pid)
        )
        file.frame("CANN_API", launches)
    names = pl.lit(file.text_ids(system["name"], missing=NOT_AVAILABLE))
    file.frame("OSRT_API", system.select(name=names, globalTid=global_tid(pid), startNs="start_ns", endNs="end_ns"))


def _own_launches(trace: Trace, found: Connections) -> pl.DataFrame:
    """startNs, endNs, pid, tid and connectionId of a launch for every task and collective of the CPU."""
    parts = []
    for table, ids in (("kernels", found.kernels), ("communication", found.communication)):
        tasks = trace.required(table).select("start_ns", tid="stream").collect()
        parts.append(tasks.with_columns(connectionId=ids))
    pid = pl.lit(None, dtype=pl.Int64)
    return pl.concat(parts).select("tid", "connectionId", startNs="start_ns", endNs="start_ns", pid=pid).sort("connectionId")


def write_marks(file: DatabaseFile, output: Output, pid: int) -> None:
    """MSTX_EVENTS: marks and ranges of the user."""
    marks = output.trace.required("marks").sort("start_ns").collect()
    numbers = {kind: MARK_TYPES[kind] for kind in MARK_KINDS}
    rows = marks.select(
        startNs="start_ns",
        endNs="end_ns",
        eventType=mark_kind().replace_strict(numbers, return_dtype=pl.Int64),
        rangeId=pl.int_range(pl.len(), dtype=pl.Int64),
        category=pl.lit(NO_NUMBER, dtype=pl.Int64),
        message=pl.lit(file.text_ids(marks["message"], missing="")),
        globalTid=global_tid(pid),
        endGlobalTid=global_tid(pid),
        domainId=pl.lit(file.text_ids(marks["domain"], missing=_DEFAULT_DOMAIN)),
        connectionId=pl.col("correlation").fill_null(layout.NO_MARK_CONNECTION),
    )
    file.frame("MSTX_EVENTS", rows)


def write_overlap(file: DatabaseFile, output: Output) -> None:
    """OVERLAP_ANALYSIS: the lanes of trace_view.json."""
    trace, first = output.trace, 1
    for device in used_devices(trace):
        lanes = overlap_lanes(device, computing_tasks(trace), trace.required("communication"))
        for number, intervals in zip(layout.OVERLAP_TYPES.values(), lanes, strict=False):
            rows = pl.DataFrame({"startNs": intervals.start, "endNs": intervals.end})
            ids = pl.int_range(first, first + pl.len(), dtype=pl.Int64)
            file.frame("OVERLAP_ANALYSIS", rows.with_columns(id=ids, deviceId=pl.lit(device), type=pl.lit(number)))
            first += rows.height
