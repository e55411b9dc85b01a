"""Communication between ranks: who waits for whom."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import BaseModel

from steplens.analysis.cluster.arrivals import name_slow_rank, waits_of_ranks
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
        waits: rows of ``analysis.cluster.arrivals.waits_of_ranks``, of the collectives of which all ranks are here; empty with
            fewer than two ranks.
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
    steps = frame("steps").filter("chosen")
    length = steps["step_time_ns"].median()
    traces = chosen.run.traces
    numbers = steps["step"].drop_nulls().unique().to_list()
    slow = name_slow_rank(traces, numbers, float(length)) if isinstance(length, (int, float)) else None
    ranks, job = recorded_ranks(traces)
    return Communication(
        overlap=columns.json_records(frame("overlap")),
        waits=columns.json_records(waits_of_ranks(arrived)),
        recorded_ranks=len(ranks),
        job_ranks=job,
        hold_ups=columns.json_records(frame("hold_ups")),
        slow_rank=None if slow is None else SlowRank(**vars(slow)),
    )
