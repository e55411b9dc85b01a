"""What to do next where the verdict is known and no rule says why: what is not recorded, and what usually helps.

``advise`` gives these only where nothing else speaks to the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from steplens.advice.facts import Facts, analyse_once
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.digits import in_ms
from steplens.advice.rules.tools.exposed import Exposed
from steplens.advice.rules.tools.idle_places import BETWEEN, idle_besides, place_evidence
from steplens.advice.rules.tools.ranks import job_of, missing_rank_evidence, traces_of
from steplens.advice.rules.tools.tasks import most_of_others, named_places, short_name
from steplens.analysis.device.idle import LAUNCH, idle_of_step
from steplens.analysis.device.idle_places import LaunchGaps, idle_in_each_step, idle_places, late_gaps, launch_gaps
from steplens.analysis.device.step_work import LAUNCHED_COPY, step_work
from steplens.analysis.steps.summary import StepSummary
from steplens.analysis.verdict import whole_of_shares
from steplens.analysis.verdict_words import COMMUNICATION, COMPUTE, COPY, GUESS, HOST, INPUT, RANK, SURE, SYNCHRONIZING
from steplens.run import Run
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COPY
from steplens.trace.trace import Trace

#: how sure it is that more of the same recording, or a usual cure, helps
_CONFIDENCE = {SURE: 0.5, GUESS: 0.2}
_LIKELY = 0.4
#: on what a saving rests where launching takes the time, and where a single gap does
_LAUNCHES, _ONE_GAP = "launches", "one_gap"
#: a gap that is most of the time, and is so many times as long as a quick launch, is what the host does, not launching
_LEADS, _TIMES_A_LAUNCH = 0.5, 5
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

        At most what the verdict is about goes. Where the device waits for launches inside of a step, likely goes what they take
        beyond the quickest quarter of them, and at least the same of what every step idles between the same operators. Where one
        gap stands out, the same of that gap.
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
        gaps = _gaps_of(kind, facts)
        places = None if gaps is None else idle_places(traces_of(facts), gaps, summary.device.get("idle_ns", 0.0))
        idle = [] if places is None else _idle_evidence(kind, facts, summary, places)
        launches = analyse_once(_launch_gaps, facts, traces_of(facts)) if kind == HOST else None
        gap = _longest_gap(idle, facts, gaps, places) if kind == HOST else None
        values: dict[str, str | int] = {"device": verdict.device}
        if verdict.rank is not None:
            values["slow"] = verdict.rank
        if kind == HOST:
            values |= gap.text_values(launches) if gap is not None else {"case": "nowhere"}
        yield Finding(
            rule=name,
            confidence=_CONFIDENCE.get(verdict.confidence, _LIKELY),
            evidence=tuple(_verdict_evidence(kind, held_ns, run, facts, idle)),
            # of computing nobody can say that it goes
            saving=None if kind == COMPUTE or most_ns <= 0 else _estimate_saving(held_ns, most_ns, idle, launches, gap),
            step_ns=summary.step_time_ns or 0.0,
            lies_in=(part,) if part else (),
            values=values | (_launch_values(launches) if launches is not None else {}),
            basis="" if launches is None else _ONE_GAP if gap is not None and gap.stands_out(launches) else _LAUNCHES,
        )

    return Rule(name, judge_run=judge_verdict)


def _whole_ns(summary: StepSummary, *, of_device: bool) -> float:
    """What the share of a verdict is of."""
    return whole_of_shares(summary) if of_device else summary.host_mean_ns or summary.step_mean_ns or 0.0


def _verdict_evidence(
    kind: str, held_ns: float, run: Run, facts: Sequence[Facts], idle: Sequence[Evidence]
) -> Iterator[Evidence]:
    yield Evidence("held_up", held_ns, "ns", of_mean=True)
    if kind == COMPUTE:
        yield from _work_evidence(facts)
    if kind == COMMUNICATION and (moving := Exposed(run, facts).moving) is not None:
        yield Evidence("moving_share", 100 * moving, "%", per_step=False)
    yield from idle
    if kind in (HOST, SYNCHRONIZING) and not any(_has_rows(part, "python") for part in facts):
        yield Evidence("no_python_calls", 0, "", per_step=False)
    if kind in (COMPUTE, COPY) and not any(_has_shapes(part) for part in facts):
        yield Evidence("no_shapes", 0, "", per_step=False)
    if kind == INPUT and not any(_has_rows(part, "pipeline_loaders") or _has_rows(part, "pipeline") for part in facts):
        yield Evidence("no_pipeline", 0, "", per_step=False)
    if kind in (COMMUNICATION, RANK):
        yield from missing_rank_evidence(job_of(facts))


def _work_evidence(facts: Sequence[Facts]) -> Iterator[Evidence]:
    """The kernels, or operators, that a step computes longest."""
    work = analyse_once(step_work, facts, traces_of(facts)).filter(
        ~pl.col("kind").is_in([KIND_COPY, LAUNCHED_COPY, KIND_COMMUNICATION])
    )
    if not work.height:
        return
    lengths, work_ns = work["step_ns"].to_list(), float(work["step_ns"].sum())
    name_count = named_places(lengths, work_ns)
    longest, unnamed = work[:name_count], work[name_count:]
    yield Evidence(
        "longest_work",
        work_ns,
        "ns",
        places=tuple(short_name(str(name)) for name in longest["name"]),
        places_ns=tuple(longest["step_ns"]),
        other_places=unnamed.height,
        other_places_ns=float(unnamed["step_ns"].sum()),
        other_most=most_of_others(lengths, work_ns, name_count),
        of_mean=True,
    )


def _gaps_of(kind: str, facts: Sequence[Facts]) -> pl.DataFrame | None:
    """The gaps in which the device idles for the host, of a verdict that is about that; None of others."""
    if kind == HOST:
        return analyse_once(late_gaps, facts, traces_of(facts))
    return late_gaps(traces_of(facts), synchronizing=True) if kind == SYNCHRONIZING else None


def _idle_evidence(kind: str, facts: Sequence[Facts], summary: StepSummary, places: pl.DataFrame) -> list[Evidence]:
    """Where the device idles for the host."""
    traces, idle_ns = traces_of(facts), summary.device.get("idle_ns", 0.0)
    evidence = place_evidence(traces, places, of_mean=True)
    lengths = idle_of_step(traces, idle_ns)
    if kind == HOST and (on_its_way_ns := lengths.get(LAUNCH, 0.0)):
        evidence.append(Evidence("idle_launch", on_its_way_ns, "ns", of_mean=True))
    if kind == HOST:
        evidence += idle_besides(lengths, summary.step_mean_ns or 0.0, of_mean=True)
    return evidence


@dataclass(frozen=True)
class _LongestGap:
    """The two operators of a step between which the device idles longest for the host.

    Attributes:
        before, after: the operators.
        share: of the time in which the device idles for the host, 0 to 1.
        length_ns: in the mean step.
        count: how often a step has it.
        by_step_ns: in each step.
    """

    before: str
    after: str
    share: float
    length_ns: float
    count: float
    by_step_ns: Sequence[int]

    def stands_out(self, launches: LaunchGaps | None) -> bool:
        """Whether it is what the host does there, not launching, that makes it long, and it is most of the time."""
        usual_ns = launches.quick_ns if launches is not None else 0.0
        return self.share >= _LEADS and self.length_ns >= _TIMES_A_LAUNCH * usual_ns * self.count

    def text_values(self, launches: LaunchGaps | None) -> dict[str, str | int]:
        """What the text says of it."""
        values: dict[str, str | int] = {"before": self.before, "after": self.after, "percent": f"{100 * self.share:.0f}"}
        values |= {"least": in_ms(min(self.by_step_ns)), "most": in_ms(max(self.by_step_ns))}
        return values | ({"case": _ONE_GAP} if self.stands_out(launches) else {})


def _longest_gap(
    idle: Sequence[Evidence], facts: Sequence[Facts], gaps: pl.DataFrame | None, places: pl.DataFrame | None
) -> _LongestGap | None:
    """The longest of the places that evidence names; None where there is none."""
    if gaps is None or places is None or not idle or not idle[0].places:
        return None
    before, _, after = idle[0].places[0].partition(BETWEEN)
    by_step = idle_in_each_step(traces_of(facts), gaps, places.filter("is_inside").row(0, named=True))
    length_ns = idle[0].places_ns[0]
    return _LongestGap(before, after, length_ns / idle[0].whole_ns, length_ns, idle[0].places_count[0], by_step)


def _launch_gaps(traces: Sequence[Trace]) -> LaunchGaps | None:
    return launch_gaps(traces, late_gaps(traces))


def _launch_values(launches: LaunchGaps) -> dict[str, str | int]:
    return {"launches": f"{launches.launches:.0f}", "gap": f"{launches.quick_ns / 1e3:.0f}"}


def _estimate_saving(
    held_ns: float, most_ns: float, idle: Sequence[Evidence], launches: LaunchGaps | None, gap: _LongestGap | None
) -> Saving:
    """What goes of the time that a verdict is about, of a median step; nothing is likely where nothing tells.

    Args:
        held_ns: what the verdict is about, of a mean step, as ``idle`` is.
        most_ns: the same of a median step.
        idle: where the device idles.
        launches: what lies between two launches.
        gap: the longest gap, which alone goes where it stands out.
    """
    if launches is None or not idle:
        return Saving(0.0, 0.0, most_ns)
    of_median = most_ns / held_ns
    if gap is not None and gap.stands_out(launches):
        quick_ns = gap.count * launches.quick_ns
        likely_ns = min(max(gap.length_ns - quick_ns, 0.0) * of_median, most_ns)
        # of a single step nothing tells how much of it every step has
        least_ns = min(gap.by_step_ns) - quick_ns if len(gap.by_step_ns) > 1 else 0.0
        return Saving(min(max(least_ns, 0.0), likely_ns), likely_ns, most_ns)
    likely_ns = min(launches.beyond_quick_ns(idle[0].value) * of_median, most_ns)
    return Saving(min(launches.beyond_quick_ns(launches.least_ns), likely_ns), likely_ns, most_ns)


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
