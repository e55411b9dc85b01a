"""The steps of all ranks beside each other: every part and phase of each, and who is how much slower than the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from steplens.analysis.steps.times import COLUMNS as STEP_COLUMNS
from steplens.analysis.steps.times import HOST_PARTS, chosen_step_times
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.parallel import by_rank
from steplens.analysis.tools.schemas import cast_columns
from steplens.trace.trace import Trace

#: the figures of a step
PARTS = tuple(name for name in STEP_COLUMNS if name.endswith("_ns") and name not in ("start_ns", "device_start_ns"))

COLUMNS: dict[str, Any] = {
    "rank": pl.Int64(),
    "windows": pl.Int64(),
    "steps": pl.Int64(),
    "reason": pl.String(),
    **dict.fromkeys(PARTS, pl.Float64()),
    "slower_percent": pl.Float64(),
    "differs_most": pl.String(),
    "differs_ns": pl.Float64(),
}

#: why a rank that was read has no figures
_WITHOUT_STEPS = "no complete step was recorded"
_WITHOUT_STEP_TIMES = "only results of another analysis are there, and step times are not among them"


@dataclass(frozen=True)
class UnreadRank:
    """What lies in the folder of a job and could not be read.

    Attributes:
        rank: which rank its names say; None where they say none.
        reason: why it could not be read.
    """

    rank: int | None
    reason: str


def ranks(traces: Sequence[Trace], unread: Sequence[UnreadRank] = ()) -> pl.DataFrame:
    """One row per rank: every figure of its chosen steps, the median in ns; columns as in ``COLUMNS``.

    The figures are those of ``analysis.steps.times.step_times``; medians, which need not add up. ``slower_percent``: how much
    longer a step of the rank takes than the median of the ranks (negative: shorter); ``differs_most``: the phase of the host
    (``HOST_PARTS``, backward without gradient synchronisation) that exceeds the median of the ranks by the most,
    ``differs_ns`` by how much. Null with fewer than two ranks. In a job of several ranks those of which nothing is known have
    rows, too, with the ``reason`` in place of figures: nothing of them could be read, or no step was recorded.

    Args:
        traces: of one job; several windows of a rank may be among them.
        unread: what lies beside them and could not be read.
    """
    if not traces:
        return _ranks_without_figures(traces, set(), unread)
    rank_rows = (
        join_rows(
            chosen_step_times(trace).select(*PARTS, rank=pl.lit(trace.rank, dtype=pl.Int64), window=pl.lit(number))
            for number, trace in enumerate(traces)
        )
        .group_by("rank")
        .agg(windows=pl.col("window").n_unique(), steps=pl.len(), **{part: pl.col(part).median() for part in PARTS})
        .sort("rank")
    )
    if rank_rows.height > 1:
        median = pl.col("step_time_ns").median()
        # whoever waits for a late rank in backward is not the one that is late
        without_sync = rank_rows.with_columns(backward_ns=pl.col("backward_ns") - pl.col("gradient_sync_ns").fill_null(0))
        beyond = without_sync.select("rank", *(pl.col(part) - pl.col(part).median() for part in HOST_PARTS))
        most = beyond.unpivot(index="rank", variable_name="differs_most", value_name="differs_ns").drop_nulls("differs_ns")
        most = most.sort("rank", "differs_ns", "differs_most", descending=[False, True, False]).unique("rank", keep="first")
        rank_rows = rank_rows.join(most, on="rank", how="left").with_columns(
            slower_percent=pl.when(median > 0).then((pl.col("step_time_ns") - median) * 100 / median)
        )
    else:
        rank_rows = rank_rows.with_columns(slower_percent=None, differs_most=None, differs_ns=None)
    rank_rows = rank_rows.with_columns(reason=pl.lit(None, dtype=pl.String)).select(cast_columns(COLUMNS))
    without = _ranks_without_figures(traces, set(rank_rows["rank"].to_list()), unread)
    return pl.concat([rank_rows, without]).sort("rank", "reason", nulls_last=True)


def _ranks_without_figures(traces: Sequence[Trace], known: set[int], unread: Sequence[UnreadRank]) -> pl.DataFrame:
    windows_of = by_rank(traces)
    rows: list[dict[str, Any]] = [{"rank": lost.rank, "windows": 0, "steps": 0, "reason": lost.reason} for lost in unread]
    if len(windows_of) + len(unread) > 1:
        rows += [
            {
                "rank": rank,
                "windows": len(windows),
                "steps": 0,
                "reason": _WITHOUT_STEP_TIMES if all(trace.is_results_only for trace in windows) else _WITHOUT_STEPS,
            }
            for rank, windows in windows_of.items()
            if rank not in known
        ]
    return pl.DataFrame(rows, schema=COLUMNS)
