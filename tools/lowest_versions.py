"""Requirements with the lowest versions that pyproject.toml allows: ``python tools/lowest_versions.py [EXTRA ...]``, one a line.

They are those of the package and of the extras that are named. Of ``polars>=1.36`` that is any 1.36: a first release with a
mistake in it may have been withdrawn.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(text: str, extras: list[str]) -> list[str]:
    """What the package and some extras require, as pyproject.toml has it.

    Read with a pattern, because Python 3.10 has no ``tomllib``.

    Raises:
        SystemExit: a list is not there.
    """
    required: list[str] = []
    for name in ("dependencies", *extras):
        listed = re.search(rf"^{re.escape(name)} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
        if listed is None:
            raise SystemExit(f"{PYPROJECT} has no list {name!r}")
        required += re.findall(r'"([^"]+)"', listed[1])
    return required


def at_its_lowest(requirement: str) -> str:
    """``rich>=13`` becomes ``rich==13.0.*``.

    Raises:
        SystemExit: it has no lower bound.
    """
    bound = re.fullmatch(r"([\w.\[\]-]+)>=([\d.]+).*", requirement)
    if bound is None:
        raise SystemExit(f"{PYPROJECT}: {requirement!r} has no lower bound")
    major, minor = [*bound[2].split("."), "0"][:2]
    return f"{bound[1]}=={major}.{minor}.*"


if __name__ == "__main__":
    for line in requirements(PYPROJECT.read_text(encoding="utf-8"), sys.argv[1:]):
        print(at_its_lowest(line))
