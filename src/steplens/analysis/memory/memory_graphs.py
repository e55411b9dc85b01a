"""The memory that MindSpore's compiler planned for its graphs: how much is in use at every node, and which tensors that are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

Int64Array = npt.NDArray[np.int64]

GRAPHS = table_schema(
    "graph, nodes, tensors, capacity_bytes, static_bytes, peak_bytes, peak_node, forward_node, backward_node, "
    "forward_name: String, backward_name: String"
)
TENSORS = table_schema("tensor, owner: String, kind: String, type: String, bytes, life_start, life_end")
#: columns of the source's tables; it keeps every cell as text
_GRAPHS = {name: GRAPHS[name] for name in ("graph", "static_bytes", "capacity_bytes", "forward_name", "backward_name")}
_NODES = table_schema("graph, node, name: String")
_TENSORS = {"graph": pl.Int64(), "life_long": pl.String(), **TENSORS}
#: words of ``life_long``: from the first node on, to the last node, or both
_FROM_START, _TO_END = ("LifeLongGraphAll", "LifeLongGraphStart"), ("LifeLongGraphAll", "LifeLongGraphEnd")


def memory_graphs(trace: Trace) -> pl.DataFrame:
    """One row per planned graph, columns as in ``GRAPHS``; nodes count from 0 in the order in which they run.

    ``peak_bytes`` is the highest value of ``graph_curve`` and ``peak_node`` the first node with it. ``forward_node`` and
    ``backward_node`` are the nodes at which the forward pass begins and the backward pass ends, null where none has the name.

    Source: MindSpore's ``memory_usage_<rank>.pb``.
    """
    rows: list[dict[str, Any]] = []
    for row in _read_source_table(trace, "memory_graphs", _GRAPHS).iter_rows(named=True):
        nodes, tensors = _nodes_and_tensors(trace, row["graph"])
        curve = _memory_curve(_tensor_lives(tensors, nodes.height), row["static_bytes"], nodes.height)
        names = nodes["name"].to_list()
        points = {
            f"{point}_node": names.index(row[f"{point}_name"]) if row[f"{point}_name"] in names else None
            for point in ("forward", "backward")
        }
        peak = int(curve.argmax()) if len(curve) else None
        rows.append(
            {
                **row,
                **points,
                "nodes": nodes.height,
                "tensors": tensors.height,
                "peak_bytes": int(curve[peak]) if peak is not None else row["static_bytes"],
                "peak_node": peak,
            }
        )
    return pl.DataFrame(rows, schema=GRAPHS)


def graph_curve(trace: Trace, graph: int) -> Int64Array:
    """Bytes in use at every node of a graph, shape (nodes,): static memory, and the tensors that live there (``graph_tensors``).

    Raises:
        ValueError: there is no such graph; the message says which there are.
    """
    static = _static_bytes(trace, graph)
    nodes, tensors = _nodes_and_tensors(trace, graph)
    return _memory_curve(_tensor_lives(tensors, nodes.height), static, nodes.height)


def graph_tensors(trace: Trace, graph: int) -> pl.DataFrame:
    """The tensors of a graph, columns as in ``TENSORS``, lives as they count; those that live at no node are left out.

    A tensor lives from its node ``life_start`` to its node ``life_end``, both included; ``LifeLongGraphStart`` from the first
    node on, ``LifeLongGraphEnd`` to the last one, ``LifeLongGraphAll`` both.

    Raises:
        ValueError: there is no such graph.
    """
    _static_bytes(trace, graph)
    nodes, tensors = _nodes_and_tensors(trace, graph)
    return _tensor_lives(tensors, nodes.height).select(cast_columns(TENSORS))


def tensors_at(tensors: pl.DataFrame, node: int) -> pl.DataFrame:
    """Those of ``graph_tensors`` that live at a node, the largest first."""
    alive_tensors = tensors.filter((pl.col("life_start") <= node) & (node <= pl.col("life_end")))
    return alive_tensors.sort("bytes", "tensor", descending=[True, False])


def _static_bytes(trace: Trace, graph: int) -> int:
    static_bytes: dict[int, int] = dict(
        _read_source_table(trace, "memory_graphs", _GRAPHS).select("graph", "static_bytes").iter_rows()
    )
    if graph not in static_bytes:
        raise ValueError(f"there is no planned graph {graph}; there is {', '.join(map(str, sorted(static_bytes))) or 'none'}")
    return static_bytes[graph]


def _read_source_table(trace: Trace, name: str, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """A table of the source with the types of a schema; columns that it lacks are null."""
    table = trace.source_table(name)
    if table is None:
        return pl.DataFrame(schema=schema)
    return table.select(
        (pl.col(column) if column in table.columns else pl.lit(None)).cast(dtype, strict=False).alias(column)
        for column, dtype in schema.items()
    )


def _nodes_and_tensors(trace: Trace, graph: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    tables = (_read_source_table(trace, "memory_nodes", _NODES), _read_source_table(trace, "memory_tensors", _TENSORS))
    nodes, tensors = (table.filter(pl.col("graph") == graph) for table in tables)
    return nodes, tensors


def _tensor_lives(tensors: pl.DataFrame, nodes: int) -> pl.DataFrame:
    """Tensors with whole lives inside the graph; those with none are left out."""
    if not tensors.height or not nodes:
        return pl.DataFrame(schema=TENSORS)
    start = pl.when(pl.col("life_long").is_in(_FROM_START)).then(0).otherwise("life_start")
    end = pl.when(pl.col("life_long").is_in(_TO_END)).then(nodes - 1).otherwise("life_end")
    lives = tensors.with_columns(life_start=start, life_end=pl.min_horizontal(end, pl.lit(nodes - 1)))
    return lives.filter((pl.col("life_start") >= 0) & (pl.col("life_start") <= pl.col("life_end")) & (pl.col("bytes") > 0))


def _memory_curve(lives: pl.DataFrame, static: int, nodes: int) -> Int64Array:
    change = np.zeros(nodes + 1, dtype=np.int64)
    if lives.height:
        size = lives["bytes"].to_numpy()
        np.add.at(change, lives["life_start"].to_numpy(), size)
        np.add.at(change, lives["life_end"].to_numpy() + 1, -size)
    return np.cumsum(change)[:nodes] + static
