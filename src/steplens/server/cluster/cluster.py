"""The ranks of a job beside each other: the parts of their steps by the kind of parallelism, and heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import polars as pl
from fastapi import Query
from pydantic import BaseModel, with_config
from typing_extensions import TypedDict

from steplens.analysis.cluster.cluster_steps import PARTS, cluster_steps, rank_means
from steplens.analysis.cluster.late_work import with_peers
from steplens.analysis.cluster.rank_differences import rank_differences
from steplens.analysis.cluster.rank_heat import rank_heat
from steplens.analysis.tools.parallel import DATA_PARALLEL, MODEL_PARALLEL, PIPELINE_PARALLEL, communication_rates, layout
from steplens.server.http import documented
from steplens.server.http.errors import Refusal
from steplens.server.http.page_store import is_many
from steplens.server.many.kept_route import kept_router
from steplens.server.requests import Chosen
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns
from steplens.trace.trace import Trace

router = kept_router("/api/runs/{run}/cluster", "cluster")

StepNumber = Annotated[int | None, Query(ge=0, le=1 << 62, description="number of the step; the mean over steps without it")]
StageNumber = Annotated[int | None, Query(ge=1, le=1 << 31, description="only ranks of this pipeline stage, from 1")]
Offset = Annotated[int, Query(ge=0, le=1 << 31)]
Limit = Annotated[int, Query(ge=1, le=1000)]

_CLASSIC = ("interval_ns", "forward_backward_ns", "tail_ns")
_BY_COMMUNICATION = ("interval_ns", "computation_ns", "communication_alone_ns")
#: what is told of a step by the kind of parallelism; with none known everything that is known
_OF_MODE = {
    DATA_PARALLEL: (*_CLASSIC, "total_ns"),
    MODEL_PARALLEL: (*_BY_COMMUNICATION, "total_ns"),
    PIPELINE_PARALLEL: (*_BY_COMMUNICATION, "stage_ns", "receive_alone_ns", "collective_alone_ns", "total_ns"),
}
#: of these, the ones that add up to the step, which a stacked bar can show
_STACKED = {
    DATA_PARALLEL: _CLASSIC,
    MODEL_PARALLEL: ("computation_ns", "communication_alone_ns"),
    PIPELINE_PARALLEL: ("computation_ns", "receive_alone_ns", "collective_alone_ns"),
}


class Job(BaseModel):
    """How the job is spread over ranks; see ``analysis.tools.parallel.Layout``.

    Attributes:
        mode: "data", "model", "pipeline", or "" where nothing tells.
        size: ranks of the job.
        stages: number of pipeline stages.
        recorded: how many of its ranks are here.
        missing: ranks that are not here; at most 100 of them.
    """

    mode: str
    size: int
    stages: int
    recorded: int
    missing: list[int]


@with_config(documented.MORE_COLUMNS)
class RankParts(TypedDict):
    """The parts of a step of one rank, ns by the name of the part."""

    rank: int
    trace: int | None
    stage: int
    steps: int
    stored: bool


class ClusterSteps(BaseModel):
    """The parts of a step of every rank.

    Attributes:
        job: how it is spread.
        steps: numbers of the steps that some rank has recorded.
        parts: the columns that tell of this kind of parallelism.
        stacked: those of them that lie side by side in a step.
        rows: rank, trace (of its pages), stage, ``parts``, steps (how many the means are of), stored (whether the source itself
            kept the means); ns.
        matching: how many rows there are in all.
        communication_rate: communication outside computing, of (computation + communication outside it), over all ranks.
        between_stages_rate: receives that nothing covers, of the same.
        within_stage_rates: stage -> collectives that no computing covers, of the same, over its ranks.
    """

    job: Job
    steps: list[int]
    parts: list[str]
    stacked: list[str]
    rows: Annotated[list[dict[str, Any]], documented.as_type(list[RankParts])]
    matching: int
    communication_rate: float | None
    between_stages_rate: float | None
    within_stage_rates: dict[int, float]


class HeatRank(TypedDict):
    """One rank of a metric."""

    rank: int
    trace: int | None
    stage: int
    value: float
    share: float | None


class Heat(BaseModel):
    """One metric over the ranks; see ``analysis.cluster.rank_heat``.

    Attributes:
        metric: its name.
        unit: of the values.
        of: what ``share`` is a share of.
        ranks: rank, trace, stage, value and share (0 to 1).
    """

    metric: str
    unit: str
    of: str
    ranks: Annotated[list[dict[str, Any]], documented.as_type(list[HeatRank])]


class RankDifference(TypedDict):
    """An operator of a rank beside the same one on the others; a row of ``analysis.cluster.rank_differences``."""

    name: str | None
    line: str | None
    calls: float
    other_calls: float
    self_ns: float
    other_self_ns: float
    more_ns: float
    device_self_ns: float
    other_device_self_ns: float
    more_device_ns: float


class RankDifferences(BaseModel):
    """What a rank spends more of a step on than the median of the others.

    Attributes:
        rank: which.
        of_stage: the others are those of its pipeline stage alone, as of many ranks; else all.
        rows: the largest first; matching: how many there are.
    """

    rank: int
    of_stage: bool
    rows: Annotated[list[dict[str, Any]], documented.as_type(list[RankDifference])]
    matching: int


@router.get("/steps")
def cluster_parts(
    chosen: Chosen,
    step: StepNumber = None,
    stage: StageNumber = None,
    sort: Annotated[str, Query(max_length=64, description="rank, stage or one of the parts")] = "rank",
    descending: bool = False,
    offset: Offset = 0,
    limit: Limit = 100,
) -> ClusterSteps:
    """The parts of a step of every rank, as they tell of the kind of parallelism; sorted, one page of them."""
    job = job_of(chosen)
    parts = _OF_MODE.get(job.mode, PARTS)
    if sort not in ("rank", "stage", *parts):
        raise Refusal(422, f"the ranks cannot be sorted by {sort[:64]!r}", "sort", f"One of rank, stage, {', '.join(parts)}")
    step_parts = chosen.frame_of_run(cluster_steps)
    means = chosen.frame(("rank_means", step), lambda: rank_means(chosen.run.traces, step=step))
    shares = communication_rates(means)
    rows = means if stage is None else means.filter(stage=stage)
    ordered = rows.sort(sort, "rank", descending=[descending, False], nulls_last=True)
    page = (
        ordered.slice(offset, limit)
        .with_columns(trace=trace_of(chosen))
        .select("rank", "trace", "stage", *parts, "steps", "stored")
    )
    return ClusterSteps(
        job=job,
        steps=sorted(step_parts["step"].unique().to_list()),
        parts=list(parts),
        stacked=list(_STACKED.get(job.mode, _CLASSIC)),
        rows=columns.json_records(page),
        matching=rows.height,
        communication_rate=shares.communication,
        between_stages_rate=shares.between_stages,
        within_stage_rates=shares.within_stages,
    )


@router.get("/heat")
def cluster_heat(chosen: Chosen) -> list[Heat]:
    """Every rank by memory, arithmetic, device use and length of its steps; metrics of which nothing is known are left out."""
    heat = chosen.frame_of_run(rank_heat).with_columns(trace=trace_of(chosen))
    return [
        Heat(
            metric=name,
            unit=group["unit"][0],
            of=group["of"][0],
            ranks=columns.json_records(group.select("rank", "trace", "stage", "value", "share")),
        )
        for (name,), group in heat.group_by("metric", maintain_order=True)
    ]


@router.get("/differences")
def cluster_differences(
    chosen: Chosen, rank: Annotated[int, Query(ge=0, le=1 << 31, description="whose operators")], limit: Limit = 20
) -> RankDifferences:
    """The operators of one rank that take more of a step there than on the other ranks."""
    trace_of_rank(chosen, rank)
    of_stage = is_many(chosen.run) and layout(chosen.run.traces).stages > 1
    rows = chosen.frame_of_run(_differences_of_stage if of_stage else rank_differences, rank)
    return RankDifferences(rank=rank, of_stage=of_stage, rows=columns.json_records(rows.head(limit)), matching=rows.height)


def _differences_of_stage(traces: Sequence[Trace], rank: int) -> pl.DataFrame:
    """As advice compares a rank with its peers, and keeps of each of them; nobody reads the others for it."""
    return rank_differences(with_peers(traces, rank), rank)


def trace_of(chosen: OpenedRun) -> pl.Expr:
    """The number of the first trace of the rank in the column ``rank``."""
    traces = {trace.rank: number for number, trace in reversed(list(enumerate(chosen.run.traces)))}
    return pl.col("rank").replace_strict(traces, default=None, return_dtype=pl.Int64)


def trace_of_rank(chosen: OpenedRun, rank: int) -> int:
    """The number of the first trace of a rank.

    Raises:
        Refusal: the run has no such rank (404).
    """
    ranks = [trace.rank for trace in chosen.run.traces]
    if rank not in ranks:
        raise Refusal(404, f"the run has no rank {rank}", "rank", "GET ./ranks lists them")
    return ranks.index(rank)


def job_of(chosen: OpenedRun) -> Job:
    """How the job of a run is spread."""
    job = chosen.answer(("layout",), lambda: layout(chosen.run.traces))
    return Job(**{**vars(job), "missing": job.missing[:100], "recorded": len(job.ranks)})
