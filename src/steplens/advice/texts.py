"""The words of all findings, one catalogue per language in ``words``: rules say figures, only these files say sentences.

The catalogue lists the rules in the order in which they are asked and, where they matter alike, named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from steplens.common import json_text
from steplens.trace.building.framework import MINDSPORE, PYTORCH

ENGLISH, CHINESE = "en", "zh"
LANGUAGES = (ENGLISH, CHINESE)


@dataclass(frozen=True)
class Text:
    """What is said of one rule; ``{name}`` stands for a value of the finding.

    Attributes:
        title: the cause, in a few words.
        cause: what happens, and why it costs.
        remedy: what to change.
        patch: the change as lines of a diff, where it is small; empty otherwise.
        likely: on what the likely saving rests, as a short clause behind the figure ("if half of it goes"); where it is empty,
            the share of the high end is said.
        low: on what the low end rests, in the same way; ``high``: the high end.
    """

    title: str
    cause: str
    remedy: str
    patch: str = ""
    likely: str = ""
    low: str = ""
    high: str = ""


class Basis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """On what a saving and its range rest; parts as in ``Text``, empty where the share of the high end is said."""

    likely: str = ""
    low: str = ""
    high: str = ""


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What replaces parts of a text; None leaves a part as it is. The patch goes, unless there is another."""

    title: str | None = None
    cause: str | None = None
    remedy: str | None = None
    patch: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a catalogue says of one rule. Where a remedy has to name something of a framework, it speaks of PyTorch.

    Attributes:
        title, cause, remedy: as in ``Text``.
        patch: lines of a diff.
        neutral: what is said where nothing tells the framework, and of MindSpore where it has no words of its own.
        mindspore: what is said of MindSpore.
        cases: what is said where a finding is of a case (``values["case"]``); of a framework as ``case/framework``,
            where there is that, else in whatever framework.
        documentation: the page that describes the rule, at the anchor of its name.
    """

    title: str
    cause: str
    remedy: str
    patch: tuple[str, ...] = ()
    neutral: Variant | None = None
    mindspore: Variant | None = None
    cases: dict[str, Variant] = msgspec.field(default_factory=dict)
    documentation: str = ""

    @property
    def text(self) -> Text:
        """The text of the rule, as it is said of PyTorch."""
        return Text(self.title, self.cause, self.remedy, "\n".join(self.patch))

    def text_for(self, framework: str, case: str = "") -> Text:
        """The text of the rule as it is said of a framework, or of a case, which comes first."""
        variant = None if framework == PYTORCH else (self.mindspore if framework == MINDSPORE else None) or self.neutral
        variant = self.cases.get(f"{case}/{framework}", self.cases.get(case, variant))
        if variant is None:
            return self.text
        title = self.title if variant.title is None else variant.title
        cause = self.cause if variant.cause is None else variant.cause
        remedy = self.remedy if variant.remedy is None else variant.remedy
        return Text(title, cause, remedy, "\n".join(variant.patch))


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words of one language.

    Attributes:
        rules: rule -> what is said of it.
        evidence: kind of evidence -> what it is.
        bases: rule, ``rule/case`` or ``Finding.basis`` -> on what the saving rests; what none of them names is a share of its
            high end.
        frame: the sentences around findings.
        verdict: the parts of a verdict's sentence, keys as in ``analysis.verdict_words.ENGLISH``; empty in English.
        steps: which steps figures are of; empty in English.
        conclusions: what is not to be trusted, by the words of ``trace.health``; empty in English.
    """

    rules: dict[str, Entry]
    evidence: dict[str, str]
    bases: dict[str, Basis]
    frame: dict[str, str]
    verdict: dict[str, str]
    steps: dict[str, str]
    conclusions: dict[str, str]


def _read_catalogue(language: str) -> Catalogue:
    words = json_text.loads_stored((Path(__file__).parent / "words" / f"{language}.json").read_bytes())
    return msgspec.convert(words, Catalogue)


CATALOGUES: Mapping[str, Catalogue] = {language: _read_catalogue(language) for language in LANGUAGES}

#: rule -> language -> what is said of it
TEXTS: Mapping[str, Mapping[str, Text]] = {
    rule: {language: CATALOGUES[language].rules[rule].text for language in LANGUAGES} for rule in CATALOGUES[ENGLISH].rules
}
