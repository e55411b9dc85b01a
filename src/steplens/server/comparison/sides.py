"""What is measured of one side of a comparison, for all addresses that tell of it."""

from __future__ import annotations

from steplens.comparison.measure import measure_side
from steplens.comparison.side import Side
from steplens.server.runs import OpenedRun


def find_side(chosen: OpenedRun) -> Side:
    """A run as a side of a comparison, measured once."""
    return chosen.answer(("side",), lambda: measure_side(chosen.run))
