"""Hosts, stages and links of a job that are slower than the others like them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import run_rule
from steplens.advice.rules.tools.digits import in_digits, in_ms
from steplens.advice.rules.tools.ranks import CLOCKS_DIFFER, job_of, missing_rank_evidence, rank_range_text, several_ranks
from steplens.analysis.cluster.stragglers.own_work import HOST, STAGE, Straggler, find_stragglers
from steplens.analysis.cluster.stragglers.slow_messages import OF_HOST, OF_RANKS, SlowLink, find_slow_links
from steplens.analysis.verdict_words import collective_name
from steplens.run import Run
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, RANK_COMPARISON, STEP_DEVICE_TIMES
from steplens.trace.schema import CORE_CPU

_MIB = 1 << 20
#: missing ranks and clocks that differ are no obstacle: lengths are compared
_DESPITE = (*CLOCKS_DIFFER, "missing_ranks")
#: what is only waiting for a straggler, or another name of it
_WAITING = ("slow_card", "stage_balance", "stage_waits", "data_parallel_communication")


@run_rule(rests_on=(STEP_DEVICE_TIMES, RANK_COMPARISON), despite=_DESPITE, explains=_WAITING, applies=several_ranks)
def slow_host(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """All ranks of a host compute longer than those of the same stages on other hosts.

    See ``analysis.cluster.stragglers.own_work.find_stragglers``. A step becomes shorter by what its ranks compute longer,
    where the others wait for them; half of it where something else then holds them up.
    """
    for straggler in _stragglers_of_kind(run, facts, HOST):
        values: dict[str, str | int] = {"host": straggler.host, "count": len(straggler.ranks)}
        yield _straggler_finding(slow_host.name, straggler.host, straggler, facts, values)


@run_rule(rests_on=(STEP_DEVICE_TIMES, RANK_COMPARISON), despite=_DESPITE, explains=_WAITING, applies=several_ranks)
def slow_stage(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """A stage of a pipeline computes longer than the others, which wait for it.

    See ``analysis.cluster.stragglers.own_work.find_stragglers``. At most what it computes longer than the median of the other
    stages; likely what it computes longer than the mean of all, since its layers go to the others.
    """
    stages = job_of(facts).stages
    for straggler in _stragglers_of_kind(run, facts, STAGE):
        case = "one_host" if straggler.host else ""
        values: dict[str, str | int] = {"stage": straggler.stage, "host": straggler.host, "case": case}
        evened = 1 - 1 / max(stages, 2)
        yield _straggler_finding(slow_stage.name, f"stage{straggler.stage}", straggler, facts, values, evened)


def _stragglers_of_kind(run: Run, facts: Sequence[Facts], kind: str) -> list[Straggler]:
    steps = {number for part in facts for number in part.numbers}
    stragglers = find_stragglers(run.traces, steps, _step_ns(facts)) if any(part.device != CORE_CPU for part in facts) else []
    return [straggler for straggler in stragglers if straggler.kind == kind]


def _straggler_finding(
    name: str, subject: str, straggler: Straggler, facts: Sequence[Facts], values: dict[str, str | int], share: float = 1.0
) -> Finding:
    ranks = rank_range_text(straggler.ranks)
    likely_ns = share * straggler.more_ns
    return Finding(
        rule=name,
        subject=subject,
        confidence=0.9,
        evidence=(
            Evidence("computes_longer", straggler.own_ns, "ns", straggler.steps, (ranks,)),
            Evidence("others_like_it", straggler.other_ns, "ns"),
            *missing_rank_evidence(job_of(facts)),
        ),
        saving=Saving(likely_ns / 2, likely_ns, straggler.more_ns),
        step_ns=_step_ns(facts),
        part="computing_ns",
        ranks=straggler.ranks,
        values=values | {"ranks": ranks, "percent": f"{straggler.percent_longer:.0f}", "time": in_ms(straggler.own_ns)},
    )


@run_rule(
    rests_on=(COMMUNICATION_VOLUME, COMMUNICATION_TIMES, RANK_COMPARISON),
    despite=_DESPITE,
    explains=("slow_group", "stage_collectives", "stage_waits", "model_parallel_communication", "data_parallel_communication"),
    applies=several_ranks,
)
def slow_messages(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """Messages over a host's network, or between some ranks, take longer than the same messages elsewhere in the job.

    See ``analysis.cluster.stragglers.slow_messages.find_slow_links``: from the last arrival on, so that no waiting is in
    it. At most what the rank that loses most would move sooner; likely as much of that as it computes nothing
    meanwhile.
    """
    steps = {number for part in facts for number in part.numbers}
    step_ns = _step_ns(facts)
    for link in find_slow_links(run.traces, steps, step_ns) if step_ns > 0 else ():
        ranks = rank_range_text(link.ranks)
        yield Finding(
            rule=slow_messages.name,
            subject="-".join(link.hosts or map(str, link.ranks)),
            confidence=0.8,
            evidence=(
                Evidence("message_moves", link.transfer_ns, "ns", places=(ranks,), per_step=False),
                Evidence("moves_elsewhere", link.usual_ns, "ns", per_step=False),
                Evidence("slow_groups", link.groups, "count", per_step=False),
                Evidence("compared_groups", link.of_groups, "count", per_step=False),
                *missing_rank_evidence(job_of(facts)),
            ),
            saving=Saving(0.0, link.exposed_ns, link.lost_ns),
            step_ns=step_ns,
            part="exposed_communication_ns",
            ranks=link.ranks,
            values=_link_values(link, ranks),
        )


def _link_values(link: SlowLink, ranks: str) -> dict[str, str | int]:
    operation = collective_name(link.operation)
    return {
        "case": {OF_HOST: "", OF_RANKS: "of_ranks"}.get(link.kind, "between_hosts"),
        "host": link.hosts[0] if link.hosts else "",
        "hosts": ", ".join(link.hosts),
        "ranks": ranks,
        "times": in_digits(link.transfer_ns / link.usual_ns),
        "operation": operation,
        "size": in_digits(link.bytes / _MIB),
        "took": in_ms(link.transfer_ns),
        "usual": in_ms(link.usual_ns),
    }


def _step_ns(facts: Sequence[Facts]) -> float:
    lengths = [part.step_ns for part in facts if part.step_ns > 0]
    return sum(lengths) / len(lengths) if lengths else 0.0
