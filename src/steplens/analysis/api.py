"""Which runtime calls took how long."""

from __future__ import annotations

import polars as pl

from steplens.trace.trace import Trace


def api_statistic(trace: Trace) -> pl.DataFrame:
    """Runtime and driver calls added up per layer and name, in order of name.

    Source: the ``api`` table; durations are those of the host clock. A call includes the calls that it makes in a lower
    layer, so the totals of different layers must not be added.

    Returns:
        layer, name, count, total_ns, min_ns, mean_ns (rounded to the nearest ns), max_ns and variance_ns2 (of the
        population: 0 for a single call; ns squared).
    """
    duration = pl.col("end_ns") - pl.col("start_ns")
    return (
        trace.required("api")
        .group_by(pl.col("layer").cast(pl.String), pl.col("name").cast(pl.String))
        .agg(
            count=pl.len().cast(pl.Int64),
            total_ns=duration.sum(),
            min_ns=duration.min(),
            max_ns=duration.max(),
            variance_ns2=duration.var(ddof=0),
        )
        .with_columns(mean_ns=(2 * pl.col("total_ns") + pl.col("count")) // (2 * pl.col("count")))
        .sort("name", "layer")
        .select("layer", "name", "count", "total_ns", "min_ns", "mean_ns", "max_ns", "variance_ns2")
        .collect()
    )
