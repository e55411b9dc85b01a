"""What findings about the data, and doubts of a comparison, say in other languages: their sentences are stored in English.

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
#: a sentence has so many spaces at least
_LEAST_SPACES = 3


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A language: English sentence -> what it is there, and the same of parts of sentences."""

    sentences: dict[str, str]
    parts: dict[str, str]


class _Pattern(NamedTuple):
    expression: re.Pattern[str]
    translation: str


class _Patterns(NamedTuple):
    sentences: list[_Pattern]
    parts: list[_Pattern]


@functools.cache
def words_of(language: str) -> Words:
    """The words of one of ``LANGUAGES``."""
    text = (Path(__file__).parent / "words" / f"{language}.json").read_bytes()
    return msgspec.convert(json_text.loads_stored(text), Words)


def translate_message(message: str, language: str) -> str:
    """The sentence of a finding in one of ``LANGUAGES``; one that nobody has translated as it is."""
    patterns = _language_patterns(language)
    return _translate_text(message, patterns.sentences, patterns) or message


def _translate_text(text: str, fitting: Sequence[_Pattern], patterns: _Patterns) -> str | None:
    for pattern in fitting:
        if (matched := pattern.expression.fullmatch(text)) is not None:
            return pattern.translation.format(*(_translate_value(value, patterns) for value in matched.groups()))
    return None


def _translate_value(value: str, patterns: _Patterns) -> str:
    """What is put into a sentence: a part of one, or another sentence, as that which says why something is doubtful."""
    translated = _translate_text(value, patterns.parts, patterns)
    if translated is None and value.count(" ") >= _LEAST_SPACES:
        translated = _translate_text(value, patterns.sentences, patterns)
    return value if translated is None else translated


@functools.cache
def _language_patterns(language: str) -> _Patterns:
    words = words_of(language)
    return _Patterns(_compile_patterns(words.sentences), _compile_patterns(words.parts))


def _compile_patterns(translations: dict[str, str]) -> list[_Pattern]:
    """What says the most of a sentence comes first: several may fit one."""
    most_said = sorted(translations, key=lambda sentence: -len(sentence.replace(VALUE, "")))
    expressions = ("(.*?)".join(map(re.escape, sentence.split(VALUE))) for sentence in most_said)
    return [
        _Pattern(re.compile(expression, re.DOTALL), translations[sentence])
        for expression, sentence in zip(expressions, most_said, strict=True)
    ]
