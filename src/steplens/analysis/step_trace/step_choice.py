"""One step of a step trace, by its number."""

from __future__ import annotations

from typing import Any

import polars as pl

from steplens.analysis.step_trace.step_trace import step_trace
from steplens.trace.trace import Trace


def step_parts(source: Trace | pl.DataFrame, step: int) -> dict[str, Any]:
    """The row of ``step_trace`` of one step.

    Args:
        source: one rank, or its ``step_trace`` where the caller has it.
        step: its number.

    Raises:
        ValueError: the run has no such step; the message says which it has.
    """
    table = source if isinstance(source, pl.DataFrame) else step_trace(source)
    step_row = table.filter(pl.col("step") == step)
    if not step_row.height:
        steps = table["step"]
        steps_text = f"steps {steps[0]} to {steps[-1]}" if table.height else "no steps"
        raise ValueError(f"there is no step {step}; the run has {steps_text}")
    return step_row.row(0, named=True)
