"""The catalogue in one language, with the figures of a finding filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from steplens.advice.finding import EXPLAINED, Finding
from steplens.advice.registry import all_texts
from steplens.advice.texts import CATALOGUES, ENGLISH, TEXTS, Basis, Text
from steplens.analysis.steps.summary import StepSummary
from steplens.analysis.verdict_words import Verdict
from steplens.trace import health_words
from steplens.trace.health_words import translate_message

#: percentages of ten and more, of which a sentence says no more than the whole
_PERCENT = re.compile(r"\d\d+\.\d+")
#: a word in its singular and plural, by the figure of a name
_NUMBERED = re.compile(r"\{(\w+):([^|{}]*)\|([^|{}]*)\}")
#: steps that are named
_NAMED = 8


@dataclass(frozen=True)
class Words:
    """Sentences of one language; English where a rule of the user has no other.

    Attributes:
        language: "en" or "zh".
        texts: rule -> language -> what is said of it; of all rules by default.
    """

    language: str
    texts: Mapping[str, Mapping[str, Text]] = field(default_factory=all_texts)

    def of(self, finding: Finding) -> Text:
        """What is said of a finding."""
        texts = self.texts[finding.rule]
        if texts is TEXTS.get(finding.rule):
            text = CATALOGUES[self.language].rules[finding.rule].text_for(finding.framework, str(finding.values.get("case", "")))
        else:
            text = texts.get(self.language, texts[ENGLISH])
        basis = self._basis_of(finding, text)
        cause = text.cause + self._waiting_steps(finding)
        parts = (text.title, cause, text.remedy, text.patch, basis.likely, basis.low, basis.high)
        return Text(*(_fill_placeholders(part, finding.values) for part in parts))

    def _basis_of(self, finding: Finding, text: Text) -> Basis:
        """On what the likely saving of a finding and the ends of its range rest."""
        saving = finding.saving
        if saving is None or saving.high_ns <= 0:
            return Basis()
        bases = CATALOGUES[self.language].bases
        keys = (finding.basis, f"{finding.rule}/{finding.values.get('case', '')}", finding.rule)
        basis = next((bases[key] for key in keys if key in bases), Basis(text.likely, text.low, text.high))
        if saving.likely_ns <= 0 or finding.at_stake:
            return Basis("", basis.low, basis.high)
        # of a guess at how much of the time goes the guess is the basis; that none or all of it goes says nothing of the ends
        share = self.frame("share_goes", part=self._share_in_words(saving.likely_ns / saving.high_ns))
        is_part_explained = any(item.what == EXPLAINED for item in finding.evidence)
        without = self.frame("without_explained") if is_part_explained else ""
        return Basis((basis.likely or share) + without, basis.low, basis.high)

    def _waiting_steps(self, finding: Finding) -> str:
        """Which steps wait for data, where others find their batch ready; to stand behind the cause."""
        key = "waiting_since" if "waiting_since" in finding.values else "waiting_some" if "waiting" in finding.values else ""
        return CATALOGUES[self.language].frame[key] if key else ""

    def _share_in_words(self, share: float) -> str:
        key = {0: "share_none", 50: "share_half", 100: "share_all"}.get(round(100 * share), "share_part")
        return self.frame(key, percent=f"{100 * share:.0f}")

    def documentation(self, finding: Finding) -> str:
        """Where the rule is described, as a page and an anchor in it; empty for a rule of the user's own."""
        entry = CATALOGUES[ENGLISH].rules.get(finding.rule)
        return f"{entry.documentation}#{finding.rule}" if entry is not None else ""

    def evidence(self, what: str) -> str:
        """Words for one kind of evidence; its key where the catalogue has none."""
        return CATALOGUES[self.language].evidence.get(what, what.replace("_", " "))

    def verdict(self, verdict: Verdict) -> str:
        """What holds a step up, and how sure that is."""
        return verdict.sentence(CATALOGUES[self.language].verdict or None)

    def conclusion(self, name: str) -> str:
        """What health calls unsafe."""
        return CATALOGUES[self.language].conclusions.get(name, name)

    def health_message(self, message: str) -> str:
        """The sentence of a finding of health."""
        return translate_message(message, self.language) if self.language in health_words.LANGUAGES else message

    def which_steps(self, summary: StepSummary) -> str:
        """Which steps figures of a step are of, and which are left out and why."""
        words = CATALOGUES[self.language].steps
        if not words:
            return summary.sentence()
        if not summary.steps:
            return words["none"]
        left = sorted({(entry.step, entry.reason) for choice in summary.chosen for entry in choice.left_out})
        steps = ", ".join(f"{step} ({words.get(reason, reason)})" for step, reason in left[:_NAMED]) + (
            " ..." if left[_NAMED:] else ""
        )
        few = words["few"] if any(choice.few for choice in summary.chosen) else ""
        return words["several"].format(count=summary.steps) + (words["left_out"].format(steps=steps) if left else "") + few

    def frame(self, key: str, **values: str) -> str:
        """A sentence around the findings."""
        return CATALOGUES[self.language].frame[key].format(**values)


def _fill_placeholders(text: str, values: Mapping[str, str | int | float]) -> str:
    def in_number(match: re.Match[str]) -> str:
        name, singular, plural = match.groups()
        return match.group() if name not in values else singular if str(values[name]) == "1" else plural

    text = _NUMBERED.sub(in_number, text)
    # not str.format: patches hold braces of their own, and values are names from traces
    for name, value in values.items():
        in_words = f"{float(value):.0f}" if name == "percent" and _PERCENT.fullmatch(str(value)) else str(value)
        text = text.replace(f"{{{name}}}", in_words)
    return text
