"""What a mouse does to the pages: points and slices that are clicked, windows that are dragged, charts that are zoomed."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from ..shared_data import shared
from . import mouse, scripts
from .conftest import DEADLINE_S, Site

pytestmark = pytest.mark.slow

ARRIVED = "return location.hash.startsWith(arguments[0]) && document.body.dataset.ready === location.hash"
#: left and right of the plot in the charts of steps, px; see step_charts.ts
PLOT_LEFT, PLOT_RIGHT = 64, 12


def parameters(site: Site) -> dict[str, str]:
    """What the address keeps."""
    _, _, query = str(site.script("return location.hash")).partition("?")
    return {name: values[0] for name, values in parse_qs(query).items()}


def arrived(site: Site, page: str) -> dict[str, str]:
    """Wait for a page, and give what its address keeps."""
    site.until(ARRIVED, f"{page} is shown", f"#/0/{page}")
    return parameters(site)


def across(site: Site, selector: str, share: float) -> float:
    """The share of a chart's width at which a share of its plot lies."""
    width = mouse.seen(site, selector).size["width"]
    return float((PLOT_LEFT + share * (width - PLOT_LEFT - PLOT_RIGHT)) / width)


def recorded_steps(site: Site) -> list[int]:
    return [row["step"] for row in site.script(scripts.ASK, "steps?trace=0")["steps"]]


def test_a_curve_is_clicked_above_a_step_and_zoomed_with_the_wheel(site: Site) -> None:
    site.open("#/0/steps?rank=0")
    curves = mouse.chart("Trends over steps")
    steps = recorded_steps(site)
    mouse.click(site, curves, (across(site, curves, 0.01), 0.5))
    site.until("return /step=/.test(location.hash)", "a step is chosen")
    assert arrived(site, "steps")["step"] == str(steps[0])
    # around the right end: the first steps are out of sight then
    for _ in range(6):
        mouse.wheel(site, curves, (across(site, curves, 0.97), 0.5), -240)
    mouse.click(site, curves, (across(site, curves, 0.01), 0.5))
    site.until("return !location.hash.includes(`step=${arguments[0]}`)", "another one is chosen", steps[0])
    assert int(arrived(site, "steps")["step"]) in steps[2:]
    assert site.console() == []


def test_a_bar_of_the_spread_leaves_its_steps_in_the_table(site: Site) -> None:
    site.open("#/0/steps?rank=0")
    spread = site.script(scripts.ASK, "steps?trace=0")["spread"]
    bars = mouse.chart("Distribution of step times")
    # the highest one reaches over the middle of the plot
    highest = max(range(len(spread["counts"])), key=lambda bar: spread["counts"][bar])
    left, right = 48, 70
    width = mouse.seen(site, bars).size["width"]
    middle = (left + (highest + 0.5) / len(spread["counts"]) * (width - left - right)) / width
    mouse.click(site, bars, (middle, 0.8))
    (condition,) = json.loads(arrived(site, "steps").get("steps.where") or site.until(WHERE, "the table is filtered"))
    assert condition["column"] == "step_time_ns"
    assert condition["at_least"] <= spread["edges_ns"][highest] + 1
    assert condition["at_most"] >= spread["edges_ns"][highest + 1] - 1
    site.until(scripts.FILTERED, "only its steps are left")
    assert int(site.text(".table-foot").split()[0]) >= spread["counts"][highest]


WHERE = "return new URLSearchParams(location.hash.split('?')[1]).get('steps.where')"


@pytest.mark.parametrize("kind", ["pie", "bar"])
def test_a_slice_leads_to_the_tasks_of_its_type(site: Site, kind: str) -> None:
    site.open(f"#/0/kernels?by=type&chart={kind}")
    picture = mouse.chart("Top kernels")
    rows_told = "return [...document.querySelectorAll('main .chart-frame .hidden tbody tr')].map(one => one.cells[0].textContent)"
    # the longest bar is the uppermost, and told last
    names = site.until(rows_told, "the chart is told in words")[slice(2) if kind == "pie" else slice(-2, None)]
    if kind == "pie":
        mouse.click(site, picture, on_the_ring(site, picture))
    else:
        site.settle()
        # the longest bar is the uppermost
        rows = site.count("main .chart-frame .hidden tbody tr")
        mouse.click(site, picture, (0.45, (8 + 0.5 * 22) / (rows * 22 + 40)))
    site.until("return /[?&]of=/.test(location.hash)", "a type is chosen")
    chosen = arrived(site, "kernels")
    assert chosen["by"] == "type"
    site.until("return [...document.querySelectorAll('main h2')].some(one => one.innerText.startsWith('Calls: '))", "its tasks")
    assert chosen["of"] in names


def on_the_ring(site: Site, picture: str) -> mouse.Place:
    """A place on the first slice of a pie, which begins at the top and goes clockwise; its middle lies left in the chart."""
    size = mouse.seen(site, picture).size
    radius = min(size["width"], size["height"]) / 2 * 0.62
    return 0.23 + 0.25 * radius / size["width"], 0.5 - 0.95 * radius / size["height"]


def test_everything_on_the_first_page_leads_to_its_evidence(site: Site) -> None:
    site.open("#/0/overview")
    site.settle()
    found = site.script(scripts.ASK, "overview")
    told = site.script("return [...document.querySelectorAll('main .share-bars li')].map(one => one.innerText.split('\\n')[0])")
    assert told == [row["label"] for row in found["work"]]
    # advice stands once, and no card is empty
    assert site.count("main .change") == min(len(found["advice"]), 3) and site.count("main .nothing") == 0
    linked = site.script("return [...document.querySelectorAll('main .card')].map(one => one.querySelectorAll('a').length)")
    assert len(linked) >= 5 and all(linked)
    # the bars of a step are on one scale, and none is longer than it
    ends = site.script(BAR_ENDS)
    assert max(ends.values()) <= 1.001
    assert {name.rpartition(": ")[2] for name in ends} == {"Host", "CPU"}
    # ranks whose steps differ have bars of their own
    if "Host" in ends:
        host_ns = found["figures"]["host_mean_ns"]
        assert ends["Host"] == pytest.approx(host_ns / max(found["base_ns"], host_ns), abs=0.01)
    else:
        assert max(ends.values()) == pytest.approx(1, abs=0.01)
    mouse.click(site, "main .share-bars a")
    assert arrived(site, "operators")["of"] == found["work"][0]["name"]
    site.open("#/0/overview")
    site.settle()
    steps = [one["step"] for one in site.script(scripts.ASK, "trends")["steps"]]
    # wherever a line or a length is written in front of it
    mouse.seen(site, ".trend-bar")
    assert site.script(UNDER_MOUSE) == ["trend-bar"]
    mouse.click(site, ".trend-bar")
    assert arrived(site, "steps")["step"] == str(steps[0])
    site.open("#/0/overview")
    mouse.click(site, ".evidence-links a[href*=timeline]")
    assert int(arrived(site, "timeline")["step"]) in found["ranks"][0]["figures"]["chosen"]


#: what is under the mouse from the top to the foot of the first bar of a trend
UNDER_MOUSE = """
const bar = document.querySelector('.trend-bar');
const {x, y, width, height} = bar.querySelector('.hit').getBoundingClientRect();
const under = new Set();
for (let down = 1; down < height - 1; down++) {
  const found = document.elementFromPoint(x + width / 2, y + down);
  under.add(found.closest('.trend-bar') === bar ? 'trend-bar' : found.outerHTML.slice(0, 200));
}
return [...under]"""

#: name of each bar -> where its last part ends, as a share of the scale
BAR_ENDS = """
const figure = document.querySelector('.step-scale svg');
const whole = figure.viewBox.baseVal.width;
const names = [...figure.querySelectorAll('.row-name')].map(one => one.textContent);
const bars = new Map();
for (const part of figure.querySelectorAll('.scale-part')) {
  const box = part.querySelector('rect');
  const [x, y, wide] = ['x', 'y', 'width'].map(name => Number(box.getAttribute(name)));
  const bar = bars.get(y) ?? {start: x, end: x};
  bars.set(y, {start: bar.start, end: x + wide});
}
return Object.fromEntries([...bars.values()].map((bar, place) => [names[place], (bar.end - bar.start) / (whole - bar.start)]))"""


def test_a_point_of_a_single_run_shows_its_shapes(site: Site) -> None:
    types = site.script(scripts.ASK, "shapes?trace=0&level=operator")["types"]
    once = min(types, key=lambda one: (one["count"], one["type"]))["type"]
    site.script("location.hash = '#/0/shapes?rank=0&types=' + encodeURIComponent(JSON.stringify([arguments[0]]))", once)
    arrived(site, "shapes")
    points = site.script(scripts.ASK, f"shapes/runs?trace=0&level=operator&types={once}&name=")["runs"]
    picture = mouse.chart("Single calls")
    size = mouse.seen(site, picture).size
    steps = [one["step"] for one in points]
    # the first run lies at the left edge of the plot, between the axis and its longest one
    before = "return document.querySelectorAll('main [aria-live] table').length"
    assert site.script(before) == 0
    heights = (height / size["height"] for height in range(30, size["height"] - 40, 4))
    point = next(place for height in heights if mouse.is_over(site, picture, place := (70 / size["width"], height)))
    mouse.click(site, picture, point)
    row = site.until("return document.querySelector('main [aria-live] tbody tr')?.innerText", "the shapes of a run")
    assert row.split("\t")[0] == str(min(steps))
    assert once in row


def test_a_window_is_dragged_over_the_timeline(site: Site) -> None:
    whole = site.script(scripts.ASK, "timeline?trace=0")
    site.open(f"#/0/timeline?rank=0&start={whole['start_ns']}&end={whole['end_ns']}")
    site.until(scripts.TILES_THERE, "the tiles are there")
    canvas = ".timeline-canvas"
    mouse.drag(site, canvas, (0.2, 0.03), (0.6, 0.2))
    site.until(scripts.PANEL_SAYS, "the selection is told", "Selected: ")
    assert site.count(".timeline-panel tbody tr") > 0
    site.driver.switch_to.active_element.send_keys("f")
    site.until(f"return !location.hash.includes('start={whole['start_ns']}&')", "the selection fills the window")
    site.settle()
    one = window(site)
    assert (one[1] - one[0]) / (whole["end_ns"] - whole["start_ns"]) == pytest.approx(0.4, abs=0.05)
    from selenium.webdriver.common.keys import Keys

    mouse.drag(site, canvas, (0.7, 0.1), (0.4, 0.1), key=Keys.SHIFT)
    site.until(f"return !location.hash.includes('start={one[0]}')", "shift and the mouse move it")
    # the address may be told of a drag that takes its time before it has ended
    site.settle()
    moved = window(site)
    assert moved[0] > one[0]
    assert moved[1] - moved[0] == pytest.approx(one[1] - one[0], rel=0.01)
    mouse.drag(site, ".timeline-ruler", (0.4, 0.8), (0.6, 0.8))
    site.until(f"return !location.hash.includes('start={moved[0]}')", "the ruler is dragged along")
    site.settle()
    assert window(site)[0] < moved[0]
    assert site.console() == []


def window(site: Site) -> tuple[int, int]:
    kept = parameters(site)
    return int(kept["start"]), int(kept["end"])


#: how far down in the canvas the middle of the first row of calls is, as a share of its height
FIRST_THREAD = (
    "const lane = [...document.querySelectorAll('.lane-text')].find(one => one.innerText.includes('thread'));"
    "const [text, canvas] = [lane, document.querySelector('.timeline-canvas')].map(one => one.getBoundingClientRect());"
    "return (text.top + text.height / 2 - canvas.top) / canvas.height"
)


def test_a_task_is_clicked_and_the_address_keeps_it(site: Site) -> None:
    site.open("#/0/timeline?rank=0&find=aten::addmm")
    site.until("return /[?&]event=0\\.\\d+/.test(location.hash)", "the first one is chosen")
    site.until(scripts.TILES_THERE, "the tiles are there")
    first = parameters(site)["event"]
    mouse.click(site, "main form[role=search] button:last-of-type")
    mouse.click(site, "main form[role=search] button[type=submit]")
    site.until("return !location.hash.includes(`event=${arguments[0]}`)", "the next one is chosen", first)
    site.until(scripts.TILES_THERE, "the tiles are there")
    site.settle()
    # the outermost call around it
    mouse.click(site, ".timeline-canvas", (0.5, site.script(FIRST_THREAD)))
    site.settle()
    chosen = parameters(site).get("event")
    assert chosen is not None and chosen != first
    site.driver.refresh()
    site.until(scripts.READY, "the page is back")
    site.settle()
    assert parameters(site).get("event") == chosen


def test_hidden_lanes_and_shown_curves_stay_in_the_address(site: Site) -> None:
    site.open("#/0/timeline?rank=0")
    site.until(scripts.TILES_THERE, "the tiles are there")
    lanes = "return [...document.querySelectorAll('.lane-text')].map(one => one.innerText)"
    before = site.script(lanes)
    open_list = "[...document.querySelectorAll('main .drop')].find(one => one.innerText.startsWith(arguments[0])).open = true"
    site.script(open_list, "Tracks")
    mouse.click(site, "main .drop[open] input")
    site.until("return /[?&]hide=/.test(location.hash)", "the address says what is hidden")
    site.until(f"{lanes.replace('return ', 'const now = ')}; return now.length < arguments[0]", "it is gone", len(before))
    fewer = site.script(lanes)
    site.script("for (const one of document.querySelectorAll('main .drop')) one.open = false")
    site.script(open_list, "Counters")
    mouse.click(site, "main .drop[open] input")
    site.until("return /[?&]curves=/.test(location.hash)", "the address says which curve is shown")
    site.settle()
    shown = site.script(lanes)
    site.driver.refresh()
    site.until(scripts.READY, "the page is back")
    site.until(scripts.TILES_THERE, "the tiles are there")
    assert site.script(lanes) == shown
    assert set(fewer) <= set(shown)


def test_the_memory_curve_is_clicked_and_its_handle_dragged(site: Site) -> None:
    site.open("#/0/memory?rank=0")
    curve = mouse.chart("Memory over time")
    # the tables below it come with the first moment, and take some of its width for the page's scroll bar
    mouse.click(site, curve)
    size = mouse.seen(site, curve).size
    # the curve lies between these, from the first known value on, which comes after what else is known first
    left, right = 76 / size["width"], 1 - 20 / size["width"]

    def clicked(share: float) -> int:
        mouse.click(site, curve, (left + share * (right - left), 0.4))
        site.settle()
        return int(parameters(site)["at"])

    first, last = clicked(0.02), clicked(0.98)
    length = (last - first) / 0.96
    assert (clicked(0.5) - first) / length == pytest.approx(0.48, abs=0.05)
    # the left handle of the slider below the curve, a few pixels wide
    low, handle = 1 - 17 / size["height"], 79 / size["width"]
    mouse.drag(site, curve, (handle, low), (handle + 0.6 * (right - left), low))
    # the chart follows the handle a moment later
    deadline = time.monotonic() + DEADLINE_S
    while abs((at := clicked(0.02)) - first - 0.59 * length) > 0.06 * length:
        assert time.monotonic() < deadline, f"{at} is at the left end, of {first} to {last} before"
    assert site.console() == []


def test_a_filtered_table_is_downloaded_and_kept(site: Site, tmp_path: Path) -> None:
    site.open("#/0/operators?rank=0")
    box = "main .filter input[type=search]"
    mouse.click(site, box)
    site.driver.switch_to.active_element.send_keys("conv\n")
    site.until("return /operators\\.where=/.test(location.hash)", "the address has the filter")
    site.settle()
    filtered = parameters(site)["operators.where"]
    site.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    mouse.click(site, "main .table-tools a[download]")
    deadline = time.monotonic() + DEADLINE_S
    while not (found := [one for one in tmp_path.iterdir() if one.suffix == ".csv"]):
        assert time.monotonic() < deadline, list(tmp_path.iterdir())
        time.sleep(0.05)
    with found[0].open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert rows and all("conv" in row["name"].lower() for row in rows)
    assert int(site.text(".table-foot").split()[0]) == len(rows)
    # another kind of chart, back, and another page and back: the filter stays
    mouse.click(site, "main .card nav.tabs a:last-of-type")
    assert arrived(site, "operators")["operators.where"] == filtered
    assert parameters(site)["chart"] == "bar"
    site.driver.back()
    site.until("return !/chart=/.test(location.hash) && document.body.dataset.ready === location.hash", "the pie is back")
    assert parameters(site)["operators.where"] == filtered
    mouse.click(site, ".menu a[href$='/steps']")
    arrived(site, "steps")
    site.driver.back()
    assert arrived(site, "operators")["operators.where"] == filtered
    site.driver.refresh()
    site.until(scripts.READY, "the page is back")
    site.settle()
    assert int(site.text(".table-foot").split()[0]) == len(rows)
    mouse.click(site, "main .chip")
    site.until("return !/operators\\.where=/.test(location.hash)", "the filter is taken away")


def test_arithmetic_is_gone_down_into_and_dragged(site: Site) -> None:
    site.open("#/0/operators?rank=0")
    areas = mouse.chart("FLOPs by module")
    whole = site.script(PAINTED, mouse.seen(site, areas))
    mouse.click(site, areas, (0.2, 0.6))
    site.settle()
    assert site.script(PAINTED, mouse.seen(site, areas)) != whole, "it goes down"
    site.open("#/0/operators?rank=0&flops=sankey")
    flow = mouse.chart("FLOPs by module")
    before = site.script(PAINTED, mouse.seen(site, flow))
    mouse.drag(site, flow, (0.012, 0.5), (0.012, 0.8))
    assert site.script(PAINTED, mouse.seen(site, flow)) != before, "a box is dragged"
    assert site.console() == []


#: what a chart looks like, as a number
PAINTED = """
const canvas = arguments[0].querySelector('canvas');
const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
const pen = copy.getContext('2d', {willReadFrequently: true});
pen.drawImage(canvas, 0, 0);
const {data} = pen.getImageData(0, 0, canvas.width, canvas.height);
let sum = 0;
for (let at = 0; at < data.length; at += 4) sum = (sum * 31 + data[at] + 3 * data[at + 1] + 7 * data[at + 2]) % 2147483647;
return sum"""


def test_the_way_back_leads_through_steps(site: Site) -> None:
    site.open("#/0/steps?rank=0")
    bars = mouse.chart("Phases per step")
    steps = recorded_steps(site)
    for share in (0.5 / len(steps), 1 - 0.5 / len(steps)):
        at = (across(site, bars, share), 0.85)
        mouse.click(site, bars, at)
        site.until("return document.body.dataset.ready === location.hash && /step=/.test(location.hash)", "a step is shown")
        site.settle()
    assert parameters(site)["step"] == str(steps[-1])
    site.driver.back()
    site.until("return location.hash.includes(`step=${arguments[0]}`)", "the first one again", steps[0])
    arrived(site, "steps")
    assert re.search(rf"Step {steps[0]}\b", site.text("main"))


def test_a_window_of_the_ranks_is_dragged(site: Site) -> None:
    site.open("#/0/marey")
    diagram = "main svg.marey:not(.steps-overview)"
    mouse.drag(site, diagram, (0.3, 0.1), (0.6, 0.1))
    site.until("return /start=\\d+/.test(location.hash) && /end=\\d+/.test(location.hash)", "a window is chosen")
    site.settle()
    one = window(site)
    mouse.drag(site, diagram, (0.3, 0.1), (0.6, 0.1))
    site.until(f"return !location.hash.includes('start={one[0]}')", "a window inside it is chosen")
    site.settle()
    inner = window(site)
    assert one[0] < inner[0] < inner[1] < one[1]
    assert site.console() == []


def test_a_bar_of_the_queues_chooses_its_operation(look: Callable[[Sequence[Path]], Site]) -> None:
    site = look([shared("mindspore", "run_2")])
    site.until(scripts.READY, "the run is open")
    site.open("#/0/pipeline?view=processing")
    found = site.script(scripts.ASK, "pipeline?trace=0")["operations"]
    fullest = max((one for one in found if one["usage"] is not None), key=lambda one: float(one["usage"]))
    site.until("return document.querySelector('main .chart canvas') !== null", "the bars are there")
    bars = f'main .chart[aria-label="{site.script(FIRST_CHART)}"]'
    size = mouse.seen(site, bars).size
    shown = sum(one["usage"] is not None for one in found)
    # the fullest is the uppermost; its bar begins where the names end
    for across_ in (0.2, 0.15, 0.25, 0.3):
        mouse.click(site, bars, (across_, (4 + (size["height"] - 28) / shown / 2) / size["height"]))
        site.settle()
        if "op" in parameters(site):
            break
    assert parameters(site)["op"] == str(fullest["id"])
    site.until('return document.querySelector(`[data-op="${arguments[0]}"] h3`) !== null', "it is told", fullest["id"])


FIRST_CHART = "return document.querySelector('main .chart').getAttribute('aria-label')"
