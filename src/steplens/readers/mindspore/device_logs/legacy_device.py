"""Reads a folder of raw device logs of the first Ascend generation into a ``Trace``.

The logs count the device's own clock, from its start; nothing in them ties it to Unix time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from steplens.readers.common.trace_rows import merged_meta, meta_rows, source_rows
from steplens.readers.mindspore import legacy_aicpu, minddata
from steplens.readers.mindspore.device_logs import legacy_framework, legacy_hwts, legacy_step_trace
from steplens.readers.mindspore.folders import choose_number, nothing_to_read
from steplens.readers.mindspore.legacy_files import LegacyFiles, find_logs, join_slices
from steplens.trace.building.build import build_trace
from steplens.trace.building.communication_marks import communication_kind
from steplens.trace.health import (
    ERROR,
    HOST_AGAINST_DEVICE,
    INFO,
    KERNEL_CALLS,
    KERNEL_TIMES,
    RANK_COMPARISON,
    STEP_PHASES,
    STEP_TIMES,
    HealthLog,
)
from steplens.trace.schema import KIND_COMPUTE
from steplens.trace.trace import Trace

#: in a graph that fills the data queue in a step of its own
_QUEUE_GRAPH = "Default/InitDataSetQueue"
#: operations by the names that MindSpore gives them, "AllReduce-op4542"
_OPERATION = r"(?i)(allreduce|allgather|reducescatter|alltoallv?|broadcast|receive|send)"
_EVENTS = ("kernels", "step_points", "pipeline_ops", "pipeline_batches", "source_tables")


def sources(path: Path, device: int | None = None) -> list[Path]:
    """The files that decide what is read of a device (of all devices when None)."""
    logs = find_logs(path)
    log_files = [file for (_, number), slices in logs.slices.items() if device in (None, number) for file in slices]
    return [*log_files, *(minddata.sources(path, device) if minddata.detect(path) else [])]


def read_trace(path: Path, device: int | None = None) -> Trace:
    """The trace of one device.

    Args:
        path: the job's folder.
        device: its number; may be left out where there is only one.

    Raises:
        InputError: there are no logs, or of several devices and none is named, or nothing in them can be read.
    """
    logs = find_logs(path)
    remedies = ("Name one of its devices", "Give the folder with training_trace or hwts logs")
    several, none = "holds raw logs of the devices", "holds no raw device logs"
    device = choose_number(path, device, logs.devices, several=several, none=none, remedies=remedies)
    health = HealthLog()
    tables = _device_tables(logs, device, health)
    if not any(name in tables for name in _EVENTS):
        raise nothing_to_read(path, f"raw logs of device {device}", health)
    if "kernels" in tables or "step_points" in tables:
        message = "times count the device's own clock from its start; they cannot be compared with those of another device"
        health.add("device_clock", INFO, 1, message, (HOST_AGAINST_DEVICE, RANK_COMPARISON))
    return build_trace(path, tables, health, cpu_is_device=False)


def _device_tables(logs: LegacyFiles, device: int, health: HealthLog) -> dict[str, pl.DataFrame]:
    framework = _read_framework(logs, device, health)
    tables = _read_steps(logs, device, framework, health)
    kernels = [_core_kernels(logs, device, framework, health)]
    aicpu = legacy_aicpu.read_kernels(logs.of("aicpu", device), health)
    kernels.append(legacy_aicpu.kernel_rows(aicpu, device).with_columns(kind=pl.lit(KIND_COMPUTE)))
    tables["kernels"] = pl.concat(kernels, how="diagonal_relaxed")
    source_tables = []
    if framework.height:
        source_tables.append(source_rows("framework_raw", framework.drop("key")))
    if aicpu.height:
        source_tables.append(source_rows("aicpu_intermediate", legacy_aicpu.intermediate_table(aicpu)))
    if minddata.detect(logs.path):
        for name, frame in minddata.tables(logs.path, device, health).items():
            tables[name] = frame
    batches = [
        legacy_aicpu.read_get_next(logs.of("aicpu_mi", device), health),
        legacy_aicpu.read_enqueued(logs.of("tdt", device), health),
        *([tables["pipeline_batches"]] if "pipeline_batches" in tables else []),
    ]
    tables["pipeline_batches"] = pl.concat(batches, how="diagonal_relaxed")
    if "source_tables" in tables:
        source_tables.append(tables["source_tables"])
    if source_tables:
        tables["source_tables"] = pl.concat(source_tables)
    meta: dict[str, Any] = {"source_format": "mindspore_legacy_raw", "device_ids": [device], "rank": device}
    points = legacy_framework.read_points(logs.of("point", device), health)
    meta.update({key: points[tag] for key, tag in (("fp_start", 1), ("bp_end", 2)) if tag in points})
    tables["meta"] = merged_meta(*([tables["meta"]] if "meta" in tables else []), meta_rows(meta))
    return {name: frame for name, frame in tables.items() if frame.height}


def _read_framework(logs: LegacyFiles, device: int, health: HealthLog) -> pl.DataFrame:
    kind = "ge_" if not logs.of("task_desc", device) and logs.of("ge_task_desc", device) else ""
    tasks = legacy_framework.read_tasks(logs.of(f"{kind}task_desc", device), health)
    graph = legacy_framework.read_graph(logs.of(f"{kind}graph_desc", device), health, ge=bool(kind))
    return legacy_framework.framework_table(tasks, graph)


def _read_steps(logs: LegacyFiles, device: int, framework: pl.DataFrame, health: HealthLog) -> dict[str, pl.DataFrame]:
    unsafe = (STEP_TIMES, STEP_PHASES)
    if slices := logs.of("training_trace", device):
        fills = bool(framework["full_kernel_name"].str.starts_with(_QUEUE_GRAPH).any())
        points, collectives = legacy_step_trace.decode_training_trace(
            join_slices(slices, health, unsafe), health, skip_first=fills
        )
    elif slices := logs.of("ts_track", device):
        points, collectives = legacy_step_trace.decode_track(join_slices(slices, health, unsafe), health)
    else:
        return {}
    return step_tables(points, collectives, device)


def step_tables(points: pl.DataFrame, collectives: pl.DataFrame, device: int) -> dict[str, pl.DataFrame]:
    """Points of steps as tables: themselves, the steps of the model that trains, and the collectives as communication.

    Of several models the one with the most steps trains (the others fill queues or initialise).
    """
    if not points.height:
        return {}
    models = points.group_by("model_id", maintain_order=True).agg(pl.len(), last=pl.col("end_ns").max())
    training = points.join(
        models.sort("len", "last", descending=True).head(1).select("model_id"), on="model_id", how="semi", nulls_equal=True
    ).sort("start_ns", maintain_order=True)
    task_name = pl.col("name").cast(pl.String)
    ordered = training.unique("step", keep="first", maintain_order=True)
    return {
        "step_points": points,
        "step_collectives": collectives,
        "steps": ordered.select(id="step", start_ns="start_ns", end_ns=pl.max_horizontal("start_ns", "end_ns")),
        "communication": collectives.select(
            "name",
            "step",
            "stream",
            "start_ns",
            end_ns=pl.max_horizontal("start_ns", "end_ns"),
            kind=communication_kind(task_name),
            operation=task_name.str.extract(_OPERATION).str.to_lowercase(),
            device=pl.lit(device, dtype=pl.Int32),
        ),
    }


def _core_kernels(logs: LegacyFiles, device: int, framework: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    slices = logs.of("hwts", device)
    if not slices:
        return pl.DataFrame()
    if not framework.height:
        message = "the task scheduler's log cannot be read without the framework's list of tasks (task_desc_info)"
        health.add("missing_file", ERROR, 1, message, KERNEL_CALLS)
        return pl.DataFrame()
    records = legacy_hwts.decode_log(join_slices(slices, health, (KERNEL_CALLS, KERNEL_TIMES)), health)
    return core_kernels(records, framework, device, health)


def core_kernels(records: pl.DataFrame, framework: pl.DataFrame, device: int, health: HealthLog) -> pl.DataFrame:
    """Records of the task scheduler as rows of ``kernels``, with what the framework knows of their operators.

    Args:
        records: of ``legacy_hwts``.
        framework: of ``legacy_framework.framework_table``.
        device: number of the device.
        health: gets what is wrong.
    """
    named_kernels = framework.with_columns(name="full_kernel_name")
    runs = legacy_hwts.pair_executions(records, named_kernels, health)
    details = legacy_framework.kernel_columns(framework).unique("key", keep="first")
    columns = [column for column in details.columns if column.startswith(("input_", "output_"))]
    described = details.select("key", *columns, type="kernel_type", blocks="block_dim", task_id="task_id")
    return runs.join(described, on="key", how="left", maintain_order="left").select(
        "name",
        "type",
        "stream",
        "start_ns",
        "end_ns",
        "task_id",
        "blocks",
        *columns,
        kind=pl.lit(KIND_COMPUTE),
        core=pl.lit("AI_CORE"),
        device=pl.lit(device, dtype=pl.Int32),
    )
