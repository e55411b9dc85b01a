"""How long an operator takes in each step of a recording."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.comparison.noise import Floats
from steplens.comparison.recordings import Recording
from steplens.trace.trace import Trace


def operator_times(recording: Recording, name: str) -> Floats:
    """Time of an operator's calls in each usual step, ns, shape (steps,): mean over the ranks, 0 where a step has none.

    Of the device where its calls launched work there, else self time of the host. Nothing where no step is known.

    Args:
        recording: one time that the program ran.
        name: of the operator, such as "aten::mm".
    """
    calls = [_calls_of(trace, name) for trace in recording.traces if "ops" in trace]
    if not calls:
        return np.zeros(0)
    rows = pl.concat(calls)
    time = "device_self_ns" if rows["device_self_ns"].sum() > 0 else "self_ns"
    by_step = rows.group_by("step").agg(time_ns=pl.col(time).sum())
    ranks = len({trace.rank for trace in recording.traces})
    joined = recording.usual.select("step").join(by_step, on="step", how="left", maintain_order="left")
    return joined["time_ns"].fill_null(0).to_numpy().astype(np.float64) / ranks


def _calls_of(trace: Trace, name: str) -> pl.DataFrame:
    is_named = (pl.col("name").cast(pl.String) == name) & pl.col("step").is_not_null()
    columns = (pl.col("step").cast(pl.Int64), pl.col("self_ns", "device_self_ns").cast(pl.Int64))
    return trace.required("ops").filter(is_named).select(*columns).collect()
