"""The catalogue in one language, with the figures of a finding filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steplens.advice.finding import Finding
from steplens.advice.texts import DOCUMENTATION, ENGLISH, EVIDENCE, FRAME, Text


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
        parts = (_filled(part, finding.values) for part in (text.title, text.cause, text.remedy, text.patch))
        return Text(*parts)

    def documentation(self, finding: Finding) -> str:
        """Where the rule is described; empty for a rule of the user's own."""
        return DOCUMENTATION.get(finding.rule, "")

    def evidence(self, what: str) -> str:
        """Words for one kind of evidence; its key where the catalogue has none."""
        known = EVIDENCE.get(what, {})
        return known.get(self.language, known.get(ENGLISH, what.replace("_", " ")))

    def frame(self, key: str, **values: str) -> str:
        """A sentence around the findings."""
        return FRAME[key][self.language].format(**values)


def _filled(text: str, values: Mapping[str, str | int | float]) -> str:
    # not str.format: patches hold braces of their own, and values are names from traces
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
