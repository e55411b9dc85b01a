"""How much two runs have in common: of one program, or of two whose figures side by side tell nothing."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

#: runs of one model have nine tenths of their calls in common, also on devices of two makers; those of two models a third
LEAST_COMMON = 0.5
#: a run that has so much of another one is the same program, however much it does besides
_ALL = 0.98


def common_share(calls: pl.DataFrame) -> float | None:
    """The share of a step's operator calls that go to the same operators in two runs, 0 to 1; None where one has none.

    The sum over names of the smaller of both shares of calls; where one run makes all calls of the other and others besides, how
    much it makes of those.

    Args:
        calls: a row per name, with ``before_calls`` and ``after_calls`` of a step; null where a run has none of it.
    """
    sums = [calls[f"{side}_calls"].sum() for side in ("before", "after")]
    if not all(sums):
        return None
    counts = [calls[f"{side}_calls"].fill_null(0) for side in ("before", "after")]
    share = _sum_of_smaller(count / total for count, total in zip(counts, sums, strict=True))
    contained = _sum_of_smaller(counts) / float(min(sums))
    return max(share, contained) if contained >= _ALL else share


def _sum_of_smaller(counts: Iterable[pl.Series]) -> float:
    return float(pl.select(pl.min_horizontal(*counts).sum()).item())


def are_unlike(share: float | None) -> bool:
    """Whether two runs with so much in common are of two programs."""
    return share is not None and share < LEAST_COMMON
