"""When each rank arrived at every collective: waiting for others told apart from moving data, and which rank is late.

How long a collective takes says nothing about who is slow: every rank takes until the last one has arrived, and the
slowest rank, which nobody keeps waiting, takes the shortest. The order of arrival tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.cluster.clocks.job_clocks import job_clocks
from steplens.analysis.cluster.clocks.messages import KEY, message_sides
from steplens.analysis.tools.chance import chance_of_at_least
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.overlap import Intervals, merge_intervals
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.building.checks.ranks import ends_together
from steplens.trace.schema import COLLECTIVE
from steplens.trace.trace import Trace

COLUMNS = table_schema(
    "step, group: String, operation: String, number, rank, bytes, start_ns, end_ns, place, wait_ns, transfer_ns, hold_up_ns, "
    "error_ns"
)

RECORDED = table_schema("step, group: String, operation: String, number, rank, start_ns, place, behind_ns, hold_up_ns")
_EACH = [*KEY, "number"]
_LAST = pl.col("start_ns").max().over(_EACH)

#: at least as many collectives must say how far from each other they end, and so many of them end that near
_LEAST, _MOST = 8, 0.9

#: a slow rank arrives last, by most of what anybody holds others up, in this share of the steps
_STEADY = 0.75
#: ... and holds the others up by at least this share of a step in all but a quarter of these steps
_SHARE = 0.03
#: chance by which equal ranks would look like that, at most
_CHANCE = 0.05
#: fewer steps than three tell nothing, and few cannot tell by counting: a rank that leads in all of them holds the others up by
#: this share of a step in each, and by this many times the deviation (median absolute, scaled) of what it holds them up by
_FEW, _LARGE_SHARE, _DEVIATIONS = 3, 0.1, 5.0


@once_per_run
def arrivals(traces: Sequence[Trace]) -> pl.DataFrame:
    """Every collective of which all ranks of its group were recorded, one row per rank.

    0. Where ranks of a group are missing nobody knows whom the others waited for: its collectives are left out. How many it
       has is what the source says (``ranks``); of a group of unknown size all ranks of the job have to be there.
    1. Collectives of one group, operation and step are numbered by their start; where all ranks have equally many, equal
       numbers are one collective. Collectives outside steps, and those of which a rank has more or fewer, are left out. Where no
       rank recorded a step, ``step`` is null and they are numbered in all that was recorded (``messages.message_sides``).
    2. The clocks of the ranks are brought together as far as their messages contradict them (``job_clocks``). Where nobody can
       tell how they lie to each other, a collective is left out.
    3. With L the last start of a collective: ``wait_ns`` = L - start, at most the whole length, ``transfer_ns`` the rest.

    Args:
        traces: of different ranks; several windows of a rank may be among them.

    Returns:
        ``COLUMNS``: number counts from 0 within (step, group, operation); start_ns and end_ns are on the clock of the lowest
        rank; place is the order of arrival, from 0; hold_up_ns is, for the last rank to arrive, how much earlier everything
        could have begun without it (L minus the second last start), 0 for the others. ``error_ns``: how far wait_ns may be off
        since clocks differ: what the messages leave open, or, where that is less, how far from each other the ends lie (nine of
        ten) of collectives that end together. Sorted by step, start and rank.
        No rows where fewer than two ranks took part.
    """
    return _whole_groups(traces).select(cast_columns(COLUMNS))


@once_per_run
def _whole_groups(traces: Sequence[Trace]) -> pl.DataFrame:
    """The rows of ``arrivals``, with own_start_ns: the start on the rank's own clock."""
    rows = _collectives_on_one_clock(traces, pl.col("members") >= pl.col("size"))
    if rows.is_empty():
        return pl.DataFrame(schema={**COLUMNS, "own_start_ns": pl.Int64})
    rows = _in_order(rows).with_columns(wait_ns=pl.min_horizontal(_LAST, "end_ns") - pl.col("start_ns"))
    rows = rows.with_columns(transfer_ns=pl.col("end_ns") - pl.col("start_ns") - pl.col("wait_ns"))
    return rows.sort("step", "start_ns", "rank")


def waits_of_rank(traces: Sequence[Trace], rank: int) -> Intervals:
    """When any collective of a rank waited for the last rank to arrive, see ``arrivals``; on the rank's own clock."""
    rows = _whole_groups(traces).filter(rank=rank)
    start = rows["own_start_ns"].to_numpy()
    return merge_intervals(start, start + rows["wait_ns"].to_numpy())


@once_per_run
def recorded_arrivals(traces: Sequence[Trace]) -> pl.DataFrame:
    """The collectives of which some ranks are missing and at least two are here, one row per rank; columns as in ``RECORDED``.

    They are paired and put on one clock as those of ``arrivals``. Who of these comes last is known, not whether one that was
    not recorded comes later still. Nothing where the clocks are off and too few collectives tell by how much.

    Returns:
        behind_ns is how long after the first of these ranks this one arrives, hold_up_ns, for the last of them, how long after
        the second last; place is the order among them, from 0. Sorted by step, start and rank.
    """
    rows = _collectives_on_one_clock(traces, pl.col("members") < pl.col("size"))
    if rows.is_empty():
        return pl.DataFrame(schema=RECORDED)
    rows = _in_order(rows).with_columns(behind_ns=pl.col("start_ns") - pl.col("start_ns").min().over(_EACH))
    return rows.sort("step", "start_ns", "rank").select(cast_columns(RECORDED))


@dataclass(frozen=True)
class LastRecorded:
    """Who of the recorded ranks comes last where others are missing.

    Attributes:
        rank: the one that comes last by the most in most steps.
        ranks: that were recorded and met.
        hold_up_ns: how long after the second last it comes in a step, collectives in flight at once counted once; median.
        steps: in how many steps it comes last by the most.
        of_steps: number of steps looked at.
    """

    rank: int
    ranks: tuple[int, ...]
    hold_up_ns: int
    steps: int
    of_steps: int


def last_recorded(found: pl.DataFrame) -> LastRecorded | None:
    """Who comes last, from rows of ``recorded_arrivals``; None where there are none."""
    by_step = hold_ups(found)
    if by_step.is_empty():
        return None
    leading = by_step.sort("hold_up_ns", "rank", descending=[True, False]).unique("step", keep="first", maintain_order=True)
    rank, count = leading["rank"].value_counts().sort(["count", "rank"], descending=[True, False]).row(0)
    hold_ups_of_rank = by_step.filter(rank=rank)["hold_up_ns"].to_numpy()
    ranks = tuple(sorted(by_step["rank"].unique().to_list()))
    return LastRecorded(int(rank), ranks, int(np.median(hold_ups_of_rank)), int(count), by_step["step"].n_unique())


@dataclass(frozen=True)
class SlowRank:
    """A rank that the others wait for.

    Attributes:
        rank: which.
        hold_up_ns: how long it holds the others up in a step, median over the steps.
        steps: the steps in which it arrived last by the most.
        of_steps: number of steps looked at.
        chance: probability that one of equal ranks would stand out like that.
    """

    rank: int
    hold_up_ns: int
    steps: tuple[int, ...]
    of_steps: int
    chance: float


def hold_ups(found: pl.DataFrame) -> pl.DataFrame:
    """How long each rank alone held the others up in each step: step, rank, hold_up_ns, from ``arrivals``.

    Collectives in flight at once (the buckets of one backward pass) wait for a rank at the same time, which counts once: the
    length of the union of the ranges from the second last arrival to the last one.
    """
    key = ["step", "rank"]
    ranges = found.select(*key, begin=pl.col("start_ns") - pl.col("hold_up_ns"), end="start_ns").sort(*key, "begin")
    reached = pl.col("end").cum_max().shift(1).over(key).fill_null(pl.col("begin"))
    ranges = ranges.with_columns(hold_up_ns=(pl.col("end") - pl.max_horizontal("begin", reached)).clip(0))
    return ranges.group_by(key).agg(pl.col("hold_up_ns").sum()).sort(key)


def waits_by_step(found: pl.DataFrame, *more: str) -> pl.DataFrame:
    """What the collectives of ``arrivals`` cost each rank in each step: rank, step, collectives, wait_ns, transfer_ns, sorted.

    ``wait_ns``: how long any collective of the rank waited for the last rank to arrive; ``transfer_ns``: how long one was in
    flight and none waited. Collectives in flight at once count once, so that both together are no longer than the step.

    Args:
        found: rows of ``arrivals``, or some of them.
        more: further columns by which rows are told apart, such as "last_rank".
    """
    key = ("rank", "step", *more)
    rows = []
    for values, calls in found.group_by(key):
        start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
        wait_ns = merge_intervals(start, start + calls["wait_ns"].to_numpy()).length_ns
        rows.append((*values, calls.height, wait_ns, merge_intervals(start, end).length_ns - wait_ns))
    schema = dict.fromkeys((*key, "collectives", "wait_ns", "transfer_ns"), pl.Int64)
    return pl.DataFrame(rows, schema=schema, orient="row").sort(key)


def slow_rank(found: pl.DataFrame, step_ns: float) -> SlowRank | None:
    """The rank that is late again and again; None where no rank stands out.

    A rank is named when in at least three quarters of the steps nobody holds the others up as long as it does, when it
    does so by 3 % of a step or more in three quarters of those, and when among ranks that are equally fast one would lead
    that often with a chance of less than 5 %. With too few steps for that, it is named when it leads in all of them and what it
    holds the others up by is large (10 % of a step in each) and consistent (five times its own spread). Fewer than three steps
    name nobody.

    Args:
        found: what ``arrivals`` gives.
        step_ns: how long a step takes, on average.
    """
    by_step = hold_ups(found)
    if by_step.is_empty():
        return None
    ranks = by_step["rank"].n_unique()
    leading = by_step.filter(pl.col("hold_up_ns") > 0).sort("hold_up_ns", descending=True).unique("step", keep="first")
    steps = by_step["step"].n_unique()
    if leading.is_empty() or steps < _FEW:
        return None
    rank, count = leading["rank"].value_counts().sort(["count", "rank"], descending=[True, False]).row(0)
    chance = min(1.0, ranks * chance_of_at_least(count, steps, 1 / ranks))
    leading_of_rank = leading.filter(pl.col("rank") == rank).sort("step")
    lengths = leading_of_rank["hold_up_ns"].to_numpy()
    if chance > _CHANCE and not (count == steps and _is_large(lengths, step_ns)):
        return None
    if count < _STEADY * steps or np.quantile(lengths, 1 - _STEADY) < _SHARE * step_ns:
        return None
    of_rank = by_step.filter(pl.col("rank") == rank)["hold_up_ns"].to_numpy()
    return SlowRank(int(rank), int(np.median(of_rank)), tuple(leading_of_rank["step"].to_list()), steps, chance)


def _is_large(lengths: npt.NDArray[np.int64], step_ns: float) -> bool:
    """Whether the hold-ups of a rank, one per step, are too large and too much alike for noise."""
    if lengths.min() < _LARGE_SHARE * step_ns:
        return False
    median = float(np.median(lengths))
    return median >= _DEVIATIONS * 1.4826 * float(np.median(np.abs(lengths - median)))


def _collectives_on_one_clock(traces: Sequence[Trace], groups: pl.Expr) -> pl.DataFrame:
    """The collectives that all recorded ranks of some groups took part in, on one clock; see ``messages_on_one_clock``."""
    return messages_on_one_clock(traces, (pl.col("kind") == COLLECTIVE) & groups)


def messages_on_one_clock(traces: Sequence[Trace], which: pl.Expr) -> pl.DataFrame:
    """The sides of messages (``messages.message_sides``) with their times on the clock of the lowest rank.

    Those of which nobody can tell how the clocks of their ranks lie are left out. ``error_ns`` is how far the difference to the
    start of the last rank may be off, ``own_start_ns`` the start on the rank's own clock.

    Args:
        traces: of one job.
        which: of all messages, such as by ``members`` (ranks that were recorded) and ``size`` (that there are).
    """
    rows = message_sides(traces).filter(which)
    if rows.is_empty():
        return rows.with_columns(own_start_ns="start_ns", error_ns=pl.lit(None, dtype=pl.Int64))
    clocks = job_clocks(traces)
    rows = clocks.put_on_one_clock(rows.with_columns(own_start_ns="start_ns"), "start_ns", "end_ns")
    last = rows.sort("start_ns", "rank").unique("message", keep="last").select("message", last="rank")
    rows = rows.join(last, on="message", maintain_order="left")
    compared = rows.select("rank", "last").unique()
    apart = _distance_of_ends(rows)
    errors = [_smaller_error(clocks.error_between(rank, last), apart, rank, last) for rank, last in compared.iter_rows()]
    compared = compared.with_columns(error_ns=pl.Series(errors, dtype=pl.Float64).round().cast(pl.Int64))
    rows = rows.join(compared, on=["rank", "last"], maintain_order="left").drop("last")
    return rows.filter(pl.col("error_ns").is_not_null().all().over("message"))


def _distance_of_ends(rows: pl.DataFrame) -> dict[int, float]:
    """How far from the others' the collectives of each rank end, of those that end together everywhere, ns; most of them."""
    together = rows.filter(ends_together(pl.col("operation")))
    apart = (pl.col("end_ns") - pl.col("end_ns").median().over("message")).abs()
    by_rank = together.select("rank", apart=apart).group_by("rank").agg(pl.col("apart").quantile(_MOST), count=pl.len())
    return {rank: apart_ns for rank, apart_ns, count in by_rank.iter_rows() if count >= _LEAST}


def _smaller_error(error_ns: float | None, apart: dict[int, float], one: int, other: int) -> float | None:
    if one == other:
        return 0.0
    if error_ns is None or one not in apart or other not in apart:
        return error_ns
    return min(error_ns, apart[one] + apart[other])


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """With the place of each rank at each collective, and what the last one holds the others up by."""
    second = pl.col("start_ns").top_k(2).min().over(_EACH)
    rows = rows.with_columns(place=pl.col("start_ns").rank("ordinal").over(_EACH).cast(pl.Int64) - 1)
    is_last = pl.col("place") == pl.col("members") - 1
    return rows.with_columns(hold_up_ns=pl.when(is_last).then(_LAST - second).otherwise(0))
