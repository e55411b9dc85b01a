"""Every page in a browser, on a real run: content, console, requests, names, addresses, languages, colours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import mean, median
from urllib.parse import quote

import pytest

import steplens
from steplens.analysis.steps.summary import summarize_steps, usual_step_times
from steplens.analysis.steps.times import chosen_step_times
from steplens.server.tables.tables import PER_STEP, every_table

from . import mouse, scripts
from .conftest import PAGES, Site
from .training import HOSTILE, STEPS

WEB = Path(__file__).resolve().parents[2] / "web"
WORDS = WEB / "src" / "words"

pytestmark = pytest.mark.slow

#: what each page must hold once it is there
CONTENT = {
    "overview": ".step-scale .scale-part, .share-bars li, .trend svg, .rank-bars .part",
    "advice": ".finding-card, main > .nothing",
    "steps": ".step-figure .segment, .parts .part, .chart canvas, .grid-table tbody tr",
    "timeline": ".timeline-canvas, .lane-label",
    "operators": ".chart canvas, .grid-table tbody td.number",
    "kernels": ".chart canvas, .grid-table tbody td.number",
    "memory": ".chart canvas, .grid-table tbody td.number",
    "shapes": ".chart canvas, .drop",
    "pipeline": ".flow-box, .chart canvas",
    "communication": ".chart canvas, .grid-table tbody td.number",
    "ranks": ".chart canvas, .small tbody tr",
    "marey": ".marey-operator rect, .steps-overview .marey-step",
    "health": "main p, .small tbody tr",
    "live": "button, .figure",
    "tables": ".grid-table tbody td",
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_run_without_errors_or_foreign_requests(same_site: Site, page: str) -> None:
    site = same_site
    site.open(f"#/0/{page}")
    any_of = page in ("advice", "health")
    site.until(scripts.ANY_SHOWN if any_of else scripts.ALL_SHOWN, f"{page} has its content", CONTENT[page])
    assert site.text("h1")
    assert site.count("main .problem") == 0
    assert site.script("return document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window"
    assert site.console() == []
    assert site.foreign() == []


def test_every_page_of_the_menu_is_tested(site: Site) -> None:
    listed = site.script("return [...document.querySelectorAll('.menu a')].map(one => one.getAttribute('href'))")
    # an hour after the recording nobody waits for more of it
    assert {*listed, "#/0/live"} == {f"#/0/{page}" for page in PAGES}


def test_the_groups_of_the_menu_are_opened_and_closed_and_stay_so(site: Site) -> None:
    shown = "return document.querySelector('.menu a[href$=\"/kernels\"]').checkVisibility()"
    site.open("#/0/overview")
    assert site.script(shown)
    site.script("document.querySelector('.menu summary').click()")
    site.open("#/0/memory")
    assert not site.script(shown)
    site.open("#/0/kernels")
    assert site.script(shown) and site.text(".menu a[aria-current]") == "Kernels"
    site.open("#/0/memory")
    assert not site.script(shown)
    site.script("document.querySelector('.menu summary').click()")
    site.open("#/0/overview")
    assert site.script(shown)
    assert site.console() == []


def test_the_token_leaves_the_address_and_the_page_survives_a_reload(site: Site) -> None:
    site.open("#/0/operators")
    site.driver.refresh()
    site.until("return document.body.dataset.ready === '#/0/operators'", "the page is back")
    assert "token" not in site.driver.current_url


def test_hostile_names_are_text(site: Site) -> None:
    where = quote(json.dumps([{"column": "name", "contains": "onerror"}]))
    # a range that somebody marked is no operator, and stands among the recorded calls
    recorded = f"#/0/tables?table=recorded_ops&recorded_ops.where={where}"
    for page in (recorded, f"#/0/timeline?find={quote(HOSTILE)}"):
        site.open(page)
        assert site.until(scripts.NAME_WITH, "the name is shown", HOSTILE[:60])
        assert site.count("main img, main script") == 0
        assert "owned" not in site.driver.title
    assert site.console() == []


def test_the_overview_says_what_the_analyses_say(site: Site, run_of_two_ranks: Path) -> None:
    run = steplens.open(run_of_two_ranks)
    lengths = [chosen_step_times(trace)["step_time_ns"].to_list() for trace in run.traces]
    (counted,) = set(map(len, lengths))
    site.open("#/0/overview")
    figure = site.until("return document.querySelector('.figure dd')?.innerText", "the step time is there")
    # how long a step took is up to the machine
    assert nanoseconds(figure) == pytest.approx(median(chain.from_iterable(lengths)), rel=1e-3)
    assert site.text(".figure .note") == f"median of {counted} steps on 2 ranks"
    assert run.verdict().sentence() in site.text("main")
    site.open("#/0/steps?rank=1")
    title = site.until(CHOSEN, "the mean step is there")
    summary = summarize_steps([run.traces[1]])
    assert nanoseconds(title.partition(": ")[2]) == pytest.approx(summary.step_mean_ns, rel=1e-3)
    # every figure of a part stands in a row of the table of steps
    in_bars = site.script(IN_BARS)
    first_row = site.until(MEANS, "the table of parts is there")
    assert in_bars and [figure for figure in in_bars if figure not in first_row] == []
    forward = nanoseconds(site.script(PART, "Forward"))
    assert forward == pytest.approx(mean(usual_step_times(run.traces[1])["forward_ns"]), rel=1e-3)


CHOSEN = "return [...document.querySelectorAll('main h2')].find(one => one.innerText.startsWith('Mean of'))?.innerText"
IN_BARS = "return [...document.querySelectorAll('main .parts .legend b')].map(one => one.innerText.split(' (')[0])"
MEANS = "return [...document.querySelectorAll('main tr')].map(one => one.innerText).find(text => /^mean of steps/i.test(text))"
#: what the legend of a bar says of a part
PART = """return [...document.querySelectorAll('main .parts .legend li')]
.find(one => one.innerText.trim().startsWith(arguments[0])).querySelector('b').innerText.split(' (')[0]"""


def nanoseconds(text: str) -> float:
    shown, unit = text.replace(",", "").split()
    return float(shown) * {"µs": 1e3, "ms": 1e6, "s": 1e9}[unit]


def test_a_table_filters_sorts_and_scrolls(site: Site) -> None:
    site.open("#/0/tables?rank=0&table=recorded_ops")
    site.until("return document.querySelectorAll('.grid-table tbody td.number').length > 10", "rows are there")
    total = int(re.sub(r"\D", "", site.text(".table-foot")))
    assert int(site.script("return document.querySelector('.grid-table').getAttribute('aria-rowcount')")) == total + 1
    assert site.count(".grid-table tbody tr") < 100, "only visible rows are drawn"
    site.script(scripts.TABLE_END)
    site.until(scripts.LAST_ROW_IS, "the last row is there", str(total + 1))
    site.script("document.querySelector('[data-control=\"sort self_ns\"]').click()")
    sorted_so = "return document.querySelector('th[aria-sort=descending] [data-control=\"sort self_ns\"]') !== null"
    site.until(sorted_so, "it is sorted")
    assert "recorded_ops.sort=-self_ns" in site.driver.current_url
    site.script(scripts.FILTER_NAME, "aten::addmm")
    site.until(scripts.FILTERED, "it is filtered")
    match = re.match(r"([\d,]+) of ([\d,]+)", site.text(".table-foot"))
    assert match is not None
    found, of = (int(one.replace(",", "")) for one in match.groups())
    assert 0 < found < of == total
    site.driver.refresh()
    site.until(scripts.FILTERED, "the address keeps it")
    assert site.text(".table-foot").startswith(f"{found:,} of")


def test_the_timeline_zooms_selects_and_finds(site: Site) -> None:
    site.open("#/0/timeline")
    site.until(scripts.TILES_THERE, "the tiles are there")
    assert site.script(scripts.COLOURS_PAINTED) > 20, "boxes of many colours are painted"
    before = site.text(".timeline-status")
    for _ in range(6):
        site.script(scripts.PRESS, "w")
    site.until(scripts.STATUS_CHANGED, "it is closer", before)
    site.until("return /[?&]start=\\d+/.test(location.hash)", "the address keeps the window")
    site.script(scripts.PRESS, "0")
    site.script(scripts.DRAG)
    site.until(scripts.PANEL_SAYS, "the selection is told", "Selected: ")
    assert site.count(".timeline-panel tbody tr") > 0
    site.open("#/0/timeline?find=aten::addmm")
    site.until(scripts.PANEL_SAYS, "the name is found", "aten::addmm")
    assert re.search(r"[\d,]+ events on \d+ track", site.text(".controls"))
    site.until("return /[?&]event=\\d\\.\\d+/.test(location.hash)", "an event is chosen")
    assert site.console() == []


def test_events_are_counted_not_dropped(site: Site) -> None:
    site.open("#/0/timeline?rank=0")
    site.until(scripts.TILES_THERE, "the tiles are there")
    site.script(scripts.PRESS, "0")
    closed = ".lane-name[aria-expanded=false]"
    while site.count(closed):
        site.script("document.querySelector(arguments[0]).click()", closed)
    # a page high enough for all lanes
    site.script("document.querySelector('.timeline-scroll').style.flex = '0 0 9000px'")
    site.until(scripts.TILES_THERE, "all lanes are there")
    wanted = site.script(scripts.EVENTS_OF_THE_SERVER)
    site.until(scripts.ALL_COUNTED, f"{wanted} events are painted or counted", wanted)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(site: Site, theme: str) -> None:
    site.open("#/0/overview")
    site.script("localStorage.setItem('steplens.theme', arguments[0])", theme)
    site.driver.refresh()
    site.until(scripts.READY, "the page is there")
    low = site.script(scripts.LOW_CONTRAST)
    site.script("localStorage.removeItem('steplens.theme')")
    assert low == []


def test_the_other_language_is_complete_and_kept(site: Site) -> None:
    site.open("#/0/overview")
    site.script("localStorage.setItem('steplens.language', 'zh')")
    site.driver.refresh()
    site.until(scripts.READY, "the page is there")
    assert site.text("h1") == "总览"
    assert site.script("return document.documentElement.lang") == "zh"
    site.open("#/0/advice")
    assert re.search("[一-鿿]", site.text("main"))
    site.script("localStorage.setItem('steplens.language', 'en')")


def test_controls_have_names_and_pages_have_landmarks(site: Site) -> None:
    for page in ("overview", "operators", "timeline"):
        site.open(f"#/0/{page}")
        unnamed = site.script(scripts.UNNAMED_CONTROLS)
        assert unnamed == []
        assert site.count("header.top") == site.count("nav.menu[aria-label]") == site.count("main h1") == site.count("main") == 1


def test_the_keyboard_reaches_the_content(site: Site) -> None:
    site.script("document.querySelector('.skip').focus(); document.querySelector('.skip').click()")
    assert site.script("return document.activeElement.tagName") == "H1"


def test_a_corrupt_run_says_what_is_wrong(browse: Callable[[Sequence[Path]], Site], tmp_path: Path) -> None:
    broken = tmp_path / "broken.pt.trace.json"
    broken.write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", ')
    site = browse([broken, tmp_path / "missing"])
    site.until("return document.querySelector('.problem') || document.body.dataset.ready", "there is an answer")
    site.script("location.hash = '#/1/overview'")
    site.until("return /missing/.test(document.querySelector('.problem')?.innerText ?? '')", "the missing run is named")
    assert len(site.text(".problem").splitlines()) > 1, "it says where and what to do"


def test_two_runs_are_compared(browse: Callable[[Sequence[Path]], Site], run_of_two_ranks: Path) -> None:
    site = browse([run_of_two_ranks, run_of_two_ranks])
    site.until(scripts.READY, "the first run is open")
    site.until(scripts.ALL_OPEN, "both are open")
    site.open("#/0/compare")
    assert "+0.0 %; the interval of 95 % is -" in site.text("main .verdict"), "a run does not differ from itself"
    assert "both sides hold the same 2 recordings" in site.text("main .callout").lower()
    assert site.count("main .step-picture svg .recording") == 2
    # the parts of the host, of which those of each side add up
    assert site.count("main .parts") == 2
    # what takes long on both sides fills the graphs, and a click enlarges it in all three
    site.until("return document.querySelectorAll('main .flame-boxes').length === 3", "the flame graphs are drawn")
    first = site.script("return document.querySelector('main .flame-boxes .flame-box:nth-of-type(2)').title")
    mouse.click(site, "main .flame-boxes .flame-box:nth-of-type(2)")
    site.until("return document.querySelector('main .flame-way').innerText.includes('›')", "one of the boxes fills the width")
    outermost = "[...document.querySelectorAll('main .flame-boxes')].map(one => one.firstChild)"
    assert site.script(f"return {outermost}.map(box => [box.title, box.style.width])") == [[first, "100%"]] * 3
    links = site.script("return [...document.querySelectorAll('main .flame-links a')].map(one => one.getAttribute('href'))")
    assert [link.partition("?")[0] for link in links] == ["#/0/operators", "#/1/operators", "#/0/timeline", "#/1/timeline"]
    # the keys are at the box that was clicked, and lead to what lies in it
    press = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown', bubbles: true}))"
    site.script(press)
    assert site.script("return document.activeElement.className") == "flame-box"
    assert site.script("return document.activeElement.title") != first
    assert site.console() == []


def test_the_step_chart_has_every_step(site: Site) -> None:
    site.open("#/0/steps?rank=0")
    site.until("return document.querySelectorAll('main .grid-table tbody td a').length > 0", "the table is there")
    shown = site.script("return [...document.querySelectorAll('main .choice select')].at(-1).options.length - 1")
    assert STEPS <= shown <= STEPS + 1


def test_the_pages_know_every_earlier_name_of_a_table() -> None:
    (source,) = (WEB / "src").rglob("route.ts")
    renamed = dict(re.findall(r'\["(\w+)", "(\w+)"\]', source.read_text(encoding="utf-8")))
    assert renamed == {alias: table.name for table in every_table().values() for alias in table.aliases}


def test_every_table_of_the_server_has_a_title_in_both_languages() -> None:
    for language in ("en", "zh"):
        words = json.loads((WORDS / f"{language}.json").read_text(encoding="utf-8"))
        # a table per step is called as the one of the whole recording, with a word for that
        untold = [name for name in every_table() if f"table.{name.removesuffix(PER_STEP)}" not in words]
        assert untold == [], f"add the titles as table.NAME to {WORDS / language}.json"
