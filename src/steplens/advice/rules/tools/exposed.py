"""The communication of a job that no computing covers, as the rules about parallelism see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import Saving
from steplens.advice.rules.tools.ranks import are_arrivals_known, job_of, traces_of
from steplens.analysis.cluster.arrivals import arrivals
from steplens.analysis.cluster.cluster_steps import of_chosen_steps, rank_means
from steplens.analysis.cluster.measured_communication import communication_times, is_measured
from steplens.analysis.cluster.stragglers.exposed_waits import exposed_waits
from steplens.analysis.tools import parallel
from steplens.run import Run
from steplens.trace.schema import CORE_CPU

#: where of more than this share of the exposed communication nobody knows whether it waits, nothing is told apart
_UNKNOWN = 0.2


@dataclass(frozen=True)
class Exposed:
    """The communication of a job.

    Attributes:
        run: the run.
        facts: of the ranks that may be judged.
    """

    run: Run
    facts: Sequence[Facts]

    @cached_property
    def means(self) -> pl.DataFrame:
        """``cluster_steps.rank_means`` of the ranks of which communication is known."""
        return analyse_once(rank_means, self.facts, traces_of(self.facts)).drop_nulls(
            ["computation_ns", "communication_alone_ns"]
        )

    @cached_property
    def job(self) -> parallel.Layout:
        """How the job is spread."""
        return job_of(self.facts)

    @cached_property
    def rates(self) -> parallel.Rates:
        """Shares of communication."""
        return parallel.communication_rates(self.means)

    @property
    def distributed(self) -> bool:
        """Whether there is anything to judge: a job of several ranks."""
        return self.job.size > 1 and self.means.height > 0

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes: communication takes processors from it then, and running both at once saves nothing."""
        return any(part.device == CORE_CPU and "kernels" in part.trace for part in self.facts)

    @property
    def step_ns(self) -> float:
        """Mean length of a step: of what the parts are of, which may not be the recorded steps."""
        mean_step = self.means.select((pl.col("computation_ns") + pl.col("communication_alone_ns")).mean()).item()
        return float(mean_step or 0)

    @cached_property
    def moving(self) -> float | None:
        """Share of the time in collectives in which data is known to have moved; None where nothing tells.

        By the order of arrival where the ranks can be compared, else by what the communication library measured: of the whole
        time of its operations. What the library calls neither moving nor waiting, such as idle, moved nothing either.
        """
        traces = traces_of(self.facts)
        if are_arrivals_known(self.run):
            arrived = of_chosen_steps(analyse_once(arrivals, self.facts, traces), traces)
            moving, waiting = (float(arrived[name].sum()) for name in ("transfer_ns", "wait_ns"))
            if moving + waiting > 0:
                return moving / (moving + waiting)
        shares = [part.once(_moving_and_whole_ms) for part in self.facts]
        measured_ms = sum(whole_ms for _, whole_ms in shares)
        return sum(moving_ms for moving_ms, _ in shares) / measured_ms if measured_ms > 0 else None

    @cached_property
    def wait_means(self) -> pl.DataFrame | None:
        """Means of ``exposed_waits`` of the ranks, with their stage; None where of much of it nobody knows what it waits for."""
        if not are_arrivals_known(self.run):
            return None
        rows = analyse_once(exposed_waits, self.facts, traces_of(self.facts))
        exposed, unknown = (float(rows[name].sum()) for name in ("exposed_ns", "unknown_ns"))
        if not exposed or unknown > _UNKNOWN * exposed:
            return None
        names = [name for name in rows.columns if name.endswith("_ns")]
        stage_of = {rank: self.job.stage_of(rank) for rank in rows["rank"].unique()}
        stage = pl.col("rank").replace_strict(stage_of, return_dtype=pl.Int64)
        return rows.group_by("rank").agg(pl.col(names).mean()).with_columns(stage=stage).sort("rank")

    @cached_property
    def room_ns(self) -> float:
        """Computing of a step beside which nothing is communicated yet, ns: so much of the communication it can hide."""
        parts = [part.median("computing_ns") - part.median("overlapped_communication_ns") for part in self.facts]
        rooms = [room for room in parts if room > 0]
        # MindSpore's own analysis tells computing with the gaps in it, and nothing of what overlaps
        mean_computation = self.means["computation_ns"].mean()
        return sum(rooms) / len(rooms) if rooms else float(mean_computation) if isinstance(mean_computation, float) else 0.0

    @cached_property
    def critical_stage(self) -> int:
        """The stage that computes longest: the others wait for it, and what they wait costs nothing."""
        order = self.means.group_by("stage").agg(pl.col("computation_ns").mean()).sort("computation_ns", "stage")
        return int(order["stage"][-1])

    def saving(self, part: str, threshold: float, rows: pl.DataFrame | None = None, share: float = 1.0) -> Saving | None:
        """What bringing a part of the steps down to a share of them saves; None where that shortens no step.

        Args:
            part: column of ``means``.
            threshold: the share that may stay.
            rows: of these ranks; all by default.
            share: of the part, what can go at most.
        """
        ranks = (self.means if rows is None else rows).drop_nulls(part)
        if self.on_cpu or not ranks.height:
            return None
        mean = ranks.select(
            part=pl.col(part).mean() * share, whole=(pl.col("computation_ns") + pl.col("communication_alone_ns")).mean()
        ).row(0, named=True)
        excess = mean["part"] - threshold * mean["whole"]
        return Saving(0.0, excess, mean["part"]) if excess > 0 else None


def _moving_and_whole_ms(part: Facts) -> tuple[float, float]:
    """How long the operations that the library measured moved data in the steps, and how long they took."""
    if not is_measured(part.trace):
        return 0.0, 0.0
    times = communication_times(part.trace).filter(pl.col("step").is_in(list(part.numbers)))
    took = pl.max_horizontal("elapse_ms", pl.col("transit_ms") + pl.col("wait_ms"))
    moving_ms, whole_ms = times.select(pl.col("transit_ms").sum(), whole=took.sum()).row(0)
    return float(moving_ms or 0), float(whole_ms or 0)
