"""The timeline in a browser: what it opens on, boxes and what they count, measuring, notes, keys, menus, held lanes, files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import polars as pl
import pytest

import steplens

from . import mouse, scripts
from .conftest import Site

pytestmark = pytest.mark.slow

HELD = "return [...document.querySelectorAll('.timeline-held .lane-text')].map(one => one.innerText)"
PRESS_PIN = "const pin = document.querySelector('.lane-pin'); pin.focus(); pin.click()"

#: of files of trace events: whose processes they hold, and how many events
COUNTED = """
const read = answer => new Response(answer.body.pipeThrough(new DecompressionStream("gzip"))).json();
const told = events => events.filter(one => one.name === "process_name").map(one => one.args.name.split(": ")[0]);
return Promise.all(arguments[0].map(address => fetch(address, WITH_TOKEN).then(read))).then(files =>
    files.map(events => ({ told: [...new Set(told(events))], events: events.filter(one => one.ph !== "M").length })));
""".replace("WITH_TOKEN", scripts.WITH_TOKEN)


def shown(site: Site, address: str) -> None:
    site.open(address)
    site.until(scripts.TILES_THERE, "the tiles are there")


def test_a_lane_is_held_at_the_top_and_the_address_keeps_it(site: Site) -> None:
    shown(site, "#/0/timeline?rank=0,1")
    assert site.script(HELD) == []
    site.script(PRESS_PIN)
    held = site.script(HELD)
    assert len(held) == 1
    assert held[0].startswith("Rank 0: "), "a held lane says of which rank it is"
    assert site.script("return document.activeElement.getAttribute('aria-pressed')") == "true", "the pin keeps the focus"
    site.until("return /[?&]pin=0\\.0/.test(location.hash)", "the address keeps the lane")
    site.script("document.querySelector('.timeline-scroll').scrollTop = 400")
    site.settle()
    top, scroller = site.script(
        "return ['.timeline-held', '.timeline-scroll'].map(one => document.querySelector(one).getBoundingClientRect().top)"
    )
    assert abs(top - scroller) < 3, "it does not scroll away"
    site.driver.refresh()
    site.until(scripts.READY, "the page is back")
    site.until(scripts.TILES_THERE, "the tiles are there")
    assert site.script(HELD) == held
    assert site.console() == []


def test_opening_a_lane_keeps_the_focus(site: Site) -> None:
    shown(site, "#/0/timeline?rank=0")
    before = site.script(
        "const one = document.querySelector('.lane-name'); one.focus(); return one.getAttribute('aria-expanded')"
    )
    site.script("document.activeElement.click()")
    assert site.script("return document.activeElement.getAttribute('aria-expanded')") not in (before, None)


def test_the_window_can_be_had_as_a_file(site: Site) -> None:
    shown(site, "#/0/timeline?rank=0")
    for _ in range(4):
        site.script(scripts.PRESS, "w")
    site.until("return /[?&]start=\\d+/.test(location.hash)", "the address keeps the window")
    site.settle()
    window = dict(re.findall(r"(start|end)=(\d+)", site.script("return location.hash")))
    link = "document.querySelector('.controls a[download]')"
    site.script(f"{link}.dispatchEvent(new PointerEvent('pointerdown'))")
    address = site.script(f"return {link}.getAttribute('href')")
    asked = dict(re.findall(r"(start|end)_ns=(\d+)", address))
    assert asked.keys() == {"start", "end"}
    assert all(abs(int(asked[one]) - int(window[one])) <= 1 for one in asked)
    assert site.script(scripts.COLOURS_PAINTED) > 20, "boxes of many colours are painted"
    assert site.script(f"return fetch(arguments[0], {scripts.WITH_TOKEN}).then(one => one.ok)", address)


def test_the_window_of_several_ranks_is_one_file(site: Site) -> None:
    shown(site, "#/0/timeline?rank=0,1")
    links = "[...document.querySelectorAll('.controls a[download]')]"
    site.script(f"{links}.forEach(one => one.dispatchEvent(new PointerEvent('pointerdown')))")
    together, *alone = site.script(f"return {links}.map(one => one.getAttribute('href'))")
    assert "traces=0%2C1&" in together
    assert [re.findall(r"trace=(\d+)", address) for address in alone] == [["0"], ["1"]]
    merged, first, second = site.script(COUNTED, [together, *alone])
    assert merged["told"] == ["Rank 0", "Rank 1"]
    assert merged["events"] == first["events"] + second["events"] > 100


def test_keys_move_the_window(site: Site) -> None:
    shown(site, "#/0/timeline?rank=0")
    for key in ("w", "w", "d"):
        before = site.text(".timeline-status")
        site.script(scripts.PRESS, key)
        site.until(scripts.STATUS_CHANGED, f"{key} moves", before)
    before = site.text(".timeline-status")
    site.script(scripts.PRESS, "a")
    site.until(scripts.STATUS_CHANGED, "a moves back", before)
    site.script(scripts.PRESS, "0")
    site.settle()
    kept = parameters(site)
    whole = site.script(scripts.ASK, "timeline?trace=0")
    assert int(kept["start"]) <= whole["start_ns"] + 1
    assert int(kept["end"]) >= whole["end_ns"] - 1


def parameters(site: Site) -> dict[str, str]:
    """What the address keeps."""
    _, _, query = str(site.script("return location.hash")).partition("?")
    return {name: values[0] for name, values in parse_qs(query).items()}


def nanoseconds(text: str) -> float:
    """A duration as the pages write it."""
    number, unit = text.replace(",", "").split()
    return float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]


@dataclass(frozen=True)
class Selected:
    """What the address says of a selection: start, end, and the numbers of its lanes."""

    start: int
    end: int
    lanes: tuple[int, ...]

    @classmethod
    def of(cls, site: Site) -> Selected:
        start, end, lanes = re.fullmatch(r"(\d+)-(\d+):([\d.,]+)", parameters(site)["area"]).groups()  # type: ignore[union-attr]
        return cls(int(start), int(end), tuple(int(lane.split(".")[1]) for lane in lanes.split(",")))


def counted(trace: Any, timeline: dict[str, Any], selected: Selected) -> dict[str, list[int]]:
    """Count, total, self time, shortest and longest of the operator calls of a selection by name: one loop over the table."""
    origin = int(timeline["origin_ns"])
    start, end = selected.start + origin, selected.end + origin
    threads = {(lane["key"]["pid"], lane["key"]["tid"]) for lane in timeline["lanes"] if lane["lane"] in selected.lanes}
    inside: dict[int, list[Any]] = {}
    calls = trace.required("ops").with_columns(pl.col("name").cast(pl.String)).collect().rows(named=True)
    for row, call in enumerate(calls):
        touches = call["start_ns"] < end and (call["end_ns"] > start or call["start_ns"] >= start)
        if touches and (call["pid"], call["tid"]) in threads:
            length = min(call["end_ns"], end) - max(call["start_ns"], start)
            inside[row] = [call, length, length]
    for call, length, _ in list(inside.values()):
        if call["parent"] is not None and call["parent"] >= 0:
            inside[call["parent"]][2] -= length
    sums: dict[str, list[int]] = {}
    for call, length, own in inside.values():
        row = sums.setdefault(call["name"], [0, 0, 0, length, length])
        row[:] = [row[0] + 1, row[1] + length, row[2] + own, min(row[3], length), max(row[4], length)]
    return sums


def test_it_opens_on_a_step_and_a_box_counts_what_it_marks(site: Site, run_of_two_ranks: Path) -> None:
    shown(site, "#/0/timeline")
    site.settle()
    first = site.script(scripts.ASK, "timeline/opening")
    timeline = site.script(scripts.ASK, f"timeline?trace={first['trace']}")
    # the rank that the verdict names, where it names one
    verdict = site.script(scripts.ASK, "overview")["verdict"]
    assert first["trace"] == (verdict["rank"] or 0)
    assert f"Ranks: Rank {first['trace']}" in site.text(".controls")
    start, span = re.match(r"From ([\d.,]+ \w+), ([\d.,]+ \w+) wide", site.text(".timeline-status")).groups()  # type: ignore[union-attr]
    length = first["end_ns"] - first["start_ns"]
    assert nanoseconds(span) == pytest.approx(1.04 * length, rel=2e-3)
    assert nanoseconds(start) == pytest.approx(first["start_ns"] - 0.02 * length, abs=0.01 * length)
    labels = [lane["label"] for lane in timeline["lanes"]]
    assert len(labels) == len(set(labels)), "no track stands twice"
    # a box over the main thread, from its first row down to its last one: the whole step, a part of which may be empty
    site.script("document.querySelector('.timeline-scroll').style.flex = '0 0 2400px'")
    site.settle()
    (main,) = [
        lane["lane"] for lane in sorted(timeline["lanes"], key=lambda lane: -lane["depths"]) if lane["source"] == "operators"
    ][:1]
    tracks = {int(track["lane"].split(".")[1]): track for track in site.script(scripts.TRACKS)}
    row = tracks[main]
    size = mouse.seen(site, CANVAS).size
    top, bottom = row["top"] + 4, row["top"] + min(row["height"] - 8, 60)
    plain = site.script(scripts.POINTS, [[size["width"] * 0.01, track["top"] + 3] for track in tracks.values()])
    mouse.drag(site, CANVAS, (0.01, top / size["height"]), (0.99, bottom / size["height"]))
    site.until(scripts.PANEL_SAYS, "the selection is told", "Selected: ")
    site.settle()
    selected = Selected.of(site)
    assert selected.lanes == (main,), "only what lies under the box"
    view = nanoseconds(span)
    assert selected.end - selected.start == pytest.approx(0.98 * view, rel=0.01)
    # the edge of the area is painted on that track, and on no other
    x = (selected.start - (first["start_ns"] - 0.02 * length)) / view * size["width"]
    marked = {
        lane: len(set(site.script(scripts.POINTS, [[x + 0.5, y], [x - 3, y]])))
        for lane, track in tracks.items()
        if (y := track["top"] + track["height"] - 3) < size["height"]
    }
    assert [lane for lane, colours in marked.items() if colours > 1] == [main], (marked, plain)
    # and what is told of it is what the tables say
    sums = counted(steplens.open(run_of_two_ranks).traces[first["trace"]], timeline, selected)
    heading = site.text(".timeline-panel h2")
    events = sum(count for count, *_ in sums.values())
    assert re.search(rf"on 1 track, {events:,} events?$", heading), heading
    rows = site.script(scripts.PANEL_ROWS)
    assert len(rows) == min(len(sums), 100)
    for name, kind, count, *times in rows:
        if name not in sums:
            continue  # one that was cut, or holds a sign that is shown as a picture of it
        assert kind == "Operators"
        assert int(count.replace(",", "")) == sums[name][0], name
        calls, total, own, least, most = sums[name]
        told = [nanoseconds(text) for text in times]
        assert told == pytest.approx([total, own, total / calls, least, most], rel=2e-3, abs=1), name
    assert sum(row[0] in sums for row in rows) > 0.8 * len(rows)
    # the same as a flame
    site.script("document.querySelector('[data-by=name]').scrollIntoView()")
    mouse.click(site, "[data-by=name]")
    boxes = site.until(FLAME, "the flame is drawn")
    outermost = [box for box in boxes if box["top"] == 0]
    assert 98 < sum(box["width"] for box in outermost) < 100.01
    biggest = max(outermost, key=lambda box: box["width"])
    assert nanoseconds(biggest["said"].split(" · ")[1].split(" (")[0]) == pytest.approx(sums[biggest["name"]][1], rel=2e-3)
    mouse.click(site, ".flame-box:nth-of-type(2)")
    site.until("return document.querySelector('.flame-way').innerText.includes('›')", "one of the boxes fills the width")
    mouse.click(site, "[data-by=module]")
    site.until("return document.querySelectorAll('.flame-box').length > 3", "the modules are drawn")
    # the link keeps what is selected
    site.driver.refresh()
    site.until(scripts.READY, "the page is back")
    site.until(scripts.PANEL_SAYS, "the selection is told again", heading)
    assert site.console() == []


CANVAS = ".timeline-canvas"
FLAME = """
const boxes = [...document.querySelectorAll('.flame-box')].map(one => ({name: one.title.split(' · ')[0], said: one.title,
  top: parseFloat(one.style.top), width: parseFloat(one.style.width)}));
return boxes.length > 3 && boxes"""


def keys(site: Site, *pressed: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(site.driver).send_keys(*pressed).perform()


def middle_of(site: Site, event: dict[str, Any], window: tuple[float, float]) -> mouse.Place:
    """Where on the canvas an event of the first rank is painted."""
    size = mouse.seen(site, CANVAS).size
    (track,) = [one for one in site.script(scripts.TRACKS) if one["lane"] == f"0.{event['lane']}"]
    row = (track["height"] - 6) / track["rows"]
    time_ns = (max(event["start_ns"], window[0]) + min(event["end_ns"], window[1])) / 2
    return (time_ns - window[0]) / (window[1] - window[0]), (track["top"] + (event["depth"] + 0.5) * row) / size["height"]


def wide_events(site: Site, window: tuple[int, int], lane: int) -> list[dict[str, Any]]:
    """The events of a lane that are wide enough to be hit with the mouse, in order of start."""
    address = f"timeline/tile?trace=0&start_ns={window[0]}&end_ns={window[1]}&pixels=500&lanes={lane}&format=json"
    tile = site.script(scripts.ASK, address)
    found = []
    for row in tile["rows"]:
        for place in range(row["first"], row["first"] + row["count"]):
            one = {name: column[place] for name, column in tile["columns"].items()}
            inside = min(one["end_ns"], window[1]) - max(one["start_ns"], window[0])
            if one["count"] == 1 and inside > 0.02 * (window[1] - window[0]):
                found.append({**one, "event": int(one["event"]), "lane": lane, "depth": row["depth"]})
    return sorted(found, key=lambda event: event["start_ns"])


def test_events_are_pointed_at_measured_noted_and_zoomed_to(site: Site) -> None:
    first, timeline = (site.script(scripts.ASK, address) for address in ("timeline/opening?trace=0", "timeline?trace=0"))
    window = (first["start_ns"], first["end_ns"])
    shown(site, f"#/0/timeline?rank=0&start={window[0]}&end={window[1]}")
    main = max((lane for lane in timeline["lanes"] if lane["source"] == "operators"), key=lambda lane: lane["depths"])["lane"]
    inner = [event for event in wide_events(site, window, main) if event["depth"] in (1, 2)]
    one, other = inner[0], next(event for event in inner if event["start_ns"] > inner[0]["end_ns"])
    # pointed at: what it is, and a moment later what it lies inside
    at = middle_of(site, other, window)
    mouse.hover(site, CANVAS, at)
    detail = site.script(scripts.ASK, f"timeline/events/{other['event']}?trace=0")
    told = site.until("return document.querySelector('.timeline-tip .tip-more')?.innerText", "more is told of it")
    assert detail["callers"] and detail["callers"][-1]["name"][:30] in told
    assert len(site.script("return [...document.querySelectorAll('.tip-more')]")) == 1
    # measured
    mouse.click(site, CANVAS, middle_of(site, one, window))
    site.until(f"return location.hash.includes('event=0.{one['event']}')", "the first one is chosen")
    site.until("return document.querySelector('.timeline-panel h2') !== null", "its details are there")
    site.settle()
    keys(site, "m")
    site.until("return document.querySelector('.measured')?.innerText.startsWith('Measuring from')", "it is measured from")
    # the details of the first one may have moved the tracks
    mouse.click(site, CANVAS, middle_of(site, other, window))
    text = str(site.until("return document.querySelector('.measured b')?.closest('.measured').innerText", "it is measured"))
    gap, starts, ends = re.match(r"Gap (.+) · start to start (.+) · end to end (\S+ \S+)", text).groups()  # type: ignore[union-attr]
    expected = [other["start_ns"] - one["end_ns"], other["start_ns"] - one["start_ns"], other["end_ns"] - one["end_ns"]]
    assert [nanoseconds(figure.replace("−", "-")) for figure in (gap, starts, ends)] == pytest.approx(expected, rel=2e-3, abs=2)
    # noted: at the start of the chosen event, and the link keeps it
    keys(site, "n")
    keys(site, "waits here\n")
    site.until("return location.hash.includes('notes=')", "the address keeps the note")
    assert json.loads(parameters(site)["notes"]) == [[other["start_ns"], "waits here"]]
    site.settle()
    site.driver.refresh()
    site.until(scripts.READY, "the page is back")
    site.until(scripts.TILES_THERE, "the tiles are there")
    assert "Notes (1)" in site.text(".controls")
    site.until("return document.querySelector('.measured b') !== null", "the link keeps what is measured")
    keys(site, "\ue00c")
    site.until("return document.querySelector('.measured') === null", "Escape ends it")
    # zoomed to
    mouse.double_click(site, CANVAS, middle_of(site, other, window))
    site.until(f"return !location.hash.includes('start={window[0]}&')", "it is zoomed to")
    site.settle()
    kept = parameters(site)
    length = other["end_ns"] - other["start_ns"]
    assert [int(kept["start"]), int(kept["end"])] == pytest.approx(
        [other["start_ns"] - 0.05 * length, other["end_ns"] + 0.05 * length], abs=3
    )
    assert site.console() == []


OPEN_MENUS = "return document.querySelectorAll('main details.drop[open]').length"
HELP_SHOWN = "return document.querySelector('.timeline-help').open"


def test_keys_work_wherever_the_focus_is_and_menus_close(site: Site) -> None:
    shown(site, "#/0/timeline?rank=0")
    site.settle()
    # a ticked box keeps the focus
    mouse.click(site, "main .controls > label.choice input")
    before = site.text(".timeline-status")
    keys(site, "w")
    site.until(scripts.STATUS_CHANGED, "w zooms", before)
    # what is typed into a text is text
    mouse.click(site, "main form[role=search] input")
    before = site.text(".timeline-status")
    keys(site, "wsd?")
    assert site.script("return document.activeElement.value") == "wsd?"
    assert site.text(".timeline-status") == before and not site.script(HELP_SHOWN)
    mouse.click(site, "main > h1")
    keys(site, "?")
    assert site.script(HELP_SHOWN)
    rows = site.text(".timeline-help")
    assert all(word in rows for word in ("Zoom in", "double click", "Esc", "Measure"))
    keys(site, "w")
    keys(site, "\ue00c")
    site.until(HELP_SHOWN.replace("return ", "return !"), "Escape closes it")
    assert site.text(".timeline-status") == before
    # one menu at a time
    drops = "[...document.querySelectorAll('main details.drop')]"
    for number, title in enumerate(("Tracks", "Counters", "Notes")):
        site.script(f"{drops}.find(one => one.innerText.startsWith(arguments[0])).id = `drop${{arguments[1]}}`", title, number)
    for number in range(3):
        mouse.click(site, f"#drop{number} > summary")
        site.until(f"{OPEN_MENUS} === 1 && document.querySelector('#drop{number}').open", "only this one is open")
    keys(site, "\ue00c")
    site.until(f"{OPEN_MENUS} === 0", "Escape closes it")
    mouse.click(site, "#drop0 > summary")
    mouse.click(site, "main > h1")
    site.until(f"{OPEN_MENUS} === 0", "a press beside it closes it")
    # tracks below a thread or device are closed by its name, and their names take as much room as they need
    tracks = len(site.script(scripts.TRACKS))
    mouse.click(site, ".lane-head .lane-name")
    site.until("return document.querySelectorAll('.lane-label[data-lane]').length < arguments[0]", "they are closed", tracks)
    wide = site.script("return document.querySelector('.timeline-labels').getBoundingClientRect().width")
    mouse.drag(site, ".timeline-divider", (0.5, 0.5), (15, 0.5))
    site.until(
        "return document.querySelector('.timeline-labels').getBoundingClientRect().width > arguments[0] + 60", "it is wider", wide
    )
    canvas, labels = site.script(
        "return ['.timeline-canvas', '.timeline-labels'].map(one => document.querySelector(one).getBoundingClientRect())"
    )
    assert canvas["left"] == pytest.approx(labels["right"], abs=1)
    site.script("localStorage.removeItem('steplens.timeline.labels')")
    assert site.console() == []


#: the page remembers something after the address has changed, and before the browser says so
LEAVE_AND_REMEMBER = "location.hash = arguments[0]; document.querySelector('.lane-pin').click()"


def test_what_a_page_remembers_late_does_not_bring_it_back(site: Site) -> None:
    shown(site, "#/0/timeline?rank=0")
    site.script(LEAVE_AND_REMEMBER, "#/0/operators?rank=0")
    site.until("return document.body.dataset.ready === '#/0/operators?rank=0'", "the other page is there")
    assert site.console() == []
