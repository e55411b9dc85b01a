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

from steplens.formats import ascend_results as results
from steplens.formats.ascend_capture import HANDED_ON
from steplens.formats.ascend_terms import APP, CANN_PREFIX, GE, GPU_CORES, MODULE_MEMORY, PTA, PTA_AND_GE
from steplens.readers.ascend.timeline.ascend_timeline_device import gpu_kind
from steplens.readers.common.ascend_csv_file import TextTable, complete_rows, has_required_columns, read_table
from steplens.readers.common.trace_rows import NO_THREAD, source_rows
from steplens.trace import health as conclusions
from steplens.trace.building.communication_marks import is_collective, is_part
from steplens.trace.health import COUNTERS, KERNEL_CALLS, MEMORY, WARNING, HealthLog
from steplens.trace.schema import CORE_CPU, KIND_COMMUNICATION, KIND_COMPUTE, KIND_OTHER, NAME

_KERNEL = results.KERNEL_TITLES
#: what a cell of kernel_details that is no number makes unsafe, where it is not the details of the kernel
_UNSAFE = {
    **dict.fromkeys(_KERNEL["wait"], conclusions.KERNEL_WAITS),
    **dict.fromkeys((*_KERNEL["device"], *_KERNEL["stream"]), KERNEL_CALLS),
    **dict.fromkeys(_KERNEL["step"], conclusions.STEP_DEVICE_TIMES),
}

KERNEL_DETAILS_FILE = "kernel_details"


def read_kernel_details(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """``op_summary_*.csv`` or ``kernel_details.csv``: the tasks that compute or communicate, and what was measured of them.

    Returns:
        Rows of ``kernels`` (``id`` is the row number; device, stream and step are null where the file has no such column),
        and of ``kernel_metrics``, whose names and units are those of the file.
    """
    table = read_table(paths, health, KERNEL_CALLS)
    name, start, duration = _KERNEL["name"], _KERNEL["start"], _KERNEL["duration"]
    if not has_required_columns(table, KERNEL_DETAILS_FILE, health, KERNEL_CALLS, name, start):
        return pl.DataFrame(), pl.DataFrame()
    integers = ("task_id", "model_id", "context_id", "blocks", "mix_blocks", "step")
    texts = ("core", "state", "hf32", "input_types", "input_formats", "output_types", "output_formats")
    rows = pl.DataFrame(
        {
            "id": pl.int_range(table.frame.height, dtype=pl.Int32, eager=True),
            "name": table.name(*name),
            "type": table.name(*_KERNEL["type"]),
            "device": table.integer(*_KERNEL["device"]).cast(pl.Int32, strict=False),
            "stream": table.integer(*_KERNEL["stream"]),
            "start_ns": table.time_ns(base_ns, *start),
            "length_ns": table.ns(*duration),
            "wait_ns": table.ns(*_KERNEL["wait"]),
            **{column: table.integer(*_KERNEL[column]) for column in integers},
            **{column: table.text(*_KERNEL[column]) for column in texts},
            **{column: _strip_shape_quotes(table.text(*_KERNEL[column])) for column in ("input_shapes", "output_shapes")},
        }
    )
    metrics = _kernel_metrics(table)
    table.report(KERNEL_DETAILS_FILE, health, _UNSAFE, conclusions.KERNEL_DETAILS, needed=(*start, *duration))
    _report_unmeasured(rows, health)
    rows = complete_rows(rows, ["name", "start_ns"], KERNEL_DETAILS_FILE, health, KERNEL_CALLS)
    rows = rows.with_columns(end_ns=pl.col("start_ns") + pl.col("length_ns").fill_null(0)).drop("length_ns")
    if metrics.height and rows.height < table.frame.height:
        metrics = metrics.join(rows.select("id"), left_on="kernel", right_on="id", how="semi", maintain_order="left")
    # the writers number the tasks of CPU and GPU by the calls that launched them
    numbered = ~pl.col("core").cast(pl.String).is_in([CORE_CPU, *GPU_CORES]).fill_null(False)
    return rows.with_columns(_kernel_kind(rows), task_id=pl.when(numbered).then("task_id")), metrics


#: the same file under CANN's name
read_op_summary = read_kernel_details


def _kernel_kind(rows: pl.DataFrame) -> pl.Series:
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
        unsafe = (conclusions.KERNEL_TIMES, conclusions.OPERATOR_DEVICE_TIMES, conclusions.OVERLAP)
        health.add("damaged_values", WARNING, count, message, unsafe)


def _kernel_metrics(table: TextTable) -> pl.DataFrame:
    """The columns that hold measurements, one row per value."""
    described = {column for name in results.KERNEL_DESCRIPTION if (column := table.find(name)) is not None}
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


def _strip_shape_quotes(shapes: pl.Series) -> pl.Series:
    """Shapes without the quotes that belong to the cell; an empty list is known, unlike ``N/A``."""
    plain: pl.Series = shapes.cast(pl.String).str.replace('^"(.*)"$', "$1").cast(NAME)
    return plain


def read_memory_record(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> pl.DataFrame:
    """``(ge_)memory_record_*.csv`` or ``memory_record.csv``: rows of ``memory`` with the totals of each allocator.

    The file's sums of two allocators are left out; the writers add them up again.
    """
    table = read_table(paths, health, MEMORY)
    if not has_required_columns(table, "memory_record", health, MEMORY, (results.COMPONENT,), (results.TIMESTAMP,)):
        return pl.DataFrame()
    component = table.text(results.COMPONENT)
    rows = (
        pl.DataFrame(
            {
                "component": component,
                "time_ns": table.time_ns(base_ns, results.TIMESTAMP),
                **{column: table.bytes(title) for column, title in results.TOTALS.items()},
                "stream": table.integer(results.STREAM_POINTER),
                **_device_columns(table),
            }
        )
        .filter(component.cast(pl.String).ne_missing(PTA_AND_GE))
        .with_columns(**NO_THREAD)
    )
    table.report("memory_record", health, {}, MEMORY, needed=(results.TIMESTAMP,))
    return complete_rows(rows, ["time_ns"], "memory_record", health, MEMORY)


def _device_columns(table: TextTable) -> dict[str, pl.Series]:
    """Device type and number: ``NPU:0`` or ``CPU``; older files of CANN name the number apart."""
    tag = table.text(results.DEVICE_TYPE, "Device").cast(pl.String)
    kind = tag.str.extract(r"^([A-Za-z]+)", 1).fill_null("NPU").cast(NAME)
    number = tag.str.extract(r":(\d{1,6})$", 1).cast(pl.Int32, strict=False)
    device = pl.select(pl.coalesce(number, table.integer(results.DEVICE).cast(pl.Int32, strict=False), 0)).to_series()
    return {"device_type": kind, "device": device.cast(pl.Int32)}


def read_operator_memory(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> pl.DataFrame:
    """``(ge_)operator_memory_*.csv`` or ``operator_memory.csv``: rows of ``allocations``.

    CANN's file has the duration instead of the release, and names without the ``cann::`` that results put before them.
    """
    table = read_table(paths, health, MEMORY)
    if not has_required_columns(table, "operator_memory", health, MEMORY, ("Name",), (results.ALLOCATION_TIME,)):
        return pl.DataFrame()
    of_cann = table.find(results.RELEASE_TIME) is None
    allocation = table.time_ns(base_ns, results.ALLOCATION_TIME)
    release = allocation + table.ns("Duration(us)") if of_cann else table.time_ns(base_ns, results.RELEASE_TIME)
    name = table.name("Name").cast(pl.String)
    name = (pl.Series([CANN_PREFIX], dtype=pl.String) + name) if of_cann else name
    by_engine = name.str.starts_with(CANN_PREFIX).fill_null(False)
    component = pl.select(pl.when(by_engine).then(pl.lit(GE)).otherwise(pl.lit(PTA))).to_series()
    rows = pl.DataFrame(
        {
            "name": name.cast(NAME),
            "bytes": table.bytes("Size"),
            "allocation_ns": allocation,
            "release_ns": release,
            "active_release_ns": table.time_ns(base_ns, results.ACTIVE_RELEASE_TIME),
            **{column: table.bytes(title) for column, title in results.ALLOCATION_TOTALS.items()},
            "stream": table.integer(results.STREAM_POINTER),
            **_device_columns(table),
            "component": component.cast(NAME),
        }
    )
    table.report("operator_memory", health, {}, MEMORY, needed=(results.ALLOCATION_TIME,))
    return complete_rows(rows, ["allocation_ns"], "operator_memory", health, MEMORY)


def read_npu_mem(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> pl.DataFrame:
    """``npu_mem_*.csv``: rows of ``memory`` with what the process holds on the device (its event ``APP``)."""
    table = read_table(paths, health, MEMORY)
    if not has_required_columns(table, "npu_mem", health, MEMORY, ("event",), ("timestamp(us)",)):
        return pl.DataFrame()
    component = table.text("event")
    rows = (
        pl.DataFrame(
            {
                "component": component,
                "time_ns": table.time_ns(base_ns, "timestamp(us)"),
                "reserved": table.bytes("memory"),
                **_device_columns(table),
            }
        )
        .filter(component.cast(pl.String).eq_missing(APP))
        .with_columns(**NO_THREAD)
    )
    table.report("npu_mem", health, {}, MEMORY, needed=("timestamp(us)",))
    return complete_rows(rows, ["time_ns"], "npu_mem", health, MEMORY)


def read_npu_module_mem(paths: Sequence[Path], health: HealthLog, *, base_ns: int = 0) -> pl.DataFrame:
    """``npu_module_mem*.csv``: rows of ``counters``, one per component and sample, in KB."""
    table = read_table(paths, health, COUNTERS)
    if not has_required_columns(table, MODULE_MEMORY, health, COUNTERS, (results.COMPONENT,), (results.TIMESTAMP,)):
        return pl.DataFrame()
    rows = pl.DataFrame(
        {
            "name": table.text(results.COMPONENT),
            "time_ns": table.time_ns(base_ns, results.TIMESTAMP),
            "value": table.bytes(results.TOTALS["reserved"]) / 1024.0,
            "device": _device_columns(table)["device"],
        }
    ).with_columns(group=pl.lit(MODULE_MEMORY, dtype=NAME), unit=pl.lit("KB", dtype=NAME))
    needed = (results.TIMESTAMP, *(f"{results.TOTALS['reserved']}({unit})" for unit in ("KB", "MB", "B", "Byte")))
    table.report(MODULE_MEMORY, health, {}, COUNTERS, needed=needed)
    return complete_rows(rows, ["time_ns", "value"], MODULE_MEMORY, health, COUNTERS)


def read_source_table(name: str, unsafe: str, paths: Sequence[Path], health: HealthLog) -> pl.DataFrame:
    """A table that is handed on unchanged, as rows of ``source_tables``; cells stay text, missing ones become empty.

    Args:
        name: what results call it.
        unsafe: what its loss makes unsafe.
        paths: its slices, in order.
        health: gets what is wrong.
    """
    frame = read_table(paths, health, unsafe).frame
    return source_rows(name, frame) if frame.height else pl.DataFrame()


#: what the loss of a table makes unsafe, where it is not samples of counters
_UNSAFE_TABLES = {"op_statistic": KERNEL_CALLS, "api_statistic": conclusions.RUNTIME_CALLS, "task_time": KERNEL_CALLS}

read_step_trace_time = partial(read_source_table, results.STEP_TRACE_TABLE, "")
read_data_preprocess = partial(read_source_table, results.DATA_PREPROCESS, COUNTERS)

#: CANN's name of a file without time stamp, and what hands it on
SOURCE_TABLES = {
    kind: read_data_preprocess if kind == "aicpu" else partial(read_source_table, kind, _UNSAFE_TABLES.get(kind, COUNTERS))
    for kind in HANDED_ON
}
