"""What ``steplens advise`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from rich.console import Console
from rich.text import Text

from steplens.advice.advice import Advice
from steplens.advice.compare import Change
from steplens.advice.finding import HIGH, MEDIUM, Evidence, Finding, Saving
from steplens.advice.texts import CHINESE
from steplens.advice.texts import Text as AdviceText
from steplens.advice.words import Words
from steplens.analysis.steps.summary import StepSummary
from steplens.analysis.verdict_words import Verdict
from steplens.cli.text.text import (
    clean,
    console,
    duration,
    estimated_duration,
    estimated_share,
    least_duration,
    most_duration,
    most_share,
    plain,
    size,
)

_STYLE = {HIGH: "bold red", MEDIUM: "bold yellow"}
_STEPS = 8
_RANKS = 8


def show_verdict(verdict: Verdict, steps: StepSummary, words: Words) -> None:
    """Print what holds a step up, and which steps figures of a step are of."""
    out = console()
    of = words.which_steps(steps) + (words.frame("figures_are") if steps.steps > 1 else "")
    for text, style in ((words.verdict(verdict), "bold"), (of, "dim")):
        for line in plain(text, style).wrap(out, out.width):
            out.print(line, no_wrap=True)
    out.print()


def show_advice(found: Advice, words: Words) -> None:
    """Print all findings on stdout, most important first."""
    out = console()
    key = {0: "nothing", 1: "one"}.get(len(found.findings), "several")
    # what a data pipeline or a link is like can be known without any step
    step = words.frame("step", step=duration(found.step_ns)) if found.step_ns > 0 else words.frame("no_steps")
    out.print(plain(words.frame(key, count=str(len(found.findings))) + step, "bold"), soft_wrap=True)
    priced = sum(finding.saving is not None for finding in found.findings)
    if priced and found.step_ns > 0:
        savings = [finding.saving for finding in found.findings if finding.saving is not None and not finding.at_stake]
        at_most_ns = sum(saving.high_ns for saving in savings)
        together = {
            "likely": estimated_duration(found.likely_together_ns, found.together_ns),
            "likely_share": estimated_share(found.likely_together_ns, found.step_ns, found.together_ns),
            "time": most_duration(found.together_ns),
            "stake": words.frame("without_stake") if any(finding.at_stake for finding in found.findings) else "",
            "share": most_share(found.together_ns, found.step_ns),
        }
        # where the bound is no more than their sum, it says nothing, but for what overlaps
        is_bounded = found.together_ns < 0.99 * at_most_ns or any(finding.after_ns for finding in found.findings)
        # two figures that differ in their last digit alone would be one to a reader
        is_one = found.likely_together_ns >= 0.98 * found.together_ns
        overlap = ("together_at_most" if is_one else "together") if is_bounded else "overlap"
        for line in plain(words.frame(overlap if priced > 1 else "confidence_means", **together), "dim").wrap(out, out.width):
            out.print(line, no_wrap=True)
    titles = {finding.id: f"{number} ({words.of(finding).title})" for number, finding in enumerate(found.findings, 1)}
    likely_ns = {finding.id: finding.saving.likely_ns for finding in found.findings if finding.saving is not None}
    for number, finding in enumerate(found.findings, 1):
        _show_one(out, number, finding, words, titles, likely_ns)
    rules: dict[tuple[str, str], list[str]] = {}
    for silenced in found.silenced:
        rules.setdefault((silenced.conclusion, silenced.reason), []).append(silenced.rule)
    for (conclusion, reason), names in rules.items():
        out.print()
        why = {"conclusion": words.conclusion(conclusion), "reason": words.health_message(reason)}
        out.print(plain(words.frame("not_judged", rules=", ".join(names), **why), "dim"), soft_wrap=False)


def show_change(change: Change, words: Words) -> None:
    """Print which findings of an earlier run are cured, and what a step really became shorter by."""
    out = console()
    out.print()
    out.print(plain(_step_time_change(change, words), "bold"))
    if change.comparable and change.is_unlike:
        _print_wrapped(out, words.frame("since_unlike", share=f"{100 * (change.common_share or 0.0):.0f} %"))
    elif change.comparable and not change.ran_alike:
        _print_wrapped(out, words.frame("since_elsewhere"))
    for key, findings in (("cured", change.cured), ("remaining", change.remaining), ("new", change.new)):
        for finding in findings:
            out.print(plain(f"  {words.frame(key)}: {words.of(finding).title}"))


def _step_time_change(change: Change, words: Words) -> str:
    """What became of the length of a step."""
    if not change.comparable:
        return words.frame("since_unknown")
    parts = {"before": change.before_ns, "after": change.after_ns, "promised": change.promised_ns}
    parts |= {"saved": change.saved_ns} if change.saved_ns >= 0 else {"added": -change.saved_ns}
    key = "since" if change.saved_ns >= 0 else "since_longer"
    if change.promised_ns <= 0:
        key += "_only"
    return words.frame(key, **{name: duration(ns) for name, ns in parts.items()})


def finding_headline(finding: Finding, words: Words) -> str:
    """A finding on one line: level where anything tells it, title, saving."""
    saves = f", {_saving_text(finding, words)}" if finding.saving is not None else ""
    level = f"{words.frame(finding.level)}: " if finding.is_weighed else ""
    return f"{level}{words.of(finding).title}{saves}"


def _show_one(
    out: Console, number: int, finding: Finding, words: Words, titles: Mapping[str, str], likely_ns: Mapping[str, float]
) -> None:
    text = words.of(finding)
    out.print()
    level = f"[{words.frame(finding.level)}] " if finding.is_weighed else ""
    head = Text(f"{number}. {level}", _STYLE.get(finding.level, "bold") if level else "bold")
    out.print(head + plain(text.title, "bold"))
    if finding.saving is not None:
        sure = words.frame("confidence", percent=f"{100 * finding.confidence:.0f} %")
        _print_wrapped(out, f"{_saving_text(finding, words)}; {sure}")
    _print_wrapped(out, text.cause)
    for item in finding.evidence:
        _print_wrapped(out, _evidence_text(item, words, titles), "dim")
    if ends := _range_text(finding, words):
        _print_wrapped(out, f"{words.frame('evidence')}: {ends}", "dim")
    for name, left_ns in finding.after_ns.items():
        both = {"left": estimated_duration(left_ns), "both": estimated_duration(left_ns + likely_ns[name])}
        _print_wrapped(out, words.frame("after", other=titles[name], **both), "dim")
    unpriced = [titles[name] for name in finding.overlaps if name in titles and name not in finding.after_ns]
    if unpriced:
        _print_wrapped(out, words.frame("overlaps", others=", ".join(unpriced)), "dim")
    first = [titles[name] for name in finding.first if name in titles]
    space = "" if words.language == CHINESE else " "
    _print_wrapped(out, words.frame("first", others=", ".join(first)) + space + text.remedy if first else text.remedy)
    for line in text.patch.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        out.print(Text("     ") + plain(line, style), soft_wrap=True)
    where = words.documentation(finding)
    if where:
        _print_wrapped(out, words.frame("see", where=where), "dim")


def _saving_text(finding: Finding, words: Words) -> str:
    assert finding.saving is not None
    saving, basis = finding.saving, words.of(finding)
    key = _saving_key(finding, basis)
    if key in _OF_MOST:
        share = most_share(saving.high_ns, finding.step_ns)
    else:
        share = estimated_share(saving.likely_ns, finding.step_ns, saving.high_ns)
    low, likely, high = _range_in_words(saving)
    high_basis = basis.likely if saving.likely_ns < saving.high_ns and basis.likely else basis.high
    text = words.frame(key, share=share, low_basis=basis.low, high_basis=high_basis, low=low, likely=likely, high=high)
    if key == "saves" and basis.likely:
        text += ("，" if words.language == CHINESE else " ") + basis.likely
    if not finding.ranks or "rank" in finding.values:
        return text
    rank_names = ", ".join(f"rank {rank}" for rank in finding.ranks[:_RANKS]) + (" ..." if finding.ranks[_RANKS:] else "")
    return f"{text}, {words.frame('on_ranks', ranks=rank_names)}"


#: sentences about a saving whose share is of its high end, not of what is likely
_OF_MOST = ("at_stake", "saves_nothing", "saves_up_to")


def _saving_key(finding: Finding, basis: AdviceText) -> str:
    """The sentence about a saving."""
    saving = finding.saving
    if finding.at_stake:
        return "at_stake"
    if saving is not None and saving.likely_ns > 0:
        low, likely, high = _range_in_words(saving)
        # a likely saving that is the most there can be is no estimate of its own: what each end rests on says more
        if low != high == likely and basis.low and basis.high:
            return "saves_ends"
        return "saves" if low != high else "saves_about"
    return "saves_nothing" if basis.low and basis.high else "saves_up_to"


def _range_in_words(saving: Saving) -> tuple[str, str, str]:
    """What a cure saves at least, probably and at most. Where all of it is one, it is what it is, not one rounded down thrice."""
    likely = estimated_duration(saving.likely_ns, saving.high_ns)
    if saving.low_ns == saving.high_ns:
        return likely, likely, likely
    return least_duration(saving.low_ns), likely, most_duration(saving.high_ns)


def _range_text(finding: Finding, words: Words) -> str:
    """What the ends of the range of a saving rest on; empty where nothing says it, and where the line above does."""
    saving, text = finding.saving, words.of(finding)
    if saving is None or saving.high_ns <= saving.low_ns or finding.at_stake:
        return ""
    if _saving_key(finding, text) in ("saves_nothing", "saves_ends"):
        return ""
    colon, comma = ("：", "；") if words.language == CHINESE else (": ", "; ")
    low, _, high = _range_in_words(saving)
    ends_text = comma.join(f"{end}{colon}{basis}" for end, basis in ((low, text.low), (high, text.high)) if basis)
    return words.frame("range", ends=ends_text) if ends_text else ""


def _evidence_text(item: Evidence, words: Words, titles: Mapping[str, str]) -> str:
    per_step = words.frame("per_mean_step" if item.of_mean else "per_step") if item.per_step and item.unit else ""
    parts = [" ".join(part for part in (words.evidence(item.what), _figure_text(item), per_step) if part)]
    if item.steps:
        parts.append(f"{words.frame('steps' if len(set(item.steps)) > 1 else 'one_step')} {_step_ranges(item.steps)}")
    if item.places:
        parts.append(", ".join(_place_texts(item, words, titles)))
    return f"{words.frame('evidence')}: " + " · ".join(parts)


def _place_texts(item: Evidence, words: Words, titles: Mapping[str, str]) -> Iterator[str]:
    """The places of evidence, each with what it takes, and how many others there are."""
    for place, ns, count in zip_longest(item.places, item.places_ns, item.places_count):
        text = titles.get(place, place)
        if ns is not None:
            text += f": {duration(ns)}"
            if count is not None:
                share = estimated_share(ns, item.whole_ns or item.value)
                text += f" ({words.frame('of_place', share=share, count=f'{count:.3g}')})"
        elif count is not None:
            text += f": {count:.3g}"
        yield text
    if item.other_places:
        rest_text = words.frame("other_places", count=str(item.other_places))
        if item.places_ns or item.places_count:
            figure = duration(item.other_places_ns) if item.places_ns else f"{item.value - sum(item.places_count):.3g}"
            rest_text += f": {figure}"
        most = duration(item.other_most) if item.places_ns else f"{item.other_most:.3g}"
        yield rest_text + (words.frame("each_at_most", figure=most) if item.other_most else "")


def _figure_text(item: Evidence) -> str:
    if item.unit == "ns":
        return duration(item.value)
    if item.unit == "bytes":
        return size(item.value)
    if not item.unit:
        return ""
    return f"{item.value:.0f}" if item.unit == "count" else f"{item.value:.3g} {item.unit}"


def _step_ranges(steps: Sequence[int]) -> str:
    """``3-8, 11``."""
    ranges: list[list[int]] = []
    for step in sorted(set(steps)):
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    range_texts = [str(low) if low == high else f"{low}-{high}" for low, high in ranges]
    return ", ".join(range_texts[:_STEPS]) + (" ..." if len(range_texts) > _STEPS else "")


def _print_wrapped(out: Console, text: str, style: str = "") -> None:
    for line in Text(clean(text), style).wrap(out, max(out.width - 3, 20)):
        line.rstrip()
        out.print(Text("   ") + line, no_wrap=True)
