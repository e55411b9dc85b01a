"""How busy the units of an AI core were during each task, from its performance counters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from steplens.trace.trace import Trace

#: columns of the result and the counters they come from; older devices have one kind of core and do not name it
_COUNTERS: dict[str, tuple[str, ...]] = {
    "aic_mac": ("aic_mac_ratio", "mac_ratio"),
    "aic_scalar": ("aic_scalar_ratio", "scalar_ratio"),
    "aic_mte1": ("aic_mte1_ratio", "mte1_ratio"),
    "aic_mte2": ("aic_mte2_ratio", "mte2_ratio"),
    "aic_fixpipe": ("aic_fixpipe_ratio",),
    "aiv_vec": ("aiv_vec_ratio", "vec_ratio"),
    "aiv_scalar": ("aiv_scalar_ratio",),
    "aiv_mte2": ("aiv_mte2_ratio",),
    "aiv_mte3": ("aiv_mte3_ratio", "mte3_ratio"),
}
UNITS = tuple(_COUNTERS)


def core_utilization(trace: Trace) -> pl.DataFrame:
    """Share of its core's time that each unit worked, per task: ``kernel`` and ``UNITS`` (0 to 1, null where not measured).

    ``mac`` multiplies matrices, ``vec`` computes on vectors, ``mte1``, ``mte2``, ``mte3`` and ``fixpipe`` move data, ``mte2``
    from and ``mte3`` and ``fixpipe`` to the device's memory. ``aic`` is the core with the matrix unit, ``aiv`` the one with
    vector units alone. Units work at the same time, so that shares may add up to more than 1.

    Source: ``kernel_metrics``. No rows without these counters.
    """
    return task_metrics(trace, _COUNTERS)


def task_metrics(trace: Trace, columns: Mapping[str, tuple[str, ...]]) -> pl.DataFrame:
    """Some of ``kernel_metrics`` with one row per task: ``kernel`` and a column per figure, null where it was not measured.

    Args:
        trace: one rank.
        columns: column -> the names that sources have for the figure; of several the last one counts.
    """
    metric_names = [name for names in columns.values() for name in names]
    tasks = int(trace.required("kernels").select(pl.len()).collect().item())
    rows = trace.required("kernel_metrics").filter(pl.col("kernel").is_between(0, tasks - 1) & pl.col("value").is_finite())
    parts = dict(zip(metric_names, pl.collect_all(rows.filter(pl.col("name") == name) for name in metric_names), strict=True))
    measured = np.zeros(tasks, dtype=bool)
    for part in parts.values():
        measured[part["kernel"].to_numpy()] = True
    metrics = {}
    for column, names in columns.items():
        values = np.full(tasks, np.nan)
        for name in names:
            values[parts[name]["kernel"].to_numpy()] = parts[name]["value"].to_numpy()
        metrics[column] = pl.Series(values[measured], nan_to_null=True)
    return pl.DataFrame({"kernel": pl.Series(np.flatnonzero(measured), dtype=pl.Int32), **metrics})
