"""The timeline in a browser: lanes that are held, the window as a file, keys, names that keep the focus."""

from __future__ import annotations

import re

import pytest

from . import scripts
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
    whole = site.text(".timeline-status")
    for key in ("w", "w", "d"):
        before = site.text(".timeline-status")
        site.script(scripts.PRESS, key)
        site.until(scripts.STATUS_CHANGED, f"{key} moves", before)
    before = site.text(".timeline-status")
    site.script(scripts.PRESS, "a")
    site.until(scripts.STATUS_CHANGED, "a moves back", before)
    site.script(scripts.PRESS, "0")
    site.until("return document.querySelector('.timeline-status').innerText === arguments[0]", "all of it is shown", whole)


#: the page remembers something after the address has changed, and before the browser says so
LEAVE_AND_REMEMBER = "location.hash = arguments[0]; document.querySelector('.lane-pin').click()"


def test_what_a_page_remembers_late_does_not_bring_it_back(site: Site) -> None:
    shown(site, "#/0/timeline?rank=0")
    site.script(LEAVE_AND_REMEMBER, "#/0/operators?rank=0")
    site.until("return document.body.dataset.ready === '#/0/operators?rank=0'", "the other page is there")
    assert site.console() == []
