"""What is shown of a run that is damaged, cannot be opened, or is not worked out yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from . import mouse, scripts
from .conftest import Site, served, visit

pytestmark = pytest.mark.slow

BADGE = "return document.querySelector('header .badge-error:not([hidden])')?.getAttribute('href') ?? null"
#: the answer to one question does not come before it is let go
HOLD = """
const ask = window.fetch;
window.held = [];
window.fetch = (what, ...more) => String(what).includes(arguments[0])
  ? new Promise(go => window.held.push(() => go(ask(what, ...more)))) : ask(what, ...more);"""
TITLES = "return [...document.querySelectorAll('main .card h2')].map(one => one.innerText)"
WORKING = "return document.querySelector('main .card [role=status]')?.innerText.startsWith('Being worked out')"


def trace_of(calls: int) -> str:
    """A trace with some calls of an operator."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1000 + 10 * number, "dur": 5, "args": {}}
        for number in range(calls)
    ]
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


def test_a_trace_that_breaks_off_says_so_on_every_page(browse: Callable[[Sequence[Path]], Site], tmp_path: Path) -> None:
    cut, whole = tmp_path / "cut.pt.trace.json", tmp_path / "whole.pt.trace.json"
    text = trace_of(2000)
    cut.write_text(text[: len(text) // 2])
    whole.write_text(text)
    site = browse([cut, whole])
    site.until(scripts.ALL_OPEN, "both are open")
    for page in ("overview", "steps", "operators"):
        site.open(f"#/0/{page}")
        assert site.until(BADGE, "the mark is there") == "#/0/health"
    mouse.click(site, "header .badge-error")
    site.until(scripts.ANY_SHOWN, "the page about the data is shown", "main .small tbody tr")
    assert "he file breaks off inside its events" in site.text("main")
    site.open("#/1/overview")
    site.settle()
    assert site.script(BADGE) is None, "the other one is whole"
    # it was still being copied
    cut.write_text(text)
    site.open("#/0/health")
    site.until(scripts.ANY_SHOWN, "the page offers to read it again", "main .callout button")
    mouse.click(site, "main .callout button")
    site.until("return !document.querySelector('main').innerText.includes('breaks off')", "it is whole now")
    site.until(f"return !(() => {{ {BADGE} }})()", "no mark is left")
    assert site.console() == []


def test_a_run_that_cannot_be_opened_is_tried_again(browse: Callable[[Sequence[Path]], Site], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    site = browse([folder])
    site.until("return document.querySelector('main .problem')?.innerText.includes('holds no run')", "it is told")
    assert site.text("h1") == "run cannot be opened"
    assert str(folder) in site.text(".problem")
    assert len(site.text(".problem").splitlines()) > 2, "it says what to do"
    (folder / "rank0.pt.trace.json").write_text(trace_of(10))
    # the page is not one of those that settle: there is none yet
    site.driver.find_element("css selector", "main button").click()
    site.until(scripts.READY, "it is open")
    assert site.text("h1") == "Overview"


def test_the_page_of_ranks_shows_the_parts_as_they_come(site: Site) -> None:
    site.open("#/0/steps")
    site.script(HOLD, "cluster/heat")
    site.script("delete document.body.dataset.ready; location.hash = '#/0/ranks'")
    site.until(WORKING, "one comes later")
    site.until("return document.querySelectorAll('main .chart canvas').length > 2", "the charts are drawn")
    before = site.script(TITLES)
    assert "Heat map of the ranks" in before
    assert site.count(".heat-square") == 0
    assert not site.script(scripts.READY)
    site.script("for (const go of window.held) go()")
    site.until("return document.querySelectorAll('.heat-square').length === 2", "the last one comes")
    site.until(scripts.READY, "the page is whole")
    assert site.script(TITLES)[: len(before)] == before, "it takes its place"


def test_traces_without_ranks_and_steps(browse: Callable[[Sequence[Path]], Site], tmp_path: Path) -> None:
    for name in ("first.json", "second.json"):
        (tmp_path / name).write_text(trace_of(3))
    site = browse([tmp_path])
    site.until(scripts.READY, "the run is open")
    told = "return document.querySelector('main').innerText.includes('without complete steps most causes')"
    site.until(told, "advice says why there is none")
    text = site.text("main")
    assert "Traces\n2" in text and "Ranks\n2" not in text
    site.open("#/0/advice")
    site.until(told, "so does its page")


@pytest.mark.parametrize(
    ("language", "said", "advised"),
    [("en", "does not answer any more", "Start it again with"), ("zh", "不再响应", "重新启动")],
)
def test_a_server_that_is_gone_is_said_with_the_way_back(
    driver: Any, tmp_path: Path, language: str, said: str, advised: str
) -> None:
    run = tmp_path / "a run.pt.trace.json"
    run.write_text(trace_of(20))
    with served([run]) as port:
        site = visit(driver, port, "#/0/health")
        site.until(scripts.ALL_OPEN, "the run is open")
        if language != "en":
            site.language(language)
    site.script("location.hash = '#/0/operators'")
    site.until("return document.querySelector('main .problem button') !== null", "the page says that there is no server")
    text = site.text("main .problem")
    assert f"http://127.0.0.1:{port}" in text and said in text and advised in text and "Failed to fetch" not in text
    assert site.text("main .problem code") == f"steplens view '{run}'"
    with served([run], port):
        mouse.click(site, "main .problem button")
        site.until("return document.querySelector('main .problem') === null", "the page is there again")
        site.until("return document.querySelectorAll('.grid-table tbody tr').length > 0", "with its table")
        driver.get("about:blank")
    site.console()
