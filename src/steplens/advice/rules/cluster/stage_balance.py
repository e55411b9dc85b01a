"""One stage of a pipeline has more arithmetic to do than the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import polars as pl

from steplens.advice.facts import Facts, together
from steplens.advice.finding import MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.cluster.comparison import DEVIATION, beside_mean, job_of, missing, several_ranks, traces_of
from steplens.advice.rules.cluster.exposed import Exposed
from steplens.analysis.operators.work import stage_work, work
from steplens.trace.run import Run


def judge(run: Run, facts: Sequence[Facts], *, threshold: float = DEVIATION) -> Iterator[Finding]:
    """Stages whose operations per rank are by more than 20 % above the mean of the stages.

    With equal stages the largest would compute in mean / largest of its time. Layers cannot be cut at will, so half of that is
    likely.

    Args:
        run: the run.
        facts: of the ranks.
        threshold: share of the mean.
    """
    job = job_of(facts)
    table = together(work, facts, traces_of(facts))
    if job.stages < 2 or table["source"].n_unique() != 1:
        return
    stages = stage_work(table, job)
    if len(stages) < 2:
        return
    mean = fmean(stages.values())
    exposed = Exposed(run, facts)
    for stage, flops in stages.items():
        above = flops / mean - 1
        if above <= threshold:
            continue
        computation = exposed.means.filter(pl.col("stage") == stage)["computation_ns"].mean()
        longest = float(computation) * (1 - mean / flops) if isinstance(computation, float) else None
        yield Finding(
            rule=RULE.name,
            subject=f"stage{stage}",
            confidence=0.7,
            evidence=(
                Evidence("stage_work", flops / 1e9, "GFLOP", places=(f"stage {stage}",)),
                Evidence("above_mean", 100 * above, "%", per_step=False),
                *beside_mean(stages.values(), "GFLOP", 1e-9),
                *missing(job),
            ),
            saving=Saving(0, longest / 2, longest) if longest is not None else None,
            step_ns=exposed.step_ns if exposed.means.height else 0.0,
            part="computing_ns",
            values={"stage": stage, "percent": f"{100 * above:.2f}"},
            urgency=MEDIUM,
        )


RULE = Rule("stage_balance", judge_run=judge, applies=several_ranks)
