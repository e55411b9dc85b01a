"""Stages of a pipeline wait for what other stages send."""

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
    """More than 10 % of the time of all ranks are receives that nothing covers.

    A step becomes shorter only by what the stage waits that computes longest; the others wait for that one.

    Args:
        run: the run.
        facts: of the ranks.
        threshold: share of the steps.
    """
    exposed = Exposed(run, facts)
    rate = exposed.rates.between_stages if exposed.distributed and exposed.job.mode == PIPELINE_PARALLEL else None
    if rate is None or rate <= threshold:
        return
    waiting = exposed.means.drop_nulls("receive_alone_ns").sort("receive_alone_ns", descending=True)
    critical = exposed.means.filter(pl.col("stage") == exposed.critical_stage)
    yield Finding(
        rule=RULE.name,
        confidence=0.6,
        evidence=(
            Evidence("receive_rate", 100 * rate, "%", per_step=False),
            *(
                Evidence("receive_alone", alone, "ns", places=(f"rank {rank}",))
                for rank, alone in waiting.select("rank", "receive_alone_ns").head(4).iter_rows()
            ),
            *missing(exposed.job),
        ),
        saving=exposed.saving("receive_alone_ns", threshold, critical),
        step_ns=exposed.step_ns,
        part="exposed_communication_ns",
        values={"percent": f"{100 * rate:.2f}", "threshold": f"{100 * threshold:g}"},
        urgency=LOW if exposed.on_cpu else MEDIUM,
    )


RULE = Rule("stage_waits", rests_on=(STEP_DEVICE_TIMES,), judge_run=judge, applies=is_pipeline)
