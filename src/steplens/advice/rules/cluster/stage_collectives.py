"""The ranks of one stage of a pipeline spend much of a step on collectives among themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.cluster.comparison import COMMUNICATION, is_pipeline, missing
from steplens.advice.rules.cluster.exposed import Exposed
from steplens.analysis.tools.parallel import PIPELINE_PARALLEL
from steplens.trace.health import STEP_DEVICE_TIMES
from steplens.trace.run import Run


def judge(run: Run, facts: Sequence[Facts], *, threshold: float = COMMUNICATION) -> Iterator[Finding]:
    """Stages in which more than 10 % of the time is collectives that no computing covers, every one of them.

    A step becomes shorter only where the stage that computes longest does; elsewhere the time goes to waiting for it.

    Args:
        run: the run.
        facts: of the ranks.
        threshold: share of the steps.
    """
    exposed = Exposed(run, facts)
    if not exposed.distributed or exposed.job.mode != PIPELINE_PARALLEL:
        return
    for stage, rate in exposed.rates.within_stages.items():
        if rate <= threshold:
            continue
        mine = exposed.means.filter(pl.col("stage") == stage).drop_nulls("collective_alone_ns")
        critical = stage == exposed.critical_stage
        yield Finding(
            rule=RULE.name,
            subject=f"stage{stage}",
            confidence=0.6 if critical else 0.4,
            evidence=(
                Evidence("collective_rate", 100 * rate, "%", per_step=False),
                *(
                    Evidence("collectives_alone", alone, "ns", places=(f"rank {rank}",))
                    for rank, alone in mine.select("rank", "collective_alone_ns").head(4).iter_rows()
                ),
                *([] if critical else [Evidence("waits_for_stage", exposed.critical_stage, "count", per_step=False)]),
                *missing(exposed.job),
            ),
            saving=exposed.saving("collective_alone_ns", threshold, mine) if critical else None,
            step_ns=exposed.step_ns,
            part="exposed_communication_ns",
            values={"stage": stage, "percent": f"{100 * rate:.2f}", "threshold": f"{100 * threshold:g}"},
            urgency=LOW if exposed.on_cpu else MEDIUM,
        )


RULE = Rule("stage_collectives", rests_on=(STEP_DEVICE_TIMES,), judge_run=judge, applies=is_pipeline)
