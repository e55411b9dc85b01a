"""The documents that say where things are name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from steplens.common.extensions import ANALYSES, EXECUTORS, READERS, RULES, WRITERS

ROOT = Path(__file__).resolve().parents[1]
PATH = re.compile(r"`((?:src/steplens/|steplens/|web/|tests/|tools/|benchmarks/)?[\w./]+\.(?:py|ts|json|toml))`")
DOTTED = re.compile(r"`(steplens(?:\.[a-z_]\w*)+)`")
ENTRY_POINTS = {READERS, WRITERS, RULES, ANALYSES, EXECUTORS}


def _exists(name: str, before: str) -> bool:
    """Whether a file is there by a path from the root, from the package, or beside the one that was named before it."""
    places = [ROOT, ROOT / "src", ROOT / "src" / "steplens"]
    if before:
        places += [(place / before).parent for place in places]
    if any((place / name).is_file() for place in places):
        return True
    # a row about a package names its files as they are called there
    return "/" not in name and any((ROOT / "src").rglob(name))


@pytest.mark.parametrize("document", ["docs/architecture.md", "docs/tour.md", "CONTRIBUTING.md"])
def test_named_files_exist(document: str) -> None:
    missing, before = [], ""
    names = PATH.findall((ROOT / document).read_text(encoding="utf-8"))
    assert names
    for name in names:
        if not _exists(name, before):
            missing.append(name)
        if "/" in name:
            before = name
    assert missing == []


@pytest.mark.parametrize("document", sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
def test_named_modules_exist(document: str) -> None:
    missing = []
    for name in set(DOTTED.findall((ROOT / document).read_text(encoding="utf-8"))) - ENTRY_POINTS:
        parts = name.split(".")
        # what follows a module is looked for in its text
        for count in range(len(parts), 0, -1):
            module = ROOT / "src" / Path(*parts[:count])
            file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            if module.is_dir() or file.is_file():
                rest = parts[count:]
                text = file.read_text(encoding="utf-8") if file.is_file() else ""
                if rest and not re.search(rf"\b{rest[0]}\b", text):
                    missing.append(name)
                break
    assert missing == []
