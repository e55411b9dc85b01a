"""Reads a flat ``profiler/`` directory of MindSpore (r2.x and older, either generation) into the trace of one rank.

A rank's files complete each other: step trace, executions on the device, tables of operators, the data pipeline,
communication. Of several sources of the same times the most exact one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from steplens.readers.common.ascend_csv_file import read_table
from steplens.readers.common.side_files import add_findings, read_json
from steplens.readers.common.trace_rows import meta_rows, source_rows
from steplens.readers.mindspore import minddata, mindspore_host
from steplens.readers.mindspore.device_logs.legacy_device import step_tables
from steplens.readers.mindspore.folders import choose_number, nothing_to_read
from steplens.readers.mindspore.mindspore_folder import HOST_INFO, MindSporeFolder, open_folder
from steplens.readers.mindspore.results import (
    mindspore_cluster,
    mindspore_dynamic_shape,
    mindspore_kernels,
    mindspore_memory,
    mindspore_steps,
    mindspore_strategy,
    mindspore_tables,
    mindspore_timeline,
)
from steplens.readers.mindspore.windows import mindspore_cpu, mindspore_windows
from steplens.trace.building.build import build_trace
from steplens.trace.health import (
    HOST_AGAINST_DEVICE,
    INFO,
    OPERATOR_TIMES,
    RANK_COMPARISON,
    STEP_DEVICE_TIMES,
    WARNING,
    HealthLog,
)
from steplens.trace.schema import PARTIAL_STEPS
from steplens.trace.trace import Trace

_UNIX_FROM_NS = 1_000_000_000_000_000_000
_LIMIT = 1 << 31
#: of profiler_info, what becomes of it in ``meta``
_INFO = ("context_mode", "ms_version", "parallel_mode", "stage_num", "rank_size", "is_heterogeneous", "graph_ids", "jit_level",
         "profiling_start_time", "profiling_stop_time", "profiling_options", "diff_time", "steplens_version",
         PARTIAL_STEPS)  # fmt: skip

#: files that are handed on as they are: family -> table
_KEPT = {
    "gpu_details": "gpu_op_detail_info",
    "gpu_types": "gpu_op_type_info",
    "gpu_activity_details": "gpu_activity_data",
    "cpu_details": "cpu_op_detail_info",
    "cpu_types": "cpu_op_type_info",
    "dataset": "dataset",
}
#: raw times of a GPU whose unit no header tells; the timeline has the same events
_UNREAD = ("gpu_operators", "gpu_activity", "gpu_steps")


def sources(path: Path, rank: int | None = None) -> list[Path]:
    """The files that decide what is read of a rank (of all ranks when None)."""
    return open_folder(path).of_rank(rank)


def read_trace(path: Path, rank: int | None = None, *, host: bool = True) -> Trace:
    """The trace of one rank.

    Args:
        path: the directory.
        rank: may be left out where there is only one.
        host: whether what the host did is laid beside the times of this folder.

    Raises:
        InputError: there are no files, or of several ranks and none is named, or nothing in them can be read.
    """
    folder = open_folder(path)
    remedies = ("Name one of its ranks", "Give a profiler directory")
    several, none = "holds results of the ranks", "holds no results of MindSpore's profiler"
    rank = choose_number(path, rank, folder.ranks, several=several, none=none, remedies=remedies)
    health = HealthLog()
    reader = _Reader(folder, rank, health)
    tables = reader.tables(host=host)
    if not set(tables) - {"meta"} and "parallel_strategy" not in tables["meta"]["key"]:
        raise nothing_to_read(path, f"results of rank {rank}", health)
    return build_trace(path, tables, health, cpu_is_device=False)


class _Reader:
    """The files of one rank, read family by family into raw tables."""

    def __init__(self, folder: MindSporeFolder, rank: int, health: HealthLog) -> None:
        self._folder = folder
        self._rank = rank
        self._health = health
        self._kept: list[pl.DataFrame] = []
        self._tables: dict[str, pl.DataFrame] = {}
        self._info = self._profiler_info()
        self._strategy: dict[str, Any] | None = None

    def tables(self, *, host: bool) -> dict[str, pl.DataFrame]:
        """All raw tables of the rank that have rows."""
        self._steps()
        self._device_tasks()
        self._read_cpu_operators()
        self._read_operator_tables()
        self._communication()
        self._parallel_strategy()
        self._dynamic_shapes()
        if self._rank in self._folder.data_ranks:
            self._add_all(minddata.tables(self._folder.path, self._rank, self._health))
        if host:
            self._host()
        self._add("source_tables", pl.concat(self._kept) if self._kept else pl.DataFrame())
        self._add("meta", meta_rows(self._meta_values()))
        filled = {name: frame for name, frame in self._tables.items() if frame.height}
        self._report_clock(filled)
        return filled

    def _file(self, family: str) -> Path | None:
        return self._folder.file(family, self._rank)

    def _add(self, name: str, frame: pl.DataFrame) -> None:
        """Put rows behind those that a table has."""
        if not frame.height:
            return
        parts = [self._tables[name], frame] if name in self._tables else [frame]
        self._tables[name] = pl.concat(parts, how="diagonal_relaxed")

    def _add_all(self, tables: Mapping[str, pl.DataFrame]) -> None:
        for name, frame in tables.items():
            self._add(name, frame)

    def _keep(self, table: str, frame: pl.DataFrame) -> None:
        if frame.height:
            self._kept.append(source_rows(table, frame))

    def _profiler_info(self) -> dict[str, Any]:
        path = self._file("profiler_info")
        return read_json(path, self._health) if path is not None else {}

    def _meta_values(self) -> dict[str, Any]:
        values: dict[str, Any] = {"source_format": "mindspore_flat", "rank": self._rank, "device_ids": [self._rank]}
        values.update({key: self._info[key] for key in _INFO if key in self._info})
        if self._rank in self._folder.parallel:
            mode, stages, size = self._folder.parallel[self._rank]
            values = {**values, "parallel_mode": mode, "stage_num": stages, "rank_size": size}
        if type(values.get("rank_size")) is int:
            values["world_size"] = values["rank_size"]
        if (points := self._file("step_points")) is not None:
            values.update(mindspore_steps.read_point_names(points, self._health))
        if self._strategy is not None:
            values["parallel_strategy"] = self._strategy
            values.setdefault("parallel_mode", self._strategy.get("parallel_type"))
        return values

    def _steps(self) -> None:
        if (path := self._file("step_trace")) is None:
            return
        points, collectives, stored = mindspore_steps.read_steps(path, self._health)
        self._keep("step_trace_average", stored)
        if points.height:
            # steplens keeps its steps to the ns beside these counts of 10 ns
            is_own = self._info.get("writer") == "steplens" and bool(self._info.get("steps"))
            for name, frame in step_tables(points, collectives, self._rank).items():
                if name != "steps" or not is_own:
                    self._add(name, frame)

    def _device_tasks(self) -> None:
        path = self._file("framework")
        framework = pl.DataFrame() if path is None else mindspore_tables.framework_raw(path, self._health)
        self._keep("framework_raw", framework)
        cores = self._core_tasks(framework)
        on_ai_cpu = self._ai_cpu()
        if cores.height or on_ai_cpu.height:
            # runs on the AI CPU are numbered first: their metrics refer to the numbers
            numbered = pl.concat([on_ai_cpu, cores], how="diagonal_relaxed") if cores.height else on_ai_cpu
            if "id" in numbered.columns:
                following = pl.int_range(pl.len(), dtype=pl.Int32) + int(numbered["id"].max() or 0) + 1  # type: ignore[arg-type]
                numbered = numbered.with_columns(id=pl.coalesce("id", following))
            self._add("kernels", numbered)
            return
        for family, reader in (
            ("ascend_timeline", mindspore_timeline.ascend_tables),
            ("gpu_timeline", mindspore_timeline.gpu_tables),
        ):
            if (path := self._file(family)) is not None:
                if family == "ascend_timeline" and "steps" in self._tables:
                    message = f"tasks have the times of {path.name}, which count from its first task: they belong to no step"
                    self._health.add("tasks_without_steps", WARNING, 1, message, STEP_DEVICE_TIMES)
                for name, frame in mindspore_timeline.try_read(reader, path, self._rank, self._health).items():
                    if name != "steps" or "steps" not in self._tables:
                        self._add(name, frame)
                return

    def _core_tasks(self, framework: pl.DataFrame) -> pl.DataFrame:
        if (path := self._file("timeline_data")) is not None:
            micro = "steplens_version" in self._info or "steplens" in str(self._info.get("writer", ""))
            tasks = mindspore_kernels.read_timeline_data(path, self._rank, self._health, micro=micro)
            if tasks.height:
                return mindspore_kernels.describe_kernels(tasks, framework, self._health)
        if (path := self._file("scheduler_text")) is not None:
            return mindspore_kernels.read_scheduler_text(path, framework, self._rank, self._health)
        return pl.DataFrame()

    def _ai_cpu(self) -> pl.DataFrame:
        path = self._file("aicpu")
        if path is not None:
            table = mindspore_tables.aicpu_intermediate(path, self._health)
        elif (path := self._file("aicpu_text")) is not None:
            table = mindspore_tables.aicpu_text(path, self._health)
        else:
            return pl.DataFrame()
        self._keep("aicpu_intermediate", table)
        if self._file("aicpu") is None:
            return pl.DataFrame()
        kernels, metrics = mindspore_kernels.aicpu_kernels(path, table, self._rank, self._health)
        self._add("kernel_metrics", metrics)
        return kernels

    def _read_cpu_operators(self) -> None:
        if (path := self._file("cpu_operators")) is not None:
            self._add_all(mindspore_cpu.read_tables(path, self._file("cpu_framework"), self._rank, self._health))
        if self._info.get("writer") == "steplens":
            recorded: dict[str, list[pl.DataFrame]] = {}
            add_findings(self._info, self._health)
            mindspore_windows.add_loop(self._info, self._rank, recorded, self._health)
            self._add_all({name: pl.concat(frames) for name, frames in recorded.items()})
        if (path := self._file("cpu_timeline")) is not None and "steps" not in self._tables and "ops" in self._tables:
            steps = mindspore_timeline.try_read(mindspore_timeline.cpu_steps, path, self._rank, self._health).get("steps")
            ops = self._tables["ops"]
            first, last = ops["start_ns"].min(), ops["end_ns"].max()
            # times of some versions count from the first operator
            if steps is not None and steps.filter((pl.col("end_ns") > first) & (pl.col("start_ns") < last)).height:
                self._add("steps", steps)
        if (path := self._file("cpu_memory")) is not None:
            self._add("memory", mindspore_cpu.read_memory(path, self._rank, self._health))

    def _read_operator_tables(self) -> None:
        tables = (
            ("operator_types", "aicore_intermediate_type", mindspore_tables.operator_types),
            ("operator_details", "aicore_intermediate_detail", mindspore_tables.operator_details),
            ("flops", "flops", mindspore_tables.flops),
            ("flops_summary", "flops_summary", mindspore_tables.flops_summary),
        )
        for family, table, reader in tables:
            if (path := self._file(family)) is not None:
                self._keep(table, reader(path, self._health))
        for family, table in _KEPT.items():
            if (path := self._file(family)) is not None:
                self._keep(table, read_table([path], self._health, OPERATOR_TIMES).frame)
        unread = [path.name for family in _UNREAD if (path := self._file(family)) is not None]
        if unread:
            message = f"{', '.join(unread)} were not read: nothing in them tells the unit of their times"
            severity = INFO if self._file("gpu_timeline") is not None else WARNING
            self._health.add("unread_files", severity, len(unread), message, OPERATOR_TIMES)
        if (path := self._file("operator_memory")) is not None:
            self._add("allocations", mindspore_tables.operator_memory(path, self._health))
        if (path := self._file("memory_plan")) is not None:
            for name, frame in mindspore_memory.read_plan(path, self._health).items():
                self._keep(name, frame)

    def _communication(self) -> None:
        if (path := self._file("cluster")) is not None:
            self._keep("ascend_cluster_analyse", mindspore_cluster.read_cluster(path, self._health))
        if (path := self._file("collectives")) is None:
            return
        stages, size = self._parallel_sizes()
        if stages is None or size is None:
            message = "the number of stages is unknown: the ends of links are numbered within the rank's stage"
            self._health.add("unknown_stages", WARNING, 1, message, RANK_COMPARISON)
        first = mindspore_cluster.stage_first_rank(self._rank, stages or 1, size or 1) if size else 0
        collectives = mindspore_cluster.read_collectives(path, first, self._health)
        self._keep("hccl_raw", collectives.pop("hccl_raw", pl.DataFrame()))
        self._add_all(collectives)

    def _parallel_strategy(self) -> None:
        if (path := self._file("strategy")) is not None:
            self._strategy, operators = mindspore_strategy.read_strategy(path, self._health)
            self._keep(mindspore_strategy.TABLE, operators)

    def _parallel_sizes(self) -> tuple[int | None, int | None]:
        """Number of stages and of ranks, from the name of the cluster file, else from profiler_info."""
        if self._rank in self._folder.parallel:
            return self._folder.parallel[self._rank][1:]
        sizes = (self._info.get("stage_num"), self._info.get("rank_size"))
        stages, size = (value if type(value) is int and 0 < value < _LIMIT else None for value in sizes)
        return stages, size

    def _dynamic_shapes(self) -> None:
        if (path := self._file("dynamic_shape")) is None:
            return
        runs, sums = mindspore_dynamic_shape.read_dynamic_shape(path, self._health)
        self._keep("dynamic_shape_runs", runs)
        self._keep("dynamic_shape_types", sums)

    def _host(self) -> None:
        if (path := self._file(HOST_INFO)) is None:
            return
        records = mindspore_host.read_host_records(path, self._health)
        self._keep(HOST_INFO, records.rows)
        self._add_all(mindspore_host.tables_on_same_clock(records.tables(), self._tables, path.name, self._health))

    def _report_clock(self, tables: dict[str, pl.DataFrame]) -> None:
        """Say so where the times of the device are those of its own clock."""
        starts = [tables[name]["start_ns"].min() for name in ("kernels", "step_points") if name in tables]
        start_times = [start for start in starts if isinstance(start, int)]
        if start_times and min(start_times) < _UNIX_FROM_NS and "ops" not in tables:
            message = "times count the device's own clock from its start; they cannot be compared with those of another device"
            self._health.add("device_clock", INFO, 1, message, (HOST_AGAINST_DEVICE, RANK_COMPARISON))
