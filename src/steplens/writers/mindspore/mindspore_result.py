"""The table of MindSpore's result files, and writing all that have something to say into a ``profiler`` directory.

The files are independent: each is written to a temporary file and renamed when complete, and one that fails neither hides nor
removes another. ``profiler_info_<rank>.json`` says what failed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.formats.ascend_results import DEVICE_TYPE, MEMORY_RECORD, OPERATOR_DETAILS, STEP, STEP_TRACE, TRACE_VIEW
from steplens.formats.mindspore import COMPUTE_TIME, COMPUTE_TIME_DETAIL, CPU_TIMELINE_SUMMARY, FILES, PIPELINE_FILES
from steplens.trace.schema import PARTIAL_STEPS
from steplens.trace.trace import Trace
from steplens.writers.common.output import LEVEL0, NothingToWriteError, Output, time_base_ns
from steplens.writers.common.text import microseconds, write_csv
from steplens.writers.database import database
from steplens.writers.mindspore import mindspore_device, mindspore_operators, mindspore_pipeline, mindspore_timeline
from steplens.writers.result import DATABASE, DONE, FAILED, OutputFile, OutputStatus, write_file
from steplens.writers.tables import operator_details, step_trace_time
from steplens.writers.tables.memory_record import memory_record, totals_after_events
from steplens.writers.trace_view import trace_view

_PIPELINE = (
    OutputFile(PIPELINE_FILES["raw"], mindspore_pipeline.write_raw),
    OutputFile(PIPELINE_FILES["summary"], mindspore_pipeline.write_summary_json),
    OutputFile(PIPELINE_FILES["summary_table"], mindspore_pipeline.write_summary_csv),
)


def cpu_files(timeline_limit_mb: int | None) -> tuple[OutputFile, ...]:
    """The files of a run on a CPU; those of a ``profiler`` directory have the number of the rank in place of ``{rank}``."""
    return (
        OutputFile(FILES["cpu_types"], mindspore_operators.write_types),
        OutputFile(FILES["cpu_details"], mindspore_operators.write_details),
        OutputFile(FILES["cpu_operators"], mindspore_operators.write_timestamps),
        OutputFile(FILES["cpu_framework"], mindspore_operators.write_framework),
        OutputFile(FILES["cpu_memory"], mindspore_operators.write_memory),
        OutputFile(FILES["cpu_timeline"], partial(mindspore_timeline.write_timeline, limit_mb=timeline_limit_mb)),
        OutputFile(CPU_TIMELINE_SUMMARY, mindspore_timeline.write_summary),
        OutputFile(FILES["step_trace"], mindspore_device.write_graph_step_trace),
        OutputFile(FILES["step_points"], mindspore_device.write_graph_points),
        *_PIPELINE,
    )


DEVICE_FILES = (
    OutputFile(FILES["step_trace"], mindspore_device.write_step_trace),
    OutputFile(FILES["step_points"], mindspore_device.write_points),
    OutputFile(COMPUTE_TIME, mindspore_device.write_compute_time),
    OutputFile(COMPUTE_TIME_DETAIL, mindspore_device.write_compute_time_detail),
    OutputFile(FILES["operator_types"], mindspore_device.write_core_types),
    OutputFile(FILES["operator_details"], mindspore_device.write_core_details),
    OutputFile(FILES["timeline_data"], mindspore_device.write_timeline_data),
    OutputFile(FILES["framework"], mindspore_device.write_framework),
    OutputFile(FILES["aicpu"], mindspore_device.write_ai_cpu),
    OutputFile(FILES["aicpu_text"], mindspore_device.write_ai_cpu_text),
    OutputFile(PIPELINE_FILES["receive"], mindspore_device.write_receive),
    OutputFile(PIPELINE_FILES["send"], mindspore_device.write_send),
    *_PIPELINE,
)


def _write_step_times(output: Output, path: Path) -> None:
    """Write step_trace_time.csv: where the time of each step went, us."""
    rows = ascend_step_times(output.trace, whole_trace_without_steps=True).sort("step", nulls_last=True)
    if rows.is_empty():
        raise NothingToWriteError("neither steps nor operators were recorded")
    times = {title: microseconds(pl.col(name)) for title, name in step_trace_time.COLUMNS.items()}
    write_csv(rows.select(pl.col("step").alias(STEP), **times), path)


def _write_memory_record(output: Output, path: Path) -> None:
    """Write memory_record.csv: totals of the memory pool, MB of 2**20 bytes, times us behind the time base."""
    rows = memory_record(output)
    if rows.is_empty():
        raise NothingToWriteError("no event of the memory pool was recorded")
    write_csv(rows.select(*totals_after_events(output), pl.format("CPU:{}", "device").alias(DEVICE_TYPE)), path)


#: of ``ASCEND_PROFILER_OUTPUT``, beside those of every run
PIPELINE_OUTPUT = tuple(replace(file, name=file.name.replace("_{rank}", "{rank}")) for file in _PIPELINE)

#: of ``ASCEND_PROFILER_OUTPUT`` of a run on a CPU
OUTPUT_FILES = (
    OutputFile(TRACE_VIEW, trace_view.write),
    OutputFile(STEP_TRACE, _write_step_times),
    OutputFile(MEMORY_RECORD, _write_memory_record, switch="profile_memory"),
    OutputFile(OPERATOR_DETAILS, operator_details.write, switch="record_shapes"),
    *PIPELINE_OUTPUT,
    OutputFile("ascend_mindspore_profiler{rank}.db", database.write, export=DATABASE),
)


def write_flat(trace: Trace, directory: Path, rank: int, files: Sequence[OutputFile]) -> dict[str, OutputStatus]:
    """Write files of one rank, which numbers them, into a ``profiler`` directory; gives file name -> what became of it."""
    output = Output(trace, time_base_ns(trace), LEVEL0)
    statuses: dict[str, OutputStatus] = {}
    for file in files:
        path = directory / file.name.format(rank=rank)
        status = statuses[path.name] = write_file(path, partial(file.write, output))
        if status.status != DONE:
            # an older result's file beside newer ones would pass for one of them; what else has its name is not ours
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return statuses


def profiler_info(trace: Trace, rank: int, statuses: Mapping[str, OutputStatus], more: Mapping[str, Any]) -> dict[str, Any]:
    """What profiler_info_<rank>.json holds: the run, how it was recorded, its steps, and which files failed."""
    meta = trace.meta_values()
    options = meta.get("config") if isinstance(meta.get("config"), dict) else {}
    failed = {name: status.reason for name, status in statuses.items() if status.status == FAILED}
    steps = trace.required("steps").sort("start_ns").select("id", "start_ns", "end_ns").collect()
    return {
        "context_mode": meta.get("context_mode", ""),
        "rank_id": str(rank),
        "rank_size": meta.get("world_size") or 1,
        "ms_version": meta.get("ms_version", ""),
        "is_heterogeneous": False,
        "writer": "steplens",
        "steplens_version": meta.get("steplens_version", ""),
        "profiling_options": options,
        "steps": [list(row) for row in steps.iter_rows()],
        **({PARTIAL_STEPS: meta[PARTIAL_STEPS]} if PARTIAL_STEPS in meta else {}),
        "failed": failed,
        **more,
    }
