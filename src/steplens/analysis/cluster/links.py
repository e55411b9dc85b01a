"""Communication per link and per rank: how long it took, how many bytes it moved, how fast that was."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.measured_communication import communication_times, link_transfers
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.parallel import by_rank
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

LINKS = table_schema("rank, step, source, destination, transport: String, time_ns: Float64, bytes: Float64, bytes_per_s: Float64")
COSTS = table_schema("rank, step, transit_ns: Float64, wait_ns: Float64")
_KEY = ("source", "destination", "transport")


@once_per_run
def links(traces: Sequence[Trace]) -> pl.DataFrame:
    """What moved over every link in every step, columns as in ``LINKS``.

    Bandwidths are bytes / time of everything that moved over the link in the step; they are never added up or averaged over
    operations. Ends are ranks of the job; ``rank`` is the one that measured. A link from a rank to itself is a copy within its
    memory. The time is that of all transfers over the link. The library's transfer time of an operation, which
    ``communication_costs`` adds up, is that of one of its planes, the queues that work side by side, each of which serves a link
    in one half of an all-reduce and another one in the other: links may take longer than their rank.

    Source: ``communication_matrix``, the library's own measurements (1 MB = 10**6 bytes).
    """
    frames = []
    for rank, windows in by_rank(traces).items():
        for trace in windows:
            moved = link_transfers(trace).drop_nulls(["step", "source", "destination"])
            sums = moved.group_by("step", *_KEY, maintain_order=True).agg(
                time_ns=pl.col("transit_ms").sum() * 1e6, bytes=pl.col("size_mb").sum() * 1e6
            )
            frames.append(sums.with_columns(_bytes_per_second(), rank=pl.lit(rank)).select(cast_columns(LINKS)))
    return pl.concat([pl.DataFrame(schema=LINKS), *frames]).sort("rank", "step", *_KEY)


def link_means(found: pl.DataFrame) -> pl.DataFrame:
    """``links`` of a step of each rank, on average over the steps that the rank has measured; ``step`` is null.

    Bytes and time are means, the bandwidth is their quotient. Warm-up counts: a transfer is as fast there as later.
    """
    steps = found.group_by("rank").agg(of=pl.col("step").n_unique())
    sums = found.group_by("rank", *_KEY, maintain_order=True).agg(pl.col("time_ns", "bytes").sum())
    means = sums.join(steps, on="rank").with_columns(pl.col("time_ns", "bytes") / pl.col("of"))
    return means.with_columns(_bytes_per_second(), step=pl.lit(None)).select(cast_columns(LINKS)).sort("rank", *_KEY)


def slow_links(means: pl.DataFrame, *, threshold: float = 0.2) -> pl.DataFrame:
    """The links whose bandwidth lies by more than ``threshold`` below the mean of their transport, slowest first.

    Links from a rank to itself are left out, and transports with a single link.

    Args:
        means: of ``link_means``.
        threshold: share of the mean.

    Returns:
        the columns of ``means``, and mean_bytes_per_s, median_bytes_per_s, deviation_bytes_per_s (median absolute deviation from
        the median) over the links of the transport, and below (share of the mean by which it is slower).
    """
    real = means.filter((pl.col("source") != pl.col("destination")) & (pl.col("bytes_per_s") > 0))
    speed = pl.col("bytes_per_s")
    compared = real.filter(pl.len().over("transport") > 1).with_columns(
        mean_bytes_per_s=speed.mean().over("transport"), median_bytes_per_s=speed.median().over("transport")
    )
    compared = compared.with_columns(
        deviation_bytes_per_s=(speed - pl.col("median_bytes_per_s")).abs().median().over("transport"),
        below=1 - speed / pl.col("mean_bytes_per_s"),
    )
    return compared.filter(pl.col("below") > threshold).sort("below", descending=True)


@once_per_run
def communication_costs(traces: Sequence[Trace]) -> pl.DataFrame:
    """How long every rank moved data and how long it waited, per step; columns as in ``COSTS``, ns.

    Source: ``communication_times``, sums over the operations of the step.
    """
    frames = []
    for rank, windows in by_rank(traces).items():
        for trace in windows:
            times = communication_times(trace).drop_nulls("step")
            sums = times.group_by("step", maintain_order=True).agg(
                transit_ns=pl.col("transit_ms").sum() * 1e6, wait_ns=pl.col("wait_ms").sum() * 1e6
            )
            frames.append(sums.with_columns(rank=pl.lit(rank)).select(cast_columns(COSTS)))
    return pl.concat([pl.DataFrame(schema=COSTS), *frames]).sort("rank", "step")


def _bytes_per_second() -> pl.Expr:
    return pl.when(pl.col("time_ns") > 0).then(pl.col("bytes") / pl.col("time_ns") * 1e9).alias("bytes_per_s")
