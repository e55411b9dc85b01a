"""Raw tables of the device from the columns of a Kineto trace: tasks, their measured values, runtime calls, device ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from steplens.formats.kineto import COLLECTIVE_PREFIX, COPY_CATEGORIES, COPY_PREFIX, SYNCHRONIZATION
from steplens.readers.common import json_decoder
from steplens.readers.common.side_files import as_list, as_object
from steplens.readers.kineto.kineto_accelerators import (
    accelerator_name,
    accelerator_of_calls,
    is_communication,
    is_copy,
    is_idle,
    place_events,
)
from steplens.readers.kineto.kineto_collectives import communication_table
from steplens.readers.kineto.kineto_events import EventColumns
from steplens.readers.kineto.kineto_lanes import short_numbers
from steplens.readers.kineto.kineto_structs import LaunchArgs
from steplens.readers.kineto.kineto_tables import to_absolute_times
from steplens.trace.building.checks import launches_device_work
from steplens.trace.building.communication_marks import COMMUNICATION_CORE, LIBRARY_KERNEL
from steplens.trace.building.devices import ACCELERATOR
from steplens.trace.building.distinct import number_distinct
from steplens.trace.building.lookup import sort_rows
from steplens.trace.health import INFO, KERNEL_TIMES, OPERATOR_DEVICE_TIMES, OVERLAP, STEP_DEVICE_TIMES, WARNING, HealthLog
from steplens.trace.schema import CORE_CPU, CORE_CUDA, CORE_ROCM, KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY, KIND_OTHER, NAME

#: measured values of a device task in Kineto's order, and the member of ``LaunchArgs`` that has them; the last one
#: differs from task to task
METRICS = {
    "registers per thread": "registers",
    "shared memory": "shared_memory",
    "blocks per SM": "blocks_per_sm",
    "warps per SM": "warps_per_sm",
    "grid x": "grid",
    "grid y": "grid",
    "grid z": "grid",
    "block x": "block",
    "block y": "block",
    "block z": "block",
    "est. achieved occupancy %": "occupancy",
}
BANDWIDTH = "memory bandwidth (GB/s)"

_COMMUNICATION_KERNEL = re.compile(LIBRARY_KERNEL)
_COPY_NAME = re.compile(r"^(Memcpy(?: \w+)?|Memset)")
#: columns of device tasks that rows of ``kernels`` are made from
_OF_EVENTS = ("category", "pid", "tid", "context", "size", "blocks_of_threads", "_described", "_call", "own_core", "own_type")
#: names of categories in one finding
_NAMED = 8
#: characters of a device's name in a finding
_CHARACTERS = 40
#: calls of HIP whose grid is the number of threads, not of blocks
_GRID_IN_THREADS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
_ROCM_DEVICE = re.compile(r"(?i)\b(amd|radeon|instinct|gfx\d+)\b")
_NPU_DEVICE = re.compile(r"^(NPU|Ascend)")
#: tasks whose values are looked at together
_PIECE = 1 << 14
_LAUNCH_DECODER = json_decoder.Decoder[LaunchArgs](LaunchArgs)


def device_tables(
    columns: EventColumns, host: Mapping[str, pl.DataFrame], members: dict[str, Any], base_ns: int, log: HealthLog
) -> dict[str, pl.DataFrame]:
    """``api``, ``kernels``, ``kernel_metrics``, ``communication`` and ``marks``, where the trace has them.

    Args:
        columns: the columns these tables are made of are forgotten there.
        host: raw tables of the host; its operator calls say of old traces what a communication kernel does.
        members: the members of the trace's top object.
        base_ns: base time of the file.
        log: takes findings.
    """
    raw: dict[str, pl.DataFrame] = {}
    calls, ranges, tasks, collectives, unplaced = (
        to_absolute_times(columns.take(kind), base_ns) for kind in ("calls", "device_ranges", "tasks", "collectives", "unplaced")
    )
    placed = place_events(unplaced, _host_processes(host, calls), columns.process_labels)
    tasks, ranges = _concat_nonempty(tasks, placed.tasks), _concat_nonempty(ranges, placed.ranges)
    _report_unplaced(placed.rest, log)
    tasks, ranges = _number_devices(tasks, ranges, columns.lane_texts, log)
    if _cpu_is_device(members):
        # they repeat what the operator calls say, which their own rule makes the CPU's tasks
        tasks, collectives = tasks.clear(), collectives.clear()
    if calls.height:
        calls = calls.with_columns(external_id=_valid_external_ids("external_id"))
    if tasks.height:
        core = _device_core(tasks, calls, members, columns.process_labels)
        tasks = _kernel_rows(tasks.with_columns(external_id=_valid_external_ids("external_id")), calls, core)
        if _has_colliding_correlations(calls):
            message = "calls of several processes have the same numbers; tasks were linked to the last call before them"
            log.add("several_processes", INFO, calls["pid"].n_unique(), message, (OPERATOR_DEVICE_TIMES, KERNEL_TIMES))
            tasks = _launched_before(tasks, calls)
            calls = calls.with_columns(external_id=pl.lit(None, dtype=pl.Int64))
        raw["kernel_metrics"] = _kernel_metrics(tasks)
        collective_rows = communication_table(tasks, calls, host.get("ops"), collectives, members)
        if collective_rows.height:
            raw["communication"] = collective_rows
        raw["kernels"] = tasks.drop("launch", "bandwidth", strict=False)
    raw["api"] = _api_calls(calls, ranges)
    raw["marks"] = _device_marks(ranges)
    return raw


def device_is_missing(raw: dict[str, pl.DataFrame], members: dict[str, Any], log: HealthLog) -> bool:
    """Whether an accelerator worked and none of its tasks was recorded: the operators of the CPU would pass for its work.

    Three things tell, beside calls that launch device work, whose lost tasks have a finding of their own: allocations on a
    device, calls of the runtime of an accelerator other than a GPU of CUDA or HIP, whose libraries are called for a CPU too,
    and a job whose only way to communicate is NCCL.
    """
    if "kernels" in raw or launches_device_work(raw["api"]):
        return False
    memory = raw.get("memory")
    types = memory["device_type"].unique().cast(pl.String).drop_nulls() if memory is not None else pl.Series(dtype=pl.String)
    allocates = bool((~types.is_in([CORE_CPU, "unknown"])).any())
    layers = raw["api"]["layer"].unique().cast(pl.String).to_list() if "layer" in raw["api"].columns else []
    called = accelerator_of_calls(layers) is not None
    backend = as_object(members.get("distributedInfo")).get("backend")
    if not allocates and not called and backend not in ("nccl", "rccl", "cuda:nccl"):
        return False
    message = "the job used an accelerator and no device task was recorded: the trace shows the host alone"
    log.add("device_not_recorded", WARNING, 1, message, (STEP_DEVICE_TIMES, OPERATOR_DEVICE_TIMES, KERNEL_TIMES, OVERLAP))
    return True


def _valid_external_ids(column: str) -> pl.Expr:
    """External ids, null where an event has its own correlation instead, as old versions of Kineto wrote it."""
    return pl.when(pl.col(column) != pl.col("correlation")).then(pl.col(column))


def _cpu_is_device(members: dict[str, Any]) -> bool:
    """Whether the file says that its only devices are CPUs: steplens writes their tasks as kernels, for other tools."""
    devices = as_list(members.get("deviceProperties"))
    return bool(devices) and all(as_object(device).get("name") == CORE_CPU for device in devices)


def _host_processes(host: Mapping[str, pl.DataFrame], calls: pl.DataFrame) -> set[int]:
    """The processes of the host."""
    frames = [*(host[name] for name in ("ops", "python") if name in host), calls]
    return {pid for frame in frames if frame.height for pid in frame["pid"].drop_nulls().unique()}


def _concat_nonempty(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    if not first.height or not second.height:
        return second if second.height else first
    return pl.concat([first, second], how="diagonal_relaxed")


def _number_devices(
    tasks: pl.DataFrame, ranges: pl.DataFrame, texts: Mapping[int, str], log: HealthLog
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tasks and ranges with small numbers for the devices and streams that have a text (``texts``) or a number of no device.

    Tasks that say no device and stream get those of their process and thread, which of ranges are a device and a stream.
    """
    if tasks.height:
        tasks = tasks.with_columns(device=pl.coalesce("device", "pid"), stream=pl.coalesce("stream", "tid"))
    # the column of a device has 32 bits
    devices = {number for number in _distinct_values(tasks, "device") | _distinct_values(ranges, "pid") if abs(number) >= 1 << 31}
    if not texts and not devices:
        return tasks, ranges
    text_of_number = {number: texts.get(number, str(number)) for number in devices}
    short = short_numbers(text_of_number.values(), _distinct_values(tasks, "device"))
    device = {number: short[text] for number, text in text_of_number.items()}
    streams = {
        number: texts[number] for number in _distinct_values(tasks, "stream") | _distinct_values(ranges, "tid") if number in texts
    }
    short = short_numbers(streams.values(), _distinct_values(tasks, "stream"))
    stream = {number: short[text] for number, text in streams.items()}
    worked = sorted((device[number], text_of_number[number]) for number in devices & _distinct_values(tasks, "device"))
    if worked:
        numbers_text = ", ".join(f"{number} is {text[:_CHARACTERS]!r}" for number, text in worked[:_NAMED])
        more = " ..." if len(worked) > _NAMED else ""
        message = f"devices have a text, or a number of no device, for a number: {numbers_text}{more}"
        log.add("named_devices", INFO, len(worked), message)
    if tasks.height:
        tasks = tasks.with_columns(pl.col("device").replace(device), pl.col("stream").replace(stream))
    if ranges.height:
        ranges = ranges.with_columns(pl.col("pid").replace(device), pl.col("tid").replace(stream))
    return tasks, ranges


def _distinct_values(frame: pl.DataFrame, column: str) -> set[int]:
    return set(frame[column].drop_nulls().unique()) if frame.height else set()


def _report_unplaced(events: pl.DataFrame, log: HealthLog) -> None:
    """Name the categories of the events that nothing says the place of."""
    if not events.height:
        return
    counts = events["category"].cast(pl.String).value_counts().sort("count", "category", descending=[True, False])
    categories = [f"{category or 'no category'} ({count})" for category, count in counts.head(_NAMED).iter_rows()]
    more = " ..." if counts.height > _NAMED else ""
    message = (
        f"events are of categories that no table takes, and nothing says that a device ran them: {', '.join(categories)}{more}"
    )
    log.add("unused_categories", INFO, events.height, message)


def accelerator_meta(raw: Mapping[str, pl.DataFrame], members: Mapping[str, Any]) -> dict[str, str]:
    """``accelerator`` of ``meta``: what the devices are called that are neither CUDA's nor ROCm's nor Ascend's."""
    kernels = raw.get("kernels")
    if kernels is None or _is_npu_capture(members):
        return {}
    core = str(kernels["core"][0])
    return {} if core in (CORE_CUDA, CORE_ROCM, CORE_CPU) else {ACCELERATOR: core}


def _device_names(members: Mapping[str, Any]) -> list[str]:
    """Names of the devices that the file describes."""
    return [str(device.get("name")) for device in as_list(members.get("deviceProperties")) if isinstance(device, dict)]


def _is_npu_capture(members: Mapping[str, Any]) -> bool:
    """Whether steplens wrote the file of a capture of an NPU."""
    described = _device_names(members)
    return bool(described) and all(_NPU_DEVICE.search(name) for name in described)


def _device_core(tasks: pl.DataFrame, calls: pl.DataFrame, members: dict[str, Any], labels: Mapping[int, str]) -> str | None:
    """What the devices are; None of a file that steplens wrote of a capture of an NPU, whose tasks tell their own cores."""
    names = calls["name"].unique().cast(pl.String) if calls.height else pl.Series(dtype=pl.String)
    if names.str.starts_with("hip").any():
        return CORE_ROCM
    if _is_npu_capture(members):
        return None
    categories, layers = (frame["category"].unique().cast(pl.String).drop_nulls().to_list() if frame.height else []
                          for frame in (tasks, calls))  # fmt: skip
    name = accelerator_name(categories, layers, list(labels.values()))
    return (
        CORE_ROCM if name == CORE_CUDA and any(_ROCM_DEVICE.search(described) for described in _device_names(members)) else name
    )


def _kernel_rows(tasks: pl.DataFrame, calls: pl.DataFrame, core: str | None) -> pl.DataFrame:
    """Device tasks as rows of ``kernels``, numbered by (device, stream, start); with ``launch``, the text of ``LaunchArgs``."""
    if "launch" not in tasks.columns:
        tasks = tasks.with_columns(launch=pl.lit(None, dtype=NAME))
    if "launch" in calls.columns:
        # HIP describes the launch in the call
        described = calls.filter(pl.col("launch").is_not_null() & (pl.col("correlation") > 0)).unique("correlation", keep="first")
        launch_name = pl.when(pl.col("launch").cat.len_bytes() > 0).then(pl.col("launch"))
        described = described.select("correlation", _described="launch", _call="name")
        tasks = tasks.join(described, on="correlation", how="left", maintain_order="left")
        tasks = tasks.with_columns(launch=pl.coalesce(launch_name, "_described"))
    # of tasks with the same times the one launched first comes first, whatever their order in the file
    tasks = sort_rows(tasks, ["device", "stream", "start_ns", "correlation"], nulls_last=True)
    some_rows, combinations = number_distinct([tasks["name"], tasks["category"]])
    distinct = tasks[["name", "category"]][some_rows].cast(pl.String)
    kinds, types = zip(*(_kind_and_type(name, category) for name, category in distinct.iter_rows()), strict=True)
    tasks = tasks.with_columns(
        kind=pl.Series(kinds, dtype=NAME).gather(combinations), type=pl.Series(types, dtype=NAME).gather(combinations)
    )
    launches = _parse_launches(tasks["launch"])
    launches = launches.select("launch", "blocks", "blocks_of_threads", "size", "own_core", "own_type")
    tasks = tasks.join(launches, on="launch", how="left", maintain_order="left")
    if core is None:
        tasks = _of_an_npu(tasks)
    if "_call" in tasks.columns:
        in_threads = pl.col("_call").cast(pl.String).is_in(_GRID_IN_THREADS)
        tasks = tasks.with_columns(blocks=pl.when(in_threads).then("blocks_of_threads").otherwise("blocks"))
    size = pl.when(pl.col("kind") == KIND_COPY).then(pl.col("size"))
    return tasks.with_columns(
        id=pl.int_range(pl.len(), dtype=pl.Int32),
        core=pl.col("own_core") if core is None else pl.lit(core, dtype=NAME),
        device=pl.col("device").cast(pl.Int32, strict=False).fill_null(0),
        stream=pl.col("stream").fill_null(0),
        bytes=pl.coalesce("bytes", size) if "bytes" in tasks.columns else size,
        context_id="context",
    ).drop(_OF_EVENTS, strict=False)


def _of_an_npu(tasks: pl.DataFrame) -> pl.DataFrame:
    """Tasks by the names, types and cores that they had before steplens gave them names that tools for CUDA know."""
    name, kind = pl.col("name").cast(pl.String), pl.col("kind").cast(pl.String)
    plain = name.str.strip_prefix(COLLECTIVE_PREFIX).str.strip_prefix(COPY_PREFIX)
    collective = kind == KIND_COMMUNICATION
    return tasks.with_columns(
        name=plain.cast(NAME),
        type=pl.when(~collective).then("own_type"),
        own_core=pl.when(collective).then(pl.lit(COMMUNICATION_CORE, dtype=NAME)).otherwise("own_core"),
    )


def _kind_and_type(name: str | None, category: str | None) -> tuple[str, str | None]:
    """What a task does with the time line of its device; its type where that is not its category (trace.classify)."""
    if category in COPY_CATEGORIES or is_copy(category or ""):
        matched = _COPY_NAME.match(name or "")
        return KIND_COPY, matched[1] if matched else str(category)
    if is_communication(category or ""):
        return KIND_COMMUNICATION, None
    if is_idle(category or ""):
        return KIND_OTHER, category
    return (KIND_COMMUNICATION, None) if _COMMUNICATION_KERNEL.match(name or "") else (KIND_COMPUTE, None)


def _parse_launches(texts: pl.Series) -> pl.DataFrame:
    """What each distinct launch text says: launch, blocks, size and one column per metric.

    ``blocks_of_threads`` is the number of blocks where the grid is counted in threads.
    """
    distinct = texts.unique().drop_nulls()
    rows = [_launch_args(text) for text in distinct.cast(pl.String).to_list()]
    columns: dict[str, pl.Series] = {"launch": distinct}
    columns["blocks"] = pl.Series([_multiply_dimensions(row.grid) for row in rows], dtype=pl.Int64)
    columns["blocks_of_threads"] = pl.Series(
        [_multiply_dimensions(_divide_grid(row.grid, row.block)) for row in rows], dtype=pl.Int64
    )
    sizes = [int(row.size) if isinstance(row.size, str) and row.size.isdecimal() else row.size for row in rows]
    columns["size"] = pl.Series([size if isinstance(size, int) else None for size in sizes], dtype=pl.Int64, strict=False)
    for name in ("core", "type"):
        columns[f"own_{name}"] = pl.Series([getattr(row, name) for row in rows], dtype=pl.String).cast(NAME)
    for name, member in METRICS.items():
        values = [getattr(row, member) for row in rows]
        if member in ("grid", "block"):
            axis = "xyz".index(name[-1])
            values = [value[axis] if value is not None and len(value) > axis else None for value in values]
        columns[name] = pl.Series(values, dtype=pl.Float64, strict=False)
    return pl.DataFrame(columns)


def _launch_args(text: str) -> LaunchArgs:
    if not text:
        return LaunchArgs()
    try:
        return _LAUNCH_DECODER.decode("{" + text)
    except ValueError:
        return LaunchArgs()


def _multiply_dimensions(dimensions: list[int] | None) -> int | None:
    if not dimensions:
        return None
    result = 1
    for size in dimensions:
        result *= size
    return result if abs(result) < 1 << 63 else None


def _divide_grid(threads: list[int] | None, block: list[int] | None) -> list[int] | None:
    """Blocks in each dimension of a grid that is counted in threads."""
    if not threads or not block or 0 in block:
        return None
    return [-(-count // size) for count, size in zip(threads, block, strict=False)]


def _kernel_metrics(tasks: pl.DataFrame) -> pl.DataFrame:
    """The measured values of each task, in the order of tasks and of ``METRICS``."""
    launches = _parse_launches(tasks["launch"])
    launches = launches.filter(pl.any_horizontal(pl.col(list(METRICS)).is_not_null())).with_row_index("_row")
    names = [*METRICS, BANDWIDTH]
    row = bandwidth = None
    if launches.height:
        rows = tasks.select("launch").join(launches.select("launch", "_row"), on="launch", how="left", maintain_order="left")
        row = rows["_row"].fill_null(launches.height).to_numpy()
    if "bandwidth" in tasks.columns:
        bandwidth = tasks["bandwidth"].fill_null(np.nan).to_numpy()
    # behind the launches one that says nothing
    of_launch = np.vstack([launches.select(list(METRICS)).to_numpy(), np.full((1, len(METRICS)), np.nan)])
    pieces = [(np.zeros(0, dtype=np.int64), np.zeros(0))]
    # in pieces that stay in the processor's cache
    for low in range(0, tasks.height if row is not None or bandwidth is not None else 0, _PIECE):
        values = np.full((min(_PIECE, tasks.height - low), len(names)), np.nan)
        if row is not None:
            values[:, :-1] = of_launch[row[low : low + _PIECE]]
        if bandwidth is not None:
            values[:, -1] = bandwidth[low : low + _PIECE]
        present = ~np.isnan(values)
        pieces.append((np.flatnonzero(present) + low * len(names), values[present]))
    kernel, metric = np.divmod(np.concatenate([place for place, _ in pieces]), len(names))
    return pl.DataFrame(
        {
            "kernel": pl.Series(kernel.astype(np.int32)),
            "name": pl.Series(names, dtype=NAME).gather(pl.Series(metric.astype(np.uint32))),
            "value": np.concatenate([values for _, values in pieces]),
        }
    )


def _has_colliding_correlations(calls: pl.DataFrame) -> bool:
    """Whether several processes use the same correlations."""
    if not calls.height or calls["pid"].n_unique() == 1:
        return False
    numbered = calls.filter((pl.col("correlation") > 0) & (pl.col("category") != SYNCHRONIZATION))
    return bool(numbered.select("pid", "correlation").unique().height > numbered["correlation"].n_unique())


def _launched_before(tasks: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Tasks with the last call of their correlation that starts before them as the point of launch."""
    points = calls.filter(pl.col("correlation") > 0).select(
        "correlation", launch_ns="start_ns", launch_pid="pid", launch_tid="tid", start_ns="start_ns"
    )
    linked = tasks.sort("start_ns").join_asof(
        points.sort("start_ns"), on="start_ns", by="correlation", strategy="backward", check_sortedness=False
    )
    return linked.sort("id").with_columns(
        wait_ns=pl.col("start_ns") - pl.col("launch_ns"), external_id=pl.lit(None, dtype=pl.Int64)
    )


def _api_calls(calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Runtime and driver calls; a recorded wait for the device lies on the thread whose call waits."""
    if not calls.height:
        return calls
    calls = calls.rename({"category": "layer"}).drop("launch", strict=False)
    waits = ranges.filter(pl.col("category") == SYNCHRONIZATION) if ranges.height else ranges
    if waits.height:
        callers = (
            calls.drop_nulls("correlation").unique("correlation", keep="first").select("correlation", _pid="pid", _tid="tid")
        )
        waits = waits.join(callers, on="correlation", how="left", maintain_order="left").with_columns(
            pid=pl.coalesce("_pid", "pid"), tid=pl.coalesce("_tid", "tid"), external_id=pl.lit(None, dtype=pl.Int64)
        )
        calls = pl.concat([calls, waits.rename({"category": "layer"}).select(calls.columns)])
    return calls


def _device_marks(ranges: pl.DataFrame) -> pl.DataFrame:
    """User annotations as the device saw them: from the first to the last task that was launched inside."""
    if not ranges.height:
        return ranges
    return ranges.filter(pl.col("category") != SYNCHRONIZATION).select(
        domain="category",
        message="name",
        start_ns="start_ns",
        end_ns="end_ns",
        pid="pid",
        stream="tid",
        correlation="external_id",
    )
