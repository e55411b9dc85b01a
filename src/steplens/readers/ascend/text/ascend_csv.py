"""Reads the CSV files of CANN (mindstudio_profiler_output) and of results (ASCEND_PROFILER_OUTPUT) into raw tables.

Both have the same content under names that have changed: ``op_summary`` of CANN is ``kernel_details`` of a result, KB
there are MB here, ``Block Dim`` has become ``Block Num``, and ``Device_id`` is missing in older files. Times are text with
a trailing TAB; those of steplens' own results count from a time base.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import polars as pl

from steplens.readers.ascend.timeline.ascend_timeline_device import GPU_CORES, gpu_kind
from steplens.readers.common.ascend_csv_file import TextTable, complete_rows, read_table, required
from steplens.readers.common.trace_rows import source_rows
from steplens.trace.building.communication_marks import is_collective, is_part
from steplens.trace.health import (
    COUNTERS,
    KERNEL_CALLS,
    KERNEL_DETAILS,
    KERNEL_TIMES,
    KERNEL_WAITS,
    MEMORY,
    OPERATOR_DEVICE_TIMES,
    OVERLAP,
    RUNTIME_CALLS,
    STEP_DEVICE_TIMES,
    WARNING,
    HealthLog,
)
from steplens.trace.schema import CORE_CPU, KIND_COMMUNICATION, KIND_COMPUTE, KIND_OTHER, NAME

#: columns of kernel_details that describe the task; what else a file has is measured
_DESCRIPTION = {
    "Step Id", "Device_id", "Model ID", "Model Name", "Task ID", "Stream ID", "Infer ID", "Iteration ID", "Name", "Op Name",
    "Type", "OP Type", "OP State", "Accelerator Core", "Task Type", "Start Time(us)", "Task Start Time(us)", "Duration(us)",
    "Task Duration(us)", "Wait Time(us)", "Task Wait Time(us)", "Block Dim", "Block Num", "Mix Block Dim", "Mix Block Num",
    "HF32 Eligible", "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats",
    "Context ID", "Op Attr",
}  # fmt: skip

_LENGTH = ("Duration(us)", "Task Duration(us)")
#: what a cell of kernel_details that is no number makes unsafe, where it is not the details of the kernel
_UNSAFE = {
    **dict.fromkeys(("Wait Time(us)", "Task Wait Time(us)"), KERNEL_WAITS),
    **dict.fromkeys(("Device_id", "Stream ID"), KERNEL_CALLS),
    "Step Id": STEP_DEVICE_TIMES,
}

_APPLICATION = "APP"
_GRAPH_ENGINE = "GE"
_FRAMEWORK = "PTA"
_GRAPH_ENGINE_PREFIX = "cann::"
#: rows that add up those of two allocators; the writer adds them again
_SUM_OF_BOTH = "PTA+GE"

KERNEL_DETAILS_FILE = "kernel_details"


def read_kernel_details(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """``op_summary_*.csv`` or ``kernel_details.csv``: the tasks that compute or communicate, and what was measured of them.

    Returns:
        Rows of ``kernels`` (``id`` is the row number; device, stream and step are null where the file has no such column),
        and of ``kernel_metrics``, whose names and units are those of the file.
    """
    table = read_table(paths, health, KERNEL_CALLS)
    name, start = ("Name", "Op Name"), ("Start Time(us)", "Task Start Time(us)")
    if not required(table, KERNEL_DETAILS_FILE, health, KERNEL_CALLS, name, start):
        return pl.DataFrame(), pl.DataFrame()
    rows = pl.DataFrame(
        {
            "id": pl.int_range(table.frame.height, dtype=pl.Int32, eager=True),
            "name": table.name(*name),
            "type": table.name("Type", "OP Type"),
            "core": table.text("Accelerator Core", "Task Type"),
            "device": table.integer("Device_id").cast(pl.Int32, strict=False),
            "stream": table.integer("Stream ID"),
            "start_ns": table.time_ns(base_ns, *start),
            "length_ns": table.ns(*_LENGTH),
            "wait_ns": table.ns("Wait Time(us)", "Task Wait Time(us)"),
            "task_id": table.integer("Task ID"),
            "model_id": table.integer("Model ID"),
            "context_id": table.integer("Context ID"),
            "state": table.text("OP State"),
            "blocks": table.integer("Block Num", "Block Dim"),
            "mix_blocks": table.integer("Mix Block Num", "Mix Block Dim"),
            "hf32": table.text("HF32 Eligible"),
            "input_shapes": _unquoted(table.text("Input Shapes")),
            "input_types": table.text("Input Data Types"),
            "input_formats": table.text("Input Formats"),
            "output_shapes": _unquoted(table.text("Output Shapes")),
            "output_types": table.text("Output Data Types"),
            "output_formats": table.text("Output Formats"),
            "step": table.integer("Step Id"),
        }
    )
    metrics = _metrics(table)
    table.report(KERNEL_DETAILS_FILE, health, _UNSAFE, KERNEL_DETAILS, needed=(*start, *_LENGTH))
    _report_unmeasured(rows, health)
    rows = complete_rows(rows, ["name", "start_ns"], KERNEL_DETAILS_FILE, health, KERNEL_CALLS)
    rows = rows.with_columns(end_ns=pl.col("start_ns") + pl.col("length_ns").fill_null(0)).drop("length_ns")
    if metrics.height and rows.height < table.frame.height:
        metrics = metrics.join(rows.select("id"), left_on="kernel", right_on="id", how="semi", maintain_order="left")
    # the writers number the tasks of CPU and GPU by the calls that launched them
    numbered = ~pl.col("core").cast(pl.String).is_in([CORE_CPU, *GPU_CORES]).fill_null(False)
    return rows.with_columns(_kind(rows), task_id=pl.when(numbered).then("task_id")), metrics


#: the same file under CANN's name
read_op_summary = read_kernel_details


def _kind(rows: pl.DataFrame) -> pl.Series:
    core, name, type_ = (pl.col(column).cast(pl.String) for column in ("core", "name", "type"))
    kind = (
        pl.when(is_collective(core, name, type_))
        .then(pl.lit(KIND_COMMUNICATION))
        .when(is_part(core, name))
        .then(pl.lit(KIND_OTHER))
        .otherwise(pl.lit(KIND_COMPUTE))
    )
    return rows.select(pl.coalesce(gpu_kind(rows), kind).cast(NAME).alias("kind")).to_series()


def _report_unmeasured(rows: pl.DataFrame, health: HealthLog) -> None:
    """Report tasks of which nothing says how long they took: they have a length of zero."""
    if count := rows.drop_nulls(["name", "start_ns"])["length_ns"].null_count():
        message = f"device tasks of {KERNEL_DETAILS_FILE} have no duration; their length counts as zero"
        health.add("damaged_values", WARNING, count, message, (KERNEL_TIMES, OPERATOR_DEVICE_TIMES, OVERLAP))


def _metrics(table: TextTable) -> pl.DataFrame:
    """The columns that hold measurements, one row per value."""
    described = {column for name in _DESCRIPTION if (column := table.find(name)) is not None}
    values = {column: table.number(column) for column in table.frame.columns if column not in described}
    measured = [values[column].alias(column) for column in values if values[column].null_count() < table.frame.height]
    for column in values.keys() - {series.name for series in measured}:
        # a column of texts, which nobody takes for numbers
        table.damaged.pop(column, None)
    if not measured:
        return pl.DataFrame()
    kernel = pl.int_range(table.frame.height, dtype=pl.Int32, eager=True).alias("_kernel")
    rows = pl.DataFrame([kernel, *measured]).unpivot(index="_kernel", variable_name="name", value_name="value")
    return rows.drop_nulls("value").select(kernel="_kernel", name=pl.col("name").cast(NAME), value="value")


def _unquoted(shapes: pl.Series) -> pl.Series:
    """Shapes without the quotes that belong to the cell; an empty list is known, unlike ``N/A``."""
    plain: pl.Series = shapes.cast(pl.String).str.replace('^"(.*)"$', "$1").cast(NAME)
    return plain


def read_memory_record(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> pl.DataFrame:
    """``(ge_)memory_record_*.csv`` or ``memory_record.csv``: rows of ``memory`` with the totals of each allocator.

    The file's sums of two allocators are left out; the writers add them up again.
    """
    table = read_table(paths, health, MEMORY)
    if not required(table, "memory_record", health, MEMORY, ("Component",), ("Timestamp(us)",)):
        return pl.DataFrame()
    component = table.text("Component")
    rows = pl.DataFrame(
        {
            "component": component,
            "time_ns": table.time_ns(base_ns, "Timestamp(us)"),
            "allocated": table.bytes("Total Allocated"),
            "reserved": table.bytes("Total Reserved"),
            "active": table.bytes("Total Active"),
            "stream": table.integer("Stream Ptr"),
            **_device(table),
            **_no_thread(table.frame.height),
        }
    ).filter(component.cast(pl.String).ne_missing(_SUM_OF_BOTH))
    table.report("memory_record", health, {}, MEMORY, needed=("Timestamp(us)",))
    return complete_rows(rows, ["time_ns"], "memory_record", health, MEMORY)


def _no_thread(height: int) -> dict[str, pl.Series]:
    """Process and thread of allocator events whose source does not tell them."""
    nothing = pl.Series([None], dtype=pl.Int64).new_from_index(0, height)
    return {"pid": nothing, "tid": nothing}


def _device(table: TextTable) -> dict[str, pl.Series]:
    """Device type and number: ``NPU:0`` or ``CPU``; older files of CANN name the number apart."""
    tag = table.text("Device Type", "Device").cast(pl.String)
    kind = tag.str.extract(r"^([A-Za-z]+)", 1).fill_null("NPU").cast(NAME)
    number = tag.str.extract(r":(\d{1,6})$", 1).cast(pl.Int32, strict=False)
    device = pl.select(pl.coalesce(number, table.integer("Device_id").cast(pl.Int32, strict=False), 0)).to_series()
    return {"device_type": kind, "device": device.cast(pl.Int32)}


def read_operator_memory(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> pl.DataFrame:
    """``(ge_)operator_memory_*.csv`` or ``operator_memory.csv``: rows of ``allocations``.

    CANN's file has the duration instead of the release, and names without the ``cann::`` that results put before them.
    """
    table = read_table(paths, health, MEMORY)
    if not required(table, "operator_memory", health, MEMORY, ("Name",), ("Allocation Time(us)",)):
        return pl.DataFrame()
    of_cann = table.find("Release Time(us)") is None
    allocation = table.time_ns(base_ns, "Allocation Time(us)")
    release = allocation + table.ns("Duration(us)") if of_cann else table.time_ns(base_ns, "Release Time(us)")
    name = table.name("Name").cast(pl.String)
    name = (pl.Series([_GRAPH_ENGINE_PREFIX], dtype=pl.String) + name) if of_cann else name
    by_engine = name.str.starts_with(_GRAPH_ENGINE_PREFIX).fill_null(False)
    component = pl.select(pl.when(by_engine).then(pl.lit(_GRAPH_ENGINE)).otherwise(pl.lit(_FRAMEWORK))).to_series()
    rows = pl.DataFrame(
        {
            "name": name.cast(NAME),
            "bytes": table.bytes("Size"),
            "allocation_ns": allocation,
            "release_ns": release,
            "active_release_ns": table.time_ns(base_ns, "Active Release Time(us)"),
            "allocation_allocated": table.bytes("Allocation Total Allocated"),
            "allocation_reserved": table.bytes("Allocation Total Reserved"),
            "allocation_active": table.bytes("Allocation Total Active"),
            "release_allocated": table.bytes("Release Total Allocated"),
            "release_reserved": table.bytes("Release Total Reserved"),
            "release_active": table.bytes("Release Total Active"),
            "stream": table.integer("Stream Ptr"),
            **_device(table),
            "component": component.cast(NAME),
        }
    )
    table.report("operator_memory", health, {}, MEMORY, needed=("Allocation Time(us)",))
    return complete_rows(rows, ["allocation_ns"], "operator_memory", health, MEMORY)


def read_npu_mem(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> pl.DataFrame:
    """``npu_mem_*.csv``: rows of ``memory`` with what the process holds on the device (its event ``APP``)."""
    table = read_table(paths, health, MEMORY)
    if not required(table, "npu_mem", health, MEMORY, ("event",), ("timestamp(us)",)):
        return pl.DataFrame()
    component = table.text("event")
    rows = pl.DataFrame(
        {
            "component": component,
            "time_ns": table.time_ns(base_ns, "timestamp(us)"),
            "reserved": table.bytes("memory"),
            **_device(table),
            **_no_thread(table.frame.height),
        }
    ).filter(component.cast(pl.String).eq_missing(_APPLICATION))
    table.report("npu_mem", health, {}, MEMORY, needed=("timestamp(us)",))
    return complete_rows(rows, ["time_ns"], "npu_mem", health, MEMORY)


def read_npu_module_mem(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> pl.DataFrame:
    """``npu_module_mem*.csv``: rows of ``counters``, one per component and sample, in KB."""
    table = read_table(paths, health, COUNTERS)
    if not required(table, "npu_module_mem", health, COUNTERS, ("Component",), ("Timestamp(us)",)):
        return pl.DataFrame()
    rows = pl.DataFrame(
        {
            "name": table.text("Component"),
            "time_ns": table.time_ns(base_ns, "Timestamp(us)"),
            "value": table.bytes("Total Reserved") / 1024.0,
            "device": _device(table)["device"],
        }
    ).with_columns(group=pl.lit("npu_module_mem", dtype=NAME), unit=pl.lit("KB", dtype=NAME))
    needed = ("Timestamp(us)", "Total Reserved(KB)", "Total Reserved(MB)", "Total Reserved(B)", "Total Reserved(Byte)")
    table.report("npu_module_mem", health, {}, COUNTERS, needed=needed)
    return complete_rows(rows, ["time_ns", "value"], "npu_module_mem", health, COUNTERS)


def read_source_table(name: str, unsafe: str, paths: Sequence[Path], health: HealthLog) -> pl.DataFrame:
    """A table that is handed on unchanged, as rows of ``source_tables``; cells stay text, missing ones become empty.

    Args:
        name: what results call it.
        unsafe: what its loss makes unsafe.
        paths: its slices, in order.
        health: gets what is wrong.
    """
    frame = read_table(paths, health, unsafe).frame
    if not frame.height:
        return pl.DataFrame()
    return source_rows(name, frame)


read_op_statistic = partial(read_source_table, "op_statistic", KERNEL_CALLS)
read_api_statistic = partial(read_source_table, "api_statistic", RUNTIME_CALLS)
read_step_trace_time = partial(read_source_table, "step_trace_time", "")
read_l2_cache = partial(read_source_table, "l2_cache", COUNTERS)
#: CANN calls it aicpu
read_data_preprocess = partial(read_source_table, "data_preprocess", COUNTERS)
read_nic = partial(read_source_table, "nic", COUNTERS)
read_roce = partial(read_source_table, "roce", COUNTERS)
read_pcie = partial(read_source_table, "pcie", COUNTERS)
read_hccs = partial(read_source_table, "hccs", COUNTERS)
read_task_time = partial(read_source_table, "task_time", KERNEL_CALLS)
read_soc_pmu = partial(read_source_table, "soc_pmu", COUNTERS)

#: CANN's name of a file without time stamp, and what hands it on
SOURCE_TABLES = {
    "op_statistic": read_op_statistic,
    "api_statistic": read_api_statistic,
    "l2_cache": read_l2_cache,
    "aicpu": read_data_preprocess,
    "nic": read_nic,
    "roce": read_roce,
    "pcie": read_pcie,
    "hccs": read_hccs,
    "task_time": read_task_time,
    "soc_pmu": read_soc_pmu,
}
