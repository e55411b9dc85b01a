"""How long the largest kernels and operators of a job take on its ranks: quantiles over the ranks, and which is slowest."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.analysis.cluster.over_ranks.rank_durations import kernel_durations, operator_durations
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.parallel import by_rank
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

_QUANTILES = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "max": 1.0}
_FIGURES = ("step", "single")
QUANTILES = table_schema(
    "name: String, input_shapes: String, slowest_rank, times_median: Float64, ranks, calls: Float64, "
    + ", ".join(f"{figure}_{point}_ns: Float64" for figure in _FIGURES for point in _QUANTILES)
)
_DURATIONS = {"kernel": kernel_durations, "operator": operator_durations}
_KEY = ["name", "input_shapes"]


@once_per_run
def _durations_of_ranks(traces: Sequence[Trace]) -> dict[str, pl.DataFrame]:
    """Of every rank what takes most of its step, windows of one rank together: rank and the columns of ``DURATIONS``."""
    frames: dict[str, list[pl.DataFrame]] = {by: [] for by in _DURATIONS}
    for rank, windows in by_rank(traces).items():
        for by, durations in _DURATIONS.items():
            rows = pl.concat([durations(trace) for trace in windows])
            weight = pl.col("steps").clip(1)
            means = {name: (pl.col(name) * weight).sum() / weight.sum() for name in ("calls", "step_ns", "single_ns")}
            frames[by].append(rows.group_by(_KEY).agg(**means).with_columns(rank=pl.lit(rank, dtype=pl.Int64)))
    return {by: join_rows(of_ranks) for by, of_ranks in frames.items() if of_ranks}


def rank_quantiles(traces: Sequence[Trace], by: str = "kernel") -> pl.DataFrame:
    """Quantiles over the ranks of how long kernels or operators take, those that take most of a step first.

    Of each rank those that take most of a step count (``rank_durations``), by name and input shapes; ``ranks`` is of how many
    ranks that is known. ``step_*_ns``: time of a step, a mean over its steps; ``single_*_ns``: median of single ones; each the
    least, lower quartile, median, upper quartile and greatest of the ranks. ``calls``: of a step, median over the ranks.
    ``slowest_rank`` has the greatest time of a step, ``times_median`` is how many times the median that is. Columns as in
    ``QUANTILES``; no rows of fewer than two ranks.

    Args:
        traces: of one job.
        by: "kernel" or "operator".

    Raises:
        ValueError: ``by`` is none of them.
    """
    if by not in _DURATIONS:
        raise ValueError(f"rank_quantiles(by={by!r}): by must be one of {', '.join(_DURATIONS)}")
    if len(by_rank(traces)) < 2:
        return pl.DataFrame(schema=QUANTILES)
    rows = _durations_of_ranks(traces)[by]
    points = {
        f"{figure}_{point}_ns": pl.col(f"{figure}_ns").quantile(share, "linear")
        for figure in _FIGURES
        for point, share in _QUANTILES.items()
    }
    slowest = pl.col("rank").sort_by("step_ns", "rank", descending=[True, False]).first()
    groups = rows.group_by(_KEY).agg(ranks=pl.len(), calls=pl.col("calls").median(), slowest_rank=slowest, **points)
    median = pl.col("step_median_ns")
    groups = groups.with_columns(times_median=pl.when(median > 0).then(pl.col("step_max_ns") / median))
    ordered = groups.sort("step_median_ns", *_KEY, descending=[True, False, False], nulls_last=True)
    return ordered.select(cast_columns(QUANTILES))
