"""Every rank of a job by one figure at a time, as a share of what it could be at most: for heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from steplens.analysis.operators.rank_flops import work
from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.parallel import by_rank, layout
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

MEMORY, FLOPS, FLOPS_RATE, BUSY, STEP, COMMUNICATION = (
    "memory_peak", "flops", "flops_rate", "device_busy", "step_time", "communication_share",
)  # fmt: skip
METRICS = (MEMORY, FLOPS, FLOPS_RATE, BUSY, STEP, COMMUNICATION)
#: against what a share was taken
OF_CAPACITY, OF_LARGEST, OF_STEP = "capacity", "largest rank", "step"

HEAT = table_schema("metric: String, rank, stage, value: Float64, unit: String, share: Float64, of: String")


def rank_heat(traces: Sequence[Trace]) -> pl.DataFrame:
    """One row per metric and rank, columns as in ``HEAT``; ranks of which a metric is not known have no row.

    * ``memory_peak`` (bytes): the most that was allocated on a device after an event; of the device's capacity where the
      source names it for every rank, else of the largest rank;
    * ``flops`` and ``flops_rate`` (FLOP and FLOP/s of a step, ``analysis.operators.rank_flops``): of the largest rank, and only
      where one kind of source counted them all;
    * ``device_busy`` (ratio): of the device periods of the chosen steps, how much the device was not idle;
      ``communication_share`` (ratio): how much of them was exposed communication;
    * ``step_time`` (ns): median of the chosen steps, of the longest rank's.

    Args:
        traces: of one job; of several windows of a rank the steps of all count, and the highest peak.
    """
    job = layout(traces)
    rows: list[dict[str, Any]] = []
    for rank, windows in by_rank(traces).items():
        events = [trace.required("memory").select(pl.col("allocated").max()).collect().item() for trace in windows]
        peaks = [peak for peak in events if peak is not None]
        if peaks:
            capacity = min((size for trace in windows if (size := memory_capacity(trace)) is not None), default=None)
            rows.append({"metric": MEMORY, "rank": rank, "value": max(peaks), "unit": "bytes", "most": capacity})
        steps = pl.concat([chosen_step_times(trace) for trace in windows])
        if steps.is_empty():
            continue
        length = float(steps["step_time_ns"].median())  # type: ignore[arg-type]
        rows.append({"metric": STEP, "rank": rank, "value": length, "unit": "ns"})
        periods = steps.select("device_period_ns", "idle_ns", "exposed_communication_ns").drop_nulls().sum()
        period_ns, idle, exposed = (float(value) for value in periods.row(0))
        if period_ns > 0:
            rows.append({"metric": BUSY, "rank": rank, "value": (period_ns - idle) / period_ns, "unit": "ratio", "most": 1.0})
            rows.append({"metric": COMMUNICATION, "rank": rank, "value": exposed / period_ns, "unit": "ratio", "most": 1.0})
    for row in work(traces).filter(pl.col("normalized").is_not_null()).iter_rows(named=True):
        rows.append({"metric": FLOPS, "rank": row["rank"], "value": row["flops"], "unit": "FLOP"})
        if row["flops_per_s"] is not None:
            rows.append({"metric": FLOPS_RATE, "rank": row["rank"], "value": row["flops_per_s"], "unit": "FLOP/s"})
    schema = {"metric": pl.String, "rank": pl.Int64, "value": pl.Float64, "unit": pl.String, "most": pl.Float64}
    heat = pl.DataFrame(rows, schema=schema)
    has_most = pl.col("most").is_not_null().all().over("metric")
    bound = pl.when(has_most).then("most").otherwise(pl.col("value").max().over("metric"))
    names = {MEMORY: OF_CAPACITY, BUSY: OF_STEP, COMMUNICATION: OF_STEP}
    of = pl.when(has_most).then(pl.col("metric").replace_strict(names, default=OF_LARGEST)).otherwise(pl.lit(OF_LARGEST))
    stages = {rank: job.stage_of(rank) for rank in job.ranks}
    heat = heat.with_columns(
        share=pl.when(bound > 0).then(pl.col("value") / bound),
        of=of,
        stage=pl.col("rank").replace_strict(stages, default=None, return_dtype=pl.Int64),
    )
    order = pl.col("metric").replace_strict({name: place for place, name in enumerate(METRICS)}, return_dtype=pl.Int64)
    return heat.sort(order, "rank").select(cast_columns(HEAT))


def memory_capacity(trace: Trace) -> int | None:
    """Bytes of memory of the smallest device of a trace, as the driver said while recording; None where it did not.

    Source: ``deviceProperties`` of ``meta`` (``totalGlobalMem``), which Kineto writes for CUDA and ROCm.
    """
    properties = trace.meta_value("deviceProperties")
    if not isinstance(properties, list):
        return None
    sizes = [entry.get("totalGlobalMem") for entry in properties if isinstance(entry, dict)]
    return min((size for size in sizes if type(size) is int and size > 0), default=None)
