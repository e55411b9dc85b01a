"""Device tasks and collectives of CANN's databases: what ran where and when, who launched it, what was measured of it."""

from __future__ import annotations

from typing import Any

import polars as pl

from steplens.formats.ascend_database import COMPUTE_SHAPES, COMPUTE_TEXTS
from steplens.formats.ascend_terms import ELEMENT_BYTES, HCCL_OPERATIONS, NO_NUMBER, NOT_AVAILABLE, OPERATION_TYPE
from steplens.formats.trace_view import COMMUNICATING
from steplens.readers.ascend.ascend_communication import operation_kind
from steplens.readers.ascend.database.cann_names import ProfilerDatabase
from steplens.readers.common.run_info import list_groups
from steplens.trace.building.communication_marks import COMMUNICATION_CORE, COMMUNICATION_CORES, PART_CORES, PART_NAME
from steplens.trace.health import COMMUNICATION_TIMES, KERNEL_DETAILS, KERNEL_TIMES, WARNING
from steplens.trace.schema import CORE_CPU, KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY, KIND_OTHER, NAME

#: cores of runs without an NPU, whose collectives are tasks like others
_OTHER_CORES = r"^(CPU|CUDA|ROCM)"

_COPY_TASK = r"(?i)memcpy|memset|pcie_dma|^sdma"
#: what a communication operation does
_OPERATION = f"({'|'.join(HCCL_OPERATIONS)})"

_COMPUTE = (
    "name", "globalTaskId", "blockNum", "mixBlockNum", "taskType", "opType", "inputFormats", "inputDataTypes", "inputShapes",
    "outputFormats", "outputDataTypes", "outputShapes", "opState", "hf32Eligible", "blockDim", "mixBlockDim",
)  # fmt: skip
_OPERATION_COLUMNS = (
    "opName", "startNs", "endNs", "connectionId", "groupName", "dataType", "algType", "count", "opType", "deviceId", "rankSize",
)  # fmt: skip


def read_tasks(database: ProfilerDatabase) -> pl.DataFrame:
    """TASK: rows with a start and an end."""
    tasks = database.valid_ranges("TASK", KERNEL_TIMES)
    repeated = int(tasks["globalTaskId"].drop_nulls().is_duplicated().sum())
    if repeated:
        message = "tasks share an id, so that their details may be those of another one"
        database.health.add("repeated_task_ids", WARNING, repeated, message, KERNEL_DETAILS)
    return tasks


def kernels(database: ProfilerDatabase, tasks: pl.DataFrame, inner: pl.DataFrame) -> pl.DataFrame:
    """Every task of a device, with what the tables beside TASK say about it.

    Args:
        database: the file.
        tasks: rows of TASK.
        inner: rows of COMMUNICATION_TASK_INFO, the parts of collectives.

    Returns:
        rows of ``kernels``, with ``pid`` and ``globalTaskId``.
    """
    if not tasks.height:
        return pl.DataFrame()
    parts = {
        "compute": database.complete("COMPUTE_TASK_INFO", _COMPUTE),
        "schedule": database.whole_table("COMMUNICATION_SCHEDULE_TASK_INFO"),
        "copy": database.whole_table("MEMCPY_INFO"),
        "inner": inner.select("globalTaskId", "taskType", "size"),
    }
    frame, texts = tasks, database.texts
    for prefix, part in parts.items():
        frame = frame.join(_prefix_columns(part, prefix), on="globalTaskId", how="left", maintain_order="left")
    frame = frame.with_columns(pl.col("is_compute", "is_schedule", "is_copy", "is_inner").fill_null(False))
    collective_cores = texts.ids_of(*COMMUNICATION_CORES, *PART_CORES)
    part_of_collective = pl.col("compute_taskType").is_in(collective_cores) | pl.col("compute_name").is_in(
        texts.ids_matching(PART_NAME)
    )
    computes = pl.col("is_compute") & ~part_of_collective.fill_null(False)
    listed = pl.any_horizontal(pl.col(f"is_{part}") for part in ("compute", "schedule", "inner"))
    copies_memory = pl.col("is_copy") | pl.col("taskType").is_in(texts.ids_matching(_COPY_TASK)).fill_null(False)
    available = texts.available
    frame = frame.with_columns(
        kind=pl.when(computes)
        .then(pl.lit(KIND_COMPUTE))
        .when(~listed & copies_memory)
        .then(pl.lit(KIND_COPY))
        .otherwise(pl.lit(KIND_OTHER))
        .cast(NAME),
        name_id=pl.coalesce("compute_name", "schedule_name", available("inner_taskType"), "taskType"),
        # an unavailable type of a kernel stays unavailable; other tasks have the hardware's type
        type_id=pl.when("is_compute")
        .then("compute_opType")
        .otherwise(pl.coalesce(available("schedule_opType"), available("inner_taskType"), "taskType")),
        core_id=pl.coalesce(available("compute_taskType"), available("schedule_taskType"), "taskType"),
    )
    operation = database.enums.of("ENUM_MEMCPY_OPERATION", frame["copy_memcpyOperation"])
    return frame.select(
        name=texts.names_of(frame["name_id"]),
        type=pl.select(pl.coalesce(operation, texts.of(frame["type_id"]))).to_series(),
        kind="kind",
        core=texts.names_of(frame["core_id"]),
        device=pl.col("deviceId").cast(pl.Int32, strict=False),
        stream="streamId",
        start_ns="startNs",
        end_ns="endNs",
        correlation="connectionId",
        bytes=pl.when(pl.col("copy_size") >= 0).then("copy_size").when(pl.col("inner_size") >= 0).then("inner_size"),
        task_id="taskId",
        model_id="modelId",
        context_id=pl.when(pl.col("contextId") != NO_NUMBER).then("contextId"),
        state=texts.of(frame["compute_opState"]),
        blocks=pl.coalesce("compute_blockNum", "compute_blockDim"),
        mix_blocks=pl.coalesce("compute_mixBlockNum", "compute_mixBlockDim"),
        **{ours: texts.of(frame[f"compute_{column}"]) for column, ours in COMPUTE_TEXTS.items()},
        **{ours: texts.shapes(frame[f"compute_{column}"]) for column, ours in COMPUTE_SHAPES.items()},
        pid="globalPid",
        globalTaskId="globalTaskId",
    )


def _prefix_columns(frame: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """One row per task, columns named after the table they come from, and ``is_<prefix>``."""
    unique = frame.drop_nulls("globalTaskId").unique("globalTaskId", keep="first", maintain_order=True)
    columns = [column for column in unique.columns if column != "globalTaskId"]
    return unique.select(
        "globalTaskId", *(pl.col(column).alias(f"{prefix}_{column}") for column in columns), pl.lit(True).alias(f"is_{prefix}")
    )


def read_collectives(database: ProfilerDatabase, tasks: pl.DataFrame, groups: Any) -> pl.DataFrame:
    """Every communication operation; device and stream that a row lacks are those of its first task.

    Args:
        database: the file.
        tasks: rows of TASK.
        groups: ``parallel_group_info`` of the run's metadata: sizes of groups that the rows do not have.

    Returns:
        rows of ``communication``, with ``type``.
    """
    table, texts = "COMMUNICATION_OP", database.texts
    rows = database.valid_ranges(table, COMMUNICATION_TIMES, database.complete(table, _OPERATION_COLUMNS))
    if not rows.height:
        return pl.DataFrame()
    first = tasks.sort("startNs").unique("connectionId", keep="first")
    first = first.select("connectionId", task_device="deviceId", stream="streamId")
    devices = tasks["deviceId"].drop_nulls().unique()
    only_device = pl.lit(devices[0] if len(devices) == 1 else None, dtype=pl.Int64)
    dtype = database.enums.of("ENUM_HCCL_DATA_TYPE", rows["dataType"]).cast(pl.String).replace({NOT_AVAILABLE: None})
    rows = rows.with_columns(
        opName=texts.of(rows["opName"]).cast(pl.String).fill_null(NOT_AVAILABLE),
        opType=texts.of(rows["opType"]).cast(pl.String),
        groupName=texts.of(rows["groupName"]),
        algType=texts.of(rows["algType"]),
        dtype=dtype,
    ).join(first, on="connectionId", how="left", maintain_order="left")
    operation = pl.coalesce("opType", "opName").str.to_lowercase().str.extract(_OPERATION)
    size = pl.col("dtype").replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    return rows.select(
        name=pl.col("opName").cast(NAME),
        type=pl.coalesce("opType", pl.col("opName").str.extract(OPERATION_TYPE)).cast(NAME),
        kind=operation_kind(pl.col("opName")).cast(NAME),
        operation=operation.cast(NAME),
        group="groupName",
        ranks=pl.coalesce(pl.when(pl.col("rankSize") > 0).then("rankSize"), _group_size(groups)).cast(pl.Int32, strict=False),
        elements="count",
        bytes=pl.col("count") * size,
        dtype=pl.col("dtype").cast(NAME),
        algorithm="algType",
        start_ns="startNs",
        end_ns="endNs",
        correlation="connectionId",
        device=pl.coalesce("deviceId", "task_device", only_device).cast(pl.Int32, strict=False),
        stream="stream",
    )


def _group_size(groups: Any) -> pl.Expr:
    """Number of ranks of ``groupName``, null where the metadata does not list the group."""
    sizes = {key: size for key, _, size in list_groups(groups)}
    if not sizes:
        return pl.lit(None, dtype=pl.Int64)
    return pl.col("groupName").cast(pl.String).replace_strict(sizes, default=None, return_dtype=pl.Int64)


def with_launches(tasks: pl.DataFrame, api: pl.DataFrame) -> pl.DataFrame:
    """Add where on the host each task was launched; null where no call has its connection."""
    if not tasks.height:
        return tasks
    calls = api.drop_nulls("launches").filter(pl.col("correlation").is_in(tasks["correlation"].drop_nulls().unique().implode()))
    best = calls.sort("launches", "start_ns").unique("correlation", keep="first", maintain_order=True)
    launches = best.select("correlation", launch_ns="start_ns", launch_pid="pid", launch_tid="tid")
    return tasks.join(launches, on="correlation", how="left", maintain_order="left")


def number_kernels(kernels: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
    """Tasks and collectives in order of device, stream and start, numbered; on an NPU with their wait times.

    On an NPU a collective is more than its tasks and gets a row of its own. Elsewhere it is one of the tasks.
    """
    other_name = other_core(kernels)
    on_npu = other_name is None
    if other_name is not None:
        # the file calls copies and waits by the names that an NPU has for them
        kernels = kernels.with_columns(core=pl.lit(other_name, dtype=NAME))
    if operations.height and on_npu:
        columns = ["name", "type", "start_ns", "end_ns", "correlation", "device", "stream", "bytes"]
        launch = ["launch_ns", "launch_pid", "launch_tid"]
        # stretches of communication that no operation explains have this name, and are no task
        rows = operations.filter(pl.col("name").cast(pl.String).ne_missing(COMMUNICATING)).select(
            *columns, *launch, kind=pl.lit(KIND_COMMUNICATION, dtype=NAME), core=pl.lit(COMMUNICATION_CORE, dtype=NAME)
        )
        no_processes = pl.DataFrame(schema={"globalTaskId": pl.Int64, "pid": pl.Int64})
        kernels = pl.concat([kernels if kernels.height else no_processes, rows], how="diagonal")
    elif operations.height:
        same = ["device", "start_ns", "end_ns"]
        twins = operations.select(*same, communicates=pl.lit(True)).unique()
        kind = pl.when("communicates").then(pl.lit(KIND_COMMUNICATION, dtype=NAME)).otherwise("kind")
        if other_name != CORE_CPU:
            kernels = kernels.join(twins, on=same, how="left", maintain_order="left").with_columns(kind=kind)
    if not kernels.height:
        return kernels
    kernels = kernels.sort("device", "stream", "start_ns", maintain_order=True)
    kernels = kernels.with_columns(id=pl.int_range(pl.len(), dtype=pl.Int32))
    return _with_waits(kernels) if on_npu else kernels


def other_core(kernels: pl.DataFrame) -> str | None:
    """The core of a run without an NPU, whose tasks are all on it; None on an NPU."""
    if not kernels.height:
        return None
    cores = kernels["core"].cast(pl.String)
    other_cores = sorted(cores.filter(cores.str.contains(_OTHER_CORES)).unique())
    return other_cores[-1] if other_cores else None


def _with_waits(kernels: pl.DataFrame) -> pl.DataFrame:
    listed = kernels.filter(pl.col("kind").cast(pl.String).is_in([KIND_COMPUTE, KIND_COMMUNICATION]))
    gap = pl.col("start_ns") - pl.col("end_ns").shift(1).over("device")
    waits = listed.sort("start_ns", maintain_order=True).select("id", wait_ns=gap.clip(lower_bound=0).fill_null(0))
    return kernels.join(waits, on="id", how="left", maintain_order="left")


def read_kernel_metrics(database: ProfilerDatabase, numbers: pl.DataFrame) -> pl.DataFrame:
    """``kernel_metrics``: values as the source has them, times in ns."""
    rows = database.complete("TASK_PMU_INFO", ("globalTaskId", "name", "value"), value=pl.Float64()).drop_nulls("value")
    if not rows.height or not numbers.height:
        return pl.DataFrame()
    rows = rows.with_columns(name=database.texts.of(rows["name"])).drop_nulls("name")
    numbered_rows = rows.join(numbers.unique("globalTaskId", keep="first"), on="globalTaskId", how="inner", maintain_order="left")
    return numbered_rows.select("name", "value", kernel="id")
