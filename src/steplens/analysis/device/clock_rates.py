"""How fast the clocks of a run's processors went, as far as that was recorded."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from steplens.trace.trace import Trace

AI_CORE = "AI core"
_COUNTER = "AI Core Freq"
#: no processor is clocked higher; what says so is damaged
_MOST_MHZ = 100_000.0


def clock_rates(trace: Trace) -> dict[str, float]:
    """Of each processor that says so its clock rate in MHz: "processor", "CUDA", "AI core".

    Of the host and of GPUs it is the one at the end of the recording (``clock_mhz`` in ``meta``), of AI cores the mean over the
    time of their samples, each of which holds until the next one; the last one does not count, unless it is the only one.

    Source: ``meta``, ``counters``.
    """
    said = trace.meta_value("clock_mhz")
    rates = {
        str(name): float(mhz) for name, mhz in (said.items() if isinstance(said, dict) else ()) if isinstance(mhz, (int, float))
    }
    samples = trace.required("counters").filter(pl.col("group").cast(pl.String) == _COUNTER)
    clock = samples.select("time_ns", "value").drop_nulls().filter(pl.col("value").is_finite()).sort("time_ns").collect()
    if clock.height:
        held_ns = np.diff(clock["time_ns"].to_numpy()).astype(np.float64)
        mhz = clock["value"].to_numpy()
        rates[AI_CORE] = float(np.average(mhz[:-1], weights=held_ns)) if held_ns.sum() > 0 else float(mhz[-1])
    return {name: mhz for name, mhz in rates.items() if math.isfinite(mhz) and 0.0 < mhz < _MOST_MHZ}
