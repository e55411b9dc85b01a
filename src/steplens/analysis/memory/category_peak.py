"""What tensors were used for when memory was highest: parameters, gradients, activations ..."""

from __future__ import annotations

import polars as pl

from steplens.analysis.memory.memory_categories import BEFORE
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.formats.memory_categories import CATEGORIES

COLUMNS = table_schema("device_type: String, device: Int32, peak_ns, category: String, bytes, percent: Float64")


def category_peak(events: pl.DataFrame) -> pl.DataFrame:
    """Bytes of each category at the moment when all categories of a device together were highest, the largest first.

    The total is that of the tensors which the profiler saw: tensors from before the window count as soon as an operator used
    them, which the allocator's own total may leave out, so this peak may differ from that of ``analysis.memory.memory_peak``. A
    peak that was there before the window has the time of the first event.

    Args:
        events: rows of ``memory_categories.EVENTS`` with their categories, sorted by time, of any devices.

    Returns:
        columns as in ``COLUMNS``; ``percent`` is the share of the total. Categories without memory are left out.
    """
    frames = []
    for (device_type, device), device_events in events.partition_by("device_type", "device", as_dict=True).items():
        total = device_events["bytes"].cum_sum()
        row = total.arg_max()
        if row is None or total[row] <= 0:
            continue
        times = device_events["time_ns"].filter(device_events["time_ns"] != BEFORE)
        time = device_events["time_ns"][row] if device_events["time_ns"][row] != BEFORE else times.min()
        sums = device_events.head(row + 1).group_by("category").agg(pl.col("bytes").sum()).filter(pl.col("bytes") != 0)
        frames.append(
            sums.with_columns(
                pl.col("category").replace_strict(dict(enumerate(CATEGORIES)), return_dtype=pl.String),
                device_type=pl.lit(device_type),
                device=pl.lit(device),
                peak_ns=pl.lit(time, dtype=pl.Int64),
                percent=pl.col("bytes") * 100 / total[row],
            ).select(cast_columns(COLUMNS))
        )
    peaks = pl.concat([pl.DataFrame(schema=COLUMNS), *frames])
    return peaks.sort("device_type", "device", "bytes", "category", descending=[False, False, True, False])
