"""How busy the processors were while the data pipeline worked, cropped to steps: host, process and every operation."""

from __future__ import annotations

import polars as pl

from steplens.analysis.data_loading.data_pipeline import operation_name
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

HOST, PROCESS, OPERATION = "host", "process", "op"

COLUMNS = table_schema(
    "scope: String, operation: String, op: Int32, name: String, unit: String, sample: Int32, time_ns, batch, value: Float64"
)
#: parts of the time of all processors
HOST_PARTS = ("user", "sys", "io", "idle")


def cpu_samples(trace: Trace, *, first: int | None = None, last: int | None = None) -> pl.DataFrame:
    """Samples of processors with the batch that they belong to, columns as in ``COLUMNS``; ``operation`` is the name of ``op``.

    A sample is of the time up to the next one, and belongs to the batch that was handed on last when that time ended; the last
    sample has no end and is left out, and so are samples before the first batch. Without times of batches or samples,
    ``batch`` is null and every sample is there.

    Source: ``pipeline_samples`` other than queue sizes, and the times of ``pipeline_batches`` ("send", else "iterate").

    Args:
        trace: one rank.
        first: first batch; the first of all when None.
        last: last batch.
    """
    recorded = trace.required("pipeline_samples").filter(pl.col("name").cast(pl.String) != "queue_size")
    samples = recorded.with_columns(pl.col("scope", "name", "unit").cast(pl.String)).collect()
    batches = _batch_times(trace)
    if not batches.height or not samples.height or samples["time_ns"].null_count() == samples.height:
        batch_samples = samples.with_columns(batch=pl.lit(None, pl.Int64))
    else:
        times = samples.select("time_ns").unique().drop_nulls().sort("time_ns")
        ends = times.with_columns(end_ns=pl.col("time_ns").shift(-1)).drop_nulls().sort("end_ns")
        mapped = ends.join_asof(batches, left_on="end_ns", right_on="batch_ns", strategy="backward")
        batch_samples = samples.join(mapped.drop_nulls("batch"), on="time_ns", how="inner", maintain_order="left")
    if first is not None:
        batch_samples = batch_samples.filter(pl.col("batch") >= first)
    if last is not None:
        batch_samples = batch_samples.filter(pl.col("batch") <= last)
    return batch_samples.with_columns(operation=_names_of_operations(trace)).select(cast_columns(COLUMNS))


def _names_of_operations(trace: Trace) -> pl.Expr:
    """The names of the operations in the column ``op``; null for samples of the host and the process."""
    ops = trace.required("pipeline_ops").select("id", pl.col("type").cast(pl.String)).collect()
    names = {number: operation_name(type_, number) for number, type_ in ops.iter_rows()}
    return pl.col("op").replace_strict(names, default=None, return_dtype=pl.String)


def _batch_times(trace: Trace) -> pl.DataFrame:
    """batch, batch_ns of the batches handed to the device, else of those that the loop took; in order of time."""
    rows = trace.required("pipeline_batches").drop_nulls("time_ns").collect()
    for kind in ("send", "iterate"):
        mine = rows.filter(pl.col("kind").cast(pl.String) == kind)
        if mine.height:
            return mine.select("batch", batch_ns="time_ns").sort("batch_ns")
    return pl.DataFrame(schema={"batch": pl.Int64, "batch_ns": pl.Int64})


def cpu_means(samples: pl.DataFrame) -> pl.DataFrame:
    """Means of ``cpu_samples``: scope, op, name, unit, mean, samples."""
    keys = ["scope", "op", "name", "unit"]
    return samples.group_by(keys, maintain_order=True).agg(mean=pl.col("value").mean(), samples=pl.len())


def host_idle(means: pl.DataFrame) -> float | None:
    """Mean share of all processors that was idle in the samples of ``cpu_means``, percent; None where it was not sampled."""
    mean = means.filter((pl.col("scope") == HOST) & (pl.col("name") == f"{HOST_PARTS[-1]}_utilization"))["mean"]
    return float(mean[0]) if len(mean) and mean[0] is not None else None


def operation_load(trace: Trace) -> pl.DataFrame:
    """How busy the workers of every operation were: id, workers, cpu_percent (of one core per worker); none without samples."""
    means = cpu_means(cpu_samples(trace)).filter(
        (pl.col("scope") == OPERATION) & pl.col("name").is_in(["user_utilization", "sys_utilization"])
    )
    total = means.group_by(pl.col("op").alias("id")).agg(total=pl.col("mean").sum())
    worker_counts = trace.required("pipeline_ops").select("id", "workers").collect()
    workers = pl.max_horizontal(pl.col("workers").fill_null(1), 1)
    return worker_counts.join(total, on="id").select("id", "workers", cpu_percent=pl.col("total") / workers).sort("id")
