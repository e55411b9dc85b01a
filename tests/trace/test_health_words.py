"""Findings use one vocabulary, and the documentation knows every check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from steplens.trace import health
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
