"""What each rank of a job does itself in a step, and the ranks, hosts and stages that take longer for it than the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.cluster.clocks.job_clocks import host_of
from steplens.analysis.cluster.stragglers.exposed_waits import exposed_waits
from steplens.analysis.steps.summary import usual_device_steps
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_per_run
from steplens.analysis.tools.parallel import PIPELINE_PARALLEL, by_rank, layout
from steplens.analysis.tools.pipeline import find_pipeline
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

Floats = npt.NDArray[np.float64]

RANK, HOST, STAGE = "rank", "host", "stage"
WORK = table_schema("rank, step, stage, chain, host: String, computing_ns, own_ns")

#: a rank, host or stage that takes so much longer than the others like it is slow
_SLOWER_RANK, _SLOWER_HOST, _SLOWER_STAGE = 1.05, 1.08, 1.10
#: ... if that is so much of a step, and in all but a quarter of the steps at least half as much as usual
_SHARE, _STEADY, _HALF = 0.03, 0.75, 0.5
#: ... and, of a rank, so many deviations (median absolute, scaled) of what other ranks lie beside those of their stages
_DEVIATIONS = 4.0
#: of so many stages the most tell how long a micro-batch is, although a rank of one may be slow
_STAGES_TELL = 3
#: fewer steps tell nothing
_FEW = 3
#: of what it takes longer, the others wait for so much at least
_WAITED_FOR = 0.5


@dataclass(frozen=True)
class Straggler:
    """A rank, the ranks of a host, or a stage, that takes longer for its own work than the others.

    Attributes:
        kind: RANK, HOST or STAGE.
        ranks: which.
        own_ns: what it takes in a step: of a rank all that it does but for exposed communication, of a host or a stage its
            computing; the median over ranks and steps.
        other_ns: the same of those it is compared with: the other ranks of the stage, those of the same stages on other hosts,
            the other stages.
        steps: the steps in which it takes longer by half of that or more.
        of_steps: number of steps looked at.
        stage: of a rank or a stage, from 1; 0 of a host.
        host: of a host its name; of a stage that of the host that has all of it and nothing else: both explain it then.
    """

    kind: str
    ranks: tuple[int, ...]
    own_ns: float
    other_ns: float
    steps: tuple[int, ...]
    of_steps: int
    stage: int = 0
    host: str = ""

    @property
    def more_ns(self) -> float:
        """What it takes longer in a step, ns."""
        return self.own_ns - self.other_ns

    @property
    def percent_longer(self) -> float:
        """By how much it takes longer."""
        return 100 * self.more_ns / self.other_ns if self.other_ns > 0 else 0.0


@once_per_run
def own_work(traces: Sequence[Trace]) -> pl.DataFrame:
    """What each rank does itself in each usual step, of devices alone; columns as in ``WORK``.

    ``own_ns`` is the device period without exposed communication: a rank waits for others in nothing else. It is computing
    (``computing_ns``), copying, and idling, since its host is late or it waits for data. ``chain``: the rank of the first stage
    with which it shares its micro-batches; its own where there are no stages. No rows of a pipeline whose stages are not known.
    """
    job, job_pipeline = layout(traces), find_pipeline(traces)
    if job.mode == PIPELINE_PARALLEL and job.stages < 2:
        # nobody knows which ranks do the same
        return pl.DataFrame(schema=WORK)
    chain_of = job_pipeline.chain_of if job_pipeline is not None else {}

    def work_of_ranks() -> Iterator[pl.DataFrame]:
        yield pl.DataFrame(schema=WORK)
        for rank, windows in by_rank(traces).items():
            for trace in windows:
                if not trace.has_accelerator:
                    continue
                own_ns = pl.col("device_period_ns") - pl.col("exposed_communication_ns")
                about = {"rank": pl.lit(rank), "stage": pl.lit(job.stage_of(rank)), "host": pl.lit(host_of(trace))}
                about["chain"] = pl.lit(chain_of.get(rank, rank))
                yield usual_device_steps(trace).select("step", "computing_ns", own_ns=own_ns, **about).select(cast_columns(WORK))

    rows = join_rows(work_of_ranks()).drop_nulls(["computing_ns", "own_ns"])
    return rows.unique(["rank", "step"], keep="first").sort("rank", "step")


def find_stragglers(traces: Sequence[Trace], steps: Collection[int], step_ns: float) -> list[Straggler]:
    """The hosts, ranks and stages that take longer than the others for their own work, and for which the others wait.

    1. A host, whose ranks all compute longer, by 8 %, than those of the same stages on other hosts; where no other host has these
       stages and it has several, than the other stages.
    2. A rank that takes longer by 5 % than the others of its stage, and by more than ranks otherwise differ.
    3. A stage whose ranks compute longer by 10 % than those of the other stages, slow ranks and hosts set aside.

    Each by 3 % of a step, and in three quarters of the steps by at least half of that. What nobody waits for is left out.

    Args:
        traces: of one job.
        steps: numbers of the steps that count.
        step_ns: how long a step takes.
    """
    rows = own_work(traces).filter(pl.col("step").is_in(sorted(steps)))
    common_rows = rows.filter(pl.col("rank").n_unique().over("step") == rows["rank"].n_unique())
    if common_rows["rank"].n_unique() < 2 or common_rows["step"].n_unique() < _FEW:
        return []
    search = _Search(common_rows, step_ns)
    hosts = search.slow_hosts()
    ranks = search.slow_ranks(hosts)
    stages = search.slow_stages(hosts, ranks)
    return [straggler for straggler in (*hosts, *ranks, *stages) if _is_waited_for(traces, straggler)]


def _is_waited_for(traces: Sequence[Trace], straggler: Straggler) -> bool:
    waits = exposed_waits(traces).filter(~pl.col("rank").is_in(straggler.ranks))
    waited = waits.select((pl.col("waiting_ns") + pl.col("unknown_ns")).median()).item()
    return waited is not None and waited >= _WAITED_FOR * straggler.more_ns


class _Search:
    """The work of a job as arrays: a row per rank, a column per step."""

    def __init__(self, rows: pl.DataFrame, step_ns: float) -> None:
        of_rank = rows.unique("rank", keep="first", maintain_order=True)
        self.ranks = of_rank["rank"].to_numpy()
        self.stages, self.hosts = of_rank["stage"].to_numpy(), of_rank["host"].to_numpy()
        self.steps = rows["step"].unique().sort().to_list()
        shape = (len(self.ranks), len(self.steps))
        self.computing = rows["computing_ns"].to_numpy().astype(np.float64).reshape(shape)
        self.own = rows["own_ns"].to_numpy().astype(np.float64).reshape(shape)
        self.step_ns = step_ns
        self._take_off_batches(of_rank["chain"].to_numpy())

    def _take_off_batches(self, chains: npt.NDArray[np.int64]) -> None:
        """Make ``own`` what it is with equal micro-batches: a long one is long on all stages, which is no rank's fault."""
        if len(np.unique(self.stages)) < _STAGES_TELL:
            return
        beside = np.empty_like(self.own)
        for stage in np.unique(self.stages):
            mine = self.stages == stage
            beside[mine] = self.own[mine] - np.median(self.own[mine], axis=0)
        for chain in np.unique(chains):
            self.own[chains == chain] -= np.median(beside[chains == chain], axis=0)

    def slow_hosts(self) -> list[Straggler]:
        names = [name for name in np.unique(self.hosts) if name and (self.hosts == name).sum() > 1]
        stragglers: list[Straggler] = []
        for name in names if len(np.unique(self.hosts)) > 1 else []:
            mine = self.hosts == name
            lengths, peer_lengths, ratios = [], [], []
            for row in np.flatnonzero(mine):
                peers = ~mine & (self.stages == self.stages[row])
                if not peers.any() and len(np.unique(self.stages[mine])) > 1:
                    peers = ~mine
                if not peers.any():
                    break
                of_peers = np.median(self.computing[peers], axis=0)
                ratios.append(np.median(self.computing[row] / of_peers))
                lengths.append(self.computing[row])
                peer_lengths.append(of_peers)
            if len(ratios) == mine.sum() and min(ratios) >= _SLOWER_HOST:
                stragglers += self._if_steady(
                    HOST, mine, np.median(lengths, axis=0), np.median(peer_lengths, axis=0), host=str(name)
                )
        return stragglers

    def slow_ranks(self, hosts: Sequence[Straggler]) -> list[Straggler]:
        on_slow_host = np.isin(self.ranks, [rank for host in hosts for rank in host.ranks])
        stragglers: list[Straggler] = []
        rows = range(len(self.ranks))
        beside = {row: self.own[row] - peers for row in rows if (peers := self._own_of_peers(row)) is not None}
        medians = np.array([np.median(more) for more in beside.values()])
        for place, (row, more) in enumerate(beside.items()):
            usual = np.delete(medians, place)
            spread = 1.4826 * float(np.median(np.abs(usual - np.median(usual)))) if len(usual) else 0.0
            of_peers = self.own[row] - more
            is_slow = np.median(self.own[row] / of_peers) >= _SLOWER_RANK and medians[place] >= _DEVIATIONS * spread
            if is_slow and not on_slow_host[row]:
                mine = np.arange(len(self.ranks)) == row
                stragglers += self._if_steady(RANK, mine, self.own[row], of_peers, stage=int(self.stages[row]))
        return sorted(stragglers, key=lambda straggler: -straggler.more_ns)

    def _own_of_peers(self, row: int) -> Floats | None:
        peers = self.stages == self.stages[row]
        peers[row] = False
        return np.asarray(np.median(self.own[peers], axis=0)) if peers.any() else None

    def slow_stages(self, hosts: Sequence[Straggler], ranks: Sequence[Straggler]) -> list[Straggler]:
        computing = self.computing.copy()
        for host in hosts:
            computing[np.isin(self.ranks, host.ranks)] /= host.own_ns / host.other_ns
        counted = ~np.isin(self.ranks, [rank for straggler in ranks for rank in straggler.ranks])
        numbers = [stage for stage in np.unique(self.stages) if (counted & (self.stages == stage)).any()]
        of_stage = {stage: np.median(computing[counted & (self.stages == stage)], axis=0) for stage in numbers}
        stragglers: list[Straggler] = []
        for stage in numbers if len(numbers) > 1 else []:
            of_others = np.median([of_stage[number] for number in numbers if number != stage], axis=0)
            if np.median(of_stage[stage] / of_others) >= _SLOWER_STAGE:
                mine = self.stages == stage
                names = set(self.hosts[mine])
                name = names.pop() if len(names) == 1 else ""
                is_whole = bool(name) and bool((self.hosts == name).sum() == mine.sum())
                stragglers += self._if_steady(
                    STAGE, mine, of_stage[stage], of_others, stage=int(stage), host=str(name) if is_whole else ""
                )
        return stragglers

    def _if_steady(
        self, kind: str, mine: npt.NDArray[np.bool_], own: Floats, other: Floats, *, stage: int = 0, host: str = ""
    ) -> list[Straggler]:
        more = own - other
        usual = float(np.median(more))
        steps = tuple(step for step, ns in zip(self.steps, more, strict=True) if ns >= _HALF * usual)
        if usual < _SHARE * self.step_ns or len(steps) < _STEADY * len(self.steps):
            return []
        ranks = tuple(int(rank) for rank in self.ranks[mine])
        own_ns = float(np.median(own))
        return [Straggler(kind, ranks, own_ns, own_ns - usual, steps, len(self.steps), stage, host)]
