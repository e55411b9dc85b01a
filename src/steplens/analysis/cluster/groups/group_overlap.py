"""How much of the communication of each kind of group computing hides, and how much of it is exposed, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import polars as pl

from steplens.analysis.cluster.groups.kinds import (
    ALL,
    CONTEXT,
    DATA,
    EMBEDDING,
    EXPERT,
    MODEL,
    PIPELINE,
    SEVERAL,
    TENSOR,
    UNTOLD,
    group_kinds,
)
from steplens.analysis.cluster.groups.members import group_of_name, identified_groups
from steplens.analysis.steps.device import device_periods
from steplens.analysis.steps.device_work import COMMUNICATION, device_parts, device_work
from steplens.analysis.steps.summary import usual_device_steps
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.overlap import intersect, length_inside, merge_intervals, subtract
from steplens.analysis.tools.parallel import by_rank
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import RECEIVE, SEND
from steplens.trace.trace import Trace

#: what an instant counts for in which several are in flight: the first of these, whose results computing waits for soonest
ORDER = (TENSOR, CONTEXT, EXPERT, PIPELINE, MODEL, SEVERAL, EMBEDDING, DATA, ALL, UNTOLD)
STEPS = table_schema(
    "rank, step, kind: String, operations, in_flight_ns, communication_ns, overlapped_ns, exposed_ns, exposed_percent: Float64"
)
_FIGURES = ("in_flight_ns", "communication_ns", "overlapped_ns", "exposed_ns")
KEYS = {"kind": ("kind",), "rank": ("rank", "kind"), "step": ("rank", "step", "kind")}


def group_overlap(traces: Sequence[Trace], by: str = "kind") -> pl.DataFrame:
    """Communication by what its groups are for (``kinds.group_kinds``), under computing and exposed; ns.

    Of the device period of a step (``steps.device``):

    * ``in_flight_ns``: when any operation of the kind is in flight. ``communication_ns``: the part that counts for this kind: an
      instant in which operations of several kinds are in flight counts for the first of them in ``ORDER``. ``overlapped_ns`` of
      that is beside computing, ``exposed_ns`` is not: over the kinds of a rank and step they add up to the
      ``overlapped_communication_ns`` and ``exposed_communication_ns`` of its step. ``exposed_percent``: of ``communication_ns``.
    * ``kind`` is empty of communication of which nobody can tell what it is for. Sends and receives in a group of which
      that holds, or of all ranks, are of pipeline parallelism.
    * ``operations``: that begin in the period.

    Args:
        traces: of one job, or one alone.
        by: "step": every rank, step and kind; "rank": every rank and kind, means over its usual steps (``usual_device_steps``),
            where a kind that a step has not counts as 0; "kind": the same over the steps of all ranks.

    Raises:
        ValueError: ``by`` is none of them.
    """
    if by not in KEYS:
        raise ValueError(f"group_overlap(by={by!r}): by must be one of {', '.join(KEYS)}")
    rows = overlap_in_steps(traces)
    order = {kind: place for place, kind in enumerate(ORDER)}
    place = pl.col("kind").replace_strict(order, return_dtype=pl.Int64)
    if by == "step":
        return rows.sort("rank", "step", place)
    usual = (
        usual_device_steps(trace).select("step", rank=pl.lit(rank, dtype=pl.Int64))
        for rank, windows in (by_rank(traces) or {-1: list(traces)}).items()
        for trace in windows
    )
    steps = join_rows(itertools.chain([pl.DataFrame(schema={"step": pl.Int64, "rank": pl.Int64})], usual)).unique()
    keys = list(KEYS[by])
    sums = rows.join(steps, on=["rank", "step"], how="semi").group_by(keys).agg(pl.col("operations", *_FIGURES).sum())
    counts = steps.group_by("rank").agg(steps=pl.len())
    sums = sums.join(counts, on="rank") if by == "rank" else sums.with_columns(steps=pl.lit(steps.height))
    means = sums.with_columns(pl.col("operations", *_FIGURES) / pl.col("steps")).with_columns(exposed_percent=_exposed_percent())
    schema = {key: STEPS[key] for key in keys} | dict.fromkeys(("operations", *_FIGURES, "exposed_percent"), pl.Float64())
    return means.sort(*(["rank"] if by == "rank" else []), place).select(cast_columns(schema))


def _exposed_percent() -> pl.Expr:
    return pl.when(pl.col("communication_ns") > 0).then(pl.col("exposed_ns") * 100 / pl.col("communication_ns"))


@once_per_run
def overlap_in_steps(traces: Sequence[Trace]) -> pl.DataFrame:
    """The rows of ``group_overlap`` by step, columns as in ``STEPS``."""
    ranks = by_rank(traces) or {-1: list(traces)}
    frames = (_in_steps_of(trace, rank, traces) for rank, windows in ranks.items() for trace in windows)
    rows = join_rows(itertools.chain([pl.DataFrame(schema=STEPS)], frames))
    return rows.unique(["rank", "step", "kind"], keep="first", maintain_order=True)


def _in_steps_of(trace: Trace, rank: int, traces: Sequence[Trace]) -> pl.DataFrame:
    periods = device_periods(trace).filter("recorded")
    work = device_work(trace)
    all_rows = work.kind == COMMUNICATION
    if not periods.height or not all_rows.any():
        return pl.DataFrame(schema=STEPS)
    operations = _operations_by_kind(trace, traces)
    parts = device_parts(trace)
    start, end = periods["start_ns"].to_numpy(), periods["end_ns"].to_numpy()
    # what the table of communication does not have, such as tasks of the device without a description
    left = {"overlapped_ns": parts.overlapped, "exposed_ns": parts.communication}
    frames = []
    for kind in ORDER:
        rows = operations.filter(kind=kind)
        begins = rows["start_ns"].to_numpy()
        intervals = merge_intervals(begins, rows["end_ns"].to_numpy())
        if kind == UNTOLD:
            of_kind, intervals = left, merge_intervals(
                np.concatenate((intervals.start, *(part.start for part in left.values()))),
                np.concatenate((intervals.end, *(part.end for part in left.values()))),
            )  # fmt: skip
        else:
            of_kind = {name: intersect(part, intervals) for name, part in left.items()}
            left = {name: subtract(part, intervals) for name, part in left.items()}
        begins = np.sort(begins)
        frame = pl.DataFrame(
            {
                "step": periods["step"],
                "operations": np.searchsorted(begins, end) - np.searchsorted(begins, start),
                "in_flight_ns": length_inside(intervals, start, end),
                **{name: length_inside(part, start, end) for name, part in of_kind.items()},
            }
        )
        frames.append(frame.with_columns(kind=pl.lit(kind), rank=pl.lit(rank)))
    rows = pl.concat(frames).with_columns(communication_ns=pl.col("overlapped_ns") + pl.col("exposed_ns"))
    rows = rows.filter((pl.col("in_flight_ns") > 0) | (pl.col("operations") > 0))
    return rows.with_columns(exposed_percent=_exposed_percent()).select(cast_columns(STEPS))


def _operations_by_kind(trace: Trace, traces: Sequence[Trace]) -> pl.DataFrame:
    """Start, end and kind of the communication operations of a rank."""
    columns = {"group": pl.col("group").cast(pl.String).fill_null(""), "direction": pl.col("kind").cast(pl.String)}
    rows = trace.required("communication").select("start_ns", "end_ns", **columns).drop_nulls(["start_ns", "end_ns"]).collect()
    groups, kinds = identified_groups(traces), group_kinds(traces)
    kind_of_name = {}
    for name in rows["group"].unique().to_list():
        group = groups.get(group_of_name(trace, name))
        kind_of_name[name] = kinds[group].kind if group is not None else UNTOLD
    kind = pl.col("group").replace_strict(kind_of_name, default=UNTOLD, return_dtype=pl.String)
    is_message = pl.col("direction").is_in([SEND, RECEIVE]) & kind.is_in([UNTOLD, ALL])
    return rows.select("start_ns", "end_ns", kind=pl.when(is_message).then(pl.lit(PIPELINE)).otherwise(kind))
