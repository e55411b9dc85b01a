"""Which calls of the runtime, or of the framework where no runtime is below it, took how long."""

from __future__ import annotations

import polars as pl

from steplens.trace.schema import CORE_CPU, SCOPE_BACKWARD, SCOPE_FUNCTION
from steplens.trace.trace import Trace

#: layer of the framework's own calls, beside those of ``api.layer``
FRAMEWORK = "framework"


def api_statistic(trace: Trace) -> pl.DataFrame:
    """Runtime and driver calls added up per layer and name, in order of name.

    Where the CPU is the device there is no runtime, and the framework's operator calls are what the host asks it to do: they
    make up the layer "framework", counted as ``analysis.operators.operators`` counts them.

    Source: the ``api`` table, and ``ops`` for the framework's calls; durations are those of the host clock. A call includes
    those that it makes, in its own layer or a lower one, so totals of different layers, or of the framework's names, must
    not be added.

    Returns:
        layer, name, count, total_ns, min_ns, mean_ns (rounded to the nearest ns), max_ns, variance_ns2 (of the
        population: 0 for a single call; ns squared) and std_ns (its root).
    """
    duration = pl.col("end_ns") - pl.col("start_ns")
    return (
        pl.concat([_calls_of_layer(trace.required("api"), pl.col("layer").cast(pl.String)), _framework_calls(trace)])
        .group_by("layer", "name")
        .agg(
            count=pl.len().cast(pl.Int64),
            total_ns=duration.sum(),
            min_ns=duration.min(),
            max_ns=duration.max(),
            variance_ns2=duration.var(ddof=0),
        )
        .with_columns(
            std_ns=pl.col("variance_ns2").sqrt(), mean_ns=(2 * pl.col("total_ns") + pl.col("count")) // (2 * pl.col("count"))
        )
        .sort("name", "layer")
        .select("layer", "name", "count", "total_ns", "min_ns", "mean_ns", "max_ns", "variance_ns2", "std_ns")
        .collect()
    )


def _calls_of_layer(table: pl.LazyFrame, layer: pl.Expr) -> pl.LazyFrame:
    return table.select(layer.alias("layer"), pl.col("name").cast(pl.String), "start_ns", "end_ns")


def _framework_calls(trace: Trace) -> pl.LazyFrame:
    kernels = trace.required("kernels")
    on_cpu = kernels.select((pl.col("core").cast(pl.String) == CORE_CPU).any()).collect().item()
    counted = (pl.col("counted_as") == pl.col("id")) & pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    ops = trace.required("ops")
    return _calls_of_layer(ops.filter(counted) if on_cpu else ops.clear(), pl.lit(FRAMEWORK))
