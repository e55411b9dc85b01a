"""What the communication library measured: times, bandwidth and links of each operation, their totals and extremes.

The measurements are the library's own, in its units (ms, MB of 10**6 bytes, GB/s); operations, steps and groups are
those of the ``communication_times``, ``communication_bandwidth`` and ``communication_matrix`` tables.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from steplens.analysis.tools.once import once_if_small
from steplens.formats.ascend_terms import HCCL_OPERATIONS
from steplens.trace.schema import NAME, RECEIVE, SEND
from steplens.trace.trace import Trace

COLLECTIVE = "collective"
POINT_TO_POINT = "p2p"

TOTAL = "total"

#: position from the start or the end of a link's operations, sorted by falling bandwidth
_SELECTIONS = ("top1", "middle", "bottom1", "bottom2", "bottom3")

_TYPE = re.compile("|".join(HCCL_OPERATIONS))

#: names of point-to-point operations, for a source that does not say
_POINT_TO_POINT = "^hcom_(send|receive|batchsendrecv)"

#: libraries whose operations begin with their name, or are its kernels; ROCm's keep NCCL's names
_LIBRARY = r"(?i)(gloo|mpi|ucc|nccl|rccl|xccl|mccl)"

_TIMES = ("elapse_ms", "transit_ms", "wait_ms", "synchronization_ms", "idle_ms")
_OPERATION = ("name", "group")
_LINK = ("step", "kind", "type", "group", "source", "destination")

#: a shorter time cannot be divided by
_SHORTEST_MS = 1e-15


def operation_type(name: str) -> str:
    """Type of a communication operation by its name: ``hcom_reduceScatter__123_0_1`` is "reducescatter".

    The leftmost word that names a type, and of several at one place the longest; without any the text before ``__``.
    """
    matched = _TYPE.search(name.lower())
    return matched.group() if matched else name.partition("__")[0]


def group_hash(group: str) -> int:
    """The number by which the communication library calls a group in its measurements.

    Two polynomial hashes of 32 bits over the UTF-8 bytes of the group's id, with multipliers 29 and 131; the first is the
    upper half.
    """
    halves = []
    for multiplier in (29, 131):
        value = 0
        for byte in group.encode():
            value = (value * multiplier + byte) & 0xFFFF_FFFF
        halves.append(value)
    return halves[0] << 32 | halves[1]


def elapsed_times(trace: Trace) -> pl.DataFrame:
    """The operations of a run whose communication library measured nothing: how long each took is known, and its size.

    Source: the ``communication`` table.

    Returns:
        name, group (its ``group_hash`` as text, "" without group), kind, step, start_ns, elapse_ms, size_mb (10**6 bytes of the
        rank's own tensors; null where their shapes were not recorded) and library ("GLOO", "NCCL" ..., by the name; null where it
        does not say).
    """
    kind = pl.col("kind").cast(pl.String).is_in([SEND, RECEIVE])
    rows = trace.required("communication").with_columns(group=pl.col("group").cast(pl.String).fill_null("")).collect()
    hashes = {group: str(group_hash(group)) if group else "" for group in rows["group"].unique()}
    return rows.select(
        pl.col("name").cast(pl.String),
        pl.col("group").replace_strict(hashes, default="", return_dtype=pl.String),
        kind=pl.when(kind).then(pl.lit(POINT_TO_POINT)).otherwise(pl.lit(COLLECTIVE)),
        step="step",
        start_ns="start_ns",
        elapse_ms=(pl.col("end_ns") - pl.col("start_ns")) / 1e6,
        size_mb=(pl.col("bytes") / 1e6).round(6),
        library=pl.col("name").cast(pl.String).str.extract(_LIBRARY).str.to_uppercase(),
    )


def communication_times(trace: Trace) -> pl.DataFrame:
    """Times of every operation, with the step that it belongs to.

    The step is, the first that is known: that of the source; the only step of the run; that of the operation of the same
    name and group in ``communication``; the one whose host range holds the start, both ends included.

    Returns:
        the columns of ``communication_times``, and ``wait_ratio`` = wait / (wait + transit) and
        ``synchronization_ratio`` = synchronization / (synchronization + transit), rounded to 4 digits, 0 where there is
        nothing to divide. ``step`` is null on a run without steps and for operations outside all of them.
    """
    rows = _read_measurements(trace, "communication_times").with_columns(pl.col(*_TIMES).fill_null(0.0))
    return _with_steps(trace, rows).with_columns(**_time_ratios())


def is_measured(trace: Trace) -> bool:
    """Whether ``communication_times`` tells moving data from waiting; results of a CPU or a GPU hold elapsed times alone."""
    parts = [part for part in _TIMES if part != "elapse_ms"]
    has_parts = trace.required("communication_times").select(pl.any_horizontal(pl.col(*parts).is_not_null().any())).collect()
    return bool(has_parts.item())


def communication_bandwidth(trace: Trace) -> pl.DataFrame:
    """Bandwidth per operation, transport and packet size: ``communication_bandwidth`` with the step of the operation."""
    return _with_steps(trace, _read_measurements(trace, "communication_bandwidth"))


def time_totals(times: pl.DataFrame) -> pl.DataFrame:
    """``communication_times`` added up per step and kind; the ratios are those of the sums."""
    sums = times.group_by("step", "kind", maintain_order=True).agg(pl.col(*_TIMES).sum())
    return sums.with_columns(**_time_ratios())


def bandwidth_totals(bandwidth: pl.DataFrame) -> pl.DataFrame:
    """``communication_bandwidth`` added up per step, kind and transport.

    Returns:
        step, kind, transport, size_mb, transit_ms and bandwidth_gbps = size / time (1 MB per ms is 1 GB per s), rounded to
        4 digits, 0 where no time was spent.
    """
    transport = ["step", "kind", "transport"]
    # size and time of a transport are repeated for each of its packet sizes
    once = bandwidth.unique(["step", "kind", *_OPERATION, "transport"], keep="first", maintain_order=True)
    return (
        once.group_by(transport, maintain_order=True).agg(pl.col("size_mb", "transit_ms").sum()).with_columns(_bandwidth_gbps())
    )


def package_totals(bandwidth: pl.DataFrame) -> pl.DataFrame:
    """Packets per step, kind, transport and packet size: package_mb, count and duration_ms, in order of appearance."""
    keys = ["step", "kind", "transport", "package_mb"]
    packets = bandwidth.drop_nulls("package_mb")
    return packets.group_by(keys, maintain_order=True).agg(pl.col("count", "duration_ms").sum())


def communication_matrix(trace: Trace) -> pl.DataFrame:
    """The operations of each link that tell most: the fastest, the median, the three slowest, and their total.

    1. Operations of one step, type (see ``operation_type``), group and pair of ranks are sorted by falling bandwidth;
       equal ones keep their order.
    2. Of n operations "top1" is the first, "middle" number n // 2, "bottom1" the last, "bottom2" and "bottom3" the ones
       before it, where there are so many.
    3. "total" adds sizes and times; its bandwidth is their quotient, rounded to 4 digits.

    A source that holds selected rows only has them passed on.

    Returns:
        step, kind, type, group, source, destination, selection, transport, size_mb, transit_ms, bandwidth_gbps and
        op_name (null for a total); per type the selections follow one another, in the order top1, middle, bottom1,
        total, bottom2, bottom3 unless the source has its own.
    """
    rows = _read_measurements(trace, "communication_matrix")
    rows = _with_steps(trace, rows, operation="op_name" if rows["selection"].is_not_null().any() else "name")
    columns = [*_LINK, "selection", "transport", "size_mb", "transit_ms", "bandwidth_gbps", "op_name"]
    selected = rows.filter(pl.col("selection").is_not_null())
    if selected.height:
        return selected.rename({"name": "type"}).select(columns)
    types = {name: operation_type(name) for name in rows["name"].unique().drop_nulls()}
    rows = rows.with_columns(
        type=pl.col("name").replace_strict(types, default=None, return_dtype=pl.String), op_name=pl.col("name")
    )
    place = pl.int_range(pl.len()).over(_LINK)
    count = pl.len().over(_LINK)
    ordered = rows.with_columns(pl.col("bandwidth_gbps").fill_null(0.0)).sort(
        "bandwidth_gbps", descending=True, maintain_order=True
    )
    ordered = ordered.with_columns(place=place, count=count)
    row_of = {"top1": 0, "middle": pl.col("count") // 2, **{f"bottom{n}": pl.col("count") - n for n in (1, 2, 3)}}
    parts = [ordered.filter(pl.col("place") == row_of[name]).with_columns(selection=pl.lit(name)) for name in _SELECTIONS]
    total = rows.group_by(_LINK, maintain_order=True).agg(pl.col("transport").first(), pl.col("size_mb", "transit_ms").sum())
    total = total.with_columns(_bandwidth_gbps(), selection=pl.lit(TOTAL), op_name=pl.lit(None, dtype=pl.String))
    parts.insert(3, total)
    matrix = pl.concat([part.select(columns) for part in parts])
    # types in order of appearance, and within them the selections, and links as the source lists them
    first = rows.select("step", "kind", "type", "group").unique(maintain_order=True).with_row_index("_type")
    links = rows.select(_LINK).unique(maintain_order=True).with_row_index("_link")
    return (
        matrix.with_row_index("_selection")
        .with_columns(_selection=pl.col("selection").rle_id())
        .join(first, on=["step", "kind", "type", "group"], how="left", nulls_equal=True)
        .join(links, on=list(_LINK), how="left", nulls_equal=True)
        .sort("_type", "_selection", "_link")
        .select(columns)
    )


@once_if_small
def link_transfers(trace: Trace) -> pl.DataFrame:
    """``communication_matrix`` with the step filled in: one row per operation and link, or the totals of a source that selects.

    Unlike the totals of ``communication_matrix`` these tell several transports of one link apart.
    """
    rows = _read_measurements(trace, "communication_matrix")
    selects = bool(rows["selection"].is_not_null().any())
    rows = _with_steps(trace, rows, operation="op_name" if selects else "name")
    return rows.filter(pl.col("selection") == TOTAL) if selects else rows


def _read_measurements(trace: Trace, table: str) -> pl.DataFrame:
    """A measurement table with its names as text, its class known, and nothing in it that is no number."""
    point_to_point = pl.col("name").str.to_lowercase().str.contains(_POINT_TO_POINT)
    by_name = pl.when(point_to_point).then(pl.lit(POINT_TO_POINT)).otherwise(pl.lit(COLLECTIVE))
    measured = pl.col(pl.Float64)
    return (
        trace.required(table)
        .with_columns(pl.col(NAME).cast(pl.String))
        .with_columns(pl.col("kind").fill_null(by_name), pl.when(measured.is_finite()).then(measured).name.keep())
        .drop_nulls("name")
        .collect()
    )


def _with_steps(trace: Trace, rows: pl.DataFrame, operation: str = "name") -> pl.DataFrame:
    """``rows`` with the step filled in; see ``communication_times``."""
    steps = trace.required("steps").select("id", "start_ns", "end_ns").sort("start_ns").collect()
    if not rows["step"].null_count() or steps.is_empty():
        return rows
    if steps.height == 1:
        return rows.with_columns(pl.col("step").fill_null(steps["id"][0]))
    rows = _from_other(rows, trace.required("communication"), operation)
    if "start_ns" in rows.columns:
        return rows.with_columns(step=pl.coalesce("step", _step_around(rows["start_ns"], steps)))
    return _from_other(rows, communication_times(trace).lazy(), operation)


def _from_other(rows: pl.DataFrame, other: pl.LazyFrame, operation: str) -> pl.DataFrame:
    """Unknown steps from the operation's row in another table; its group may go by another name there, so the name decides."""
    other_times = (
        other.select(pl.col("name").cast(pl.String).alias(operation), pl.col("step").alias("_step"))
        .drop_nulls()
        .unique(maintain_order=True)
        .filter(pl.len().over(operation) == 1)
        .collect()
    )
    joined = rows.join(other_times, on=operation, how="left", maintain_order="left")
    return joined.with_columns(step=pl.coalesce("step", "_step")).drop("_step")


def _step_around(time_ns: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """Id of the step whose range, both ends included, holds each time; of two the earlier; null outside all."""
    start, end, ids = (steps[column].to_numpy() for column in ("start_ns", "end_ns", "id"))
    time = time_ns.fill_null(-1).to_numpy()
    row = np.searchsorted(end, time, side="left")
    is_inside = row < len(ids)
    row = np.minimum(row, len(ids) - 1)
    is_inside &= start[row] <= time
    found: pl.Series = pl.Series("step", ids[row]).set(pl.Series(~is_inside), None)
    return found


def _time_ratios() -> dict[str, pl.Expr]:
    sums = {part: pl.col(f"{part}_ms") + pl.col("transit_ms") for part in ("wait", "synchronization")}
    return {
        f"{part}_ratio": pl.when(total < _SHORTEST_MS).then(0.0).otherwise(pl.col(f"{part}_ms") / total).round(4)
        for part, total in sums.items()
    }


def _bandwidth_gbps() -> pl.Expr:
    size, time = pl.col("size_mb"), pl.col("transit_ms")
    return pl.when(time < _SHORTEST_MS).then(0.0).otherwise(size / time).round(4).alias("bandwidth_gbps")
