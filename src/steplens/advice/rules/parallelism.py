"""What kinds of parallelism cost: communication that nothing covers, and stages that wait or are unbalanced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import Rule, run_rule
from steplens.advice.rules.tools.digits import in_ms
from steplens.advice.rules.tools.ranks import (
    COMMUNICATION,
    DEVIATION,
    beside_mean,
    is_parallel,
    is_pipeline,
    job_of,
    missing_rank_evidence,
    several_ranks,
    traces_of,
)
from steplens.analysis.cluster.arrivals import arrivals
from steplens.analysis.cluster.cluster_steps import of_chosen_steps, rank_means
from steplens.analysis.cluster.measured_communication import communication_times, is_measured
from steplens.analysis.operators.rank_flops import stage_work, work
from steplens.analysis.tools import parallel
from steplens.run import Run
from steplens.trace.health import COMMUNICATION_TIMES, RANK_COMPARISON, STEP_DEVICE_TIMES
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
        if self.run.unsafe(RANK_COMPARISON).is_empty() and self.run.unsafe(COMMUNICATION_TIMES).is_empty():
            arrived = of_chosen_steps(analyse_once(arrivals, self.facts, traces), traces)
            moving, waiting = (float(arrived[name].sum()) for name in ("transfer_ns", "wait_ns"))
            if moving + waiting > 0:
                return moving / (moving + waiting)
        shares = [part.once(_moving_and_whole_ms) for part in self.facts]
        measured_ms = sum(whole_ms for _, whole_ms in shares)
        return sum(moving_ms for moving_ms, _ in shares) / measured_ms if measured_ms > 0 else None

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


def _share_rule(name: str, mode: str) -> Rule:
    """The rule about one kind of parallelism."""

    def judge(run: Run, facts: Sequence[Facts], *, threshold: float = COMMUNICATION) -> Iterator[Finding]:
        """More than 10 % of a step is communication that no computing covers.

        What is above that is likely saved, but no more than there is computing to hide it behind; at most all of it, where less
        is communicated.

        Waiting for late ranks (``analysis.cluster.arrivals``) is no communication, and ``slow_rank`` speaks of it.
        """
        exposed = Exposed(run, facts)
        rate = exposed.rates.communication if exposed.distributed and exposed.job.mode == mode else None
        moving = exposed.moving
        share = 1.0 if moving is None else moving
        if rate is None or rate * share <= threshold:
            return
        alone = float(exposed.means["communication_alone_ns"].mean() or 0)  # type: ignore[arg-type]
        saving = exposed.saving("communication_alone_ns", threshold, share=share)
        basis = ""
        if saving is not None:
            likely = min(saving.likely_ns, exposed.room_ns)
            basis = "exposed_above_threshold" if likely == saving.likely_ns else "exposed_above_room"
            # an unknown part of it waits for other ranks
            basis += "_untold" if moving is None else ""
            saving = replace(saving, likely_ns=likely / 2 if moving is None else likely)
        waiting = [Evidence("waiting_unknown", 0, "")]
        if moving is not None:
            waiting = [
                Evidence("moving_share", 100 * moving, "%", per_step=False),
                Evidence("rate_without_waits", 100 * rate * share, "%", per_step=False),
            ]
        yield Finding(
            rule=name,
            confidence=0.3 if moving is None else 0.6,
            evidence=(
                Evidence("communication_rate", 100 * rate, "%", per_step=False),
                Evidence("communication_alone", alone, "ns", of_mean=True),
                *waiting,
                *missing_rank_evidence(exposed.job),
            ),
            saving=saving,
            step_ns=exposed.step_ns,
            part="exposed_communication_ns",
            values={
                "percent": f"{100 * rate * share:.2f}",
                "threshold": f"{100 * threshold:g}",
                "room": in_ms(exposed.room_ns),
            },
            urgency=LOW if exposed.on_cpu else MEDIUM,
            basis=basis,
        )

    return Rule(name, rests_on=(STEP_DEVICE_TIMES,), judge_run=judge, applies=lambda facts: is_parallel(facts, mode))


data_parallel_communication = _share_rule("data_parallel_communication", parallel.DATA_PARALLEL)
model_parallel_communication = _share_rule("model_parallel_communication", parallel.MODEL_PARALLEL)
unknown_parallel_communication = _share_rule("unknown_parallel_communication", parallel.UNKNOWN_PARALLEL)


def _first_ranks(what: str, rows: pl.DataFrame, column: str) -> Iterator[Evidence]:
    """A time of the first four ranks."""
    for rank, length_ns in rows.select("rank", column).head(4).iter_rows():
        yield Evidence(what, length_ns, "ns", places=(f"rank {rank}",), of_mean=True)


@run_rule(rests_on=(STEP_DEVICE_TIMES,), applies=is_pipeline)
def stage_waits(run: Run, facts: Sequence[Facts], *, threshold: float = COMMUNICATION) -> Iterator[Finding]:
    """Stages of a pipeline wait for what other stages send.

    More than 10 % of the time of all ranks are receives that nothing covers.

    A step becomes shorter only by what the stage waits that computes longest; the others wait for that one.
    """
    exposed = Exposed(run, facts)
    rate = exposed.rates.between_stages if exposed.distributed and exposed.job.mode == parallel.PIPELINE_PARALLEL else None
    if rate is None or rate <= threshold:
        return
    waiting = exposed.means.drop_nulls("receive_alone_ns").sort("receive_alone_ns", descending=True)
    critical = exposed.means.filter(pl.col("stage") == exposed.critical_stage)
    yield Finding(
        rule=stage_waits.name,
        confidence=0.6,
        evidence=(
            Evidence("receive_rate", 100 * rate, "%", per_step=False),
            *_first_ranks("receive_alone", waiting, "receive_alone_ns"),
            *missing_rank_evidence(exposed.job),
        ),
        saving=exposed.saving("receive_alone_ns", threshold, critical),
        step_ns=exposed.step_ns,
        part="exposed_communication_ns",
        values={"percent": f"{100 * rate:.2f}", "threshold": f"{100 * threshold:g}"},
        urgency=LOW if exposed.on_cpu else MEDIUM,
    )


@run_rule(rests_on=(STEP_DEVICE_TIMES,), applies=is_pipeline)
def stage_collectives(run: Run, facts: Sequence[Facts], *, threshold: float = COMMUNICATION) -> Iterator[Finding]:
    """The ranks of one stage of a pipeline spend much of a step on collectives among themselves.

    Stages in which more than 10 % of the time is collectives that no computing covers, every one of them.

    A step becomes shorter only where the stage that computes longest does; elsewhere the time goes to waiting for it.
    """
    exposed = Exposed(run, facts)
    if not exposed.distributed or exposed.job.mode != parallel.PIPELINE_PARALLEL:
        return
    for stage, rate in exposed.rates.within_stages.items():
        if rate <= threshold:
            continue
        mine = exposed.means.filter(pl.col("stage") == stage).drop_nulls("collective_alone_ns")
        critical = stage == exposed.critical_stage
        yield Finding(
            rule=stage_collectives.name,
            subject=f"stage{stage}",
            confidence=0.6 if critical else 0.4,
            evidence=(
                Evidence("collective_rate", 100 * rate, "%", per_step=False),
                *_first_ranks("collectives_alone", mine, "collective_alone_ns"),
                *([] if critical else [Evidence("waits_for_stage", exposed.critical_stage, "count", per_step=False)]),
                *missing_rank_evidence(exposed.job),
            ),
            saving=exposed.saving("collective_alone_ns", threshold, mine) if critical else None,
            step_ns=exposed.step_ns,
            part="exposed_communication_ns",
            values={"stage": stage, "percent": f"{100 * rate:.2f}", "threshold": f"{100 * threshold:g}"},
            urgency=LOW if exposed.on_cpu else MEDIUM,
        )


@run_rule(applies=several_ranks)
def stage_balance(run: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """One stage of a pipeline has more arithmetic to do than the others.

    Stages whose operations per rank are by more than 20 % above the mean of the stages.

    With equal stages the largest would compute in mean / largest of its time. Layers cannot be cut at will, so half of that is
    likely.
    """
    job = job_of(facts)
    table = analyse_once(work, facts, traces_of(facts))
    if job.stages < 2 or table["source"].n_unique() != 1:
        return
    stages = stage_work(table, job)
    if len(stages) < 2:
        return
    mean = fmean(stages.values())
    exposed = Exposed(run, facts)
    for stage, flops in stages.items():
        excess = flops / mean - 1
        if excess <= threshold:
            continue
        computation = exposed.means.filter(pl.col("stage") == stage)["computation_ns"].mean()
        longest = float(computation) * (1 - mean / flops) if isinstance(computation, float) else None
        yield Finding(
            rule=stage_balance.name,
            subject=f"stage{stage}",
            confidence=0.7,
            evidence=(
                Evidence("stage_work", flops / 1e9, "GFLOP", places=(f"stage {stage}",)),
                Evidence("above_mean", 100 * excess, "%", per_step=False),
                *beside_mean(stages.values(), "GFLOP", 1e-9),
                *missing_rank_evidence(job),
            ),
            saving=Saving(0, longest / 2, longest) if longest is not None else None,
            step_ns=exposed.step_ns if exposed.means.height else 0.0,
            part="computing_ns",
            values={"stage": stage, "percent": f"{100 * excess:.2f}"},
            urgency=MEDIUM,
        )
