"""The stages of a pipeline, from whom each rank sends to and receives from."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import polars as pl

from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_per_run, once_per_trace
from steplens.trace.schema import RECEIVE, SEND
from steplens.trace.trace import Trace


@dataclass(frozen=True)
class Pipeline:
    """How a job is divided into stages.

    Attributes:
        stage_of: rank -> its stage, from 1.
        chain_of: rank -> the rank of the first stage with which it shares its micro-batches.
        stages: how many there are.
        batches: micro-batches of a step.
        chunks: parts of the model that a stage has; more than one where stages take turns (interleaved schedule).
    """

    stage_of: dict[int, int]
    chain_of: dict[int, int]
    stages: int
    batches: int
    chunks: int = 1

    def implied_wait(self, computing: float, micro_batch_moving: float, transfers: float) -> float:
        """How long a rank waits in a step while a pipeline of equal stages fills and drains: (p - 1) / (m v) of what they do.

        What the micro-batches need is done on the way: computing, the collectives inside of a stage, and passing on between
        stages. The wait is in the unit of the arguments, which are of a step, means over all ranks.

        Args:
            computing: of the device.
            micro_batch_moving: exposed collectives that each micro-batch needs, while they move data (``exposed_waits``).
            transfers: exposed sends and receives, while they move data.
        """
        # stages within have two neighbours, the first and the last one
        neighbours = 2 * (self.stages - 1) / self.stages
        done = computing + micro_batch_moving + transfers / neighbours
        return done * (self.stages - 1) / (self.batches * self.chunks)

    @property
    def implied_share(self) -> float:
        """The share of a step in which a rank waits although all stages are equally fast; see ``bubble_share``."""
        return bubble_share(self.stages, self.batches, self.chunks)


def bubble_share(stages: int, batches: int, chunks: int = 1) -> float:
    """The share of the computing of a step that filling and draining a pipeline costs each rank: (p - 1) / (m v + p - 1).

    Of p equally long stages with m micro-batches, v parts of the model on each. The same for GPipe's schedule and for 1F1B.
    """
    return (stages - 1) / (batches * chunks + stages - 1)


@once_per_run
def find_pipeline(traces: Sequence[Trace]) -> Pipeline | None:
    """The stages of a job, from its sends and receives; None where they make no pipeline in which every rank has a place.

    A rank whose first operation of a step is a send is of the first stage, and whom a rank sends to first is of the next one: a
    stage computes forward before anything comes back. Every chain has one rank of each stage. The micro-batches are what the
    first stage sends to the second one in a step; where the last one sends to the first as well, stages have several parts of the
    model.

    Source: ``communication`` rows of sends and receives that name their peer, of the steps.
    """
    rows = _sent_and_received(traces)
    steps = rows["step"].unique().sort()
    if steps.is_empty():
        return None
    # a step at the edge of the recording may have lost its beginning
    rows = rows.filter(pl.col("step") == steps[len(steps) // 2])
    first = rows.unique("rank", keep="first", maintain_order=True)
    sends = rows.filter(pl.col("kind") == SEND)
    next_of = dict(sends.unique("rank", keep="first", maintain_order=True).select("rank", "peer").iter_rows())
    chains = [_chain_from(rank, next_of) for rank in first.filter(pl.col("kind") == SEND)["rank"]]
    lengths = {len(chain) for chain in chains}
    stage_of = {rank: stage for chain in chains for stage, rank in enumerate(chain, start=1)}
    is_whole = len(stage_of) == sum(map(len, chains)) and set(first["rank"]) <= stage_of.keys()
    if len(lengths) != 1 or not is_whole or (stages := lengths.pop()) < 2:
        return None
    counts = Counter(zip(sends["rank"], sends["peer"], strict=True))
    ahead = median([counts[chain[0], chain[1]] for chain in chains])
    # of two stages both ways lead to the other one: what comes back may be either
    around = median([counts[chain[-1], chain[0]] for chain in chains]) if stages > 2 else 0
    batches = max(round(ahead - around), 1)
    chain_of = {rank: chain[0] for chain in chains for rank in chain}
    return Pipeline(stage_of, chain_of, stages, batches, max(round(ahead / batches), 1))


def _sent_and_received(traces: Sequence[Trace]) -> pl.DataFrame:
    """step, rank, kind, peer of sends and receives, in the order of each rank."""
    schema = {"step": pl.Int64, "rank": pl.Int64, "kind": pl.String, "peer": pl.Int64}
    return join_rows(itertools.chain([pl.DataFrame(schema=schema)], map(sends_and_receives, traces)))


@once_per_trace
def sends_and_receives(trace: Trace) -> pl.DataFrame:
    """step, rank, kind, peer of the sends and receives of one rank that name their peer, in its order."""
    kind = pl.col("kind").cast(pl.String)
    rows = trace.required("communication").filter(kind.is_in([SEND, RECEIVE])).drop_nulls(["step", "peer", "start_ns"])
    rank = pl.lit(trace.rank, dtype=pl.Int64)
    rows = rows.sort("start_ns").select(pl.col("step").cast(pl.Int64), rank=rank, kind=kind, peer=pl.col("peer").cast(pl.Int64))
    return rows.filter(pl.col("rank") >= 0).collect()


def _chain_from(rank: int, next_of: dict[int, int]) -> list[int]:
    chain = [rank]
    while (follower := next_of.get(chain[-1])) is not None and follower not in chain:
        chain.append(follower)
    return chain
