"""Hostile names on every page of the UI and of a report: nothing runs, nothing is made of them, they are shown as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from steplens.report.write import Options, write_report

from ..report.conftest import alone
from . import scripts
from .conftest import Site
from .hostile import FLAG, LONG, MARKED, NAMES, PLANTED, run_directory

pytestmark = pytest.mark.slow

#: the end of an address of each page, beside those of the menu, that shows names in another way
PLACES = (
    *(f"operators?by={by}" for by in ("shape", "stack", "module", "line", "category")), "operators?chart=bar",
    *(f"kernels?by={by}" for by in ("type", "core")), "tables?table=recorded_ops", "tables?table=recorded_python",
    "tables?table=recorded_meta", "tables?table=recorded_threads", "tables?table=recorded_kernels", "shapes?level=kernel",
    "tables?table=recorded_marks", "tables?table=recorded_counters", "report",
)  # fmt: skip
ADDRESSES = "return [...document.querySelectorAll('.menu a')].map(one => one.getAttribute('href'))"


@pytest.fixture(scope="module")
def hostile_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_directory(tmp_path_factory.mktemp("hostile") / "<b id=planted>folder & ${x}")


def visit(site: Site) -> None:
    """Every page; what it says of itself and of what is on it."""
    listed = site.script(ADDRESSES)
    assert len(listed) > 8
    for address in [*listed, *(f"#/0/{place}" for place in PLACES)]:
        site.open(address)
        assert site.text("h1"), address
        assert site.script(f"return window.{FLAG}") is None, address
        assert site.script("return document.querySelectorAll(arguments[0]).length", PLANTED) == 0, address
        wrong = [line for line in site.console() if "favicon" not in line]
        assert wrong == [], address
    assert site.script("return Object.prototype.steplens ?? null") is None
    assert site.foreign() == []


def search(site: Site, names: Sequence[str]) -> None:
    """Each name is found, and shown as the characters that it has."""
    for name in names:
        site.open(f"#/0/timeline?find={quote(name)}")
        shown = site.until(
            "const one = document.querySelector('.timeline-panel h2'); return one?.innerText.length > 3 ? one.textContent : null",
            f"{name!r} is found",
        )
        for character in name:
            if character.isprintable() and not character.isspace():
                assert character in shown, (name, shown)
            elif character in "\x1b\u202e\u2066\u200b\x07":
                assert f"⟨U+{ord(character):04X}⟩" in shown
                assert character not in shown
        assert site.script(f"return window.{FLAG}") is None
    assert site.console() == []


def domains(site: Site) -> None:
    """The table of marks has every domain and message as text."""
    site.open("#/0/tables?table=recorded_marks")
    site.until("return document.querySelectorAll('.grid-table tbody td').length > 5", "the table is there")
    cells = set(site.script("return [...document.querySelectorAll('.grid-table tbody td')].map(one => one.textContent)"))
    assert NAMES[-1] in cells and MARKED.format(NAMES[0]) in cells, sorted(cells)[:50]


def long_name(site: Site) -> None:
    """A name of a million characters does not make the page unusable."""
    site.open(f"#/0/timeline?find={LONG[:100]}")
    site.until("return document.querySelector('.timeline-panel h2') !== null", "the long name is found")
    site.open("#/0/operators")
    site.until("return document.querySelectorAll('.grid-table tbody td').length > 5", "the table is there")
    assert site.script("return document.documentElement.scrollWidth <= innerWidth")
    cells = site.script("return [...document.querySelectorAll('main td')].map(one => one.textContent.length)")
    assert max(cells) < 1000
    assert site.script("return document.querySelector('main').textContent.length") < 2_000_000


def test_the_pages_show_hostile_names_as_text(browse: Callable[[Sequence[Path]], Site], hostile_trace: Path) -> None:
    site = browse([hostile_trace])
    site.until(scripts.READY, "the run is open")
    visit(site)
    # as those of operators and as messages of marks
    search(site, [*NAMES, *map(MARKED.format, NAMES)])
    domains(site)
    long_name(site)


@pytest.mark.parametrize("redact", [False, True])
def test_a_report_shows_hostile_names_as_text(driver: Any, hostile_trace: Path, tmp_path: Path, redact: bool) -> None:
    from .test_report import Report

    path = tmp_path / "<b id=planted>.html"
    with alone():
        write_report([hostile_trace], path, Options(redact=redact), lambda _: None)
    text = path.read_text()
    assert FLAG not in text
    driver.get("about:blank")
    driver.get_log("browser")
    driver.get_log("performance")
    report = Report(driver, path)
    driver.get(report.address)
    report.until(scripts.READY, "the report is there")
    visit(report)
    if not redact:
        # what is shown is shown by the same code as with a server; another one finds it
        search(report, [*NAMES, MARKED.format(NAMES[0])])
        domains(report)
        long_name(report)
