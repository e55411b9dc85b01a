"""Communication between ranks: who waits for whom."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import polars as pl
from pydantic import BaseModel
from typing_extensions import TypedDict

from steplens.analysis.cluster.arrivals import last_recorded, recorded_arrivals
from steplens.analysis.cluster.cluster_steps import of_chosen_steps
from steplens.analysis.cluster.communication_operations import ARRIVAL
from steplens.analysis.cluster.rank_communication import rank_costs
from steplens.analysis.cluster.stragglers.slow_rank import name_slow_rank
from steplens.analysis.tools.overlap import merge_intervals
from steplens.analysis.verdict_words import collective_name
from steplens.server.cluster.cluster import trace_of
from steplens.server.http import documented
from steplens.server.many.kept_route import kept_router
from steplens.server.requests import Chosen
from steplens.server.runs import OpenedRun
from steplens.server.tables import columns, tables
from steplens.trace.building.checks.ranks import recorded_ranks
from steplens.trace.schema import COLLECTIVE

router = kept_router("/api/runs/{run}", "communication")

#: of single collectives, how many the page has
MOST_COLLECTIVES = 12
#: ranks that arrive within this share of a step arrive together
_LATE_SHARE = 0.01


class SlowRank(BaseModel):
    """A rank that the others wait for; see ``analysis.cluster.arrivals.SlowRank``."""

    rank: int
    hold_up_ns: int
    steps: list[int]
    of_steps: int
    chance: float


class RecordedOrder(BaseModel):
    """Who of the recorded ranks comes last where others are missing; see ``analysis.cluster.arrivals.LastRecorded``.

    ``late``: whether that is by a share of a step that counts; else they arrive together.
    """

    rank: int
    ranks: list[int]
    hold_up_ns: int
    steps: int
    of_steps: int
    late: bool


class CollectiveShown(TypedDict):
    """One collective or message; a row of ``analysis.cluster.collectives``. ``label`` is what people call its operation.

    ``behind_ns``: how long after the first recorded rank this one arrives, where ranks are missing.
    """

    rank: int
    trace: int | None
    step: int
    name: str
    label: str
    ranks: int | None
    bytes: int | None
    in_step_ns: int | None
    duration_ns: int
    expected_ns: int | None
    wait_ns: int | None
    transfer_ns: int | None
    behind_ns: int | None
    exposed_ns: int | None
    rate_bytes_per_s: float | None
    bus_bytes_per_s: float | None
    long: bool


class LongCollectives(BaseModel):
    """The collectives of a step that take far longer than their size explains: means over ranks and steps that have any.

    Attributes:
        calls: how many of ``of_calls``.
        duration_ns: how long one of them is in flight; ``expected_ns``: what their sizes explain.
        ranks, steps: on how many ranks, in how many steps there are any.
    """

    calls: float
    of_calls: float
    duration_ns: float
    expected_ns: float
    ranks: int
    steps: int


class Communication(BaseModel):
    """What the ranks of a run cost each other.

    Attributes:
        overlap: rows of the table ``overlap``: how much of it computing hides, over the whole recording.
        waits: rank, wait_ns, transfer_ns and unexplained_ns of a step (``analysis.cluster.rank_communication.rank_costs``), where
            the arrival of the ranks at their collectives tells them.
        messages: how many point-to-point operations there are.
        collectives: the longest of the chosen steps, at most ``MOST_COLLECTIVES``; collectives_of: how many there are.
        long: of these the ones that take far longer than their size explains; None where there are none.
        recorded_ranks: how many ranks of the job are here.
        job_ranks: how many it has, as far as the traces tell. Where some are missing, whom the others waited for is not known.
        recorded_order: who of the recorded ranks comes last at collectives of which some ranks are missing; None where there are
            none.
        hold_ups: rows of the table ``hold_ups``.
        slow_rank: the rank that is late again and again, if one stands out.
    """

    overlap: list[dict[str, Any]]
    waits: list[dict[str, Any]]
    recorded_ranks: int
    job_ranks: int
    recorded_order: RecordedOrder | None
    hold_ups: list[dict[str, Any]]
    slow_rank: SlowRank | None
    messages: int
    collectives: Annotated[list[dict[str, Any]], documented.as_type(list[CollectiveShown])]
    collectives_of: int
    long: LongCollectives | None


@router.get("/communication")
def communication(chosen: Chosen) -> Communication:
    """Overlap with computing, arrival at collectives, and the rank that the others wait for."""
    frame = partial(tables.table_frame, chosen)
    steps = frame("steps").filter("chosen")
    length = steps["step_time_ns"].median()
    traces = chosen.run.traces
    numbers = steps["step"].drop_nulls().unique().to_list()
    slow = name_slow_rank(traces, numbers, float(length)) if isinstance(length, (int, float)) else None
    ranks, job = recorded_ranks(traces)
    costs = chosen.frame(("costs by arrival",), lambda: rank_costs(traces, by_library=False))
    waits = costs.filter(pl.col("measured_by") == ARRIVAL)
    single = of_chosen_steps(frame("collectives").drop_nulls("step"), traces)
    return Communication(
        overlap=columns.json_records(frame("overlap")),
        waits=columns.json_records(waits.select("rank", "wait_ns", "transfer_ns", "unexplained_ns")),
        recorded_ranks=len(ranks),
        job_ranks=job,
        recorded_order=_recorded_order(chosen, length),
        hold_ups=columns.json_records(frame("hold_ups")),
        slow_rank=None if slow is None else SlowRank(**vars(slow)),
        messages=frame("communication_operations").filter(pl.col("kind") != COLLECTIVE).height,
        collectives=columns.json_records(_to_shown(chosen, single.head(MOST_COLLECTIVES))),
        collectives_of=single.height,
        long=_long_collectives(single),
    )


def _recorded_order(chosen: OpenedRun, step_ns: object) -> RecordedOrder | None:
    last = last_recorded(of_chosen_steps(chosen.frame_of_run(recorded_arrivals), chosen.run.traces))
    if last is None or not isinstance(step_ns, (int, float)):
        return None
    return RecordedOrder.model_validate({**vars(last), "late": last.hold_up_ns >= _LATE_SHARE * step_ns})


def _to_shown(chosen: OpenedRun, rows: pl.DataFrame) -> pl.DataFrame:
    behind = chosen.frame_of_run(recorded_arrivals).select("step", "group", "operation", "number", "rank", "behind_ns")
    rows = rows.join(behind, on=["step", "group", "operation", "number", "rank"], how="left", maintain_order="left")
    labels = {name: collective_name(name) for name in rows["operation"].unique()}
    label = pl.col("operation").replace_strict(labels, default=None, return_dtype=pl.String)
    return rows.with_columns(trace=trace_of(chosen), label=label).select(*CollectiveShown.__annotations__)


def _long_collectives(rows: pl.DataFrame) -> LongCollectives | None:
    long = rows.filter("long")
    if long.is_empty():
        return None
    pairs = long.select("rank", "step").unique()
    beside = rows.join(pairs, on=["rank", "step"], how="semi")
    return LongCollectives(
        calls=long.height / pairs.height,
        of_calls=beside.height / pairs.height,
        duration_ns=_in_flight_ns(long) / pairs.height,
        expected_ns=float(long["expected_ns"].sum()) / pairs.height,
        ranks=pairs["rank"].n_unique(),
        steps=pairs["step"].n_unique(),
    )


def _in_flight_ns(rows: pl.DataFrame) -> float:
    """How long operations were in flight, over all ranks and steps; several at once on a rank count once."""
    lengths = []
    for _, calls in rows.group_by("rank", "step"):
        start = calls["start_ns"].to_numpy()
        lengths.append(merge_intervals(start, start + calls["duration_ns"].to_numpy()).length_ns)
    return float(sum(lengths))
