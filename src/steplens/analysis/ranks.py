"""The steps of all ranks beside each other: every part and phase of each, and who is how much slower than the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from steplens.analysis.steps import COLUMNS as STEP_COLUMNS
from steplens.analysis.steps import step_times
from steplens.trace.trace import Trace

#: the parts of a step that are averaged
PARTS = tuple(name for name in STEP_COLUMNS if name.endswith("_ns") and name != "start_ns")

COLUMNS: dict[str, Any] = {
    "rank": pl.Int64(),
    "windows": pl.Int64(),
    "steps": pl.Int64(),
    **dict.fromkeys(PARTS, pl.Float64()),
    "slower_percent": pl.Float64(),
    "differs_most": pl.String(),
    "differs_ns": pl.Float64(),
}
#: the parts that add up to a step on the host, among which the difference is looked for
_PHASES = ("data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")


def ranks(traces: Sequence[Trace]) -> pl.DataFrame:
    """One row per rank: the mean of every part of its whole steps, ns; columns as in ``COLUMNS``.

    The parts are those of ``analysis.steps.step_times``; steps that were recorded only in part are left out.
    ``slower_percent``: how much longer the steps of the rank take than the median of the ranks (negative: shorter);
    ``differs_most``: the phase of the host that exceeds the median of the ranks by the most, ``differs_ns`` by how much. Null
    with fewer than two ranks.

    Args:
        traces: of one job; several windows of a rank may be among them.
    """
    frames = [
        step_times(trace).filter("complete").select(*PARTS, rank=pl.lit(trace.rank, dtype=pl.Int64), window=pl.lit(number))
        for number, trace in enumerate(traces)
    ]
    if not frames:
        return pl.DataFrame(schema=COLUMNS)
    found = (
        pl.concat(frames)
        .group_by("rank")
        .agg(windows=pl.col("window").n_unique(), steps=pl.len(), **{part: pl.col(part).mean() for part in PARTS})
        .sort("rank")
    )
    if found.height > 1:
        median = pl.col("duration_ns").median()
        beyond = found.select("rank", *(pl.col(part) - pl.col(part).median() for part in _PHASES))
        most = beyond.unpivot(index="rank", variable_name="differs_most", value_name="differs_ns")
        most = most.sort("rank", "differs_ns", "differs_most", descending=[False, True, False]).unique("rank", keep="first")
        found = found.join(most, on="rank").with_columns(
            slower_percent=pl.when(median > 0).then((pl.col("duration_ns") - median) * 100 / median)
        )
    else:
        found = found.with_columns(slower_percent=None, differs_most=None, differs_ns=None)
    return found.sort("rank").select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
