"""Ranks that hold the same model, or parts of every layer, spend much of a step on communication alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.cluster.comparison import COMMUNICATION, is_parallel, missing
from steplens.advice.rules.cluster.exposed import Exposed
from steplens.trace.health import STEP_DEVICE_TIMES
from steplens.trace.run import Run


def rule(name: str, mode: str) -> Rule:
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
        if saving is not None:
            likely = min(saving.likely_ns, exposed.room_ns)
            # an unknown part of it waits for other ranks
            saving = replace(saving, likely_ns=likely / 2 if moving is None else likely)
        told = Evidence("waiting_unknown", 0, "")
        if moving is not None:
            told = Evidence("moving_share", 100 * moving, "%", per_step=False)
        yield Finding(
            rule=name,
            confidence=0.3 if moving is None else 0.6,
            evidence=(
                Evidence("communication_rate", 100 * rate, "%", per_step=False),
                Evidence("communication_alone", alone, "ns"),
                told,
                *missing(exposed.job),
            ),
            saving=saving,
            step_ns=exposed.step_ns,
            part="exposed_communication_ns",
            values={"percent": f"{100 * rate * share:.2f}", "threshold": f"{100 * threshold:g}"},
            urgency=LOW if exposed.on_cpu else MEDIUM,
        )

    return Rule(name, rests_on=(STEP_DEVICE_TIMES,), judge_run=judge, applies=lambda facts: is_parallel(facts, mode))
