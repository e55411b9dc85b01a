"""Reads the framework's side of raw device logs: its list of tasks, its graph and the points of its step trace."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import json_text
from steplens.readers.mindspore.device_logs.legacy_hwts import task_key
from steplens.readers.mindspore.legacy_files import text_lines
from steplens.trace.health import KERNEL_CALLS, KERNEL_DETAILS, STEP_PHASES, WARNING, HealthLog

_MEMBER = re.compile(r'(op_name|op_type|(?:input|output)_(?:id|format|data_type|shape)):("[^"]*"|\S*)')
#: MindSpore's numbers of types
_TYPES = {
    27: "BOOL", 28: "INT", 29: "INT8", 30: "INT16", 31: "INT32", 32: "INT64", 33: "UINT", 34: "UINT8", 35: "UINT16",
    36: "UINT32", 37: "UINT64", 38: "FLOAT", 39: "FLOAT16", 40: "FLOAT32", 41: "FLOAT64",
}  # fmt: skip
#: GE's numbers of types, and of formats
_GE_TYPES = {
    0: "FLOAT32", 1: "FLOAT16", 2: "INT8", 3: "INT32", 4: "UINT8", 6: "INT16", 7: "UINT16", 8: "UINT32", 9: "INT64",
    10: "UINT64", 11: "FLOAT64", 12: "BOOL",
}  # fmt: skip
_GE_FORMATS = {
    0: "NCHW", 1: "NHWC", 2: "ND", 3: "NC1HWC0", 4: "FRACTAL_Z", 29: "FRACTAL_NZ",
}  # fmt: skip

_TASKS = {"task_id": pl.Int64, "stream_id": pl.Int64, "block_dim": pl.Int64, "full_kernel_name": pl.String}


def read_tasks(slices: Sequence[Path], health: HealthLog) -> pl.DataFrame:
    """The list of tasks: task_id, stream_id, block_dim, full_kernel_name, key (as of ``legacy_hwts``), in order."""
    fields = [line.rsplit(None, 3) for line in text_lines(slices, health, KERNEL_CALLS)]
    rows = [
        (int(task), int(stream), int(block), name)
        for name, block, task, stream in (row for row in fields if len(row) == 4)
        if all(map(_is_number, (block, task, stream)))
    ]
    if lost := len(fields) - len(rows):
        health.add("damaged_records", WARNING, lost, "lines of the framework's list of tasks are damaged", KERNEL_CALLS)
    frame = pl.DataFrame(rows, schema=_TASKS, orient="row")
    return frame.with_columns(key=task_key(pl.col("task_id"), pl.col("stream_id")), name=pl.col("full_kernel_name"))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def read_graph(slices: Sequence[Path], health: HealthLog, *, ge: bool = False) -> pl.DataFrame:
    """The operators of the graph: full_kernel_name, kernel_type, op_info (JSON of what goes in and comes out).

    Args:
        slices: of ``graph_desc_info``.
        health: gets what is wrong.
        ge: whether GE wrote them, which has other numbers of types and formats.
    """
    lines = text_lines(slices, health, KERNEL_DETAILS)
    rows = []
    for line in lines:
        members = [(key, value.strip('"')) for key, value in _MEMBER.findall(line)]
        if members and members[0][0] == "op_name":
            first_members = dict(members[:2])
            info = json.dumps(_tensor_info(members, ge), ensure_ascii=False)
            rows.append((first_members["op_name"], first_members.get("op_type", ""), info))
    if lost := len(lines) - len(rows):
        health.add("damaged_records", WARNING, lost, "lines of the framework's graph are damaged", KERNEL_DETAILS)
    schema = dict.fromkeys(("full_kernel_name", "kernel_type", "op_info"), pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _tensor_info(members: Sequence[tuple[str, str]], ge: bool) -> dict[str, dict[str, str]]:
    """``input_0`` ... and ``output_0`` ... with format, data_type, shape; an ``_id`` member opens each."""
    info: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for key, value in members:
        side, _, part = key.partition("_")
        if side == "op":
            continue
        if part == "id":
            current = info.setdefault(f"{side}_{value}", {})
        elif part == "data_type":
            current[part] = _type_name(value, ge)
        elif part == "format":
            current[part] = _GE_FORMATS.get(_to_number(value), value) if ge else value
        else:
            current[part] = value
    return info


def _type_name(value: str, ge: bool) -> str:
    name = (_GE_TYPES if ge else _TYPES).get(_to_number(value))
    return f"NUMBER_TYPE_{name}" if name else "UNKNOWN"


def _to_number(text: str) -> int:
    return int(text) if _is_number(text) else -1


def framework_table(tasks: pl.DataFrame, graph: pl.DataFrame) -> pl.DataFrame:
    """Tasks with their operators: the columns of ``framework_raw_<rank>.csv``, and key."""
    types = graph.unique("full_kernel_name", keep="first", maintain_order=True)
    last = pl.col("full_kernel_name").str.split("/").list.last()
    # without the graph the name still tells the type
    by_name = last.str.replace(r"-op\d+$", "")
    return tasks.join(types, on="full_kernel_name", how="left", maintain_order="left").select(
        "task_id",
        "stream_id",
        "block_dim",
        "full_kernel_name",
        op_name="full_kernel_name",
        kernel_name=last,
        kernel_type=pl.coalesce("kernel_type", by_name),
        subgraph=pl.col("full_kernel_name").str.split("/").list.first(),
        op_info=pl.col("op_info").fill_null("{}"),
        key="key",
    )


def read_points(slices: Sequence[Path], health: HealthLog) -> dict[int, str]:
    """The operators at the points of the step trace, by tag: 1 first forward, 2 last backward."""
    points: dict[int, str] = {}
    for line in text_lines(slices, health, STEP_PHASES):
        tag, _, name = line.strip().partition(" ")
        if _is_number(tag) and name:
            points[int(tag)] = name
    return points


def kernel_columns(framework: pl.DataFrame) -> pl.DataFrame:
    """What ``op_info`` says of each operator as columns of ``kernels``: shapes, types and formats, ``;`` between tensors."""
    rows = [_tensor_cells(text) for text in framework["op_info"].to_list()]
    names = [f"{side}_{part}" for side in ("input", "output") for part in ("shapes", "types", "formats")]
    return framework.with_columns(pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row"))


def _tensor_cells(text: str | None) -> list[str | None]:
    try:
        info: Any = json_text.loads(text or "{}")
    except ValueError:
        info = {}
    members = info if isinstance(info, dict) else {}
    cells: list[str | None] = []
    for side in ("input_", "output_"):
        tensors = [value for key, value in members.items() if key.lower().startswith(side) and isinstance(value, dict)]
        for part in ("shape", "data_type", "format"):
            texts = [str(tensor.get(part, "")).removeprefix("NUMBER_TYPE_") for tensor in tensors]
            cells.append(";".join(texts) if tensors else None)
    return cells
