"""The catalogue in one language, with the figures of a finding filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steplens.advice.finding import Finding
from steplens.advice.texts import DOCUMENTATION, ENGLISH, EVIDENCE, FRAME, TEXTS, Text
from steplens.advice.texts.frameworks import for_framework
from steplens.advice.texts.verdict import STEPS, VERDICTS
from steplens.analysis.steps.summary import StepSummary
from steplens.analysis.verdict import LIKELY, UNKNOWN, Verdict, percent

#: steps that are named
_NAMED = 8


@dataclass(frozen=True)
class Words:
    """Sentences of one language; English where a rule of the user has no other.

    Attributes:
        language: "en" or "zh".
        texts: rule -> language -> what is said of it.
    """

    language: str
    texts: Mapping[str, Mapping[str, Text]]

    def of(self, finding: Finding) -> Text:
        """What is said of a finding."""
        every = self.texts[finding.rule]
        text = every.get(self.language, every[ENGLISH])
        if every is TEXTS.get(finding.rule):
            text = for_framework(finding.rule, self.language, text, finding.framework)
        parts = (_filled(part, finding.values) for part in (text.title, text.cause, text.remedy, text.patch))
        return Text(*parts)

    def documentation(self, finding: Finding) -> str:
        """Where the rule is described; empty for a rule of the user's own."""
        return DOCUMENTATION.get(finding.rule, "")

    def evidence(self, what: str) -> str:
        """Words for one kind of evidence; its key where the catalogue has none."""
        known = EVIDENCE.get(what, {})
        return known.get(self.language, known.get(ENGLISH, what.replace("_", " ")))

    def verdict(self, found: Verdict) -> str:
        """What holds a step up, and how sure that is."""
        own = VERDICTS.get(self.language)
        if own is None:
            return found.sentence()
        few = found.confidence == LIKELY and any(choice.few for choice in found.summary.chosen)
        doubt = "" if found.kind == UNKNOWN else own.get("few" if few else found.confidence, "")
        said = own.get(found.kind, own["unknown"])
        return said.format(share=percent(found.share), device=found.device, rank=found.rank) + doubt

    def which_steps(self, summary: StepSummary) -> str:
        """Which steps figures of a step are of, and which are left out and why."""
        own = STEPS.get(self.language)
        if own is None:
            return summary.sentence()
        if not summary.steps:
            return own["none"]
        left = sorted({(entry.step, entry.reason) for choice in summary.chosen for entry in choice.left_out})
        steps = ", ".join(f"{step} ({own.get(reason, reason)})" for step, reason in left[:_NAMED]) + (
            " ..." if left[_NAMED:] else ""
        )
        few = own["few"] if any(choice.few for choice in summary.chosen) else ""
        return own["several"].format(count=summary.steps) + (own["left_out"].format(steps=steps) if left else "") + few

    def frame(self, key: str, **values: str) -> str:
        """A sentence around the findings."""
        return FRAME[key][self.language].format(**values)


def _filled(text: str, values: Mapping[str, str | int | float]) -> str:
    # not str.format: patches hold braces of their own, and values are names from traces
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
