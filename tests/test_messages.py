"""Every sentence that says why something happened has a test that brings the case about (docs/messages.md)."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from . import sentences

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs" / "messages.md"
REST = ROOT / "tests" / "sentences_without_reason.txt"

_ROW = re.compile(r"\| (?P<sentence>.+?) \| (?P<tests>`tests/[^|]+`) \|")


def reasons() -> dict[str, list[str]]:
    """Sentence -> the tests that make its case."""
    rows = [found for line in LIST.read_text("utf-8").splitlines() if (found := _ROW.fullmatch(line))]
    return {row["sentence"].replace("\\|", "|"): re.findall(r"`([^`]+)`", row["tests"]) for row in rows}


def without_reason() -> list[str]:
    return REST.read_text("utf-8").splitlines()


@functools.cache
def functions_in(path: str) -> set[str]:
    file = ROOT / path
    nodes = ast.walk(ast.parse(file.read_text("utf-8"))) if file.is_file() else ()
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test")}


def test_every_sentence_is_judged() -> None:
    judged = {*reasons(), *without_reason()}
    new = {sentence: places for sentence, places in sentences.sentences().items() if sentence not in judged}
    lines = [f"{', '.join(places)}:\n{sentence}" for sentence, places in new.items()]
    assert not new, (
        "These sentences are in neither list. One that says why something happened or is missing goes into docs/messages.md, "
        "with the test that brings the case about: | sentence | `tests/file.py::test_name` |. Where the reason is only likely, "
        f"say what is known instead. All others go into {REST.relative_to(ROOT)}.\n\n" + "\n\n".join(lines)
    )


def test_the_lists_hold_nothing_that_is_not_said() -> None:
    said = sentences.sentences()
    gone = [sentence for sentence in (*reasons(), *without_reason()) if sentence not in said]
    assert not gone, "These are not in the source any more; take them out of their list:\n" + "\n".join(gone)


def test_no_sentence_is_in_both_lists() -> None:
    twice = set(reasons()) & set(without_reason())
    assert not twice, f"Both lists hold {sorted(twice)}; keep each where it belongs."
    assert len(set(without_reason())) == len(without_reason())


def test_every_reason_has_a_test_that_exists() -> None:
    missing = [
        f"{test} (for: {sentence})"
        for sentence, tests in reasons().items()
        for test in tests
        if test.partition("::")[2] not in functions_in(test.partition("::")[0])
    ]
    assert not missing, "docs/messages.md names tests that do not exist; name the ones that make the case:\n" + "\n".join(missing)
    assert len(reasons()) > 200


def test_every_reason_is_looked_for() -> None:
    """Some words of it in a row stand in one of its tests, or among the values beside them: that it was said is looked at."""
    unseen = [
        f"{sentence} ({', '.join(tests)})"
        for sentence, tests in reasons().items()
        if not any(run in text for test in tests if (text := texts_of(*test.split("::"))) for run in runs_of_words(sentence))
    ]
    assert not unseen, "No test of these looks for their words:\n" + "\n".join(unseen)


def runs_of_words(sentence: str) -> list[str]:
    """Three words in a row of a sentence, or fewer where it has no more between two values."""
    pieces = [re.findall(r"[^\s.,:;()]+", piece) for piece in sentence.split(sentences.VALUE)]
    length = min(3, max(map(len, pieces)))
    return [" ".join(piece[at : at + length]) for piece in pieces for at in range(len(piece) - length + 1)]


@functools.cache
def texts_of(path: str, name: str) -> str:
    """The words of all texts in a test, its decorators and the values of its module."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    apart = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    nodes = [node for node in tree.body if not isinstance(node, apart) or getattr(node, "name", "") == name]
    texts = [found.value for node in nodes for found in ast.walk(node) if isinstance(found, ast.Constant)]
    return " ".join(re.findall(r"[^\s.,:;()\\]+", " ".join(text for text in texts if isinstance(text, str))))


SOURCE = '''
"""A docstring is no message at all."""
def f(name, number):
    """Nor is this one here."""
    log.warning(f"{name} is lost, because the disk is full")
    raise ValueError("%s of these and %d of those" % (name, number))
    typer.Option("--x", help="What this option does for you.")
    short = "two words"
    path = "/usr/share/of/a file"
    both = ("in two "
            f"pieces of {name}")
'''


@pytest.mark.parametrize("wanted", ["… is lost, because the disk is full", "… of these and … of those", "in two pieces of …"])
def test_sentences_are_found(wanted: str) -> None:
    found = list(sentences.of_source(SOURCE))
    assert wanted in found and len(found) == 3
