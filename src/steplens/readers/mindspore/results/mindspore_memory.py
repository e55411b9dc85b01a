"""``memory_usage_<rank>.pb``: how MindSpore plans the memory of its graphs, as its compiler laid it out before the run.

A protocol buffer of few messages; its fields are read by number, so that no library is needed. Numbers are those of
MindSpore's ``memory_profiling.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common.storage.files import read_bytes
from steplens.trace.health import MEMORY, WARNING, HealthLog

GRAPHS, NODES, TENSORS = "memory_graphs", "memory_nodes", "memory_tensors"

_LARGEST = 256 << 20
#: nodes and tensors of all graphs
_MOST_ROWS = 2_000_000
_WORD = (1 << 64) - 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPH, _CAPACITY = 1, 2
_GRAPH_FIELDS = {1: "graph", 2: "static_bytes", 5: "forward_name", 6: "backward_name"}
_NODE, _TENSOR = 3, 4
_NODE_FIELDS = {1: "name", 2: "node"}
_OUTPUT, _WORKSPACE = 4, 5
_TENSOR_FIELDS = {1: "tensor", 2: "bytes", 3: "type", 4: "life_start", 5: "life_end", 6: "life_long"}
_TEXTS = {"forward_name", "backward_name", "name", "type", "life_long"}

_GRAPH_SCHEMA = {
    "graph": pl.Int64, "static_bytes": pl.Int64, "capacity_bytes": pl.Int64, "forward_name": pl.String,
    "backward_name": pl.String,
}  # fmt: skip
_NODE_SCHEMA = {"graph": pl.Int64, "node": pl.Int64, "name": pl.String}
_TENSOR_SCHEMA = {
    "graph": pl.Int64, "tensor": pl.Int64, "bytes": pl.Int64, "type": pl.String, "life_start": pl.Int64, "life_end": pl.Int64,
    "life_long": pl.String, "owner": pl.String, "kind": pl.String,
}  # fmt: skip


def read_plan(path: Path, health: HealthLog) -> dict[str, pl.DataFrame]:
    """The tables ``memory_graphs``, ``memory_nodes`` and ``memory_tensors`` of a file; empty ones where it is damaged.

    Nodes are numbered in the order in which they run; a tensor lives from node ``life_start`` to node ``life_end``; ``owner`` is
    the node that puts it out or works in it (``kind`` "output" or "workspace"), null where none does. Sizes are bytes.
    """
    rows: dict[str, list[dict[str, Any]]] = {GRAPHS: [], NODES: [], TENSORS: []}
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST >> 20} MiB")
        _decode_plan(memoryview(read_bytes(path)), rows)
    except (OSError, ValueError) as error:
        health.add(
            "damaged_side_file", WARNING, 1, f"{path.name} is not whole: {error}; what comes later in it is missing", MEMORY
        )
    schemas: dict[str, Any] = {GRAPHS: _GRAPH_SCHEMA, NODES: _NODE_SCHEMA, TENSORS: _TENSOR_SCHEMA}
    return {name: pl.DataFrame(rows[name], schema=schema) for name, schema in schemas.items()}


def _decode_plan(data: memoryview, rows: dict[str, list[dict[str, Any]]]) -> None:
    capacity = 0
    first = len(rows[GRAPHS])
    try:
        for field, value in _message_fields(data):
            if field == _GRAPH and isinstance(value, memoryview):
                _decode_graph(value, rows)
            elif field == _CAPACITY and isinstance(value, int):
                capacity = value
    finally:
        for graph in rows[GRAPHS][first:]:
            graph["capacity_bytes"] = _to_signed(capacity) or None


def _decode_graph(data: memoryview, rows: dict[str, list[dict[str, Any]]]) -> None:
    graph: dict[str, Any] = {"graph": 0, "static_bytes": 0}
    nodes: list[dict[str, Any]] = []
    tensors: list[dict[str, Any]] = []
    owners: dict[int, tuple[str, str]] = {}
    try:
        for field, value in _message_fields(data):
            if field in (_NODE, _TENSOR) and isinstance(value, memoryview):
                if len(rows[NODES]) + len(rows[TENSORS]) + len(nodes) + len(tensors) >= _MOST_ROWS:
                    raise ValueError(f"it has more than {_MOST_ROWS} nodes and tensors")
                if field == _NODE:
                    nodes.append(_decode_node(value, owners))
                else:
                    tensors.append(
                        _decode_named_fields(value, _TENSOR_FIELDS, {"tensor": 0, "bytes": 0, "life_start": 0, "life_end": 0})
                    )
            elif field in _GRAPH_FIELDS:
                graph |= _typed_field(_GRAPH_FIELDS[field], value)
    finally:
        graph_columns = {"graph": graph["graph"]}
        rows[GRAPHS].append(graph)
        rows[NODES] += [{**graph_columns, **node} for node in nodes]
        for tensor in tensors:
            owner, kind = owners.get(tensor["tensor"], (None, None))
            rows[TENSORS].append({**graph_columns, **tensor, "owner": owner, "kind": kind})


def _decode_node(data: memoryview, owners: dict[int, tuple[str, str]]) -> dict[str, Any]:
    node = _decode_named_fields(data, _NODE_FIELDS, {"node": 0, "name": ""})
    for field, value in _message_fields(data):
        if field in (_OUTPUT, _WORKSPACE):
            kind = "output" if field == _OUTPUT else "workspace"
            for number in [value] if isinstance(value, int) else _decode_varints(value):
                owners.setdefault(_to_signed(number), (node["name"], kind))
    return node


def _decode_named_fields(data: memoryview, names: dict[int, str], found: dict[str, Any]) -> dict[str, Any]:
    for field, value in _message_fields(data):
        if field in names:
            found |= _typed_field(names[field], value)
    return found


def _typed_field(name: str, value: int | memoryview) -> dict[str, Any]:
    """A field of the type that it should have; nothing for another one."""
    if name in _TEXTS:
        return {name: bytes(value).decode(errors="replace")} if isinstance(value, memoryview) else {}
    return {name: _to_signed(value)} if isinstance(value, int) else {}


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _message_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of every field of a message.

    Raises:
        ValueError: the message is cut off, or is none.
    """
    place = 0
    while place < len(data):
        tag, place = _decode_varint(data, place)
        wire = tag & 7
        if wire == _VARINT:
            value, place = _decode_varint(data, place)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            length, place = _decode_varint(data, place)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"byte {place} begins no field")
        if length > len(data) - place:
            raise ValueError("it is cut off")
        if wire == _BYTES:
            yield tag >> 3, data[place : place + length]
        place += length


def _decode_varints(data: memoryview) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _decode_varint(data, place)
        yield value


def _decode_varint(data: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            raise ValueError("it is cut off")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _WORD, place
    raise ValueError(f"byte {place} ends no number")
