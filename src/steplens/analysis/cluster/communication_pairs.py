"""Communication between each two ranks: who waited for whom, and what was sent from where to where."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.communication_operations import ARRIVAL, communication_operations, transfer_rate
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import RECEIVE, SEND
from steplens.trace.trace import Trace

WAITS = table_schema("rank, last_rank, collectives, wait_ns, wait_percent: Float64")
PAIRS = table_schema("source, destination, sends, receives, bytes, send_ns, receive_ns, bytes_per_second: Float64")


def waits(traces: Sequence[Trace]) -> pl.DataFrame:
    """Who waited for whom: for each pair of ranks, how long the first waited at collectives to which the second came last.

    ``wait_percent``: share of all that the rank waited. Pairs that never met like that are left out. Source: ``arrivals``.

    Args:
        traces: of one job.

    Returns:
        columns as in ``WAITS``, in order of rank and last_rank; no rows with fewer than two ranks.
    """
    rows = communication_operations(traces).filter((pl.col("measured_by") == ARRIVAL) & (pl.col("rank") != pl.col("last_rank")))
    rank_waits = rows.group_by("rank", "last_rank").agg(collectives=pl.len(), wait_ns=pl.col("wait_ns").sum())
    all_waiting = pl.col("wait_ns").sum().over("rank")
    rank_waits = rank_waits.with_columns(wait_percent=pl.when(all_waiting > 0).then(pl.col("wait_ns") * 100 / all_waiting))
    return rank_waits.sort("rank", "last_rank").select(cast_columns(WAITS))


def pairs(traces: Sequence[Trace]) -> pl.DataFrame:
    """What each rank sent to each other one: the matrix of point-to-point operations; columns as in ``PAIRS``.

    ``send_ns`` is how long the sends took on the source, ``receive_ns`` the receives on the destination, waiting included;
    ``bytes`` are those of the sends where they were traced, else of the receives. ``bytes_per_second`` = bytes / the shorter of
    the two times, which waited less. Times and counts of an end that was not traced are null.

    Source: ``communication`` rows of sends and receives that name their peer (NCCL and HCCL do, gloo does not).

    Args:
        traces: of one job.
    """
    frames = [
        trace.required("communication")
        .filter(pl.col("kind").cast(pl.String).is_in([SEND, RECEIVE]) & pl.col("peer").is_not_null())
        .select(
            pl.col("peer").cast(pl.Int64),
            "bytes",
            kind=pl.col("kind").cast(pl.String),
            rank=pl.lit(trace.rank, dtype=pl.Int64),
            time=pl.col("end_ns") - pl.col("start_ns"),
        )
        .collect()
        for trace in traces
    ]
    if not frames:
        return pl.DataFrame(schema=PAIRS)
    sends = pl.col("kind") == SEND
    rows = pl.concat(frames).with_columns(
        source=pl.when(sends).then("rank").otherwise("peer"), destination=pl.when(sends).then("peer").otherwise("rank")
    )
    rank_pairs = rows.group_by("source", "destination").agg(
        sends=pl.when(sends.any()).then(sends.sum()),
        receives=pl.when((~sends).any()).then((~sends).sum()),
        bytes=pl.when(sends.any()).then(pl.col("bytes").filter(sends).sum()).otherwise(pl.col("bytes").sum()),
        send_ns=pl.when(sends.any()).then(pl.col("time").filter(sends).sum()),
        receive_ns=pl.when((~sends).any()).then(pl.col("time").filter(~sends).sum()),
    )
    rank_pairs = rank_pairs.with_columns(shorter=pl.min_horizontal("send_ns", "receive_ns"))
    return (
        rank_pairs.with_columns(bytes_per_second=transfer_rate("bytes", "shorter"))
        .sort("source", "destination")
        .select(cast_columns(PAIRS))
    )
