"""What the rules look at: the whole steps of one trace and what happened in them, worked out once."""

from __future__ import annotations

from functools import cached_property

import polars as pl

from steplens.analysis.steps import step_times
from steplens.trace.trace import Trace


class Facts:
    """One trace as the rules see it.

    Attributes:
        trace: its tables.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def steps(self) -> pl.DataFrame:
        """``analysis.steps.step_times`` of the steps that were recorded whole."""
        return step_times(self.trace).filter("complete")

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of these steps."""
        return tuple(self.steps["step"].to_list())

    @cached_property
    def step_ns(self) -> float:
        """How long a step takes, mean; 0 without steps."""
        return float(self.steps["duration_ns"].mean() or 0) if self.steps.height else 0.0  # type: ignore[arg-type]

    def mean(self, column: str) -> float:
        """Mean of a column of ``steps``; 0 without steps."""
        return float(self.steps[column].mean() or 0) if self.steps.height else 0.0  # type: ignore[arg-type]

    @cached_property
    def calls(self) -> pl.DataFrame:
        """The calls of ``ops`` inside these steps, with ``name`` as text and ``duration_ns``; on the threads of the steps only.

        Other threads (autograd's, communication's) do their work beside the step, not in it.
        """
        threads = self.trace.required("steps").select("pid", "tid").unique()
        calls = self.trace.required("ops").filter(pl.col("step").is_in(list(self.numbers)))
        calls = calls.join(threads, on=["pid", "tid"], how="semi")
        return calls.with_columns(pl.col("name").cast(pl.String), duration_ns=pl.col("end_ns") - pl.col("start_ns")).collect()

    def starting_with(self, prefix: str) -> pl.DataFrame:
        """The calls whose names start with ``prefix``."""
        return self.calls.filter(pl.col("name").str.starts_with(prefix))
