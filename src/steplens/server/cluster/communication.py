"""Communication between ranks: who waits for whom."""

from __future__ import annotations

from functools import partial
from typing import Any

import polars as pl
from pydantic import BaseModel

from steplens.analysis.cluster.arrivals import slow_rank
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen
from steplens.server.tables import columns, tables
from steplens.trace.building.checks.ranks import recorded_ranks

router = create_router("/api/runs/{run}", "communication")


class SlowRank(BaseModel):
    """A rank that the others wait for; see ``analysis.cluster.arrivals.SlowRank``."""

    rank: int
    hold_up_ns: int
    steps: list[int]
    of_steps: int
    chance: float


class Communication(BaseModel):
    """What the ranks of a run cost each other.

    Attributes:
        overlap: rows of the table ``overlap``: how much of it computing hides.
        waits: per rank: rank, collectives, wait_ns (for the last rank to arrive) and transfer_ns (the rest), sums over the
            collectives of which all ranks are here; empty with fewer than two ranks.
        recorded_ranks: how many ranks of the job are here.
        job_ranks: how many it has, as far as the traces tell. Where some are missing, whom the others waited for is not known.
        hold_ups: rows of the table ``hold_ups``.
        slow_rank: the rank that is late again and again, if one stands out.
    """

    overlap: list[dict[str, Any]]
    waits: list[dict[str, Any]]
    recorded_ranks: int
    job_ranks: int
    hold_ups: list[dict[str, Any]]
    slow_rank: SlowRank | None


@router.get("/communication")
def communication(chosen: Chosen) -> Communication:
    """Overlap with computing, arrival at collectives, and the rank that the others wait for."""
    frame = partial(tables.table_frame, chosen)
    arrived = frame("arrivals")
    waits = arrived.group_by("rank").agg(
        collectives=pl.len().cast(pl.Int64), wait_ns=pl.col("wait_ns").sum(), transfer_ns=pl.col("transfer_ns").sum()
    )
    steps = frame("steps").filter("chosen")
    length = steps["step_time_ns"].median()
    counted = arrived.filter(pl.col("step").is_in(steps["step"].unique().implode()))
    slow = slow_rank(counted, float(length)) if isinstance(length, (int, float)) else None
    ranks, job = recorded_ranks(chosen.run.traces)
    return Communication(
        overlap=columns.json_records(frame("overlap")),
        waits=columns.json_records(waits.sort("rank")),
        recorded_ranks=len(ranks),
        job_ranks=job,
        hold_ups=columns.json_records(frame("hold_ups")),
        slow_rank=None if slow is None else SlowRank(**vars(slow)),
    )
