"""Names that say nothing, against a budget that only falls: `make lint` runs this, `--lower` writes the budget down.

It counts, in `src`:

- vague locals: names that are assigned and are one of thirty words that fit any value;
- one-word functions: functions and methods of one word, special methods aside, whatever the word;
- dialect: modules and classes whose names are none of this field's;
- unexplained boundaries: broad excepts (`Exception`, `BaseException`, everything) without a comment that says what they guard.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "steplens"
BUDGET = Path(__file__).with_name("names_budget.json")

VAGUE = frozenset((
    "found", "known", "one", "own", "told", "shown", "kept", "chosen", "wanted", "given", "said", "seen", "asked", "taken",
    "named", "inside", "whole", "what", "rest", "every", "nothing", "other", "others", "above", "below", "this", "thing",
    "things", "such", "much",
))  # fmt: skip
DIALECT = frozenset((
    "Beside", "Shown", "Asker", "Library", "Told", "Memo", "Landing", "kept", "ahead", "origins", "work", "lines", "known",
    "place", "harmless", "landing", "board", "worked_out", "beside",
))  # fmt: skip
_BROAD = frozenset(("Exception", "BaseException"))


#: what has a budget
COUNTED = ("vague", "one_word", "dialect", "boundaries")


def names_of(path: Path) -> dict[str, list[tuple[str, int]]]:
    """What one file adds to each count: names with the lines they stand in."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    counts: dict[str, list[tuple[str, int]]] = {count: [] for count in (*COUNTED, "assigned", "functions")}
    if path.stem in DIALECT:
        counts["dialect"].append((path.stem, 1))
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts["assigned"].append((node.id, node.lineno))
            if node.id in VAGUE:
                counts["vague"].append((node.id, node.lineno))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            counts["functions"].append((node.name, node.lineno))
            if "_" not in node.name.strip("_"):
                counts["one_word"].append((node.name, node.lineno))
        elif isinstance(node, ast.ClassDef) and node.name.strip("_") in DIALECT:
            counts["dialect"].append((node.name, node.lineno))
        elif isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _is_explained(node, lines):
            counts["boundaries"].append(("except", node.lineno))
    return counts


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(item is None or (isinstance(item, ast.Name) and item.id in _BROAD) for item in caught)


def _is_explained(handler: ast.ExceptHandler, lines: list[str]) -> bool:
    """Whether a comment stands in the line of the except, or between it and its first statement, or right above it."""
    around = lines[handler.lineno - 2 : handler.body[0].lineno]
    return any("#" in line for line in around)


def main(arguments: list[str]) -> int:
    """Counts, says what is over the budget and where; 1 when something is."""
    totals: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for count, names in names_of(path).items():
            totals[count] += len(names)
            places.setdefault(count, []).extend(f"{path.relative_to(ROOT)}:{line}: {name}" for name, line in names)
    counted = {count: totals[count] for count in COUNTED}
    print(
        f"names: {totals['vague'] / totals['assigned']:.2%} of {totals['assigned']} assigned names are vague, "
        f"{totals['one_word'] / totals['functions']:.1%} of {totals['functions']} functions have names of one word, "
        f"{totals['dialect']} names are none of this field's, {totals['boundaries']} broad excepts say not why"
    )
    if "--list" in arguments:
        for count in counted:
            print(f"\n{count}:", *places.get(count, ()), sep="\n  ")
    budget = json.loads(BUDGET.read_text(encoding="utf-8"))
    if "--lower" in arguments:
        lowered = {count: min(number, budget[count]) for count, number in counted.items()}
        BUDGET.write_text(json.dumps(lowered, indent=4) + "\n", encoding="utf-8")
        budget = lowered
    over = {count: number for count, number in counted.items() if number > budget[count]}
    for count, number in over.items():
        print(
            f"{count}: {number}, and the budget is {budget[count]}; `python tools/lint_names.py --list` shows where",
            file=sys.stderr,
        )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
