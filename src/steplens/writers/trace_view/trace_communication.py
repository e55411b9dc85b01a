"""The layer of trace_view.json that shows communication: a lane per group, and below it the planes its operations run on."""

from __future__ import annotations

import polars as pl

from steplens.formats.trace_view import COMMUNICATION, GROUP_PREFIX, GROUP_SUFFIX, MEMBERS, PART_COLUMNS, PLACES, PLANE_PREFIX
from steplens.writers.common.asynchronous import side_by_side
from steplens.writers.common.communication_names import named_communication
from steplens.writers.common.json_events import number_member, thread_metadata
from steplens.writers.common.links import inner_tasks
from steplens.writers.common.output import NPU, device_kind
from steplens.writers.common.rows import shared_texts
from steplens.writers.common.text import json_string
from steplens.writers.trace_view.trace_events import View, event_head, list_argument

#: columns of details that hold numbers
_NUMBERS = ("srcRank", "dstRank", "size")


def with_lanes(view: View) -> pl.DataFrame:
    """``communication`` with the lane of each row's group on its device; groups are numbered as they appear.

    Gloo and NCCL run operations of one group side by side. Viewers drop what crosses on a lane, so a group whose operations do
    has several, all of its name.
    """
    calls = named_communication(view.output)
    calls = calls.with_columns(pl.col("device").fill_null(0), group_text=pl.col("group").cast(pl.String).fill_null(""))
    calls = calls.with_columns(beside=_lane_numbers(calls) if device_kind(view.trace) != NPU else pl.lit(0))
    lanes = calls.select("device", "group_text", "beside").unique(maintain_order=True).sort("beside", maintain_order=True)
    lanes = lanes.with_columns(lane=pl.int_range(pl.len()).over("device"))
    return calls.join(lanes, on=["device", "group_text", "beside"], maintain_order="left").drop("beside")


def _lane_numbers(calls: pl.DataFrame) -> pl.Series:
    """Number of each operation's lane among those of its group, from 0 on; on one lane nothing overlaps."""
    rows = calls.select("device", "group_text", "start_ns", "end_ns").with_row_index("row").sort("start_ns", "row")
    numbers: pl.Series = pl.repeat(0, calls.height, dtype=pl.Int64, eager=True)
    for group in rows.partition_by("device", "group_text", maintain_order=True):
        reach = group["end_ns"].cum_max().shift()
        if (reach > group["start_ns"]).any():
            lanes = side_by_side(group["start_ns"].to_list(), group["end_ns"].to_list())
            numbers = numbers.scatter(group["row"].to_list(), lanes)
    return numbers


def write_communication(view: View) -> None:
    """Every collective on the lane of its group, and the tasks it consists of, as far as the source knows them."""
    calls = with_lanes(view)
    if calls.is_empty():
        return
    kind = device_kind(view.trace)
    # what the clients do not call it by, a human may know it by
    recorded = calls.select(pl.when(pl.col("client_name") != pl.col("name").cast(pl.String)).then("name")).to_series()
    planes = _plane_tasks(view, calls)
    for device in calls["device"].unique().sort():
        view.layer(COMMUNICATION, device, f"{kind} {device}")
    _name_lanes(view, calls, planes)
    view.calls(
        calls,
        event_head(calls["client_name"]),
        view.pids(COMMUNICATION),
        pl.col("lane"),
        shared_texts(calls["kind"], lambda kind: f',"args":{{"kind":{json_string(kind)}', ',"args":{"kind":"N/A"'),
        list_argument(MEMBERS["recorded"], recorded),
        list_argument("group", calls["group"]),
        list_argument("data_type", calls["dtype"]),
        list_argument("alg_type", calls["algorithm"]),
        number_member(MEMBERS["elements"], "elements", calls),
        number_member("ranks", "ranks", calls),
        number_member(MEMBERS["bytes"], "bytes", calls),
        number_member("connection_id", "correlation", calls),
    )
    if planes is not None:
        _write_planes(view, planes)


def _name_lanes(view: View, calls: pl.DataFrame, planes: pl.DataFrame | None) -> None:
    """Names of the lanes; the planes of a group follow it."""
    groups = calls.select("device", "lane", "group_text").unique(maintain_order=True)
    lanes = [
        (device, lane, -1, lane, f"{GROUP_PREFIX}{group or lane}{GROUP_SUFFIX}") for device, lane, group in groups.iter_rows()
    ]
    if planes is not None:
        distinct_lanes = planes.select("device", "lane", "plane", "tid").unique(maintain_order=True)
        lanes += [(device, lane, plane, tid, f"{PLANE_PREFIX}{plane}") for device, lane, plane, tid in distinct_lanes.iter_rows()]
    place: dict[int, int] = {}
    for device, _, _, tid, name in sorted(lanes):
        view.metadata(thread_metadata(view.device_pid(PLACES[COMMUNICATION], device), tid, name, place.get(device, 0)))
        place[device] = place.get(device, 0) + 1


def _plane_tasks(view: View, calls: pl.DataFrame) -> pl.DataFrame | None:
    """The inner tasks with their details, the lane of their group, their plane and the lane (``tid``) of that; or None."""
    details = inner_tasks(view.trace)
    if details is None or not {"planeId", "taskType"} <= set(details.columns):
        return None
    numbers = {column: pl.col(column).cast(pl.Int64, strict=False) for column in _NUMBERS if column in details.columns}
    details = details.with_columns(**numbers, plane=pl.col("planeId").cast(pl.Int64, strict=False)).drop_nulls("plane")
    owners = calls.drop_nulls("correlation").unique("correlation", keep="first", maintain_order=True)
    tasks = (
        view.trace.required("kernels")
        .select("id", "start_ns", "end_ns", "stream", "task_id", "context_id", "model_id", "correlation")
        .join(details.lazy(), left_on="id", right_on="kernel")
        .collect()
        .join(owners.select("correlation", "device", "lane"), on="correlation")
        .sort("start_ns", "id")
    )
    if tasks.is_empty():
        return None
    groups = pl.col("lane").max().over("device") + 1
    return tasks.with_columns(tid=groups + pl.struct("lane", "plane").rank("dense").over("device").cast(pl.Int64) - 1)


def _write_planes(view: View, planes: pl.DataFrame) -> None:
    length = pl.col("end_ns") - pl.col("start_ns")
    size = pl.col("size") if "size" in planes.columns else pl.lit(None, dtype=pl.Int64)
    # bytes per ns are GB of 10**9 bytes per s
    planes = planes.with_columns(bandwidth=pl.when((length > 0) & (size > 0)).then(size / length).otherwise(0.0))
    titles = {column: MEMBERS[member] for column, member in PART_COLUMNS.items() if column in planes.columns}
    texts = [list_argument(title, planes[column]) for column, title in titles.items() if column not in _NUMBERS]
    numbers = [number_member(titles[column], column, planes) for column in _NUMBERS if column in titles]
    view.calls(
        planes,
        event_head(planes["taskType"]),
        view.pids(COMMUNICATION),
        pl.col("tid"),
        ("plane", pl.col("plane")),
        number_member("stream id", "stream", planes),
        number_member(MEMBERS["inner_task_id"], "task_id", planes),
        number_member(MEMBERS["inner_context"], "context_id", planes),
        number_member("model id", "model_id", planes),
        *texts,
        *numbers,
        ("bandwidth(GB/s)", pl.col("bandwidth")),
    )
