"""How a network is spread over devices: the operators of a pipeline stage with their strategies, merged over its ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl

from steplens.analysis.tools.parallel import by_rank, layout
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.common import json_text
from steplens.trace.trace import Trace

#: the table of the source that holds the operators of a rank
SOURCE = "parallel_strategy"
GRADIENT_AGGREGATION, REDISTRIBUTION = "gradient_aggregation", "redistribution"

OPERATORS: dict[str, pl.DataType] = {
    "node": pl.String(), "name": pl.String(), "type": pl.String(), "scope": pl.String(), "role": pl.String(),
    "inputs": pl.List(pl.String()), "output_shape": pl.String(), "output_type": pl.String(), "strategy": pl.String(),
    "groups": pl.List(pl.String()), "group_ranks": pl.String(), "attributes": pl.String(), "ranks": pl.List(pl.Int64()),
}  # fmt: skip
STAGES: dict[str, pl.DataType] = {
    "stage": pl.Int64(), "ranks": pl.List(pl.Int64()), "recorded": pl.Int64(), "operators": pl.Int64(),
    "with_strategy": pl.Int64(), "redistributions": pl.Int64(), "gradient_aggregations": pl.Int64(), "sends": pl.Int64(),
    "receives": pl.Int64(),
}  # fmt: skip
TRANSFERS = table_schema("source, destination, tag: String, send: String, receive: String")
_SEND, _RECEIVE, _TAG = "Send", "Receive", "sr_tag"
_SEPARATOR = "/"


def stage_ranks(traces: Sequence[Trace]) -> dict[int, list[int]]:
    """Stage, from 1 -> all its ranks: as the source names them, else dealt to the stages in order; none without a strategy."""
    with_strategy = [trace for trace in traces if isinstance(trace.meta_value(SOURCE), dict)]
    if not with_strategy:
        return {}
    rank_groups = next((value for trace in with_strategy if (value := trace.meta_values()[SOURCE].get("stage_devices"))), None)
    if isinstance(rank_groups, dict) and all(rank_groups.values()):
        return {int(stage) + 1: sorted(ranks) for stage, ranks in sorted(rank_groups.items(), key=lambda item: int(item[0]))}
    job = layout(traces)
    stages: dict[int, list[int]] = {}
    for rank in range(job.size):
        stages.setdefault(job.stage_of(rank), []).append(rank)
    return stages


def stage_operators(traces: Sequence[Trace], stage: int) -> pl.DataFrame:
    """The operators of a stage, merged over its ranks by their id; columns as in ``OPERATORS``, in the order of the graph.

    ``ranks`` has the operator; ``groups`` are those of all its ranks; everything else is that of the lowest rank. ``inputs`` are
    ids of other operators: constants and parameters are left out. ``strategy`` is JSON: for each input, into how many parts each
    of its dimensions is cut.

    Args:
        traces: of one job.
        stage: from 1.
    """
    ranks = stage_ranks(traces).get(stage, [])
    frames = [
        table.with_columns(pl.lit(rank, pl.Int64).alias("rank"), order=pl.int_range(pl.len()))
        for rank, windows in by_rank(traces).items()
        if rank in ranks
        for trace in windows[:1]
        if (table := trace.source_table(SOURCE)) is not None
    ]
    if not frames:
        return pl.DataFrame(schema=OPERATORS)
    rows = pl.concat(frames, how="diagonal_relaxed").with_columns(pl.col(pl.String).fill_null(""))
    merged = rows.group_by("node", maintain_order=True).agg(
        pl.exclude("rank", "group", "inputs").first(),
        pl.col("inputs").first().str.json_decode(pl.List(pl.String)),
        groups=pl.col("group").filter(pl.col("group") != "").unique().sort(),
        ranks=pl.col("rank").unique().sort(),
    )
    nodes_present = merged["node"].implode()
    merged = merged.with_columns(inputs=pl.col("inputs").list.eval(pl.element().filter(pl.element().is_in(nodes_present))))
    return merged.sort("order", "node").select(cast_columns(OPERATORS))


@dataclass(frozen=True)
class Drawn:
    """A graph in which closed scopes stand for their operators.

    Attributes:
        nodes: id (path of a scope, or id of an operator with "#" before it), kind ("scope" or "operator"), name, scope (path of
            the open scope around it; "" at the top), type, role, strategy, operators, redistributions, gradient_aggregations and
            with_strategy (how many of each it stands for); in the order of the graph.
        edges: source, destination (ids of nodes) and count (connections between operators that it stands for).
        left_out: operators for which there was no room, that of their scopes included.
    """

    nodes: pl.DataFrame
    edges: pl.DataFrame
    left_out: int


def collapse_scopes(operators: pl.DataFrame, expanded: Collection[str] = (), most: int = 300) -> Drawn:
    """The operators of a stage with all scopes closed but some.

    Args:
        operators: of ``stage_operators``.
        expanded: paths of scopes to open; a scope is seen only where those around it are open.
        most: so many nodes at most, in the order of the graph; what is left out is counted.
    """
    open_scopes = set(expanded)
    drawn_scope = {scope: _outermost_closed_scope(scope, open_scopes) for scope in operators["scope"].unique()}
    closed = {scope: path for scope, (path, is_closed) in drawn_scope.items() if is_closed}
    rows = operators.with_columns(
        id=pl.coalesce(
            pl.col("scope").replace_strict(closed, default=None, return_dtype=pl.String), pl.lit("#") + pl.col("node")
        ),
        order=pl.int_range(pl.len()),
    )
    is_scope = pl.col("id").str.starts_with("#").not_()
    nodes = (
        rows.group_by("id", maintain_order=True)
        .agg(
            pl.col("name", "type", "role", "strategy", "scope").first(),
            order=pl.col("order").min(),
            operators=pl.len().cast(pl.Int64),
            redistributions=(pl.col("role") == REDISTRIBUTION).sum().cast(pl.Int64),
            gradient_aggregations=(pl.col("role") == GRADIENT_AGGREGATION).sum().cast(pl.Int64),
            with_strategy=(pl.col("strategy") != "").sum().cast(pl.Int64),
        )
        .sort("order")
        .with_columns(kind=pl.when(is_scope).then(pl.lit("scope")).otherwise(pl.lit("operator")))
        .with_columns(
            *(pl.when(is_scope).then(pl.lit("")).otherwise(pl.col(name)).alias(name) for name in ("type", "role", "strategy")),
            name=pl.when(is_scope).then(pl.col("id").str.split(_SEPARATOR).list.last()).otherwise("name"),
            scope=pl.when(is_scope).then(pl.col("id").str.extract(r"^(.*)/[^/]*$").fill_null("")).otherwise("scope"),
        )
        .drop("order")
    )
    left_out = int(nodes["operators"].slice(most).sum())
    nodes = nodes.head(most)
    place = rows.select(source_node="node", source="id")
    edges = (
        rows.select(destination="id", source_node="inputs").explode("source_node").drop_nulls()
        .join(place, on="source_node").filter(pl.col("source") != pl.col("destination"))
        .group_by("source", "destination", maintain_order=True).agg(count=pl.len().cast(pl.Int64))
    )  # fmt: skip
    node_ids = nodes["id"].implode()
    return Drawn(nodes, edges.filter(pl.col("source").is_in(node_ids) & pl.col("destination").is_in(node_ids)), left_out)


def _outermost_closed_scope(scope: str, open_scopes: Collection[str]) -> tuple[str, bool]:
    """Path of the outermost closed scope around an operator; the scope itself and False where all are open."""
    path = ""
    for part in scope.split(_SEPARATOR) if scope else []:
        path = f"{path}{_SEPARATOR}{part}" if path else part
        if path not in open_scopes:
            return path, True
    return scope, False


def stages(traces: Sequence[Trace]) -> pl.DataFrame:
    """What the pipeline stages of a job consist of; columns as in ``STAGES``, no rows without a parallel strategy.

    ``recorded``: how many of the ranks have a strategy here; the counts are of operators merged over them.
    """
    rows = []
    for stage, ranks in stage_ranks(traces).items():
        operators = stage_operators(traces, stage)
        recorded = operators["ranks"].explode().n_unique() if operators.height else 0
        role, kind = operators["role"], operators["type"]
        counts = (
            (role == REDISTRIBUTION).sum(),
            (role == GRADIENT_AGGREGATION).sum(),
            (kind == _SEND).sum(),
            (kind == _RECEIVE).sum(),
        )
        rows.append((stage, ranks, recorded, operators.height, (operators["strategy"] != "").sum(), *counts))
    return pl.DataFrame(rows, schema=STAGES, orient="row")


def transfers(traces: Sequence[Trace]) -> pl.DataFrame:
    """What stages send to each other: a send and the receive of its tag in another stage per row; columns as in ``TRANSFERS``.

    MindSpore numbers each such pair with ``sr_tag``; where stages reuse a number, a group that both are in decides.
    """
    frames = []
    for stage in stage_ranks(traces):
        operators = stage_operators(traces, stage).filter(pl.col("type").is_in([_SEND, _RECEIVE]))
        tags = [json_text.loads_stored(text).get(_TAG) for text in operators["attributes"]]
        frames.append(
            operators.select("name", "type", "groups").with_columns(
                tag=pl.Series(tags, dtype=pl.String), stage=pl.lit(stage, pl.Int64)
            )
        )
    if not frames:
        return pl.DataFrame(schema=TRANSFERS)
    rows = pl.concat(frames).drop_nulls("tag")
    sends = rows.filter(pl.col("type") == _SEND).select("tag", source="stage", send="name", groups="groups")
    receives = rows.filter(pl.col("type") == _RECEIVE).select("tag", destination="stage", receive="name", groups_there="groups")
    pairs = sends.join(receives, on="tag").filter(pl.col("source") != pl.col("destination"))
    common = pl.col("groups").list.set_intersection("groups_there").list.len() > 0
    pairs = pairs.with_columns(common=common)
    pairs = pairs.filter(pl.col("common") | ~pl.col("common").any().over("source", "send"))
    return pairs.sort("source", "send", "destination").select(cast_columns(TRANSFERS))
