"""A table of fifty thousand rows in a browser: order, filters, focus, copies, paper, keyboard."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from . import scripts
from .conftest import Site

ROWS = 50_000
SHORTER = 40_000
TABLE = "#/0/tables?table=recorded_ops"

pytestmark = pytest.mark.slow

COLUMN = """
const head = document.querySelector(`.grid-table [data-control="sort ${arguments[0]}"]`).closest('th');
return [...document.querySelectorAll('.grid-table tbody tr[aria-rowindex]')].map(row => row.cells[head.cellIndex].innerText)"""
DRAWN = "return document.querySelectorAll('.grid-table tbody tr[aria-rowindex]').length"
SORT = 'const one = document.querySelector(`[data-control="sort ${arguments[0]}"]`); one.focus(); one.click()'
SORTED = 'return document.querySelector(\'.grid-table th[aria-sort="descending"] [data-control="sort start_ns"]\') !== null'
FOOT = "return document.querySelector('.table-foot').innerText === arguments[0]"


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty thousand calls, one after the other; the last ones have another name."""
    names = ["aten::add" if number < SHORTER else "aten::mul" for number in range(ROWS)]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1000 + 10 * number, "dur": 5, "args": {}}
        for number, name in enumerate(names)
    ]
    file = tmp_path_factory.mktemp("table") / "long.pt.trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return file


@pytest.fixture
def table(look: Callable[[Sequence[Path]], Site], long_run: Path) -> Site:
    site = look([long_run])
    site.until(scripts.READY, "the run is open")
    site.open(TABLE)
    site.settle()
    return site


def test_fifty_thousand_rows_are_sorted_filtered_and_kept_by_the_address(table: Site) -> None:
    site = table
    site.until(FOOT, "all rows are counted", f"{ROWS:,} rows")
    assert site.script(DRAWN) < 100, "only what is visible is drawn"
    site.script(SORT, "start_ns")
    site.until(SORTED, "the last call is the first row")
    site.settle()
    assert site.script("return document.activeElement.getAttribute('data-control')") == "sort start_ns", "the focus stays"
    assert set(site.script(COLUMN, "name")) == {"aten::mul"}
    site.script(scripts.FILTER_NAME, "ADD")
    site.until(FOOT, "the rows of a name are left", f"{SHORTER:,} of {ROWS:,} rows")
    site.script(scripts.TABLE_END)
    site.until(scripts.LAST_ROW_IS, "the last row is there", str(SHORTER + 1))
    assert set(site.script(COLUMN, "name")) == {"aten::add"}
    site.driver.refresh()
    site.until(scripts.READY, "the page is back")
    site.until(FOOT, "the filter is still there", f"{SHORTER:,} of {ROWS:,} rows")
    assert site.script(SORTED)
    assert site.console() == []


def test_the_file_and_the_copy_have_what_is_filtered(table: Site) -> None:
    site = table
    where = quote(json.dumps([{"column": "name", "contains": "mul"}]))
    site.open(f"{TABLE}&recorded_ops.where={where}&recorded_ops.sort=-start_ns")
    site.until(FOOT, "the filter holds", f"{ROWS - SHORTER:,} of {ROWS:,} rows")
    file = "document.querySelector('.table-tools a[download]').href"
    text = site.script(f"return fetch({file}, {scripts.WITH_TOKEN}).then(one => one.text())")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == ROWS - SHORTER
    assert {row["name"] for row in rows} == {"aten::mul"}
    starts = [int(row["start_ns"]) for row in rows]
    assert starts == sorted(starts, reverse=True)
    site.script(
        "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); };"
        "document.querySelector('[data-control=copy]').click()"
    )
    site.until("return window.copied !== undefined", "the rows are copied")
    copied = [line.split("\t") for line in site.script("return window.copied").split("\n")]
    assert len(copied) == 1001
    assert {row[copied[0].index("name")] for row in copied[1:]} == {"aten::mul"}
    assert "1,000 of 10,000" in site.text(".table-foot")


def test_a_row_is_opened_with_the_keyboard(table: Site) -> None:
    site = table
    site.script("document.querySelector('.table-scroll').focus()")
    press = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))"
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        site.script(press, key)
    site.until("return document.querySelector('dialog[open] dl') !== null", "the row is shown")
    site.script("document.querySelector('dialog').close()")
    site.until("return document.querySelector('dialog') === null", "the row is closed")
    assert site.script("return document.activeElement.className") == "table-scroll"


HEADS = "return [...document.querySelectorAll('.grid-table th button')].map(one => one.dataset.control.split(' ')[1])"
WIDTH = "return document.querySelector(`[data-control='sort ${arguments[0]}']`).closest('th').getBoundingClientRect().width"


def test_columns_are_chosen_and_made_wider_and_the_address_keeps_both(table: Site) -> None:
    site = table
    heads = site.script(HEADS)
    assert {"name", "start_ns", "end_ns"} <= set(heads)
    assert not {"stack", "input_shapes", "module"} & set(heads), "columns without any value are left out"
    site.script("document.querySelector('[data-control=columns]').click()")
    site.script("document.querySelector(`[data-control='column stack']`).click()")
    site.script("document.querySelector(`[data-control='column end_ns']`).click()")
    assert set(site.script(HEADS)) == {*heads, "stack"} - {"end_ns"}
    assert site.count(".columns[open]") == 1, "the list stays open"
    before = float(site.script(WIDTH, "name"))
    site.script(
        "const edge = document.querySelector(`[data-control='sort name']`).closest('th').querySelector('.edge');"
        "const at = (type, x) => new PointerEvent(type, {bubbles: true, button: 0, clientX: x});"
        "edge.dispatchEvent(at('pointerdown', 300)); dispatchEvent(at('pointermove', 370)); dispatchEvent(at('pointerup', 370))"
    )
    assert site.script(WIDTH, "name") == pytest.approx(before + 70, abs=2)
    site.driver.refresh()
    site.until(scripts.READY, "the page is back")
    site.until(FOOT, "the rows are there", f"{ROWS:,} rows")
    site.settle()
    assert set(site.script(HEADS)) == {*heads, "stack"} - {"end_ns"}
    assert site.script(WIDTH, "name") == pytest.approx(before + 70, abs=2)
    left = "return document.querySelector('.grid-table tbody tr[aria-rowindex] td').getBoundingClientRect().left"
    place = site.script(left)
    assert site.script("const one = document.querySelector('.table-scroll'); one.scrollLeft = 90; return one.scrollLeft") == 90
    assert site.script(left) == pytest.approx(place), "the first column stays when the others are scrolled"
    site.script("document.querySelector(`[data-control='columns as usual']`).click()")
    assert site.script(HEADS) == heads
    assert site.script(WIDTH, "name") != pytest.approx(before + 70, abs=2)


def test_paper_has_the_first_rows_and_says_so(table: Site) -> None:
    site = table
    site.script("dispatchEvent(new Event('beforeprint'))")
    assert site.script(DRAWN) == 200
    assert "The first 200 of 50,000 rows" in site.text("main .table")
    site.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert site.script("return getComputedStyle(document.querySelector('.menu')).display") == "none"
        assert site.script(
            "return [...document.querySelectorAll('.spacer')].every(one => getComputedStyle(one).display === 'none')"
        )
    finally:
        site.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    site.script("dispatchEvent(new Event('afterprint'))")
    assert site.script(DRAWN) < 100
