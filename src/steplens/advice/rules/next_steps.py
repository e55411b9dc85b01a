"""What to do next where the verdict is known and no rule says why: what is not recorded, and what usually helps.

``advise`` gives these only where nothing else speaks to the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.parallelism import Exposed
from steplens.advice.rules.tools.ranks import job_of, missing_rank_evidence, traces_of
from steplens.advice.rules.tools.tasks import short_name
from steplens.analysis.device.idle_activity import idle_before
from steplens.analysis.device.step_work import step_work
from steplens.analysis.steps.summary import StepSummary
from steplens.analysis.verdict import whole_of_shares
from steplens.analysis.verdict_words import COMMUNICATION, COMPUTE, COPY, GUESS, HOST, INPUT, RANK, SURE, SYNCHRONIZING
from steplens.run import Run

#: how sure it is that more of the same recording, or a usual cure, helps
_CONFIDENCE = {SURE: 0.5, GUESS: 0.2}
_LIKELY = 0.4
#: what is worked on longest
_NAMED = 3
#: the part of the step that each verdict is about
_PARTS = {
    INPUT: "data_wait_ns",
    HOST: "idle_ns",
    SYNCHRONIZING: "device_wait_ns",
    COMMUNICATION: "exposed_communication_ns",
    COPY: "exposed_copy_ns",
    COMPUTE: "computing_ns",
}


def _next_step(name: str, kind: str) -> Rule:
    """The rule about one verdict."""

    def judge_verdict(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
        """The verdict is known, and nothing that was recorded tells its cause: what to record, and what usually helps.

        At most what the verdict is about goes; nothing tells how much of it.
        """
        verdict = run.verdict()
        if verdict.kind != kind:
            return
        summary = run.step_summary()
        # what an idle device waits for is not what the host's own phases show
        part = "idle_ns" if verdict.of_device and kind in (INPUT, SYNCHRONIZING) else _PARTS.get(kind, "")
        held_ns = verdict.share * _whole_ns(summary, of_device=verdict.of_device)
        # of the median step, as all savings; what is held up is a mean, as the parts that the pages show
        most_ns = min(held_ns, verdict.share * (summary.step_time_ns or 0.0))
        yield Finding(
            rule=name,
            confidence=_CONFIDENCE.get(verdict.confidence, _LIKELY),
            evidence=tuple(_verdict_evidence(kind, held_ns, run, facts)),
            # of computing nobody can say that it goes
            saving=None if kind == COMPUTE or most_ns <= 0 else Saving(0.0, 0.0, most_ns),
            step_ns=summary.step_time_ns or 0.0,
            lies_in=(part,) if part else (),
            values={"device": verdict.device, "slow": verdict.rank} if verdict.rank is not None else {"device": verdict.device},
        )

    return Rule(name, judge_run=judge_verdict)


def _whole_ns(summary: StepSummary, *, of_device: bool) -> float:
    """What the share of a verdict is of."""
    return whole_of_shares(summary) if of_device else summary.host_mean_ns or summary.step_mean_ns or 0.0


def _verdict_evidence(kind: str, held_ns: float, run: Run, facts: Sequence[Facts]) -> Iterator[Evidence]:
    yield Evidence("held_up", held_ns, "ns", places=tuple(_longest_work(facts)) if kind == COMPUTE else ())
    if kind == COMMUNICATION and (moving := Exposed(run, facts).moving) is not None:
        yield Evidence("moving_share", 100 * moving, "%", per_step=False)
    if kind in (HOST, SYNCHRONIZING) and not any(_has_rows(part, "python") for part in facts):
        yield from _idle_before(facts)
        yield Evidence("no_python_calls", 0, "", per_step=False)
    if kind in (COMPUTE, COPY) and not any(_has_shapes(part) for part in facts):
        yield Evidence("no_shapes", 0, "", per_step=False)
    if kind == INPUT and not any(_has_rows(part, "pipeline_loaders") or _has_rows(part, "pipeline") for part in facts):
        yield Evidence("no_pipeline", 0, "", per_step=False)
    if kind in (COMMUNICATION, RANK):
        yield from missing_rank_evidence(job_of(facts))


def _longest_work(facts: Sequence[Facts]) -> list[str]:
    """The kernels, or operators, that a step computes longest."""
    work = analyse_once(step_work, facts, traces_of(facts))
    return [short_name(str(name)) for name in work.head(_NAMED)["name"].to_list()]


def _idle_before(facts: Sequence[Facts]) -> Iterator[Evidence]:
    """The operators, or kernels, before which a device idles the longest."""
    frames = [idle_before(part.trace) for part in facts if "kernels" in part.trace]
    if not frames:
        return
    means = pl.concat(frames).group_by("name").agg(pl.col("idle_ns").sum() / len(frames))
    longest = means.sort("idle_ns", "name", descending=[True, False])
    if longest.height:
        names, lengths = longest.head(_NAMED)["name"].to_list(), longest.head(_NAMED)["idle_ns"].to_list()
        places = tuple(short_name(name) for name in names)
        yield Evidence("idle_before", float(longest["idle_ns"].sum()), "ns", places=places, places_ns=tuple(lengths))


def _has_rows(part: Facts, table: str) -> bool:
    return table in part.trace and bool(part.trace.required(table).select(pl.len() > 0).collect().item())


def _has_shapes(part: Facts) -> bool:
    return "ops" in part.trace and bool(part.trace.required("ops").select(pl.col("input_shapes").count() > 0).collect().item())


next_input_bound = _next_step("next_input_bound", INPUT)
next_host_bound = _next_step("next_host_bound", HOST)
next_synchronizing = _next_step("next_synchronizing", SYNCHRONIZING)
next_communication_bound = _next_step("next_communication_bound", COMMUNICATION)
next_copy_bound = _next_step("next_copy_bound", COPY)
next_compute_bound = _next_step("next_compute_bound", COMPUTE)
next_slow_rank = _next_step("next_slow_rank", RANK)

#: these give way to every other finding about the verdict
NEXT_STEPS = frozenset(
    rule.name
    for rule in (
        *(next_input_bound, next_host_bound, next_synchronizing, next_communication_bound),
        *(next_copy_bound, next_compute_bound, next_slow_rank),
    )
)
