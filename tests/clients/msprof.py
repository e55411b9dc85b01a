"""Runs msprof-analyze in its own environment, and reads what it writes.

It ends with exit status 0 whatever happens, so that its log is judged: every ERROR line is kept.
"""

from __future__ import annotations

import functools
import json
import os
import select
import sqlite3
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".bench" / "msprof" / "bin" / "msprof-analyze"

_LIMIT_S = 600
_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


@dataclass(frozen=True)
class Ran:
    """One run of the tool.

    Attributes:
        output: the folder that it was told to write to.
        log: everything that it printed.
    """

    output: Path
    log: str

    @property
    def errors(self) -> list[str]:
        """The lines of its log that report an error."""
        return [line for line in self.log.splitlines() if "[ERROR]" in line or line.startswith("Traceback")]

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The tables of cluster_analysis.db; none where it was not written."""
        path = self.output / "cluster_analysis_output" / "cluster_analysis.db"
        return dict(tables(path)) if path.is_file() else {}


def tables(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Name and rows of every table of a database."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            yield name, [dict(row) for row in connection.execute(f'SELECT * FROM "{name}"')]


class _Server:
    """A process that has imported the tool, see ``msprof_server.py``; it ends when its standard input does, with this process."""

    def __init__(self) -> None:
        command = [str(PROGRAM.with_name("python")), str(Path(__file__).with_name("msprof_server.py"))]
        self._process = subprocess.Popen(command, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, arguments: Sequence[str], folder: Path, log: Path) -> int:
        """Exit status of the tool."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps({"arguments": arguments, "folder": str(folder), "log": str(log)}), file=self._process.stdin, flush=True)
        answered, _, _ = select.select([self._process.stdout], [], [], _LIMIT_S)
        assert answered, f"msprof-analyze took longer than {_LIMIT_S} s"
        return int(self._process.stdout.readline())


@functools.cache
def _server() -> _Server:
    return _Server()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"}


def run(output: Path, *arguments: str | Path, before: Sequence[str] | None = None) -> Ran:
    """Run the tool with its output folder, which is made.

    Args:
        output: the folder.
        arguments: its command line without that.
        before: a command that starts its program, or none of its words where the program starts by itself; without it the tool
            runs in a process that has it imported already.
    """
    if not PROGRAM.exists():
        pytest.skip("msprof-analyze is not installed beside this checkout (make .bench/msprof/.setup-done)")
    output.mkdir(parents=True, exist_ok=True)
    command = [*map(str, arguments), "-o", str(output)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        if before is None:
            status = _server().ask(command, output, log)
        else:
            with log.open("w") as printed:
                status = subprocess.run(
                    [*before, str(PROGRAM), *command],
                    cwd=output,
                    env=_environment(),
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    timeout=_LIMIT_S,
                    check=False,
                ).returncode
        text = log.read_text()
    assert status == 0, text[-6000:]
    return Ran(output, text)


def cluster(folder: Path, output: Path, mode: str = "all", *more: str) -> Ran:
    """``msprof-analyze cluster``: merge the ranks below ``folder``, or one of its recipes over them."""
    return run(output, "cluster", "-d", folder, "-m", mode, *more)


def advisor(folder: Path, output: Path) -> Ran:
    """``msprof-analyze advisor all``, in English."""
    return run(output, "advisor", "all", "-d", folder, "-l", "en")


def compare(folder: Path, base: Path, output: Path, *more: str) -> Ran:
    """``msprof-analyze compare`` of ``folder`` with ``base``."""
    return run(output, "compare", "-d", folder, "-bp", base, *more)


def sheets(folder: Path) -> dict[str, list[list[str]]]:
    """The sheets of the only workbook below ``folder``, as rows of texts."""
    (path,) = folder.rglob("*.xlsx")
    with zipfile.ZipFile(path) as book:
        texts = []
        if "xl/sharedStrings.xml" in book.namelist():
            shared = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
            texts = ["".join(part.text or "" for part in item.iter(f"{_SHEET}t")) for item in shared]
        relations = {
            relation.get("Id"): relation.get("Target")
            for relation in ElementTree.fromstring(book.read("xl/_rels/workbook.xml.rels"))
        }
        listed = ElementTree.fromstring(book.read("xl/workbook.xml")).iter(f"{_SHEET}sheet")
        return {
            str(sheet.get("name")): list(_rows(book.read(f"xl/{relations[sheet.get(_RELATION)]}"), texts)) for sheet in listed
        }


def _rows(content: bytes, texts: list[str]) -> Iterator[list[str]]:
    for row in ElementTree.fromstring(content).iter(f"{_SHEET}row"):
        cells: dict[int, str] = {}
        for cell in row.iter(f"{_SHEET}c"):
            value = cell.find(f"{_SHEET}v")
            text = "" if value is None else value.text or ""
            cells[_column(cell.get("r", "A"))] = texts[int(text)] if cell.get("t") == "s" else text
        yield [cells.get(column, "") for column in range(max(cells, default=-1) + 1)]


def _column(place: str) -> int:
    number = 0
    for letter in place:
        if letter.isalpha():
            number = number * 26 + ord(letter.upper()) - ord("A") + 1
    return number - 1


def overall(workbook: dict[str, list[list[str]]]) -> tuple[dict[str, float], dict[str, float]]:
    """Durations (ms) of the base and of what is compared with it, by the names of their rows, from the sheet OverallMetrics."""
    found: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for row in workbook["OverallMetrics"]:
        for side, column in zip(found, (1, 4), strict=True):
            if len(row) > column and _is_number(row[column]):
                side.setdefault(row[0].strip(), float(row[column]))
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
