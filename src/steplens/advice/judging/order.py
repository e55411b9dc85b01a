"""In which order findings are given, which of them see the same time, and what they save together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from steplens.advice.finding import EXPLAINED, LOW, Finding
from steplens.advice.judging.pricing import Prices
from steplens.advice.rules.next_steps import NEXT_STEPS
from steplens.analysis import verdict_words as of_verdict
from steplens.analysis.verdict_words import Verdict

#: the part of the step that a verdict is about
_PARTS: Mapping[str, frozenset[str]] = {
    of_verdict.COMPUTE: frozenset({"computing_ns"}),
    of_verdict.COMMUNICATION: frozenset({"exposed_communication_ns", "gradient_sync_ns"}),
    of_verdict.COPY: frozenset({"exposed_copy_ns"}),
    of_verdict.INPUT: frozenset({"data_wait_ns"}),
    of_verdict.HOST: frozenset({"idle_ns", "python_ns"}),
    of_verdict.SYNCHRONIZING: frozenset({"device_wait_ns"}),
}
#: rules whose findings attack a verdict, whatever part they shorten
_RULES: Mapping[str, frozenset[str]] = {
    of_verdict.COMMUNICATION: frozenset(
        {"slow_rank", "slow_link", "slow_messages", "slow_group", "exposed_gradients", "stage_waits"}
    ),
    of_verdict.COPY: frozenset({"exposed_copies", "pageable_copies", "small_copies", "loader_without_pinning"}),
    of_verdict.INPUT: frozenset({"iteration_interval", "data_processing", "data_transfer", "slow_fetches", "slow_interval"}),
    of_verdict.SYNCHRONIZING: frozenset({"scalar_reads", "synchronising_calls", "blocking_launches"}),
    of_verdict.RANK: frozenset({"slow_rank", "slow_card", "slow_interval"}),
    of_verdict.SLOW_HOST: frozenset({"slow_host", "slow_card"}),
    of_verdict.SLOW_LINK: frozenset({"slow_messages", "slow_group", "slow_link"}),
    of_verdict.SLOW_STAGE: frozenset({"slow_stage", "stage_balance"}),
    of_verdict.PIPELINE: frozenset({"pipeline_bubble", "stage_waits", "slow_rank", "slow_stage", "slow_host", "slow_messages"}),
    of_verdict.HOST: frozenset(
        {
            *("garbage_collection", "recompilation", "tiny_operators", "scalar_reads", "checkpoint_stalls"),
            *("python_in_the_loop", "suspected_collections", "changing_shapes"),
        }
    ),
}
#: of the most that a finding may save, so much of the step matters although nothing is likely
_MATTERS = 0.03
_WAITS = frozenset({"data_wait_ns", "device_wait_ns"})
_DEVICE = frozenset({"computing_ns", "exposed_communication_ns", "exposed_copy_ns"})


def attacks_verdict(finding: Finding, verdict: Verdict) -> bool:
    """Whether a finding is about what the verdict says holds the step up."""
    if verdict.kind == of_verdict.RANK and finding.rule not in (*_RULES[of_verdict.RANK], *NEXT_STEPS):
        return finding.ranks == (verdict.rank,)
    parts = _PARTS.get(verdict.kind, frozenset())
    if finding.rule in NEXT_STEPS or finding.rule in _RULES.get(verdict.kind, ()) or parts & parts_of(finding):
        return True
    # on a CPU the work is the operators', in whatever phase they lie
    return verdict.kind == of_verdict.COMPUTE and not verdict.of_device and bool(parts_of(finding) - _WAITS - {"python_ns"})


def is_worth_saying(finding: Finding) -> bool:
    """Whether a finding is likely to save something worth a word, or may save much."""
    may_ns = finding.saving.high_ns if finding.saving is not None else 0.0
    return finding.level != LOW or (finding.step_ns > 0 and may_ns >= _MATTERS * finding.step_ns)


def without_next_steps(findings: Sequence[Finding], verdict: Verdict) -> list[Finding]:
    """The findings without those that only say what to do next, where another one is about the verdict."""
    about_verdict = [each for each in findings if is_worth_saying(each) and attacks_verdict(each, verdict)]
    is_explained = any(each.rule not in NEXT_STEPS for each in about_verdict)
    return [finding for finding in findings if not (is_explained and finding.rule in NEXT_STEPS)]


def in_order(findings: Sequence[Finding], verdict: Verdict) -> list[Finding]:
    """What attacks the verdict first, then by level and likely saving."""

    def sort_key(finding: Finding) -> tuple[bool, tuple[int, float], str]:
        return not (is_worth_saying(finding) and attacks_verdict(finding, verdict)), finding.rank, finding.id

    return sorted(findings, key=sort_key)


def parts_of(finding: Finding) -> frozenset[str]:
    """In which parts of the step the time lies that a finding is about; empty where nothing tells."""
    return frozenset(finding.lies_in) or frozenset({finding.part} - {""})


def with_overlaps(findings: Sequence[Finding], prices: Prices) -> list[Finding]:
    """The findings, each with the others that see time of the same part of the step, and with what it saves after these."""
    with_others = []
    for finding in findings:
        beside = [second for second in findings if _see_same_time(finding, second)]
        after_ns = {second.id: left_ns for second in beside if (left_ns := _likely_after(finding, [second], prices)) is not None}
        overlaps = tuple(second.id for second in beside)
        with_others.append(_with_first(dataclasses.replace(finding, overlaps=overlaps, after_ns=after_ns), beside))
    return with_others


def with_first_ones_first(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in the same order, but each behind those that should be cured before it (``Finding.first``)."""
    left, ordered = list(findings), list[Finding]()
    while left:
        names = {finding.id for finding in left}
        # what waits for one another in a circle stays as it is
        next_one = next((each for each in left if not names & set(each.first)), left[0])
        left.remove(next_one)
        ordered.append(next_one)
    return ordered


#: cases of findings whose remedy comes after what else shortens the same part
_COMES_AFTER = frozenset({"few_processors"})


def _with_first(finding: Finding, beside: Sequence[Finding]) -> Finding:
    """A finding that something else comes before, with those of the overlapping ones that shorten the same part otherwise.

    What saves less by itself comes later, as everywhere: of both the larger saving is the better beginning.
    """
    if finding.values.get("case") not in _COMES_AFTER or not finding.part:
        return finding
    first = tuple(second.id for second in beside if second.part == finding.part and second.weight_ns > finding.weight_ns)
    return dataclasses.replace(finding, first=first)


#: what a saving is likely, and what it is at most
_LIKELY, _MOST = "likely_ns", "high_ns"


def _likely_after(finding: Finding, cured: Sequence[Finding], prices: Prices, figure: str = _LIKELY) -> float | None:
    """What a finding is likely to save once others are cured, ns; None where nothing tells how much they share.

    What a cure takes off the part that both are about it takes off what the other one is about in proportion. With ``_MOST``
    the same of the most that each may save.
    """
    if finding.saving is None or finding.at_stake or any(second.saving is None or second.at_stake for second in cured):
        return None
    own_ns = left_ns = getattr(finding.saving, figure)
    for second in cured:
        length_ns = _common_length(finding, second, prices)
        if length_ns is None:
            return None
        second_ns = getattr(second.saving, figure)
        left_ns *= 1 - second_ns / max(length_ns, second_ns, own_ns, 1.0)
    return float(left_ns)


def _common_length(finding: Finding, second: Finding, prices: Prices) -> float | None:
    """How long the part of the step takes that two overlapping findings are about, without recording; None where not known."""
    parts, second_parts = parts_of(finding), parts_of(second)
    common = parts & second_parts or ({"idle_ns"} if "idle_ns" in parts | second_parts else set())
    lengths = [prices.curable_ns(part, finding.ranks or second.ranks) for part in common]
    known_lengths = [length for length in lengths if length]
    return sum(known_lengths) if known_lengths and len(known_lengths) == len(lengths) else None


def _see_same_time(finding: Finding, other: Finding) -> bool:
    if finding.id == other.id or not _has_saving(finding) or not _has_saving(other) or {finding.rule, other.rule} & NEXT_STEPS:
        return False
    if finding.ranks and other.ranks and not set(finding.ranks) & set(other.ranks):
        return False
    if _takes_off(finding, other) or _takes_off(other, finding):
        return False
    for one_rank, beside in ((finding, other), (other, finding)):
        if one_rank.rule == "slow_rank" and beside.rule != "slow_rank":
            # what is done sooner on that rank is what the others wait for
            return beside.ranks == one_rank.ranks or _makes_late(beside, one_rank)
    if finding.rule == other.rule:
        # a rule divides what it sees among its findings
        return False
    parts, other_parts = parts_of(finding), parts_of(other)
    return bool(parts & other_parts) or _idles_in(parts, other_parts) or _idles_in(other_parts, parts)


def _makes_late(finding: Finding, late: Finding) -> bool:
    """Whether a finding that a late rank has among others is about the part of the step that takes that rank longer."""
    return bool(parts_of(finding) & frozenset(late.lies_in)) and set(finding.ranks or late.ranks) >= set(late.ranks)


def _idles_in(parts: frozenset[str], others: frozenset[str]) -> bool:
    """Whether one is about idle time of the device, and the other about what the host does meanwhile."""
    return "idle_ns" in parts and bool(others - _DEVICE - {"idle_ns"})


def _takes_off(finding: Finding, other: Finding) -> bool:
    """Whether the time of ``other`` has been taken off that of ``finding`` already."""
    return any(item.what == EXPLAINED and other.id in item.places for item in finding.evidence)


def _has_saving(finding: Finding) -> bool:
    return finding.saving is not None and finding.saving.high_ns > 0


def together_ns(findings: Sequence[Finding], prices: Prices) -> tuple[float, float]:
    """What all findings save together, ns: probably, and at most.

    Of those that overlap each saves what it does after those before it (``_likely_after``), and at most they save what the parts
    take that they are about. What is at stake until its cause is found no finding saves.

    Args:
        findings: with their overlaps.
        prices: what parts take.
    """
    saving = {finding.id: finding for finding in findings if _has_saving(finding) and not finding.at_stake}
    left, likely_ns, most_ns = dict(saving), 0.0, 0.0
    while left:
        group = [left.pop(next(iter(left)))]
        for finding in group:
            group += [left.pop(name) for name in finding.overlaps if name in left]
        most_of_group = _most_of_group(group, prices)
        likely_ns += min(_likely_of_group(group, prices), most_of_group)
        most_ns += most_of_group
    bound_ns = prices.step_ns or most_ns
    return min(likely_ns, bound_ns), min(most_ns, bound_ns)


def _likely_of_group(group: Sequence[Finding], prices: Prices, figure: str = _LIKELY) -> float:
    savings = {finding.id: float(getattr(finding.saving, figure)) for finding in group if finding.saving is not None}
    # of what is cured on a late rank nothing else is saved, unless it is known how much that shares with being late
    ordered = sorted(group, key=lambda finding: finding.rule != "slow_rank")
    total_ns = 0.0
    for place, finding in enumerate(ordered):
        before = [second for second in ordered[:place] if second.id in finding.overlaps]
        after_ns = _likely_after(finding, before, prices, figure)
        if after_ns is None:
            # nothing tells how much they share: as if it were all
            after_ns = max(savings[finding.id] - max((savings[second.id] for second in before), default=0.0), 0.0)
        total_ns += after_ns
    return total_ns


def _most_of_group(group: Sequence[Finding], prices: Prices) -> float:
    highs = [finding.saving.high_ns for finding in group if finding.saving is not None]
    slow = [finding.saving.high_ns for finding in group if finding.rule == "slow_rank" and finding.saving is not None]
    if slow:
        # as soon as the slow rank is as quick as the others, these hold the step up
        return max(*slow, *highs, _likely_of_group(group, prices)) if len(group) > 1 else slow[0]
    lengths = [prices.curable_ns(part, finding.ranks) for finding in group for part in parts_of(finding)]
    by_part: dict[str, float] = {}
    for finding in group:
        for part in parts_of(finding):
            by_part[part] = max(by_part.get(part, 0.0), prices.curable_ns(part, finding.ranks) or 0.0)
    most_ns = max(*highs, _likely_of_group(group, prices), _likely_of_group(group, prices, _MOST))
    if not lengths or None in lengths or not all(parts_of(finding) for finding in group):
        return most_ns
    return min(most_ns, max(sum(by_part.values()), *highs))
