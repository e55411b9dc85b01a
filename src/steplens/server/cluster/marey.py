"""The ranks of a job over time: their steps, and operators of the same name joined across ranks."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import polars as pl
from fastapi import Query
from pydantic import BaseModel
from typing_extensions import TypedDict

from steplens.analysis.cluster.joined_operators import bands, find_delays, joined_operators, loads, rank_steps
from steplens.server.cluster.cluster import Job, Offset, StageNumber, job_of
from steplens.server.http import documented
from steplens.server.http.errors import Refusal
from steplens.server.http.routing import create_router
from steplens.server.requests import FAR, Chosen
from steplens.server.tables import columns

router = create_router("/api/runs/{run}/marey", "marey")

_MOST_STEPS = 20_000
_STEP = Annotated[int, Query(ge=0, le=1 << 62, description="number of the step")]


class JoinedRank(TypedDict):
    """When a rank ran a step, and how its clock was set."""

    rank: int
    trace: int
    stage: int
    start_ns: int
    end_ns: int
    aligned_by: str


class RankStep(JoinedRank):
    """One step of a rank."""

    step: int


class JoinedOperator(TypedDict):
    """An operator on the ranks that ran it."""

    name: str
    number: int
    kind: str
    ranks: list[int]
    start_ns: list[int]
    end_ns: list[int]


class Band(TypedDict):
    """How far the ranks of a stage lie apart at an operator."""

    stage: int
    name: str
    number: int
    kind: str
    ranks: int
    start_min_ns: float
    start_mean_ns: float
    start_max_ns: float
    end_min_ns: float
    end_mean_ns: float
    end_max_ns: float


class Delay(TypedDict):
    """Where a rank falls behind; a row of ``analysis.cluster.joined_operators.find_delays``."""

    stage: int
    rank: int
    name: str
    number: int
    grown_ns: int
    spread_ns: int
    from_ns: int
    start_ns: int
    doing: list[str]
    doing_ns: list[int]


class Load(TypedDict):
    """Memory and arithmetic of a rank in one bucket."""

    rank: int
    bucket: int
    allocated_bytes: int | None
    flops: int | None


class RankSteps(BaseModel):
    """When every rank ran every step.

    Attributes:
        job: how it is spread over ranks.
        rows: rank, trace, stage, step, start_ns and end_ns from the first start of all, aligned_by; in order of rank and start.
        left_out: steps for which there was no room: the last ones of every rank.
    """

    job: Job
    rows: Annotated[list[dict[str, Any]], documented.as_type(list[RankStep])]
    left_out: int


class Joined(BaseModel):
    """A step with the operators of all ranks; times are ns from its first start on any rank.

    Attributes:
        step: its number.
        end_ns: its last end on any rank.
        ranks: rank, trace, stage, start_ns, end_ns, aligned_by; one page of them.
        matching_ranks: how many ranks there are.
        operators: of each drawn operator: name, number (how often it ran on the rank before), kind, and for each rank that ran it
            ranks, start_ns, end_ns (lists of one length); the longest, in order of their first start.
        bands: of the drawn operators that several ranks of a stage ran: rows of ``analysis.cluster.joined_operators.bands``.
        delays: where a rank falls behind in the step, from 1 % of its length on: rows of
            ``analysis.cluster.joined_operators.find_delays``.
        matching: operators that overlap the window.
        loads: rows of ``analysis.cluster.joined_operators.loads``.
        buckets: into how many of equal width the step was cut for ``loads``.
    """

    step: int
    end_ns: int
    ranks: Annotated[list[dict[str, Any]], documented.as_type(list[JoinedRank])]
    matching_ranks: int
    operators: Annotated[list[dict[str, Any]], documented.as_type(list[JoinedOperator])]
    bands: Annotated[list[dict[str, Any]], documented.as_type(list[Band])]
    delays: Annotated[list[dict[str, Any]], documented.as_type(list[Delay])]
    matching: int
    loads: Annotated[list[dict[str, Any]], documented.as_type(list[Load])]
    buckets: int


#: a rank that falls behind by less of a step is not told
_LEAST_DELAY = 0.01


@router.get("/steps")
def marey_steps(chosen: Chosen) -> RankSteps:
    """When every rank ran every step, on one clock."""
    all_steps = chosen.frame_of_run(rank_steps)
    origin = all_steps["start_ns"].min() or 0
    from_origin = all_steps.with_columns(pl.col("start_ns", "end_ns") - origin)
    ranks = max(from_origin["rank"].n_unique(), 1)
    first_steps = from_origin.group_by("rank", maintain_order=True).head(max(_MOST_STEPS // ranks, 1))
    return RankSteps(job=job_of(chosen), rows=columns.json_records(first_steps), left_out=from_origin.height - first_steps.height)


@router.get("/operators")
def marey_operators(
    chosen: Chosen,
    step: _STEP,
    stage: StageNumber = None,
    from_ns: Annotated[int, Query(ge=-FAR, le=FAR, description="of the window, from the start of the step")] = 0,
    to_ns: Annotated[int | None, Query(ge=-FAR, le=FAR, description="of the window; the end of the step without it")] = None,
    limit: Annotated[int, Query(ge=1, le=2000)] = 300,
    offset: Offset = 0,
    ranks_at_once: Annotated[int, Query(ge=1, le=256, description="so many ranks from the offset on")] = 64,
    buckets: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Joined:
    """The operators of a step on every rank, those of one name joined; of those that overlap a window the longest."""
    all_steps = chosen.frame_of_run(rank_steps)
    ranks = all_steps.filter(step=step)
    if ranks.is_empty():
        raise Refusal(404, f"no rank has recorded step {step}", "step", "GET ./marey/steps lists them")
    traces = chosen.run.traces
    origin = int(ranks["start_ns"].min())  # type: ignore[arg-type]
    joined = chosen.frame(("joined", step), partial(joined_operators, traces, step, all_steps))
    if stage is not None:
        ranks, joined = ranks.filter(stage=stage), joined.filter(stage=stage)
    end = int(ranks["end_ns"].max() or origin) - origin  # type: ignore[arg-type]
    window = joined.filter((pl.col("end_ns") >= from_ns) & (pl.col("start_ns") <= (end if to_ns is None else to_ns)))
    key = ["name", "number"]
    lengths = window.group_by(key).agg(longest=(pl.col("end_ns") - pl.col("start_ns")).max(), first=pl.col("start_ns").min())
    # of equally long ones the earliest, whatever their names: a report without names shows the same
    longest = lengths.sort("longest", "first", *key, descending=[True, False, False, False]).head(limit).select(key)
    intervals = joined.join(longest, on=key)
    each = {"ranks": pl.col("rank"), "start_ns": pl.col("start_ns"), "end_ns": pl.col("end_ns")}
    page = ranks.slice(offset, ranks_at_once)
    numbers = page["rank"].implode()
    lines = (
        intervals.filter(pl.col("rank").is_in(numbers))
        .sort("rank")
        .group_by(key)
        .agg(pl.col("kind").first(), first=pl.col("start_ns").min(), **each)
    )
    load = chosen.frame(("loads", step, buckets), partial(loads, traces, step, buckets, all_steps))
    return Joined(
        step=step,
        end_ns=end,
        ranks=columns.json_records(page.with_columns(pl.col("start_ns", "end_ns") - origin).drop("step")),
        matching_ranks=ranks.height,
        operators=columns.json_records(lines.sort("first", *key).drop("first")),
        bands=columns.json_records(bands(intervals)),
        delays=columns.json_records(find_delays(joined, _LEAST_DELAY * end)),
        matching=lengths.height,
        loads=columns.json_records(load.filter(pl.col("rank").is_in(numbers))),
        buckets=buckets,
    )
