"""A report in a browser, opened from the disk: every page, without a request, a server or an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steplens.report.write import Options, write_report

from ..once import once
from ..report.conftest import alone
from . import scripts
from .conftest import Site
from .strategy_files import HOSTILE, LAYERS, write_strategy

pytestmark = pytest.mark.slow

#: what pages load from, as the browser counts it
LOADED = "return performance.getEntriesByType('resource').map(one => one.name).filter(one => !/^(data|blob):/.test(one))"


#: asks for an image, for data, and for a script of its own; whether each was refused
TRY_TO_GET_OUT = """
const done = arguments[arguments.length - 1];
const image = new Promise(is => {
  const one = new Image();
  one.onload = () => is('loaded');
  one.onerror = () => is('refused');
  one.src = 'http://127.0.0.1:9/x.png';
});
const asked = fetch('http://127.0.0.1:9/').then(() => 'answered', () => 'refused');
window.ran = 'refused';
const script = document.createElement('script');
script.textContent = "window.ran = 'ran'";
document.body.append(script);
Promise.all([image, asked, window.ran]).then(done)"""


class Report(Site):
    """A browser that shows the file of a report."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        self.address = path.as_uri()

    def foreign(self) -> list[str]:
        """Addresses that the browser asked for besides the file itself."""
        return [url for url in self.requests() if not url.startswith(("data:", "blob:")) and url.split("#")[0] != self.address]


Show = Callable[[Path], Report]


@pytest.fixture
def show(driver: Any) -> Show:
    """Opens the file of a report."""

    def opened(path: Path) -> Report:
        driver.get("about:blank")
        driver.get_log("browser")
        driver.get_log("performance")
        shown = Report(driver, path)
        driver.get(shown.address)
        shown.until(scripts.READY, "the first page is there")
        return shown

    return opened


@pytest.fixture(scope="module")
def report_file(run_of_two_ranks: Path, driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        with alone():
            write_report([run_of_two_ranks], folder / "report.html", Options(), lambda _: None)

    return once(tmp_path_factory, "web-report", make) / "report.html"


@pytest.fixture(scope="module")
def redacted_file(run_of_two_ranks: Path, driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without names, in Chinese, of a rank, to which another one adds nothing, and a strategy."""

    def make(folder: Path) -> None:
        one_rank = min(run_of_two_ranks.glob("*_ascend_pt"))
        options = Options(redact=True, language="zh", rows=50)
        with alone():
            write_report([one_rank, write_strategy(folder / "job")], folder / "redacted.html", options, lambda _: None)

    return once(tmp_path_factory, "web-redacted", make) / "redacted.html"


def test_every_page_is_there_without_a_server(show: Show, report_file: Path) -> None:
    report = show(report_file)
    listed = report.script("return [...document.querySelectorAll('.menu a')].map(one => one.getAttribute('href'))")
    pages = [address.removeprefix("#/0/") for address in listed]
    assert {"overview", "timeline", "operators", "shapes", "memory", "tables", "report"} <= set(pages)
    assert "live" not in pages
    for page in pages:
        report.open(f"#/0/{page}")
        assert report.text("h1")
        assert report.count("main .problem") == 0, (page, report.text("main .problem"))
        assert report.script("return document.documentElement.scrollWidth <= innerWidth"), f"{page} is wider than the window"
        assert report.console() == [], page
    assert report.foreign() == []
    assert report.script(LOADED) == []


def test_what_needs_a_server_says_so(show: Show, report_file: Path) -> None:
    report = show(report_file)
    report.open("#/0/live")
    assert "not in this report" in report.text("main .problem")
    assert "steplens view" in report.text("main .problem")
    assert report.console() == []


def test_the_report_names_its_window_and_what_it_lacks(show: Show, report_file: Path) -> None:
    report = show(report_file)
    report.open("#/0/report")
    assert re.search(r"step \d+, the one of median length", report.text("main .figures"))
    assert "as they were recorded" in report.text("main")
    cut = report.script("return [...document.querySelectorAll('main .small tbody tr')].map(one => one.innerText)")
    assert any(row.startswith("Rows of a table") and "2,000" in row for row in cut), cut
    assert "What only steplens view does" in report.text("main")


def test_the_timeline_zooms_to_single_events(show: Show, report_file: Path) -> None:
    report = show(report_file)
    report.open("#/0/timeline")
    report.until(scripts.TILES_THERE, "the tiles are there")
    assert "step" in report.text("main .callout")
    assert report.script(scripts.COLOURS_PAINTED) > 20
    for _ in range(8):
        before = report.text(".timeline-status")
        report.script(scripts.PRESS, "w")
        report.until(scripts.STATUS_CHANGED, "it is closer", before)
    assert re.search(r" [1-9][\d,]* events shown one by one, 0 in boxes", report.text(".timeline-status"))
    report.open("#/0/timeline?find=aten::addmm")
    report.until(scripts.PANEL_SAYS, "the name is found", "aten::addmm")
    report.until("return /[?&]event=0\\.\\d+/.test(location.hash)", "an event is chosen")
    event = re.search(r"event=(0\.\d+)", report.driver.current_url)
    assert event is not None
    report.open(f"#/0/timeline?event={event[1]}")
    report.until("return document.querySelectorAll('.timeline-panel .pairs dt').length > 8", "its details are there")
    assert report.text(".timeline-panel h2") == "aten::addmm"
    report.open("#/0/timeline")
    report.until(scripts.TILES_THERE, "the tiles are there")
    report.script(scripts.DRAG)
    report.until(scripts.PANEL_SAYS, "the selection is told", "Selected: ")
    assert report.console() == []


def test_tables_filter_and_sort_the_rows_that_are_there(show: Show, report_file: Path) -> None:
    report = show(report_file)
    report.open("#/0/tables?rank=0&table=operators")
    control = "document.querySelector('.grid-table [data-control=\"sort calls\"]')"
    report.until(f"return {control} !== null", "the table is there")
    report.script(f"{control}.click()")
    report.until(f"return {control}.closest('th').getAttribute('aria-sort') === 'descending'", "it is sorted")
    report.script(scripts.FILTER_NAME, "aten::addmm")
    report.until(scripts.FILTERED, "it is filtered")
    assert report.console() == []


def test_shapes_and_a_strategy_are_in_a_report_without_names(show: Show, redacted_file: Path) -> None:
    report = show(redacted_file)
    report.open("#/0/shapes")
    assert report.count("main .problem") == 0 and report.count("main canvas, main svg") >= 2
    boxes = "return [...document.querySelectorAll('.type-boxes input')].map(one => one.checked)"
    chosen = report.script(boxes)
    assert sum(chosen) == 3 and len(chosen) > 5
    another = "[...document.querySelectorAll('.type-boxes input')].find(one => !one.checked)"
    report.script(f"delete document.body.dataset.ready; {another}.click()")
    report.until("return document.body.dataset.ready !== undefined", "another type is shown")
    assert sum(report.script(boxes)) == 4 and report.count("main .problem") == 0
    report.open("#/1/strategy")
    report.script("document.querySelector('[data-node=Default]').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    report.until("return document.querySelector('[data-node=\"#1\"]') !== null", "the scope is open")
    form = "document.querySelector('.strategy-search')"
    report.script(f"{form}.querySelector('input').value = 'matmul'; {form}.requestSubmit()")
    report.until(f"return document.querySelectorAll('.strategy-hits a').length === {LAYERS}", "operators are found")
    report.script("document.querySelector('.strategy-hits a').click()")
    report.until("return document.querySelector('.strategy-node.chosen[data-node=\"#10\"]') !== null", "the operator is shown")
    told = report.text(".strategy-panel h3")
    assert told.endswith("/MatMul-op10") and "layer0" not in told
    assert "2×1 | 1×1" in report.script("return document.querySelector('.strategy-graph').textContent")
    report.open("#/1/strategy?stage=2&node=90")
    told = report.text(".strategy-panel")
    assert report.text(".strategy-panel h3") and "onerror" in HOSTILE and "onerror" not in told and "owned" not in told
    assert report.count("main img") == 0
    assert report.console() == [] and report.foreign() == []


def test_it_opens_in_a_language_and_in_dark_colours(show: Show, redacted_file: Path) -> None:
    report = show(redacted_file)
    assert report.text("h1") == "总览"
    report.script("localStorage.setItem('steplens.theme', 'dark')")
    report.driver.refresh()
    report.until(scripts.READY, "the page is there")
    low = report.script(scripts.LOW_CONTRAST)
    report.script("localStorage.removeItem('steplens.theme')")
    assert report.script("return document.documentElement.dataset.theme") == "dark"
    assert low == []
    assert report.console() == []


def test_the_policy_of_the_page_lets_nothing_out(show: Show, report_file: Path) -> None:
    report = show(report_file)
    outcome = report.driver.execute_async_script(TRY_TO_GET_OUT)
    assert outcome == ["refused", "refused", "refused"]
    violations = [line for line in report.console() if "Content Security Policy" in line or "Content-Security-Policy" in line]
    assert len(violations) >= 3, "the policy refused them, not the network"
    assert json.dumps(violations).count("127.0.0.1:9") >= 2
