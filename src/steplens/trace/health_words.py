"""What findings about the data say in other languages: their sentences are stored in English, as they were recorded.

``words/zh.json`` has every sentence with "…" for what is put into it, and its translation with the number of the value. A value
may be a part of a sentence itself, of which the file has the translations, too. A test compares the file with the source.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from steplens.common import json_text

#: stands for a value in a sentence
VALUE = "…"
LANGUAGES = ("zh",)


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A language: English sentence -> what it is there, and the same of parts of sentences."""

    sentences: dict[str, str]
    parts: dict[str, str]


class _Pattern(NamedTuple):
    expression: re.Pattern[str]
    translation: str


@functools.cache
def words_of(language: str) -> Words:
    """The words of one of ``LANGUAGES``."""
    text = (Path(__file__).parent / "words" / f"{language}.json").read_bytes()
    return msgspec.convert(json_text.loads_stored(text), Words)


def translate_message(message: str, language: str) -> str:
    """The sentence of a finding in one of ``LANGUAGES``; one that nobody has translated as it is."""
    sentences, parts = _language_patterns(language)
    return _translate_text(message, sentences, parts) or message


def _translate_text(text: str, patterns: Sequence[_Pattern], parts: Sequence[_Pattern]) -> str | None:
    for pattern in patterns:
        if (matched := pattern.expression.fullmatch(text)) is not None:
            values = [value if (part := _translate_text(value, parts, parts)) is None else part for value in matched.groups()]
            return pattern.translation.format(*values)
    return None


@functools.cache
def _language_patterns(language: str) -> tuple[list[_Pattern], list[_Pattern]]:
    words = words_of(language)
    return _compile_patterns(words.sentences), _compile_patterns(words.parts)


def _compile_patterns(translations: dict[str, str]) -> list[_Pattern]:
    """What says the most of a sentence comes first: several may fit one."""
    most_said = sorted(translations, key=lambda sentence: -len(sentence.replace(VALUE, "")))
    expressions = ("(.*?)".join(map(re.escape, sentence.split(VALUE))) for sentence in most_said)
    return [
        _Pattern(re.compile(expression, re.DOTALL), translations[sentence])
        for expression, sentence in zip(expressions, most_said, strict=True)
    ]
