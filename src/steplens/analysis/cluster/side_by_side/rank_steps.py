"""One figure of every step of every rank: the matrix behind a map of ranks by steps, and how the ranks spread in each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.cluster.side_by_side.figures import PARTS, rank_figures
from steplens.analysis.steps.times import times_of_steps
from steplens.trace.trace import Trace

OWN, STEP_TIME = "own_ns", "step_time_ns"
METRICS = (OWN, STEP_TIME, *PARTS)
#: of the ranks of a step: least, tenths, half, most
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
#: a picture shows no more cells: of more steps several make one column
MOST_CELLS = 200_000


@dataclass(frozen=True)
class RankSteps:
    """A figure by rank and step.

    Attributes:
        traces, ranks: the rows.
        steps: the first step of each column; ``last_steps``: the last one, the same but where several steps make a column.
        values: rank by column, ns: of several steps the largest; NaN where it was not recorded.
        quantiles: quantile by column, of the ranks that have a value.
    """

    traces: list[int]
    ranks: list[int]
    steps: list[int]
    last_steps: list[int]
    values: npt.NDArray[np.float64]
    quantiles: npt.NDArray[np.float64]


def known_metrics(traces: Sequence[Trace]) -> list[str]:
    """Those of ``METRICS`` that some rank has."""
    figures = rank_figures(traces)
    return [name for name in METRICS if figures[name].null_count() < figures.height and (figures[name] != 0).any()]


def rank_steps(traces: Sequence[Trace], metric: str, most_cells: int = MOST_CELLS) -> RankSteps:
    """One of ``METRICS`` of every complete step of every rank, from what is kept of each; see ``RankSteps``.

    Args:
        traces: of one job.
        metric: ``OWN`` is the device period without exposed communication (``figures.rank_figures``).
        most_cells: ranks times columns.

    Raises:
        ValueError: there is no such metric.
    """
    if metric not in METRICS:
        raise ValueError(f"no metric of steps: {metric}")
    value = pl.col("device_period_ns") - pl.col("exposed_communication_ns") if metric == OWN else pl.col(metric)
    rows = [(trace.rank, number) for number, trace in enumerate(traces) if trace.rank >= 0]
    rows.sort()
    of_rank = []
    for _, number in rows:
        trace = traces[number]
        # a trace without steps has no rows of them
        times = trace.once(times_of_steps).filter("complete") if "steps" in trace else None
        of_rank.append({} if times is None else dict(times.select("step", value.cast(pl.Float64)).drop_nulls().iter_rows()))
    numbers = sorted({step for value_of in of_rank for step in value_of})
    together = max(-(-len(rows) * len(numbers) // most_cells), 1)
    columns = [numbers[first : first + together] for first in range(0, len(numbers), together)]
    values = np.full((len(rows), len(columns)), np.nan)
    for place, value_of in enumerate(of_rank):
        for column, steps in enumerate(columns):
            known_values = [value_of[step] for step in steps if step in value_of]
            if known_values:
                values[place, column] = max(known_values)
    quantiles = np.full((len(QUANTILES), len(columns)), np.nan)
    for column in range(len(columns)):
        of_column = values[:, column][~np.isnan(values[:, column])]
        if of_column.size:
            quantiles[:, column] = np.quantile(of_column, QUANTILES)
    return RankSteps(
        traces=[number for _, number in rows],
        ranks=[rank for rank, _ in rows],
        steps=[steps[0] for steps in columns],
        last_steps=[steps[-1] for steps in columns],
        values=values,
        quantiles=quantiles,
    )
