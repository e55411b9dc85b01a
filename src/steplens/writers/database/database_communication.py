"""COMMUNICATION_OP and COMMUNICATION_TASK_INFO of a profiler database: collectives, and the tasks that they consist of."""

from __future__ import annotations

import polars as pl

from steplens.formats.ascend_database import DATA_TYPES, ENUMS, INNER_ENUMS, INNER_TASKS, NO_NOTIFY, NO_TYPE
from steplens.formats.ascend_terms import NO_NUMBER, NOT_AVAILABLE, OPERATION_TYPE
from steplens.trace.schema import KIND_COMMUNICATION
from steplens.writers.common.communication_names import named_communication
from steplens.writers.common.links import Connections, hardware_tasks, inner_tasks
from steplens.writers.common.output import Output
from steplens.writers.common.text import map_distinct
from steplens.writers.database.database_file import DatabaseFile

#: names that PyTorch gives to types of elements
_TORCH_TYPES = {
    "float": "FP32", "half": "FP16", "bfloat16": "BFP16", "double": "FP64", "char": "INT8", "byte": "UINT8", "bool": "UINT8",
    "short": "INT16", "int": "INT32", "long": "INT64", "bf16": "BFP16", "float8_e4m3fn": "FP8E4M3", "float8_e5m2": "FP8E5M2",
}  # fmt: skip


def write_communication(file: DatabaseFile, output: Output, found: Connections) -> None:
    """COMMUNICATION_OP, and COMMUNICATION_TASK_INFO: the tasks of the hardware that a collective consists of.

    A collective and its tasks share a connection; what a source does not know of them is "none" or NULL.
    """
    calls = named_communication(output).with_columns(connection=found.communication).sort("start_ns")
    if calls.is_empty():
        return
    group = calls.select(pl.when(pl.col("group_id") != "").then("group_id")).to_series()
    calls = calls.with_columns(opId=pl.int_range(1, pl.len() + 1, dtype=pl.Int64), opType=_types_of(output, calls))
    calls = calls.with_columns(
        opName=file.text_ids(calls["client_name"], missing=NOT_AVAILABLE), groupName=file.text_ids(group, missing=NOT_AVAILABLE)
    )
    rows = calls.select(
        *("opName", "groupName", "opId"),
        startNs="start_ns",
        endNs="end_ns",
        connectionId="connection",
        dataType=pl.lit(_data_types(calls["dtype"])),
        algType=pl.lit(file.text_ids(calls["algorithm"], missing=NOT_AVAILABLE)),
        count="elements",
        opType=pl.lit(file.text_ids(calls["opType"], missing=NOT_AVAILABLE)),
        deviceId=pl.col("device").fill_null(0),
        rankSize="ranks",
    )
    file.frame("COMMUNICATION_OP", rows)
    _write_inner_tasks(file, output, found, calls)


def _types_of(output: Output, calls: pl.DataFrame) -> pl.Series:
    """Type of each operation: that of its row in ``kernels``, or what its name or the operation says."""
    tasks = output.trace.required("kernels").filter(pl.col("kind").cast(pl.String) == KIND_COMMUNICATION)
    task_types = tasks.select(
        "start_ns", "device", name_text=pl.col("name").cast(pl.String), _type=pl.col("type").cast(pl.String)
    )
    task_types = task_types.unique(["start_ns", "device", "name_text"], keep="first", maintain_order=True)
    name = pl.col("name").cast(pl.String)
    joined = calls.with_columns(name_text=name).join(
        task_types.collect(), on=["start_ns", "device", "name_text"], how="left", maintain_order="left", nulls_equal=True
    )
    types = joined.select(pl.coalesce("_type", name.str.extract(OPERATION_TYPE), pl.col("operation").cast(pl.String)))
    return types.to_series()


def _data_types(types: pl.Series) -> pl.Series:
    """Numbers of element types; "N/A" where none is known, "invalid" for one without number."""
    return map_distinct(types, _data_type, DATA_TYPES[NOT_AVAILABLE], pl.Int64)


def _data_type(text: str) -> int:
    return DATA_TYPES.get(text, DATA_TYPES.get(_TORCH_TYPES.get(text.lower(), ""), NO_TYPE))


def _write_inner_tasks(file: DatabaseFile, output: Output, found: Connections, calls: pl.DataFrame) -> None:
    trace = output.trace
    owners = calls.unique("connection", keep="first", maintain_order=True).select(
        "connection", "opId", "opName", "groupName", "dtype"
    )
    tasks = (
        trace.required("kernels")
        .with_columns(connection=pl.lit(found.kernels))
        .filter(hardware_tasks(trace))
        .join(owners.lazy(), on="connection", maintain_order="left")
        .sort("start_ns")
        .collect()
    )
    details = inner_tasks(trace)
    if details is not None:
        # a collective launches more than what it consists of
        tasks = tasks.filter(pl.col("id").is_in(details["kernel"].implode()))
    if tasks.is_empty():
        return
    rank = trace.rank
    constants = {"notifyId": NO_NOTIFY, "srcRank": rank if rank >= 0 else NO_NUMBER, "dstRank": NO_NUMBER}
    constants |= dict.fromkeys(("rdmaType", "transportType", "linkType"), NO_TYPE)
    rows = tasks.select(
        *("groupName", "opId"),
        name="opName",
        globalTaskId="id",
        taskType=pl.lit(file.text_ids(tasks["name"], missing=NOT_AVAILABLE)),
        planeId=(pl.col("stream").fill_null(0).rank("dense").over("opId") - 1).cast(pl.Int64),
        size="bytes",
        dataType=pl.lit(_data_types(tasks["dtype"])),
        **{column: pl.lit(number, dtype=pl.Int64) for column, number in constants.items()},
    )
    file.frame(INNER_TASKS, rows if details is None else _with_details(file, details, rows))


def _with_details(file: DatabaseFile, details: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` with what a source has kept of the same tasks."""
    columns = {"globalTaskId": details["kernel"]}
    for column in ("planeId", "notifyId", "srcRank", "dstRank", "size", "isMaster"):
        if column in details.columns:
            columns[column] = details[column].cast(pl.Int64, strict=False)
    for column, enum in INNER_ENUMS.items():
        if column in details.columns:
            columns[column] = details[column].replace_strict(ENUMS[enum], default=None, return_dtype=pl.Int64)
    if "taskType" in details.columns:
        columns["taskType"] = file.text_ids(details["taskType"])
    better = pl.DataFrame(columns)
    if "isMaster" in better.columns:
        rows = rows.with_columns(isMaster=pl.lit(None, dtype=pl.Int64))
    return rows.update(better, on="globalTaskId", how="left")
