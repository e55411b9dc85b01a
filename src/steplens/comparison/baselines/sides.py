"""Sides of comparisons as users name them: baselines, runs and their paths."""

from __future__ import annotations

import os

from steplens.comparison.baselines.baseline import read_baseline
from steplens.comparison.baselines.places import is_baseline, locate_side
from steplens.comparison.measure import measure_side
from steplens.comparison.side import Side
from steplens.run import Run, open_run


def open_side(named: str | os.PathLike[str] | Run) -> Side:
    """A side of a comparison.

    Args:
        named: ``baseline:NAME``, the path or URL of the file of a baseline, or of a run, or the run itself.

    Raises:
        SteplensError: it cannot be opened.
    """
    if isinstance(named, Run):
        return measure_side(named)
    path = locate_side(named)
    return read_baseline(path).side if is_baseline(path) else measure_side(open_run(named))
