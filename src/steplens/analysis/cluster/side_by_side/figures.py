"""The figures of a step of every rank, with where the rank belongs: its host, its stage, its process groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from steplens.analysis.cluster.clocks.messages import communication_rows
from steplens.analysis.cluster.side_by_side.contents import rank_contents
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS
from steplens.analysis.tools.once import once_per_run, once_per_trace
from steplens.analysis.tools.parallel import layout
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.schema import COLLECTIVE
from steplens.trace.trace import Trace

#: parts of a step, of the device and of the host
PARTS = tuple(dict.fromkeys((*DEVICE_PARTS, *HOST_PARTS)))
FIGURES = table_schema(
    "trace, rank, stage, host: String, steps, step_time_ns: Float64, own_ns: Float64, "
    + ", ".join(f"{name}: Float64" for name in PARTS)
)
GROUPS = table_schema("group: String, rank")


@once_per_run
def rank_figures(traces: Sequence[Trace]) -> pl.DataFrame:
    """One row per trace whose rank is known, in order of rank; columns as in ``FIGURES``, ns; what nothing tells is null.

    ``step_time_ns`` is the median over the chosen steps, everything else a mean over the usual ones, as in
    ``steps.summary.StepSummary``. ``own_ns`` is what a rank does itself: its device period without exposed communication, as in
    ``stragglers.own_work``; in all else of a step it may wait for other ranks, so that steps of ranks which wait for each other
    are equally long and this tells them apart. ``stage`` is that of the pipeline, from 1.

    Source: what is kept of each trace (``contents.rank_contents``); no events are read.

    Args:
        traces: of one job.
    """
    job = layout(traces)
    rows: list[dict[str, Any]] = []
    for number, trace in enumerate(traces):
        if trace.rank < 0:
            continue
        contents = rank_contents(trace)
        summary = contents.summary
        parts = {**summary.host, **summary.device}
        exposed = summary.device.get("exposed_communication_ns")
        own_ns = None if summary.device_mean_ns is None or exposed is None else summary.device_mean_ns - exposed
        where = {"trace": number, "rank": trace.rank, "stage": job.stage_of(trace.rank), "host": contents.host}
        times = {"steps": summary.steps, "step_time_ns": summary.step_time_ns, "own_ns": own_ns}
        rows.append({**where, **times, **{name: parts.get(name) for name in PARTS}})
    return pl.DataFrame(rows, schema=FIGURES).sort("rank", "trace").select(cast_columns(FIGURES))


@once_per_run
def rank_groups(traces: Sequence[Trace]) -> pl.DataFrame:
    """The ranks of every process group that has collectives in the steps and is not the whole job; columns as in ``GROUPS``.

    A rank has a row in each of its groups. Groups of the same name whose ranks are known to be fewer than they should be are
    several, and cannot be told apart here.

    Args:
        traces: of one job.
    """
    size = layout(traces).size
    rows = [(group, trace.rank) for trace in traces for group, ranks in _groups_of(trace) if ranks is None or ranks < size]
    return pl.DataFrame(rows, schema=GROUPS, orient="row").unique().sort("group", "rank")


@once_per_trace
def _groups_of(trace: Trace) -> tuple[tuple[str, int | None], ...]:
    """The groups that a rank has collectives in, with how many ranks they have."""
    groups = communication_rows(trace).filter(pl.col("kind") == COLLECTIVE, pl.col("group") != "")
    return tuple(groups.group_by("group").agg(pl.col("ranks").max()).sort("group").iter_rows())
