"""How much durations vary: distributions of a real job.

``job_st.json`` has quantiles of ratios, taken by ``quantiles_of`` from the job ST that was published with "Understanding
Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025): https://github.com/ByteDance-Seed/StragglerAnalysis at
8efcd7f3, Apache-2.0; eight ranks, two by data and four by pipeline parallelism, 32 steps, a row per operation. Another trace of
that form can be given in its place.

A computation of a micro-batch is its median on its stage times the factor of the micro-batch, which all stages and both
directions share (a long sample is long everywhere), times a factor of its own. A transfer has one factor. The differences between
the stages of that job are left out: an imbalanced stage is a fault that is seeded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_STORED = Path(__file__).with_name("job_st.json")
_POINTS = 101

#: names of the distributions
BATCH_FORWARD, BATCH_BACKWARD = "micro-batch, forward", "micro-batch, backward"
OWN_FORWARD, OWN_BACKWARD = "stage, forward", "stage, backward"
COLLECTIVE, POINT_TO_POINT, OPTIMIZER = "collective", "point-to-point", "optimizer"

_FORWARD, _BACKWARD = "forward-compute", "backward-compute"
_COLLECTIVES = ("grads-reduce-scatter", "params-all-gather")


@dataclass(frozen=True)
class Noise:
    """Quantiles of ratios to a median, from 0 to 1 in equal steps, by what varies."""

    quantiles: dict[str, Floats]

    def draw(self, what: str, uniform: Floats) -> Floats:
        """Ratios, from numbers between 0 and 1 of equal probability."""
        points = self.quantiles[what]
        return np.interp(uniform, np.linspace(0, 1, len(points)), points)


def stored_noise() -> Noise:
    """That of the job ST."""
    stored = json.loads(_STORED.read_text())
    return Noise({name: np.array(points) for name, points in stored["quantiles"].items()})


def noise_of(trace: Path) -> Noise:
    """That of a job in the form of the published ones (Parquet)."""
    return Noise({name: np.array(points) for name, points in quantiles_of(trace).items()})


def quantiles_of(trace: Path) -> dict[str, list[float]]:
    """Quantiles of what varies in a published job, rounded to four decimals."""
    import polars as pl

    rows = pl.read_parquet(trace).with_columns(
        pl.col("optype").cast(pl.String), pl.col("start_ts", "duration").cast(pl.Float64), pl.col("stage").cast(pl.Int64)
    )
    rows = rows.with_columns(end=pl.col("start_ts") + pl.col("duration"))
    found: dict[str, pl.Series] = {}
    batch = ["step", "dp_rank", "mb_id"]
    for kind, of_batch, own in ((_FORWARD, BATCH_FORWARD, OWN_FORWARD), (_BACKWARD, BATCH_BACKWARD, OWN_BACKWARD)):
        computed = rows.filter(optype=kind)
        computed = computed.with_columns(ratio=pl.col("duration") / pl.col("duration").median().over("stage"))
        found[of_batch] = computed.group_by(batch).agg(pl.col("ratio").mean())["ratio"]
        found[own] = computed.select(pl.col("ratio") / pl.col("ratio").mean().over(batch)).to_series()
    together = rows.filter(pl.col("optype").is_in(_COLLECTIVES))
    last = pl.col("start_ts").max().over("optype", "step", "stage", "seq_id")
    together = together.with_columns(transfer=pl.col("end") - last)
    found[COLLECTIVE] = together.select(pl.col("transfer") / pl.col("transfer").median().over("optype", "stage")).to_series()
    found[POINT_TO_POINT] = _point_to_point(rows)
    found[OPTIMIZER] = (
        rows.filter(optype="optimizer").select(pl.col("duration") / pl.col("duration").median().over("stage")).to_series()
    )
    points = np.linspace(0, 1, _POINTS)
    return {name: [round(float(point), 4) for point in np.quantile(ratio.to_numpy(), points)] for name, ratio in found.items()}


def _point_to_point(rows: Any) -> Any:
    import polars as pl

    frames = []
    for sent, received, to in (("forward-send", "forward-recv", 1), ("backward-send", "backward-recv", -1)):
        sends = rows.filter(optype=sent).with_columns(to=pl.col("stage") + to)
        pairs = sends.join(
            rows.filter(optype=received),
            left_on=["step", "dp_rank", "to", "seq_id"],
            right_on=["step", "dp_rank", "stage", "seq_id"],
            suffix="_received",
        )
        arrived = pl.max_horizontal("start_ts", "start_ts_received")
        pairs = pairs.with_columns(transfer=pl.max_horizontal("end", "end_received") - arrived)
        frames.append(pairs.select(ratio=pl.col("transfer") / pl.col("transfer").median().over("stage", "dp_rank")))
    return pl.concat(frames)["ratio"]
