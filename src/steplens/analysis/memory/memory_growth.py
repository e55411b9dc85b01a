"""Whether memory grows from step to step: a robust slope with its confidence, over one window or several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.tools.schemas import table_schema
from steplens.trace.schema import CORE_CPU
from steplens.trace.trace import Trace

#: of a normal distribution, for 95 % on two sides
_Z = 1.959964
#: more steps of one window are thinned out to this many, evenly: pairs grow with the square
_MOST_STEPS = 2000

COLUMNS = table_schema(
    "rank, device_type: String, device: Int32, windows, steps, first_bytes, last_bytes, bytes_per_step: Float64, "
    "bytes_per_step_low: Float64, bytes_per_step_high: Float64, chance: Float64, grows: Boolean, across_windows: Boolean"
)


def memory_growth(traces: Sequence[Trace]) -> pl.DataFrame:
    """How much more memory each step leaves in use, per rank and device; columns as in ``COLUMNS``.

    1. The memory of a step is the lowest total of the allocator inside its range: what no part of the step gives back. The
       first step of a window is left out where there are more than two: it may still hold what came before.
    2. ``bytes_per_step`` is the median of the slopes between all pairs of steps (Theil and Sen), by the numbers of the steps;
       up to a quarter of the steps may be outliers. ``bytes_per_step_low`` and ``_high`` are its 95 % confidence interval after
       Sen, null where there are too few steps for one.
    3. ``chance``: probability that steps in random order would rise or fall as steadily (Mann and Kendall, with ties).
       ``grows``: the whole interval lies above 0, and chance below 5 %.
    4. Pairs of steps of different windows count too (``across_windows``), but for the CPU: between windows PyTorch's allocator
       of the CPU does not see what is released, and its total keeps rising in a healthy run.

    ``first_bytes`` and ``last_bytes``: memory of the first and the last step that counts.

    Source: ``memory.allocated``, ``steps``. No rows for devices of which fewer than three steps are known.

    Args:
        traces: of one run; several windows of a rank may be among them.
    """
    points = [
        frame.with_columns(rank=pl.lit(trace.rank), window=number)
        for number, trace in enumerate(traces)
        if (frame := _lowest_per_step(trace)).height
    ]
    if not points:
        return pl.DataFrame(schema=COLUMNS)
    rows = []
    keys = ["rank", "device_type", "device"]
    for (rank, device_type, device), device_points in pl.concat(points).sort("step").partition_by(keys, as_dict=True).items():
        across = device_type != CORE_CPU and device_points["window"].n_unique() > 1
        groups = [device_points] if across else device_points.partition_by("window")
        series = [_thin_out(group["step"].to_numpy(), group["bytes"].to_numpy()) for group in groups]
        if sum(len(step) for step, _ in series if len(step) > 1) < 3:
            continue
        place = {"rank": rank, "device_type": device_type, "device": device, "windows": device_points["window"].n_unique()}
        ends = {"first_bytes": device_points["bytes"][0], "last_bytes": device_points["bytes"][-1], "steps": device_points.height}
        rows.append({**place, **ends, **_fit_trend(series), "across_windows": across})
    return pl.DataFrame(rows, schema=COLUMNS).sort(keys)


def _lowest_per_step(trace: Trace) -> pl.DataFrame:
    """Lowest total inside every step but the first: device_type, device, step, bytes."""
    steps = trace.required("steps").sort("start_ns").select(step="id", start_ns="start_ns", end_ns="end_ns").collect()
    if steps.height > 2:
        steps = steps.slice(1)
    totals = (
        trace.required("memory")
        .select(pl.col("device_type").cast(pl.String), "device", "component", "time_ns", "allocated")
        .drop_nulls(["time_ns", "allocated"])
        .sort("time_ns")
        .join_asof(steps.lazy(), left_on="time_ns", right_on="start_ns", strategy="backward")
        .filter(pl.col("time_ns") <= pl.col("end_ns"))
        # the allocators of a device each count their own
        .group_by("device_type", "device", "component", "step")
        .agg(pl.col("allocated").min())
        .group_by("device_type", "device", "step")
        .agg(bytes=pl.col("allocated").sum())
        .collect()
    )
    return totals


def _thin_out(step: npt.NDArray[np.int64], size: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    if len(step) <= _MOST_STEPS:
        return step, size
    sampled_rows = np.linspace(0, len(step) - 1, _MOST_STEPS).astype(np.int64)
    return step[sampled_rows], size[sampled_rows]


def _fit_trend(series: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]) -> dict[str, Any]:
    """Slope, interval, chance and verdict of points whose pairs count within each of the series."""
    slopes, score, variance = [], 0, 0.0
    for step, size in series:
        low, high = np.triu_indices(len(step), 1)
        apart = step[high] - step[low]
        slopes.append(((size[high] - size[low]) / np.where(apart == 0, 1, apart))[apart != 0])
        score += int(np.sign(size[high] - size[low]).sum())
        count = len(step)
        variance += count * (count - 1) * (2 * count + 5) / 18
        _, ties = np.unique(size, return_counts=True)
        variance -= float((ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    all_slopes = np.sort(np.concatenate(slopes))
    slope = float(np.median(all_slopes)) if len(all_slopes) else 0.0
    spread = _Z * math.sqrt(max(variance, 0.0))
    low_row, high_row = math.floor((len(all_slopes) - spread) / 2), math.ceil((len(all_slopes) + spread) / 2)
    is_certain = low_row >= 1 and high_row < len(all_slopes)
    # steps that all hold the same never move
    chance = math.erfc(max(abs(score) - 1, 0) / math.sqrt(2 * variance)) if variance > 0 else 1.0
    interval = (float(all_slopes[low_row - 1]), float(all_slopes[high_row])) if is_certain else (None, None)
    grows = is_certain and interval[0] is not None and interval[0] > 0 and chance < 0.05
    return {
        "bytes_per_step": slope, "bytes_per_step_low": interval[0], "bytes_per_step_high": interval[1],
        "chance": chance, "grows": grows,
    }  # fmt: skip
