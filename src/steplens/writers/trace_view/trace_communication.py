"""The layer of trace_view.json that shows communication: a lane per group, and below it the planes its operations run on."""

from __future__ import annotations

import polars as pl

from steplens.writers.common.asynchronous import side_by_side
from steplens.writers.common.communication_names import named_communication
from steplens.writers.common.links import inner_tasks
from steplens.writers.common.output import NPU, device_kind
from steplens.writers.common.rows import shared
from steplens.writers.trace_view.trace_events import DURATION, View, head, list_argument, number_argument, process, quoted, thread

COMMUNICATION_SORT = 16

#: details of an inner task that the event repeats -> what the event calls them; texts first, then numbers
_TEXTS = {
    "taskType": "task type",
    "notifyId": "notify_id",
    "transportType": "transport type",
    "dataType": "data type",
    "linkType": "link type",
}
_NUMBERS = {"srcRank": "src rank", "dstRank": "dst rank", "size": "size(Byte)"}


def with_lanes(view: View) -> pl.DataFrame:
    """``communication`` with the lane of each row's group on its device; groups are numbered as they appear.

    Gloo and NCCL run operations of one group side by side. Viewers drop what crosses on a lane, so a group whose operations do
    has several, all of its name.
    """
    calls = named_communication(view.output)
    calls = calls.with_columns(pl.col("device").fill_null(0), group_text=pl.col("group").cast(pl.String).fill_null(""))
    calls = calls.with_columns(beside=_beside(calls) if device_kind(view.trace) != NPU else pl.lit(0))
    lanes = calls.select("device", "group_text", "beside").unique(maintain_order=True).sort("beside", maintain_order=True)
    lanes = lanes.with_columns(lane=pl.int_range(pl.len()).over("device"))
    return calls.join(lanes, on=["device", "group_text", "beside"], maintain_order="left").drop("beside")


def _beside(calls: pl.DataFrame) -> pl.Series:
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
    planes = _planes(view, calls)
    for device in calls["device"].unique().sort():
        pid = view.device_pid(COMMUNICATION_SORT, device)
        view.metadata(process(pid, "Communication", f"{kind} {device}", COMMUNICATION_SORT))
    _name_lanes(view, calls, planes)
    view.rows(
        calls,
        head(calls["client_name"]),
        _pid(view),
        ',"tid":',
        pl.col("lane"),
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        DURATION,
        shared(calls["kind"], lambda kind: f',"args":{{"kind":{quoted(kind)}', ',"args":{"kind":"N/A"'),
        list_argument("recorded as", recorded),
        list_argument("group", calls["group"]),
        list_argument("data_type", calls["dtype"]),
        list_argument("alg_type", calls["algorithm"]),
        number_argument("count", "elements", calls),
        number_argument("ranks", "ranks", calls),
        number_argument("size(Byte)", "bytes", calls),
        number_argument("connection_id", "correlation", calls),
        "}}",
    )
    if planes is not None:
        _write_planes(view, planes)


def _pid(view: View) -> pl.Expr:
    return pl.lit(view.device_pid(COMMUNICATION_SORT, 0)) + pl.col("device").cast(pl.Int64)


def _name_lanes(view: View, calls: pl.DataFrame, planes: pl.DataFrame | None) -> None:
    """Names of the lanes; the planes of a group follow it."""
    groups = calls.select("device", "lane", "group_text").unique(maintain_order=True)
    lanes = [(device, lane, -1, lane, f"Group {group or lane} Communication") for device, lane, group in groups.iter_rows()]
    if planes is not None:
        found = planes.select("device", "lane", "plane", "tid").unique(maintain_order=True)
        lanes += [(device, lane, plane, tid, f"Plane {plane}") for device, lane, plane, tid in found.iter_rows()]
    place: dict[int, int] = {}
    for device, _, _, tid, name in sorted(lanes):
        view.metadata(thread(view.device_pid(COMMUNICATION_SORT, device), tid, name, place.get(device, 0)))
        place[device] = place.get(device, 0) + 1


def _planes(view: View, calls: pl.DataFrame) -> pl.DataFrame | None:
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
        .join(owners.lazy().select("correlation", "device", "lane"), on="correlation")
        .sort("start_ns", "id")
        .collect()
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
    texts = [list_argument(title, planes[column]) for column, title in _TEXTS.items() if column in planes.columns]
    numbers = [number_argument(title, column, planes) for column, title in _NUMBERS.items() if column in planes.columns]
    view.rows(
        planes,
        head(planes["taskType"]),
        _pid(view),
        ',"tid":',
        pl.col("tid"),
        ',"ts":',
        view.ts("start_ns"),
        ',"dur":',
        DURATION,
        ',"args":{"plane":',
        pl.col("plane"),
        number_argument("stream id", "stream", planes),
        number_argument("task id", "task_id", planes),
        number_argument("context id", "context_id", planes),
        number_argument("model id", "model_id", planes),
        *texts,
        *numbers,
        ',"bandwidth(GB/s)":',
        pl.col("bandwidth"),
        "}}",
    )
