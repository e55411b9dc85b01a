"""Single communication operations: how fast each was, and which collectives take far longer than their size explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from steplens.analysis.cluster.cluster_steps import of_chosen_steps
from steplens.analysis.cluster.communication_operations import ARRIVAL, named_operations, transfer_rate
from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.message_size import bus_factor, is_one_part, message_bytes
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.overlap import merge_intervals
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import COLLECTIVE
from steplens.trace.trace import Trace

COLUMNS = table_schema(
    "rank, step, name: String, operation: String, group: String, ranks, dtype: String, number, bytes, start_ns, in_step_ns, "
    "duration_ns, expected_ns, wait_ns, transfer_ns, measured_by: String, exposed_ns, beyond_ns, rate_bytes_per_s: Float64, "
    "bus_bytes_per_s: Float64, long: Boolean"
)
UNEXPLAINED = table_schema("rank, step, calls, beyond_ns")

#: a collective is long from so many times the time that its size explains ...
_TIMES = 3
#: ... and from this share of a step beyond that
_SHARE = 0.01
_KIND = ["operation", "group"]
#: of durations that may hold waiting, the part that holds the least
_SHORTEST = 0.1


@once_per_run
def collective_times(traces: Sequence[Trace]) -> pl.DataFrame:
    """Every collective and message of every rank, the longest first; columns as in ``COLUMNS``.

    * ``in_step_ns``: its start, from the start of its step on the host of its rank; null where it starts before.
    * ``expected_ns``: what its size explains, from those of its operation and group in this run, on any rank. Each size has a
      usual time: where the arrival of all ranks is known, the median of what is left without waiting; else the shortest tenth
      of the durations, since most of them may hold waiting. Expected is the least usual time of a size that is at least as
      large, or that of a smaller one times the ratio of the bytes, where that is less: a transfer takes latency + bytes / rate,
      of which both are upper bounds, so that nothing is assumed of the network. Null for messages and for unknown bytes.
    * ``beyond_ns`` = duration - expected, without the waiting for late ranks where their arrival is known.
    * ``rate_bytes_per_s`` = bytes / duration, waiting included. ``bus_bytes_per_s`` = bytes / transfer time, times the factor of
      nccl-tests for the operation and the size of its group, which makes operations comparable with each other and with the
      speed of links; null where one of these is not known.
    * ``long``: at least three times ``expected_ns``, and longer than that by 1 % of a step or more.

    Args:
        traces: of one job.
    """
    rows = named_operations(traces).with_columns(is_collective=pl.col("kind") == COLLECTIVE)
    waited = pl.when(pl.col("measured_by") == ARRIVAL).then("wait_ns").otherwise(0)
    rows = rows.with_columns(moving_ns=pl.col("duration_ns") - waited)
    rows = rows.join(_expected_times(rows), on=[*_KIND, "bytes", "is_collective"], how="left", maintain_order="left")
    rows = rows.with_columns(
        beyond_ns=(pl.col("moving_ns") - pl.col("expected_ns")).clip(0),
        rate_bytes_per_s=transfer_rate("bytes", "duration_ns"),
        is_part=is_one_part(),
    )
    rows = rows.with_columns(message_bytes=message_bytes())
    rows = rows.with_columns(bus_bytes_per_s=transfer_rate("message_bytes", "transfer_ns") * bus_factor())
    more = pl.col("duration_ns") - pl.col("expected_ns")
    long = (pl.col("duration_ns") >= _TIMES * pl.col("expected_ns")) & (more >= _SHARE * _step_ns(traces))
    rows = rows.with_columns(long=long.fill_null(False))
    return rows.sort("duration_ns", "rank", "start_ns", descending=[True, False, False]).select(cast_columns(COLUMNS))


def unexplained_collectives(traces: Sequence[Trace]) -> pl.DataFrame:
    """The long collectives of chosen steps of which nobody knows whom they waited for, since ranks of their group are missing."""
    rows = collective_times(traces).filter("long", (pl.col("measured_by") != ARRIVAL).fill_null(True))
    return of_chosen_steps(rows.drop_nulls("step"), traces) if rows.height else rows


def compared_collective(call: Mapping[str, Any], traces: Sequence[Trace]) -> dict[str, Any]:
    """The collective from which ``expected_ns`` of another one comes: a row of ``collective_times``.

    The one of its operation and group that takes, without known waiting, what comes nearest to the expected time, or does so
    times the ratio of the bytes where it is smaller.

    Args:
        call: a row of ``collective_times`` with ``expected_ns``.
        traces: of one job.
    """
    rows = collective_times(traces).filter(*(pl.col(name).eq_missing(call[name]) for name in _KIND), pl.col("bytes") > 0)
    waited = pl.when(pl.col("measured_by") == ARRIVAL).then(pl.col("wait_ns").fill_null(0)).otherwise(0)
    as_large_ns = (pl.col("duration_ns") - waited) * pl.max_horizontal(1, call["bytes"] / pl.col("bytes"))
    return rows.sort((as_large_ns - call["expected_ns"]).abs(), "rank", "start_ns").row(0, named=True)


def unexplained_by_step(traces: Sequence[Trace]) -> pl.DataFrame:
    """What ``unexplained_collectives`` take beyond what their size explains, as far as it is exposed, in every chosen step.

    Collectives in flight at once count once, and no more counts than the exposed communication of the step.

    Returns:
        rank, step, calls (how many there are) and beyond_ns, of every chosen step whose device was recorded, sorted.
    """
    long = unexplained_collectives(traces).with_columns(time_ns=pl.min_horizontal("beyond_ns", "exposed_ns").fill_null(0))
    calls_of = dict(long.group_by("rank", "step"))
    step_figures: dict[tuple[int, int], tuple[int, int]] = {}
    for trace in traces:
        for step, exposed_ns in chosen_step_times(trace).select("step", "exposed_communication_ns").drop_nulls().iter_rows():
            calls = calls_of.get((trace.rank, step))
            if calls is None:
                step_figures.setdefault((trace.rank, step), (0, 0))
                continue
            start = calls["start_ns"].to_numpy()
            together = merge_intervals(start, start + calls["time_ns"].to_numpy())
            step_figures[trace.rank, step] = (calls.height, min(int(together.length_ns), exposed_ns))
    rows = [(*key, *value) for key, value in step_figures.items()]
    return pl.DataFrame(rows, schema=UNEXPLAINED, orient="row").sort("rank", "step")


def _expected_times(rows: pl.DataFrame) -> pl.DataFrame:
    """operation, group, bytes, is_collective and expected_ns; see ``collective_times``."""
    sized = rows.filter("is_collective", pl.col("bytes") > 0, pl.col("moving_ns") > 0)
    moving, has_arrived = pl.col("moving_ns"), (pl.col("measured_by") == ARRIVAL).fill_null(False)
    usual = pl.coalesce(moving.filter(has_arrived).median(), moving.quantile(_SHORTEST, "lower"))
    sizes = sized.group_by(*_KIND, "bytes", "is_collective").agg(moving_ns=usual).sort(*_KIND, "bytes")
    as_large = pl.col("moving_ns").reverse().cum_min().reverse().over(_KIND)
    per_byte = (pl.col("moving_ns") / pl.col("bytes")).cum_min().over(_KIND)
    expected = pl.min_horizontal(as_large, per_byte * pl.col("bytes")).round().cast(pl.Int64)
    return sizes.select(*_KIND, "bytes", "is_collective", expected_ns=expected)


def _step_ns(traces: Sequence[Trace]) -> float:
    """Median step time of the chosen steps; 0 without steps."""
    lengths = [chosen_step_times(trace)["step_time_ns"].drop_nulls().to_numpy() for trace in traces]
    together = np.concatenate(lengths) if lengths else np.empty(0)
    return float(np.median(together)) if len(together) else 0.0
