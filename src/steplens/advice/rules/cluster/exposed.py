"""What communication costs the steps of a job beyond what it may; the rules about kinds of parallelism use this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from steplens.advice.facts import Facts, together
from steplens.advice.finding import Saving
from steplens.advice.rules.cluster.comparison import job_of, traces_of
from steplens.analysis.cluster.arrivals import arrivals
from steplens.analysis.cluster.cluster_steps import of_chosen_steps, rank_means
from steplens.analysis.cluster.links import communication_costs
from steplens.analysis.tools.parallel import Layout, Rates, rates
from steplens.trace.health import COMMUNICATION_TIMES, RANK_COMPARISON
from steplens.trace.run import Run
from steplens.trace.schema import CORE_CPU


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
        return together(rank_means, self.facts, traces_of(self.facts)).drop_nulls(["computation_ns", "communication_alone_ns"])

    @cached_property
    def job(self) -> Layout:
        """How the job is spread."""
        return job_of(self.facts)

    @cached_property
    def rates(self) -> Rates:
        """Shares of communication."""
        return rates(self.means)

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
        whole = self.means.select((pl.col("computation_ns") + pl.col("communication_alone_ns")).mean()).item()
        return float(whole or 0)

    @cached_property
    def moving(self) -> float | None:
        """Share of the time in collectives in which data moved; the rest waited for ranks that came later. None where unknown.

        By the order of arrival where the ranks can be compared, else by what the communication library measured.
        """
        traces = traces_of(self.facts)
        moving = waiting = 0.0
        if self.run.unsafe(RANK_COMPARISON).is_empty() and self.run.unsafe(COMMUNICATION_TIMES).is_empty():
            found = of_chosen_steps(together(arrivals, self.facts, traces), traces)
            moving, waiting = (float(found[name].sum()) for name in ("transfer_ns", "wait_ns"))
        if moving + waiting <= 0:
            costs = of_chosen_steps(together(communication_costs, self.facts, traces), traces)
            moving, waiting = (float(costs[name].sum()) for name in ("transit_ns", "wait_ns"))
        return moving / (moving + waiting) if moving + waiting > 0 else None

    @cached_property
    def room_ns(self) -> float:
        """Computing of a step beside which nothing is communicated yet, ns: so much of the communication it can hide."""
        parts = [part.median("computing_ns") - part.median("overlapped_communication_ns") for part in self.facts]
        known = [room for room in parts if room > 0]
        # MindSpore's own analysis tells computing with the gaps in it, and nothing of what overlaps
        whole = self.means["computation_ns"].mean()
        return sum(known) / len(known) if known else float(whole) if isinstance(whole, float) else 0.0

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
        known = (self.means if rows is None else rows).drop_nulls(part)
        if self.on_cpu or not known.height:
            return None
        mean = known.select(
            part=pl.col(part).mean() * share, whole=(pl.col("computation_ns") + pl.col("communication_alone_ns")).mean()
        ).row(0, named=True)
        above = mean["part"] - threshold * mean["whole"]
        return Saving(0.0, above, mean["part"]) if above > 0 else None
