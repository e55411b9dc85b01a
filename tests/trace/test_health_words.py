"""Findings use one vocabulary, and the documentation knows every check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from steplens.trace import health, health_words
from steplens.trace.health import CONCLUSIONS, SEVERITIES

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "steplens"
#: functions that make a finding: check, severity, ...
MAKERS = ("add", "finding", "HealthFinding", "_problem")


def calls(path: Path) -> Iterator[ast.Call]:
    """The calls of a module that make a finding."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            text = node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
            if name in MAKERS and text and len(node.args) >= 3:
                yield node


def literals(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def test_findings_use_the_vocabulary() -> None:
    found = 0
    for path in sorted(SOURCE.rglob("*.py")):
        for call in calls(path):
            found += 1
            severity = call.args[1]
            if isinstance(severity, ast.Constant):
                assert severity.value in SEVERITIES, f"{path.name}:{call.lineno}"
            # findings of the collector have the message third and ``unsafe`` as a keyword
            unsafe = [*call.args[4:], *(keyword.value for keyword in call.keywords if keyword.arg == "unsafe")]
            for text in (text for expression in unsafe for text in literals(expression)):
                words = text.split(", ") if text else []
                assert set(words) <= set(CONCLUSIONS), f"{path.name}:{call.lineno}: {text!r}"
    assert found > 80


def test_the_documentation_knows_every_check_of_the_tables() -> None:
    text = (ROOT / "docs" / "health.md").read_text()
    checked = [*(SOURCE / "trace").rglob("*.py")]
    names = {call.args[0].value for path in checked for call in calls(path)}  # type: ignore[attr-defined]
    assert len(names) > 25
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_the_documentation_knows_the_vocabulary() -> None:
    text = (ROOT / "docs" / "health.md").read_text()
    for word, meaning in CONCLUSIONS.items():
        assert f"| {word} | {meaning} |" in text


def test_every_conclusion_has_a_name() -> None:
    constants = {value for name, value in vars(health).items() if name.isupper() and isinstance(value, str)}
    assert set(CONCLUSIONS) <= constants


def sentences_of(function: ast.FunctionDef) -> Iterator[str]:
    """The sentences that a function gives to what makes a finding, with "…" for values, as far as they are written in it."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
    for node in ast.walk(function):
        name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or name not in (*MAKERS, "report", "_report_problem", "PartOfStep"):
            continue
        for argument in node.args[1:]:
            for value in assigned.get(argument.id, []) if isinstance(argument, ast.Name) else [argument]:
                for choice in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
                    text = sentence_text(choice)
                    if len(text.split()) > 2:
                        yield text


def sentence_text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else health_words.VALUE for part in node.values)
    return ""


def test_every_sentence_is_there_in_every_language() -> None:
    makers = re.compile(rf"\b(?:{'|'.join(MAKERS)}|report|_report_problem|PartOfStep)\(")
    sources = [text for path in SOURCE.rglob("*.py") if "health" in (text := path.read_text()) and makers.search(text)]
    functions = [node for text in sources for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    said = {sentence for function in functions for sentence in sentences_of(function)}
    assert len(said) > 200
    for language in health_words.LANGUAGES:
        words = health_words.words_of(language)
        assert sorted(said - set(words.sentences)) == []
        for english, text in {**words.sentences, **words.parts}.items():
            # the parts of a sentence that are nothing but grammar in English are nothing elsewhere
            values = {int(number) for number in re.findall(r"\{(\d+)\}", text)}
            assert values == set(range(english.count(health_words.VALUE))), english


def test_figures_and_parts_of_a_sentence_are_put_into_the_other_language() -> None:
    early = "4 of 215 device tasks start before the call that launched them, by up to 6.79 us: the clocks of host and device "
    text = health_words.translate_message(f"{early}agree to about that", "zh")
    assert "215" in text and "6.79 us" in text and not re.search("[a-z]{3}", text)
    assert "2, 3" in health_words.translate_message("2 of 4 ranks are here, 2 missing: 2, 3", "zh")
    assert health_words.translate_message("nobody has translated this", "zh") == "nobody has translated this"
