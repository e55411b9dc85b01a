"""docs/health.md explains every check that anything in steplens reports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPORTING = ("add", "finding", "HealthFinding")


def reported(path: Path) -> Iterator[str]:
    """Names of checks that a module passes on as literals, with severity, count and message."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and len(node.args) >= 3 and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0].value
            if called in REPORTING and isinstance(name, str) and re.fullmatch("[a-z_]+", name):
                yield name


def test_every_check_is_explained() -> None:
    page = (ROOT / "docs" / "health.md").read_text()
    found = {name for path in (ROOT / "src" / "steplens").rglob("*.py") for name in reported(path)}
    assert len(found) > 100
    assert sorted(name for name in found if f"`{name}`" not in page) == []
