"""Every entry of the acceptance list has one test, which names it at the beginning of its docstring: ``(T1, T4) ...``.

The tests of the server and of its pages look at the same entries once more, as they are served and shown.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
#: sections 8.1 to 8.7; the shapes of a web server's answers (A1 to A9) are tested with the server
ENTRIES = {
    f"{letter}{number}"
    for letter, count in {"T": 8, "O": 14, "M": 12, "G": 3, "K": 13, "P": 6, "Y": 2}.items()
    for number in range(1, count + 1)
}
_NAMED = re.compile(r"^\(([A-Z]\d{1,2}(?:, [A-Z]\d{1,2})*)\)")


def named_entries() -> Counter[str]:
    """How many tests name each entry."""
    found: Counter[str] = Counter()
    paths = (path for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] not in ("server", "web"))
    for path in sorted(paths):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                entries = _NAMED.match(ast.get_docstring(node) or "")
                found.update(entries[1].split(", ") if entries else ())
    return found


def test_every_entry_has_one_test() -> None:
    found = named_entries()
    assert sorted(ENTRIES - found.keys()) == []
    assert {entry: count for entry, count in found.items() if entry in ENTRIES and count > 1} == {}
