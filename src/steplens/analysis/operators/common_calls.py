"""How much two runs have in common: of one program, or of two whose figures side by side tell nothing."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

#: runs of one model have nine tenths of their calls in common, also on devices of two makers; those of two models a third
LEAST_COMMON = 0.5
#: a run that has so much of another one is the same program, however much it does besides
_ALL = 0.98
#: of the names of the run with fewer of them, those of one model have more in common; a model with few names tells nothing
_LEAST_NAMES, _MANY_NAMES = 0.8, 20


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


def are_unlike(calls: pl.DataFrame) -> bool:
    """Whether two runs are of two programs: they have few calls in common, or few of their operators.

    Two models may make most of their calls to the same few operators, those of the optimizer.

    Args:
        calls: as of ``common_share``.
    """
    share = common_share(calls)
    if share is None:
        return False
    is_called = [calls[f"{side}_calls"].fill_null(0) > 0 for side in ("before", "after")]
    fewer = min(int(is_of_side.sum()) for is_of_side in is_called)
    common = int((is_called[0] & is_called[1]).sum())
    return share < LEAST_COMMON or (fewer >= _MANY_NAMES and common < _LEAST_NAMES * fewer)
