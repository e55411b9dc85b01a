"""Every page for everyone: rules of WCAG, keyboard, languages, colours, narrow and very wide windows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from . import scripts
from .conftest import PAGES, Site

WIDTHS = (1280, 3840)
LANGUAGES = ("en", "zh")
TAB = {"type": "rawKeyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
#: more places than any page has; who is not through by then is in a trap
MOST_STOPS = 1500
#: of the width beside the menu that every page takes
LEAST_WIDTH = 0.9
#: the rule that takes most of the time
COLOURS = "color-contrast"

pytestmark = pytest.mark.slow


@pytest.fixture
def resized(kept_site: Callable[[], Site]) -> Any:
    """The pages, in the language in which the test before left them; gives the window its size back."""
    site = kept_site()
    yield site
    site.driver.set_window_size(1280, 900)


def assert_no_rule_is_broken(site: Site, axe: str, page: str, cases: list[tuple[str, int]], *, every_rule: bool = False) -> None:
    """A page in some languages and widths: the rules in the first of them, or in each, and that it fills the window in each."""
    if not site.script("return window.axe !== undefined"):
        site.driver.execute_script(axe)
    found: list[str] = []

    def check(where: str, only: list[str] | None) -> None:
        found.extend(f"{where}: {one}" for one in site.driver.execute_async_script(scripts.AXE, only, None))

    # first in the language that the pages are in
    cases = sorted(cases, key=lambda case: case[0] != site.spoken())
    assert cases[0][0] == site.spoken()
    for number, (language, width) in enumerate(cases):
        site.driver.set_window_size(width, 1000)
        if number:
            site.language(language)
        else:
            site.open(f"#/0/{page}?seen=1")
        site.settle()
        where = f"{page}, {language}, {width} px"
        if every_rule or not number:
            check(f"{where}, light", None)
            # the other colours change nothing else
            site.theme("dark")
            check(f"{where}, dark", [COLOURS])
            site.theme("light")
        widths = site.script(scripts.WIDTHS)
        assert widths["over"] <= 0, f"{where}: {widths['over']} px wider than the window"
        assert widths["share"] > LEAST_WIDTH, f"{where}: takes {widths['share']:.0%} of the width"
    assert found == []
    assert site.console() == []
    assert site.foreign() == site.script(scripts.FOREIGN_ENTRIES) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_breaks_no_rule(resized: Site, axe: str, page: str) -> None:
    """Each language and each width; all rules in one of them, which is another one for every other page."""
    assert_no_rule_is_broken(resized, axe, page, list(zip(LANGUAGES, WIDTHS, strict=True)))


# the rules take seconds for each page and case
@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_a_page_breaks_no_rule_in_any_language_width_and_colour(resized: Site, axe: str, page: str) -> None:
    """What the test above leaves out: every rule in every case, and each language with the other width."""
    assert_no_rule_is_broken(resized, axe, page, [*product(LANGUAGES, WIDTHS)], every_rule=True)


# the kernels have the controls of the operators, and the most stops of all
@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.long if page == "kernels" else ()) for page in PAGES])
def test_the_tab_key_leads_through_a_page_in_order_and_out_of_it(same_site: Site, page: str) -> None:
    site = same_site
    site.open(f"#/0/{page}?seen=1")
    site.settle()
    site.script(scripts.WATCH_FOCUS)
    for stops in range(MOST_STOPS):
        site.driver.execute_cdp_cmd("Input.dispatchKeyEvent", TAB)
        # the page itself knows when it was left
        if stops % 10 == 9 and site.script(scripts.FOCUS_ENDED):
            break
    else:
        pytest.fail(
            f"still on the page after {MOST_STOPS} steps: {site.script('return document.activeElement.outerHTML.slice(0, 300)')}"
        )
    report = site.script(scripts.FOCUS_REPORT)
    assert report["count"] > 10
    assert report["wrong"] == []
    assert report["missed"] == []
    assert site.console() == []


def test_charts_can_be_read_without_seeing_them(site: Site) -> None:
    site.open("#/0/steps?rank=0")
    site.settle()
    charts = site.script(scripts.CHARTS)
    assert len(charts) >= 3
    for label, rows in charts:
        assert label and rows, charts
    # the phases of every step, as the table of the steps has them
    phases = next(rows for label, rows in charts if len(rows[0]) >= 5)
    assert [row[0] for row in phases[1:]] == site.script(scripts.CELLS_OF, "step")
    forward = phases[0].index("Forward")
    assert [row[forward] for row in phases[1:]] == site.script(scripts.CELLS_OF, "forward_ns")


def test_nothing_moves_for_those_who_do_not_want_it(site: Site) -> None:
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    site.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        site.open("#/0/overview")
        site.settle()
        moving = site.script(scripts.MOVING)
        assert moving == []
        assert site.script("return document.getAnimations().length") == 0
    finally:
        site.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
