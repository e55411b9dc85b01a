"""The device half of an Ascend timeline: tasks of the hardware, communication operations, and what launched them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.formats.ascend_terms import ELEMENT_BYTES, GPU_CORES, MEMCPY, NO_NUMBER, OPERATION_TYPE
from steplens.formats.trace_view import COMMUNICATING, COMPUTING, GROUP_PREFIX, GROUP_SUFFIX, LAYER_BITS
from steplens.readers.ascend.ascend_communication import operation_kind, operation_name
from steplens.readers.ascend.ascend_planes import with_details
from steplens.readers.ascend.timeline.ascend_timeline_host import pair_arrow_ends
from steplens.readers.common.trace_rows import concat_rows, optional_column
from steplens.trace.building.communication_marks import COMMUNICATION_CORE, is_collective, is_part
from steplens.trace.building.device_work import with_kind
from steplens.trace.building.nesting import Int64Array
from steplens.trace.health import COMMUNICATION_VOLUME, INFO, OPERATOR_DEVICE_TIMES, WARNING, HealthLog
from steplens.trace.schema import (
    COLLECTIVE,
    CORE_CPU,
    KIND_COMMUNICATION,
    KIND_COMPUTE,
    KIND_COPY,
    KIND_OTHER,
    NAME,
    RECEIVE,
    SEND,
)

#: scheduler's names of tasks that compute, where no list of kernels tells. DSA generates random numbers.
COMPUTE_TASKS = (
    "AI_CORE", "AI_VECTOR_CORE", "AIC", "AIV", "AIV_SQE", "MIX_AIC", "MIX_AIV", "AI_CPU", "AICPU", "DSA_SQE", "KERNEL_AICORE",
    "KERNEL_AIVEC", "KERNEL_AICPU", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV", CORE_CPU,
)  # fmt: skip
_COPY_TASKS = ("PCIE_DMA_SQE", "SDMA_SQE", MEMCPY)
_COPY_NAME = "MEMCPY"
_GPU_COPY = r"(?i)^(gpu_)?mem(cpy|set)"

#: the lanes of the overlap analysis print starts and ends rounded to ns, tasks a start and a length: rounding apart
_ROUNDING_NS = 1

#: captures lack a few ends of arrows (2 in 100) where nothing is lost
_FEW_SHARE = 0.05


@dataclass(frozen=True)
class DeviceEvents:
    """What a timeline holds of devices; events have start_ns and end_ns, arrows start_ns.

    Attributes:
        hardware: device tasks, with ``device``.
        communication: communication operations and their parts, with ``device``.
        overlap: the lanes of the overlap analysis, with ``device``.
        groups: (process id, thread id) -> name of a lane of communication operations.
        planes: (process id, thread id) -> number of a plane, on which parts of these operations are.
        launches: starts and ends of the arrows to device tasks: from runtime calls (process ids of the OS), from operators.
        calls: CANN's calls (process ids of the OS).
        on_cpu: the device is the CPU.
    """

    hardware: pl.DataFrame
    communication: pl.DataFrame
    overlap: pl.DataFrame
    groups: dict[tuple[int, int], str]
    planes: dict[tuple[int, int], int]
    launches: tuple[tuple[pl.DataFrame, pl.DataFrame], ...]
    calls: pl.DataFrame
    on_cpu: bool = False


def device_tables(events: DeviceEvents, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``kernels`` and ``communication`` of a timeline; every communication operation is a row of both, except a CPU's.

    The parts of an operation (waits, reductions, copies on its planes) appear twice in a timeline, as such and as tasks
    of the hardware; the latter are kept, with what the former tell of them.
    """
    operations = _communication_operations(events)
    tasks = _device_tasks(events)
    tasks = with_details(tasks, events.communication, events.planes)
    launches = _launch_points(events, health)
    if tasks.height:
        tasks = _join_launches(tasks, launches)
        tasks = _snap_ends_to_lane(_by_themselves(tasks) if events.on_cpu else tasks, events.overlap, COMPUTING)
        tasks = _from_calls(tasks, events.calls)
    if operations.height:
        operations = _snap_ends_to_lane(_join_launches(operations, launches), events.overlap, COMMUNICATING)
        operations = _from_calls(operations, events.calls)
        operations, tasks = _without_twins(operations, tasks)
    tables = {}
    # the CPU communicates in its own calls, which are no tasks
    kernels = concat_rows(tasks, _operation_tasks(operations) if operations.height and not events.on_cpu else None)
    if kernels.height:
        tables["kernels"] = kernels.drop("pid", "tid").sort("device", "stream", "start_ns", maintain_order=True)
    unnamed = _unnamed_communication(operations, events.overlap, health)
    communication = concat_rows(operations.drop("pid", "tid", "core", "task_id", strict=False), unnamed)
    if communication.height:
        tables["communication"] = communication.sort("start_ns", maintain_order=True)
    return tables


def _unnamed_communication(operations: pl.DataFrame, overlap: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    """What the communication lane covers and no operation does, as operations of that name.

    Kernels that communicate by themselves are on the lane and among no group's operations.
    """
    lanes = _overlap_lane(overlap, COMMUNICATING)
    parts = []
    for (device,), ranges in lanes.partition_by("device", as_dict=True).items() if lanes.height else ():
        mine = operations.filter(pl.col("device") == device) if operations.height else operations
        start, end = _uncovered_ranges(ranges, mine)
        parts.append(pl.DataFrame({"start_ns": start, "end_ns": end}).with_columns(device=pl.lit(device, dtype=pl.Int32)))
    unnamed = pl.concat(parts) if parts else pl.DataFrame()
    if unnamed.height:
        message = "stretches of communication belong to none of the operations that the timeline names"
        health.add("unnamed_communication", INFO, unnamed.height, message, COMMUNICATION_VOLUME)
        unnamed = unnamed.with_columns(name=pl.lit(COMMUNICATING, dtype=NAME), kind=pl.lit(COLLECTIVE, dtype=NAME))
    return unnamed


def _uncovered_ranges(ranges: pl.DataFrame, operations: pl.DataFrame) -> tuple[Int64Array, Int64Array]:
    """Starts and ends of the stretches inside ``ranges`` and outside all operations, rounding apart."""
    times, depth_changes = [], []
    for frame, weight in ((ranges, 1), (operations, 1 << 32)):
        if frame.height:
            for column, sign in (("start_ns", weight), ("end_ns", -weight)):
                times.append(frame[column].to_numpy())
                depth_changes.append(np.full(frame.height, sign, dtype=np.int64))
    time, change = np.concatenate(times), np.concatenate(depth_changes)
    order = np.argsort(time, kind="stable")
    # how many operations are open counts in the upper half of the bits, ranges in the lower
    open_ = np.cumsum(change[order])[:-1]
    start, end = time[order][:-1], time[order][1:]
    is_uncovered = (open_ > 0) & (open_ < 1 << 32) & (end - start > _ROUNDING_NS)
    return start[is_uncovered], end[is_uncovered]


def _overlap_lane(overlap: pl.DataFrame, name: str) -> pl.DataFrame:
    return overlap.filter(overlap["name"].cast(pl.String) == name) if overlap.height else overlap


def _without_twins(operations: pl.DataFrame, tasks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Operations with stream, task_id and core; tasks without those that are operations (steplens lists them there, too)."""
    core = pl.lit(COMMUNICATION_CORE, dtype=NAME)
    if not tasks.height:
        missing = pl.lit(None, dtype=pl.Int64)
        return operations.with_columns(stream=missing, task_id=missing, core=core), tasks
    same = ["device", "name", "start_ns"]
    twins = tasks.select(*same, "stream", "task_id", "core").unique(same, keep="first")
    with_stream = operations.join(twins, on=same, how="left", maintain_order="left")
    lonely = tasks.join(operations.select(same).unique(), on=same, how="anti", maintain_order="left")
    return with_stream.with_columns(pl.coalesce("core", core).alias("core")), lonely


def _device_tasks(events: DeviceEvents) -> pl.DataFrame:
    """Device tasks; ``core`` is what the scheduler calls them until a list of kernels knows better."""
    frame = events.hardware
    if not frame.height:
        return frame
    subtask = optional_column(frame, "subtask")
    type_ = optional_column(frame, "task_type", NAME)
    # CPU and GPU have no scheduler that names and numbers tasks; steplens fills the places with what it has
    scheduled = ~type_.cast(pl.String).is_in([CORE_CPU, *GPU_CORES]).fill_null(False)
    tasks = frame.select(
        "name", "pid", "tid", "device", "start_ns", "end_ns",
        core=type_,
        task_type=pl.when(scheduled).then(type_),
        stream=pl.coalesce(optional_column(frame, "physical_stream"), optional_column(frame, "stream"), "tid"),
        correlation=optional_column(frame, "connection_id"),
        task_id=pl.when(scheduled).then(optional_column(frame, "task")),
        model_id=optional_column(frame, "model"),
        context_id=pl.when(subtask != NO_NUMBER).then(subtask),
    )  # fmt: skip
    return tasks.with_columns(kind=_task_kinds(tasks, events.overlap))


def _task_kinds(tasks: pl.DataFrame, overlap: pl.DataFrame) -> pl.Series:
    """What each task does: by its core, and inside the computing lane where the timeline has one."""
    core, name = pl.col("core").cast(pl.String).fill_null(""), pl.col("name").cast(pl.String)
    communicates = is_collective(core, name)
    computing = core.is_in(COMPUTE_TASKS) & ~communicates & ~is_part(core, name)
    lanes = _overlap_lane(overlap, COMPUTING)
    if lanes.height:
        computing &= pl.lit(_is_inside_lane(tasks, lanes))
    kind = (
        pl.when(computing)
        .then(pl.lit(KIND_COMPUTE))
        .when(communicates)
        .then(pl.lit(KIND_COMMUNICATION))
        .when(core.is_in(_COPY_TASKS) | name.str.contains(_COPY_NAME, literal=True))
        .then(pl.lit(KIND_COPY))
        .otherwise(pl.lit(KIND_OTHER))
    )
    return tasks.select(pl.coalesce(gpu_kind(tasks), kind).cast(NAME).alias("kind")).to_series()


def gpu_kind(tasks: pl.DataFrame) -> pl.Series:
    """What the tasks of GPUs do, by their type and name; null for other tasks."""
    on_gpu = tasks["core"].cast(pl.String).is_in(GPU_CORES).fill_null(False)
    if not on_gpu.any():
        no_kind: pl.Series = pl.Series([None], dtype=pl.String).new_from_index(0, tasks.height)
        return no_kind
    if "type" not in tasks.columns:
        tasks = tasks.with_columns(type=pl.lit(None, dtype=NAME))
    copies = pl.coalesce(pl.col("type", "name").cast(pl.String)).str.contains(_GPU_COPY)
    by_name = with_kind(tasks.drop("kind", strict=False))["kind"].cast(pl.String)
    return tasks.select(pl.when(on_gpu & copies).then(pl.lit(KIND_COPY)).when(on_gpu).then(by_name)).to_series()


def _is_inside_lane(tasks: pl.DataFrame, lanes: pl.DataFrame) -> pl.Series:
    """Which tasks start inside a range of the lane of their device; all do on a device without ranges."""
    is_inside = np.ones(tasks.height, dtype=bool)
    devices, start = tasks["device"].to_numpy(), tasks["start_ns"].to_numpy()
    for (device,), ranges in lanes.sort("start_ns").partition_by("device", as_dict=True).items():
        rows = np.flatnonzero(devices == device)
        first: Int64Array = ranges["start_ns"].to_numpy()
        # one ns wider, since ranges and tasks are rounded apart
        last = np.maximum.accumulate(ranges["end_ns"].to_numpy()) + _ROUNDING_NS
        index = np.searchsorted(first, start[rows] + _ROUNDING_NS, side="right") - 1
        is_inside[rows] = (index >= 0) & (start[rows] <= last[np.maximum(index, 0)])
    return pl.Series(is_inside)


def _communication_operations(events: DeviceEvents) -> pl.DataFrame:
    """Communication operations: the events on the lanes of groups, not those on the planes below."""
    frame = events.communication
    if not frame.height:
        return frame
    lanes = pl.DataFrame(
        [(pid, tid, _group_name(name)) for (pid, tid), name in events.groups.items()],
        schema={"pid": pl.Int64, "tid": pl.Int64, "lane": pl.String},
        orient="row",
    )
    name = pl.col("name").cast(pl.String)
    frame = frame.join(lanes, on=["pid", "tid"], how="left", maintain_order="left")
    is_operation = pl.col("lane").is_not_null() | name.str.contains("(?i)^hcom_")
    if "alg_type" in frame.columns:
        is_operation |= pl.col("alg_type").is_not_null()
    frame = frame.filter(is_operation)
    if "recorded" in frame.columns:
        # steplens gives collectives of other libraries names that clients know
        frame = frame.with_columns(name=pl.coalesce("recorded", "name"))
    own_group = optional_column(frame, "group", NAME).cast(pl.String)
    # steplens says the kind of each operation and the group where it knows one; its lanes are numbered otherwise
    group = pl.when(optional_column(frame, "kind", NAME).is_null()).then(pl.coalesce(own_group, "lane")).otherwise(own_group)
    elements = optional_column(frame, "elements")
    data_type = optional_column(frame, "data_type", NAME)
    element_bytes = data_type.cast(pl.String).replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    return frame.select(
        "name", "pid", "tid", "device", "start_ns", "end_ns",
        kind=pl.coalesce(optional_column(frame, "kind", NAME).cast(pl.String), operation_kind(name)).cast(NAME),
        operation=operation_name(name).cast(NAME),
        group=group.cast(NAME),
        ranks=optional_column(frame, "ranks").cast(pl.Int32),
        elements=elements,
        bytes=pl.coalesce(
            optional_column(frame, "bytes"), pl.when(elements.is_between(0, 1 << 58)).then(elements * element_bytes)
        ),
        dtype=data_type,
        algorithm=optional_column(frame, "alg_type", NAME),
        correlation=optional_column(frame, "connection_id"),
        model_id=optional_column(frame, "model"),
    )  # fmt: skip


def _group_name(lane: str) -> str:
    return lane.removeprefix(GROUP_PREFIX).removesuffix(GROUP_SUFFIX)


def _operation_tasks(operations: pl.DataFrame) -> pl.DataFrame:
    """Communication operations as device tasks; those without a name (see ``_unnamed_communication``) are none."""
    return operations.filter(operations["name"].cast(pl.String) != COMMUNICATING).select(
        "name", "pid", "tid", "device", "stream", "start_ns", "end_ns", "core", "correlation", "task_id", "model_id", "launch_ns",
        "launch_pid", "launch_tid",
        type=pl.col("name").cast(pl.String).str.extract(OPERATION_TYPE).cast(NAME),
        kind=pl.lit(KIND_COMMUNICATION, dtype=NAME),
    )  # fmt: skip


def _launch_points(events: DeviceEvents, health: HealthLog) -> pl.DataFrame:
    """Per task (pid, tid, start_ns) the point on a host thread where the runtime, or else an operator, launched it."""
    points = []
    for starts, ends in events.launches:
        pairs = pair_arrow_ends(starts, ends)
        missing = starts.height + ends.height - 2 * pairs.height
        if missing:
            severity = INFO if missing < _FEW_SHARE * max(starts.height, ends.height) else WARNING
            ends_in_all = starts.height + ends.height
            message = (
                f"{missing} of {ends_in_all} ends of arrows from launches to device tasks have no other end, or a second one"
            )
            health.add("unmatched_launches", severity, missing, message, OPERATOR_DEVICE_TIMES)
        if pairs.height:
            points.append(
                pairs.select(
                    pid="pid_to", tid="tid_to", start_ns="start_ns_to", launch_ns="start_ns", launch_pid="pid", launch_tid="tid"
                )
            )
    if not points:
        return pl.DataFrame()
    return pl.concat(points).unique(["pid", "tid", "start_ns"], keep="first", maintain_order=True)


def _join_launches(tasks: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    if not launches.height:
        missing = pl.lit(None, dtype=pl.Int64)
        return tasks.with_columns(launch_ns=missing, launch_pid=missing, launch_tid=missing)
    return tasks.join(launches, on=["pid", "tid", "start_ns"], how="left", maintain_order="left")


def _by_themselves(tasks: pl.DataFrame) -> pl.DataFrame:
    """A CPU's tasks, which are calls: one to which no arrow leads begins where its call does, on the thread of its own."""
    launch_columns = {
        "launch_ns": pl.col("start_ns"),
        "launch_pid": pl.col("pid") // (1 << LAYER_BITS),
        "launch_tid": pl.col("tid"),
    }
    without = pl.col("launch_ns").is_null()
    return tasks.with_columns(pl.when(without).then(value).otherwise(name).alias(name) for name, value in launch_columns.items())


def _from_calls(tasks: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Launch points of tasks to which no arrow leads, from CANN's call with their connection id."""
    if not calls.height or "connection_id" not in calls.columns:
        return tasks
    worthwhile = [KIND_COMPUTE, KIND_COMMUNICATION, COLLECTIVE, SEND, RECEIVE]
    lost = pl.col("launch_ns").is_null() & pl.col("kind").cast(pl.String).is_in(worthwhile)
    if not tasks.select(lost.any()).item():
        return tasks
    connected = calls.drop_nulls("connection_id").unique("connection_id", keep="first", maintain_order=True)
    connected = connected.select(correlation="connection_id", _ns="start_ns", _pid="pid", _tid="tid")
    tasks = tasks.join(connected, on="correlation", how="left", maintain_order="left")
    filled = [
        pl.when(lost).then(f"_{column}").otherwise(f"launch_{column}").alias(f"launch_{column}")
        for column in ("ns", "pid", "tid")
    ]
    return tasks.with_columns(filled).drop("_ns", "_pid", "_tid")


def _snap_ends_to_lane(tasks: pl.DataFrame, overlap: pl.DataFrame, lane: str) -> pl.DataFrame:
    """Ends as the lane of the overlap analysis has them.

    A task's length is rounded to ns apart from its start, so its end may be one ns off the end that the lane, and the
    database, have. Sums of many tasks then differ from the file's own.
    """
    lanes = _overlap_lane(overlap, lane)
    if not lanes.height:
        return tasks
    ends = lanes.select("device", "start_ns", _end="end_ns").unique(["device", "start_ns"], keep="first")
    tasks = tasks.join(ends, on=["device", "start_ns"], how="left", maintain_order="left")
    near = (pl.col("_end") - pl.col("end_ns")).abs() <= _ROUNDING_NS
    return tasks.with_columns(end_ns=pl.when(near).then("_end").otherwise("end_ns")).drop("_end")
