"""The pages of a job of many ranks in a browser: nothing in them grows with the number of ranks, and every rank can be found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..many_ranks import PER_HOST, RANKS, SLOW, STAGES, count_readings, many_ranks
from . import scripts
from .conftest import Site

pytestmark = pytest.mark.slow

#: of a page, whatever the number of ranks
MOST_NODES = 3000
#: a page of a table and its heading; and the rows of a virtualised one
MOST_ROWS = 45
MOST_OPTIONS = 32
SIZES = """
const count = (all, of) => Math.max(0, ...[...document.querySelectorAll(all)].map(of));
return {
  nodes: document.querySelectorAll('*').length,
  rows: count('table', one => one.rows.length),
  columns: count('table', one => one.rows[0]?.cells.length ?? 0),
  options: count('select', one => one.options.length),
  legend: count('.legend', one => one.children.length),
  boxes: document.querySelectorAll('main input[type=checkbox]').length,
};"""
TYPE = """
const [selector, text] = arguments;
const box = document.querySelector(selector);
box.focus();
box.value = text;
box.dispatchEvent(new Event('input', {bubbles: true}));"""
PICK = """
const [label, value] = arguments;
const list = [...document.querySelectorAll('main .choice')].find(one => one.innerText.startsWith(label)).querySelector('select');
list.value = value;
list.dispatchEvent(new Event('change'));"""
ROWS = """
const table = [...document.querySelectorAll('main .scroll > table')].find(one => one.caption?.textContent === arguments[0]);
return [...(table?.tBodies[0].rows ?? [])].map(row => [...row.cells].map(cell => cell.innerText.trim()));"""
OFFERS = "return [...document.querySelectorAll('.rank-offers [role=option]')].map(one => one.innerText)"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_ranks(tmp_path_factory)


@pytest.fixture
def pages(look: Callable[[Sequence[Path]], Site], job: Path) -> Site:
    site = look([job])
    site.until(scripts.ALL_OPEN, "the run is open")
    site.until(scripts.READY, "the first page is there")
    return site


def ask(site: Site, path: str) -> Any:
    return site.script(f"return fetch('./api/runs/0/{path}', {scripts.WITH_TOKEN}).then(one => one.json())")


def ms(text: str) -> float:
    number, unit = text.split()[:2]
    return float(number.replace(",", "")) * {"ns": 1e-6, "µs": 1e-3, "ms": 1, "s": 1e3}[unit]


def test_no_page_grows_with_the_number_of_ranks(pages: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # what the server is asked ahead is there
    pages.until(f"return fetch('./api/runs/0/communication/links', {scripts.WITH_TOKEN}).then(one => one.ok)", "answers")
    counts = count_readings(monkeypatch)
    read: dict[str, set[str]] = {}
    for page in ("overview", "ranks", "communication", "advice", "steps", "timeline"):
        pages.open(f"#/0/{page}")
        pages.settle()
        sizes = pages.script(SIZES)
        assert sizes["nodes"] < MOST_NODES and sizes["rows"] <= MOST_ROWS and sizes["options"] <= MOST_OPTIONS, (page, sizes)
        assert sizes["columns"] <= MOST_ROWS and sizes["legend"] < 20 and sizes["boxes"] < 45, (page, sizes)
        read[page] = {name.split()[0] for name in counts}
        counts.clear()
    # the events of the rank that a page shows alone, and of those that evidence of advice is looked for in: never of all
    most = {page: len(traces) for page, traces in read.items()}
    assert max(most.values()) <= RANKS // 2, most
    assert pages.console() == []


def test_groups_add_up_to_what_the_server_says(pages: Site) -> None:
    pages.open("#/0/ranks?by=host")
    pages.settle()
    found = ask(pages, "cluster/side-by-side")
    own = found["figures"]["own_ns"]
    rows = pages.script(ROWS, "Ranks in groups")
    assert len(rows) == RANKS // PER_HOST and sum(int(row[1]) for row in rows) == RANKS
    for name, count, _, mean, *_ in rows:
        mine = [value for value, host in zip(own, found["host"], strict=True) if host == name]
        assert len(mine) == int(count)
        assert ms(mean) == pytest.approx(sum(mine) / len(mine) / 1e6, rel=1e-3)
    # the slowest first, and of each host the rank that is
    means = [ms(row[3]) for row in rows]
    assert means == sorted(means, reverse=True)
    assert next(row for row in rows if row[0] == found["host"][SLOW])[-1].endswith(f"Rank {SLOW}")
    pages.script(PICK, "Group by", "stage")
    assert {row[0]: row[1] for row in pages.script(ROWS, "Ranks in groups")} == {
        f"Stage {stage}": str(found["stage"].count(stage)) for stage in range(1, STAGES + 1)
    }
    pages.script(PICK, "Group by", "group")
    rows = pages.script(ROWS, "Ranks in groups")
    assert rows and {row[0].removeprefix("Group ") for row in rows} <= {one["name"] for one in found["groups"]}
    steps = ask(pages, "cluster/rank-steps")
    medians = steps["spread"][steps["quantiles"].index(0.5)]
    above = {
        rank: sum(value - median for value, median in zip(row, medians, strict=True)) / len(medians)
        for rank, row in zip(steps["rank"], steps["values"], strict=True)
    }
    far = sorted(above, key=lambda rank: -above[rank])[:6]
    assert [f"Rank {rank}" for rank in far] == pages.script(
        "return [...document.querySelectorAll('.rank-far a')].map(one => one.innerText)"
    )
    assert pages.console() == []


def test_every_rank_is_found(pages: Site) -> None:
    pages.open("#/0/ranks?by=rank")
    pages.settle()
    assert len(pages.script(ROWS, "Ranks in groups")) == 20
    pages.script(TYPE, ".rank-find", "host 3")
    rows = pages.script(ROWS, "Ranks in groups")
    assert sorted(row[0] for row in rows) == sorted(f"Rank {rank}" for rank in range(3 * PER_HOST, 4 * PER_HOST))
    pages.script(TYPE, ".rank-find", "37")
    assert [row[0] for row in pages.script(ROWS, "Ranks in groups")] == ["Rank 37"]
    # in the box of a page of one rank, where the slow one is offered first
    pages.open("#/0/steps")
    pages.settle()
    pages.script("document.querySelector('.rank-picker input').focus()")
    offered = pages.until(OFFERS + ".length && " + OFFERS.removeprefix("return "), "ranks are offered")
    assert offered[0].startswith(f"Rank {SLOW} · node0001 · Stage 1")
    pages.script(TYPE, ".rank-picker input", "29")
    pages.until(OFFERS + "[0] === 'Rank 29 · node0003 · Stage 2'", "the rank is offered")
    pages.script(
        "document.querySelector('.rank-offers [role=option]').dispatchEvent(new Event('pointerdown', {cancelable: true}))"
    )
    pages.until("return location.hash.includes('rank=29')", "its steps are shown")
    # and in the box of the whole run
    pages.script(TYPE, ".search input", "stage 2")
    pages.until(
        "return document.querySelector('.hits').innerText.includes('Rank 20 · node0002 · Stage 2')", "its ranks are found"
    )
    assert pages.console() == []
