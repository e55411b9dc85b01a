"""What kinds of parallelism cost: communication that nothing covers, and stages that wait or are unbalanced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import Rule, run_rule
from steplens.advice.rules.tools.digits import in_ms
from steplens.advice.rules.tools.exposed import Exposed
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
from steplens.analysis.operators.rank_flops import stage_work, work
from steplens.analysis.tools import parallel
from steplens.analysis.tools.pipeline import Pipeline, bubble_share, find_pipeline
from steplens.run import Run
from steplens.trace.health import STEP_DEVICE_TIMES


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

    More than 10 % of the time of all ranks are receives that nothing covers. Where waiting is told from moving, more than 10 % of
    the time of the stage that computes longest is waiting beyond the bubble that the number of stages and micro-batches implies.

    A step becomes shorter only by what the stage waits that computes longest; the others wait for that one.
    """
    exposed = Exposed(run, facts)
    job_pipeline = find_pipeline(traces_of(facts))
    if job_pipeline is not None and exposed.wait_means is not None:
        yield from _waits_beyond_bubble(exposed, job_pipeline, exposed.wait_means, threshold)
        return
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


def _waits_beyond_bubble(exposed: Exposed, job_pipeline: Pipeline, waits: pl.DataFrame, threshold: float) -> Iterator[Finding]:
    """What the stage that computes longest waits beyond the bubble of equal stages, where that is much."""
    bubble_ns = _bubble_ns(job_pipeline, waits)
    longest = waits.group_by("stage").agg(pl.col("computing_ns").mean()).sort("computing_ns")["stage"][-1]
    mine = waits.filter(stage=longest).sort("waiting_ns", descending=True)
    waiting, period = (float(mine[name].mean() or 0.0) for name in ("waiting_ns", "period_ns"))  # type: ignore[arg-type]
    beyond_ns = waiting - bubble_ns
    if beyond_ns <= threshold * period:
        return
    yield Finding(
        rule=stage_waits.name,
        confidence=0.6,
        evidence=(
            *_first_ranks("waits_for_others", mine, "waiting_ns"),
            Evidence("bubble", bubble_ns, "ns"),
            *missing_rank_evidence(exposed.job),
        ),
        saving=None if exposed.on_cpu else Saving(0.0, beyond_ns - threshold * period, beyond_ns),
        step_ns=period,
        part="exposed_communication_ns",
        values={"case": "beyond_bubble", "percent": f"{100 * beyond_ns / period:.0f}", "stage": longest},
        urgency=LOW if exposed.on_cpu else MEDIUM,
    )


def _bubble_ns(job_pipeline: Pipeline, waits: pl.DataFrame) -> float:
    """How long a rank waits in a step while a pipeline of equal stages fills and drains (``Pipeline.implied_wait``)."""
    names = ("computing_ns", "micro_batch_moving_ns", "moving_ns", "collective_moving_ns")
    computing, of_batches, moving, collectives = (float(waits[name].mean() or 0.0) for name in names)  # type: ignore[arg-type]
    return job_pipeline.implied_wait(computing, of_batches, moving - collectives)


@run_rule(rests_on=(STEP_DEVICE_TIMES,), applies=is_pipeline)
def pipeline_bubble(run: Run, facts: Sequence[Facts], *, threshold: float = COMMUNICATION) -> Iterator[Finding]:
    """Filling and draining a pipeline takes more than 10 % of a step: what its stages and micro-batches imply, no fault.

    (p - 1) / (m v + p - 1) of equally long stages: p of them, m micro-batches, v parts of the model on each.
    """
    exposed = Exposed(run, facts)
    job_pipeline, waits = find_pipeline(traces_of(facts)), exposed.wait_means
    if job_pipeline is None or waits is None:
        return
    period = float(waits["period_ns"].mean() or 0.0)  # type: ignore[arg-type]
    bubble_ns, waiting = _bubble_ns(job_pipeline, waits), float(waits["waiting_ns"].mean() or 0.0)  # type: ignore[arg-type]
    if not period or bubble_ns <= threshold * period or waiting <= threshold * period:
        return
    more = 2 * job_pipeline.batches
    yield Finding(
        rule=pipeline_bubble.name,
        confidence=0.9,
        evidence=(
            Evidence("waits_for_others", waiting, "ns"),
            Evidence("bubble", bubble_ns, "ns"),
            Evidence("micro_batches", job_pipeline.batches, "count"),
        ),
        step_ns=period,
        part="exposed_communication_ns",
        values={
            "percent": f"{100 * bubble_ns / period:.0f}",
            "formula": f"{100 * job_pipeline.implied_share:.0f}",
            "stages": job_pipeline.stages,
            "batches": job_pipeline.batches,
            "more": more,
            "then": f"{100 * bubble_share(job_pipeline.stages, more, job_pipeline.chunks):.0f}",
        },
        urgency=LOW,
    )


@run_rule(rests_on=(STEP_DEVICE_TIMES,), applies=is_pipeline)
def stage_collectives(run: Run, facts: Sequence[Facts], *, threshold: float = COMMUNICATION) -> Iterator[Finding]:
    """The ranks of one stage of a pipeline spend much of a step on collectives among themselves.

    Stages in which more than 10 % of the time is collectives that no computing covers, every one of them. Waiting for other ranks
    (``analysis.cluster.stragglers.exposed_waits``) is none of it, where it is known.

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
        share, without_waits = 1.0, []
        if exposed.wait_means is not None:
            # what waits for other ranks is no communication; the rest of it moves data
            moving_ns, period_ns = exposed.wait_means.filter(stage=stage).select("collective_moving_ns", "period_ns").sum().row(0)
            share = min(moving_ns / period_ns / rate, 1.0) if period_ns else 0.0
            if rate * share <= threshold:
                continue
            without_waits = [Evidence("rate_without_waits", 100 * rate * share, "%", per_step=False)]
        yield Finding(
            rule=stage_collectives.name,
            subject=f"stage{stage}",
            confidence=0.6 if critical else 0.4,
            evidence=(
                Evidence("collective_rate", 100 * rate, "%", per_step=False),
                *without_waits,
                *_first_ranks("collectives_alone", mine, "collective_alone_ns"),
                *([] if critical else [Evidence("waits_for_stage", exposed.critical_stage, "count", per_step=False)]),
                *missing_rank_evidence(exposed.job),
            ),
            saving=exposed.saving("collective_alone_ns", threshold, mine, share) if critical else None,
            step_ns=exposed.step_ns,
            part="exposed_communication_ns",
            values={"stage": stage, "percent": f"{100 * rate * share:.2f}", "threshold": f"{100 * threshold:g}"},
            urgency=LOW if exposed.on_cpu else MEDIUM,
        )


def _computes_longer(waits: pl.DataFrame, stage: int, threshold: float) -> bool:
    """Whether every rank of a stage computes longer than the mean of the stages, by more than a share of it."""
    # of each stage the quickest rank: one that is slow makes no stage large
    of_stage = waits.group_by("stage").agg(pl.col("computing_ns").min())
    mine, mean = of_stage.filter(stage=stage)["computing_ns"], of_stage["computing_ns"].mean()
    return not len(mine) or not isinstance(mean, float) or mine[0] > (1 + threshold) * mean


@run_rule(applies=several_ranks)
def stage_balance(run: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """One stage of a pipeline has more arithmetic to do than the others.

    Stages whose operations per rank are by more than 20 % above the mean of the stages. Where it is known how long devices
    compute, only those that compute longer than the mean by half of that.

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
        if exposed.wait_means is not None and not _computes_longer(exposed.wait_means, stage, threshold / 2):
            continue
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
