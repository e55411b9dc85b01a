"""How the steps of a side spread, for a picture of them."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from pydantic import BaseModel

from steplens.comparison.side import Side

#: bars of a picture
_MOST_BARS = 40
#: so many bars for the square root of the number of steps: steps of one length are to stand out
_BARS_PER_ROOT = 2.5
#: single steps that are much longer would make all others one bar; the shares of steps between which the picture is of all
_FIRST_SHARE, _LAST_SHARE = 0.01, 0.99
#: steps of one length are drawn as if they spread by so much
_LEAST_SPREAD = 0.002


class StepSpread(BaseModel):
    """How many steps are how long: ``counts`` between ``edges_ns``, which are one more; ``outside`` are shorter or longer."""

    edges_ns: list[float]
    counts: list[int]
    outside: int


def median_steps(side: Side) -> list[float]:
    """The median step of each recording, ns."""
    return [float(np.median(recording.steps["step_time_ns"].to_numpy())) for recording in side.recordings]


def spread_of_steps(side: Side) -> StepSpread | None:
    """How the steps of all recordings of a side spread; None without any."""
    if not side.step_count:
        return None
    steps_ns = pl.concat([recording.steps["step_time_ns"].cast(pl.Float64) for recording in side.recordings]).to_numpy()
    low, high = (float(end) for end in np.quantile(steps_ns, (_FIRST_SHARE, _LAST_SHARE)))
    margin = max(_LEAST_SPREAD * high - (high - low), 0.0) / 2.0
    bars = min(_MOST_BARS, max(1, math.ceil(_BARS_PER_ROOT * math.sqrt(steps_ns.size))))
    counts, edges = np.histogram(steps_ns, bars, (low - margin, high + margin))
    return StepSpread(edges_ns=edges.tolist(), counts=counts.tolist(), outside=int(steps_ns.size - counts.sum()))
