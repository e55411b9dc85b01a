"""What the communication kernels of a Kineto trace do: operation, size, type, group.

Newer versions of PyTorch write it into the arguments of the kernels, older ones into those of the call
``record_param_comms`` around the launch; still older ones leave an annotation named ``nccl:all_reduce`` around it, with
the shapes of its tensors. The name of the kernel tells the operation when nothing else does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from steplens.readers.common import json_decoder
from steplens.readers.common.side_files import as_list, as_object
from steplens.readers.kineto.kineto_structs import CollectiveArgs
from steplens.trace.building.distinct import convert_distinct
from steplens.trace.building.lookup import enclosing_rows, first_rows
from steplens.trace.building.nesting import lane_numbers, nest_calls
from steplens.trace.schema import COLLECTIVE, KIND_COMMUNICATION, NAME, RECEIVE, SEND
from steplens.trace.trace import is_count

#: bytes of one element, by PyTorch's names of types: those of scalar types, and those in "Input type"
ELEMENT_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "QUInt4x2", "unsigned char", "signed char", "char", "bool"), 1),
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float8_e8m0fnu"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16", "c10::Half", "c10::BFloat16", "short", "short int"), 2),
    **dict.fromkeys(("Float", "Int", "UInt32", "QInt32", "ComplexHalf", "float", "int"), 4),
    **dict.fromkeys(("Double", "Long", "UInt64", "ComplexFloat", "double", "long", "long int", "c10::complex<float>"), 8),
    **dict.fromkeys(("ComplexDouble", "c10::complex<double>"), 16),
}

#: operations of NCCL, whose variants count as the operation itself (unlike ``ascend_terms.HCCL_OPERATIONS``), by the words in
#: their many names, the longer word first where one contains the other
_OPERATIONS = (
    "reducescatter",
    "allreduce",
    "allgather",
    "alltoall",
    "broadcast",
    "gather",
    "scatter",
    "sendrecv",
    "send",
    "recv",
    "receive",
    "barrier",
    "reduce",
)
_OPERATION = re.compile("|".join(_OPERATIONS))
_NO_LETTER = re.compile(r"[^a-z]")
_ALGORITHM = re.compile(r"(RING|TREE|COLLNET_?(?:DIRECT|CHAIN)?|NVLS_?(?:TREE)?|PAT)_(LL128|LL|SIMPLE)")
_ANNOTATION = "nccl:"

_METADATA = ("operation", "elements", "dtype", "group", "group_size", "source", "destination")
_COLLECTIVE_DECODER = json_decoder.Decoder[CollectiveArgs](CollectiveArgs)


def operation_of(name: str | None) -> str | None:
    """The operation that a name in any spelling stands for: "allreduce", "alltoall" ...; None where it names none.

    ``_allgather_base``, ``all_gather_into_tensor`` and ``ncclDevKernel_AllGather_RING_LL`` are "allgather".
    """
    matched = _OPERATION.search(_NO_LETTER.sub("", (name or "").lower()))
    if not matched:
        return None
    return "recv" if matched[0] == "receive" else matched[0]


def communication_table(
    tasks: pl.DataFrame, calls: pl.DataFrame, ops: pl.DataFrame | None, described: pl.DataFrame, members: dict[str, Any]
) -> pl.DataFrame:
    """The communication kernels as rows of ``communication``, with what is needed to link them to their calls.

    ``elements`` and ``bytes`` are those that this rank puts in.

    Args:
        tasks: all device tasks, with ``launch``, the JSON text of their arguments.
        calls: runtime calls.
        ops: raw operator calls.
        described: calls that describe a communication operation (``EventColumns`` "collectives").
        members: the members of the trace's top object; ``distributedInfo`` names the groups.
    """
    tasks = tasks.filter(pl.col("kind") == KIND_COMMUNICATION)
    if not tasks.height:
        return tasks
    point = _launch_points(tasks, calls)
    sources = [_of_kernels(tasks), _of_calls(tasks, point, described), _of_annotations(point, ops), _of_names(tasks)]
    columns = {name: pl.select(pl.coalesce([source[name] for source in sources])).to_series() for name in _METADATA}
    received, sent = columns["operation"] == "recv", columns["operation"] == "send"
    kind = pl.when(received).then(pl.lit(RECEIVE)).when(sent).then(pl.lit(SEND)).otherwise(pl.lit(COLLECTIVE))
    peer = pl.when(received).then(columns["source"]).when(sent).then(columns["destination"])
    element_bytes = columns["dtype"].replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    sizes = columns["group"].replace_strict(group_sizes(members), default=None, return_dtype=pl.Int64)
    group_size = pl.select(pl.coalesce(columns["group_size"], sizes)).to_series()
    linking = [name for name in ("launch_ns", "launch_pid", "launch_tid") if name in tasks.columns]
    return tasks.select(
        "name",
        kind=kind.cast(NAME),
        operation=columns["operation"].cast(NAME),
        group=columns["group"].cast(NAME),
        ranks=group_size.cast(pl.Int32, strict=False),
        elements=columns["elements"],
        bytes=columns["elements"] * element_bytes,
        dtype=columns["dtype"].cast(NAME),
        algorithm=convert_distinct(tasks["name"], _collective_algorithm),
        start_ns="start_ns",
        end_ns="end_ns",
        device="device",
        stream="stream",
        correlation="correlation",
        external_id="external_id",
        peer=peer.cast(pl.Int32, strict=False),
        **{name: pl.col(name) for name in linking},
    )


def group_sizes(members: Mapping[str, Any]) -> dict[str, int]:
    """Size of each process group by its name, from the description of the job; 0 for that without a name."""
    sizes = {"": 0}
    for group in as_list(as_object(members.get("distributedInfo")).get("pg_config")):
        if isinstance(group, dict) and is_count(group.get("pg_size")):
            sizes[str(group.get("pg_name"))] = group["pg_size"]
    return sizes


def _empty_metadata(count: int) -> pl.DataFrame:
    types = {name: pl.String if name in ("operation", "dtype", "group") else pl.Int64 for name in _METADATA}
    return pl.DataFrame({name: pl.Series([None], dtype=dtype).new_from_index(0, count) for name, dtype in types.items()})


def _of_kernels(tasks: pl.DataFrame) -> pl.DataFrame:
    """What the arguments of the kernels say."""
    distinct = tasks.select(pl.col("launch").unique().drop_nulls())
    rows = [_collective_args(text) for text in distinct["launch"].cast(pl.String).to_list()]
    operation_names = distinct.with_columns(
        operation=pl.Series([operation_of(row.collective) for row in rows], dtype=pl.String),
        elements=pl.Series([row.elements_in for row in rows], dtype=pl.Int64, strict=False),
        dtype=pl.Series([row.dtype for row in rows], dtype=pl.String),
        group=pl.Series([_group_name(row) for row in rows], dtype=pl.String),
        group_size=pl.Series([row.group_size for row in rows], dtype=pl.Int64, strict=False),
        source=pl.Series([row.source for row in rows], dtype=pl.Int64, strict=False),
        destination=pl.Series([row.destination for row in rows], dtype=pl.Int64, strict=False),
    )
    return tasks.select("launch").join(operation_names, on="launch", how="left", maintain_order="left")


def _collective_args(text: str) -> CollectiveArgs:
    if "Collective name" not in text:
        return CollectiveArgs()
    try:
        return _COLLECTIVE_DECODER.decode("{" + text)
    except ValueError:
        return CollectiveArgs()


def _group_name(args: CollectiveArgs) -> str | None:
    if args.group is not None:
        return str(args.group)
    return None if args.group_number is None else str(args.group_number)


def _of_calls(tasks: pl.DataFrame, point: pl.DataFrame, described: pl.DataFrame) -> pl.DataFrame:
    """What the call says from which a kernel was launched: by its external id, else the innermost one around the launch."""
    if not described.height:
        return _empty_metadata(tasks.height)
    described = described.with_row_index("_described")
    by_id = described.drop_nulls("external_id").unique("external_id", keep="first").select("external_id", "_described")
    linked = (
        tasks.select("external_id").join(by_id, on="external_id", how="left", maintain_order="left")["_described"].cast(pl.Int64)
    )
    row = pl.select(pl.coalesce(linked, rows_around(point, described))).to_series()
    call_rows = described[row.fill_null(0)]
    group = pl.coalesce("group", pl.col("group_number").cast(pl.String))
    described_calls = call_rows.select(
        operation=pl.col("collective").map_elements(operation_of, return_dtype=pl.String),
        elements="elements_in",
        dtype="dtype",
        group=group,
        group_size="group_size",
        source="source",
        destination="destination",
    )
    return described_calls.with_columns(pl.when(row.is_not_null()).then(pl.all()))


def _of_annotations(point: pl.DataFrame, ops: pl.DataFrame | None) -> pl.DataFrame:
    """What the annotation around the launch of each kernel says (``nccl:all_reduce``), and the shapes of its inputs."""
    if ops is None:
        return _empty_metadata(point.height)
    ranges = ops.filter(pl.col("name").cat.starts_with(_ANNOTATION))
    if not ranges.height:
        return _empty_metadata(point.height)
    row = rows_around(point, ranges)
    range_rows = ranges[row.fill_null(0)]
    no_text = pl.Series([None], dtype=pl.String).new_from_index(0, range_rows.height)
    types, shapes = (
        range_rows[name].cast(pl.String) if name in range_rows.columns else no_text for name in ("input_types", "input_shapes")
    )
    described_ranges = _empty_metadata(point.height).with_columns(
        operation=convert_distinct(range_rows["name"], operation_of).cast(pl.String),
        elements=shapes.map_elements(_count_elements, return_dtype=pl.Int64),
        dtype=types.str.extract(r"([^;\[\]]+)"),
    )
    return described_ranges.with_columns(pl.when(row.is_not_null()).then(pl.all()))


def _count_elements(shapes: str) -> int | None:
    """Number of elements of all tensors in a text of shapes ("2,3;4")."""
    tensors = [part for part in re.split(r"[;\[\]]+", shapes) if part]
    if not tensors:
        return None
    total = 0
    for tensor in tensors:
        size = 1
        for dimension in tensor.split(","):
            size *= int(dimension) if dimension.isdecimal() else 1
        total += size
    return total if total < 1 << 62 else None


def _of_names(tasks: pl.DataFrame) -> pl.DataFrame:
    return _empty_metadata(tasks.height).with_columns(operation=convert_distinct(tasks["name"], operation_of).cast(pl.String))


def _collective_algorithm(name: str) -> str | None:
    matched = _ALGORITHM.search(name.upper())
    return f"{matched[1]}_{matched[2]}" if matched else None


def _launch_points(tasks: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Where and when each task was launched: time, pid, tid; null where unknown."""
    if "launch_tid" in tasks.columns:
        return tasks.select(time="launch_ns", pid="launch_pid", tid="launch_tid")
    if not calls.height:
        null = pl.lit(None, dtype=pl.Int64)
        return tasks.select(time=null, pid=null, tid=null)
    row = first_rows(calls["correlation"], tasks.select(pl.when(pl.col("correlation") > 0).then("correlation")).to_series())
    return pl.DataFrame({"time": calls["start_ns"].gather(row), "pid": calls["pid"].gather(row), "tid": calls["tid"].gather(row)})


def rows_around(point: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    """Row of the innermost call around each point on its thread, null where there is none.

    Args:
        point: time, pid and tid; shape (m,).
        ranges: calls with pid, tid, start_ns and end_ns in any order; shape (n,).
    """
    order = ranges.with_row_index("_row").sort(["pid", "tid", "start_ns", "end_ns"], descending=[False, False, False, True])
    start, end, pid, tid = (order[name].to_numpy() for name in ("start_ns", "end_ns", "pid", "tid"))
    lane = lane_numbers(pid, tid)
    rows: pl.Series = order["_row"].cast(pl.Int64).gather(enclosing_rows(point, order, lane, nest_calls(lane, start, end).parent))
    return rows
