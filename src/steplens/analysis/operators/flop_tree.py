"""Where in the model the arithmetic happens: operations added up along the scopes, as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from steplens.analysis.operators.flops import counted_calls
from steplens.analysis.operators.rank_flops import operator_work
from steplens.analysis.steps.basis import step_basis, with_steps
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

NODES = table_schema("id, parent, depth, name: String, flops: Float64, percent: Float64, operators")
_LEAVES: dict[str, pl.DataType] = {"path": pl.List(pl.String()), "flops": pl.Float64()}
ROOT = "Total"
#: scopes nest less deeply; what is deeper belongs to the last one
_DEEPEST = 32
_SCOPE = "/"
_MODULE = "."


def flop_tree(traces: Trace | Sequence[Trace]) -> pl.DataFrame:
    """Operations of a step of every scope and everything below it, parents before their children; columns as in ``NODES``.

    Node 0 is the whole; the leaves are operators. ``percent`` is of the whole, ``operators`` counts the leaves below a node
    (1 for a leaf). Source: what the device counted of every operator (``work.operator_work``; cube and vector units together),
    its scopes from its full name; else the calls whose arithmetic is known (``flops.counted_calls``), their modules, per step:
    a mean over the chosen steps (``analysis.steps.basis``), or a sum where there are none.

    Args:
        traces: one rank; or several, of which the result is the mean.
    """
    ranks = [traces] if isinstance(traces, Trace) else with_steps(traces)
    counted = [leaves if (leaves := _counted_by_device(trace)).height else _counted_from_calls(trace) for trace in ranks]
    counted = [leaves for leaves in counted if leaves.height]
    leaves = pl.concat(counted) if counted else pl.DataFrame(schema=_LEAVES)
    leaves = leaves.group_by("path", maintain_order=True).agg(pl.col("flops").sum() / max(len(counted), 1))
    leaves = leaves.filter(pl.col("flops") > 0)
    if not leaves.height:
        return pl.DataFrame(schema=NODES)
    depth = int(leaves["path"].list.len().max())  # type: ignore[arg-type]
    levels = [leaves.select(path=pl.col("path").list.head(length), below=pl.col("path").list.len(), flops="flops").filter(
        pl.col("below") >= length).group_by("path", maintain_order=True).agg(pl.col("flops").sum(), operators=pl.len())
        for length in range(depth + 1)]  # fmt: skip
    return _number_nodes(levels)


def _counted_by_device(trace: Trace) -> pl.DataFrame:
    counted = operator_work(trace)
    flops = pl.col("cube_flops").fill_null(0) + pl.col("vector_flops").fill_null(0)
    return counted.select(path=pl.col("name").str.split(_SCOPE).list.head(_DEEPEST), flops=flops)


def _counted_from_calls(trace: Trace) -> pl.DataFrame:
    basis = step_basis(trace).steps
    calls = counted_calls(trace).filter(pl.col("step").is_in(list(basis)) if basis else pl.lit(True))
    sums = pl.col("flops").sum().cast(pl.Float64) / max(len(basis), 1)
    calls = calls.group_by("module", "name").agg(sums).sort("module", "name")
    scopes = pl.col("module").fill_null("").str.split(_MODULE).list.filter(pl.element() != "").list.head(_DEEPEST)
    return calls.select(path=pl.concat_list(scopes, "name"), flops="flops")


def _number_nodes(levels: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Rows of all levels with numbers; at most one node per scope and operator."""
    all_nodes = (
        pl.concat(list(levels)).with_row_index("id").with_columns(pl.col("id").cast(pl.Int64), depth=pl.col("path").list.len())
    )
    parent_ids = all_nodes.select("path", parent="id")
    total_flops = float(all_nodes["flops"][0])
    joined = all_nodes.with_columns(up=pl.col("path").list.head(pl.col("depth").cast(pl.Int64) - 1)).join(
        parent_ids, left_on="up", right_on="path", how="left", maintain_order="left"
    )
    return joined.with_columns(
        parent=pl.when(pl.col("depth") > 0).then("parent"),
        name=pl.when(pl.col("depth") > 0).then(pl.col("path").list.last()).otherwise(pl.lit(ROOT)),
        percent=pl.col("flops") / total_flops * 100,
    ).select(cast_columns(NODES))
