"""Walks every page of twelve captures at three widths, light and dark, in both languages, and lists what is wrong with them.

    python tests/web/walk.py [--captures FOLDER] [--only NAME ...] [--widths 1280 1920 3840] [--languages en zh]
                             [--pages NAME ...]

Wrong are a card without content, text that is cut and cannot be seen whole, a percentage outside 0 to 100, a message on the
console, a page wider than the window, a label that is none of the words of the pages, an event that the timeline has twice, and
what axe-core finds. Needs the built front end (``make web``), Chromium with its driver
and selenium. The exit status is 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # as a script it is not part of a package
    sys.path.insert(0, str(ROOT))

from tests import shared_data  # noqa: E402
from tests.web import conftest, labels, scripts  # noqa: E402

#: the captures, as folders and files of the shared test data
CAPTURES = (
    "kineto/cpu_only_rank34.json.gz", "kineto/cuda_alexnet.json.gz", "kineto/cuda_nccl_distributed.json.gz",
    "kineto/cuda_ns_resolution_rank0.json.gz", "kineto/rocm_mi250_minitoy.json.gz", "ascend_pytorch/text_level1",
    "ascend_pytorch/db_level2", "mindspore/profiler", "mindspore/cluster_propose", "mindspore/minddata_pipeline",
    "mindspore/parallel_strategy", "mindspore/JOB4",
)  # fmt: skip
WIDTHS = (1280, 1920, 3840)
LANGUAGES = ("en", "zh")
#: pages whose percentages are changes and differences from the other ranks, which have no bounds
OF_CHANGES = ("compare", "ranks")

OFFERED = "return [...document.querySelectorAll('.menu a')].map(one => one.getAttribute('href').split('/').pop())"
EMPTY_CARDS = """
const drawn = 'canvas, svg, input, select, button, progress';
const cards = [...document.querySelectorAll('main .card:not(details:not([open]))')];
return cards.filter(card => card.checkVisibility()).filter(card => {
  const rest = [...card.children].filter(one => one.tagName !== 'HEADER' && !one.matches('summary, .note'));
  return !rest.some(one => one.matches(drawn) || one.querySelector(drawn)
    || [...one.querySelectorAll('tbody')].some(body => body.rows.length)
    || (one.innerText.trim() && !one.matches('.nothing') && !one.querySelector('.nothing')));
}).map(card => card.querySelector('h2')?.innerText ?? card.innerText.slice(0, 40))"""
CUT_TEXT = """
return [...document.querySelectorAll('header.top *, .side *, main *')].filter(one => {
  if (!one.checkVisibility() || !one.innerText?.trim() || one.scrollWidth <= one.clientWidth + 1) return false;
  const style = getComputedStyle(one);
  if (style.overflowX !== 'hidden' && style.overflowX !== 'clip') return false;
  if (style.clipPath !== 'none' || one.closest('.hidden, .timeline-view')) return false;
  // a row that is clicked, a name with a title, and a name inside of one with a title can be seen whole
  return !one.closest('[title]') && !one.querySelector('[title]') && !one.closest('tr[tabindex], .grid-table tbody tr');
}).map(one => `${one.tagName}.${one.className}: ${one.innerText.slice(0, 60)}`)"""
PERCENTAGES = """
return [...document.querySelector('main').innerText.matchAll(/([-\\u2212+]?[\\d.,]*\\d)[ \\u00a0]?%/g)].map(one => one[1])
  .filter(text => !text.startsWith('+'))
  .filter(text => { const value = Number(text.replaceAll(',', '').replace('\\u2212', '-')); return value < 0 || value > 100; })"""


def page_faults(site: conftest.Site, page: str) -> list[str]:
    """What is wrong with the page as it is shown, but for what axe-core finds."""
    faults = [f"empty card: {title}" for title in site.script(EMPTY_CARDS)]
    faults += [f"cut: {text}" for text in site.script(CUT_TEXT)]
    if page not in OF_CHANGES:
        faults += [f"percentage: {text} %" for text in site.script(PERCENTAGES)]
    faults += [f"problem: {site.text('main .problem')[:200]}"] if site.count("main .problem") else []
    widths = site.script(scripts.WIDTHS)
    faults += [f"{widths['over']} px wider than the window"] if widths["over"] > 0 else []
    return faults + [f"console: {message}" for message in site.console()]


def axe_faults(site: conftest.Site, rules: Sequence[str] | None) -> list[str]:
    """What axe-core finds by some rules, or all of them."""
    return [f"axe: {fault}" for fault in site.driver.execute_async_script(scripts.AXE, rules, None)]


def walk_pages(
    site: conftest.Site, axe: str, widths: Sequence[int], languages: Sequence[str], pages: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """Every page that the menu offers: where, and what is wrong there. All rules of axe-core hold at the first width."""
    site.driver.execute_script(axe)
    for page in pages or site.script(OFFERED):
        site.open(f"#/0/{page}")
        for language in languages:
            if site.script("return document.documentElement.lang") != language:
                site.language(language)
            for width in widths:
                site.driver.set_window_size(width, 1000)
                site.settle()
                for theme in ("light", "dark"):
                    site.theme(theme)
                    rules = None if (width, theme) == (widths[0], "light") else ["color-contrast"]
                    checked = axe_faults(site, rules) if width == widths[0] else []
                    if rules is None:
                        strange = labels.strange_labels(site.script(labels.LABELS), language)
                        checked += [f"label: {text[:80]}" for text in strange]
                    for fault in [*(page_faults(site, page) if theme == "light" else []), *checked]:
                        yield f"{page}, {language}, {width} px, {theme}", fault


@contextmanager
def open_browser() -> Iterator[Any]:
    """A headless Chromium of its own."""
    import shutil

    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*conftest.FLAGS, "--lang=en", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver") or "chromedriver"))
        driver.set_script_timeout(conftest.DEADLINE_S)
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": scripts.COUNT_ANSWERS})
        try:
            yield driver
        finally:
            driver.quit()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=Path, default=shared_data.find_shared())
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--pages", nargs="*", default=[])
    parser.add_argument("--widths", nargs="*", type=int, default=WIDTHS)
    parser.add_argument("--languages", nargs="*", default=LANGUAGES)
    wanted = parser.parse_args(arguments)
    faults = 0
    with open_browser() as driver:
        for capture in CAPTURES:
            if wanted.only and not any(name in capture for name in wanted.only):
                continue
            with conftest.served([wanted.captures / capture]) as port:
                site = conftest.visit(driver, port)
                site.until(scripts.READY, "the run is open")
                axe = conftest.AXE.read_text(encoding="utf-8")
                for where, fault in walk_pages(site, axe, wanted.widths, wanted.languages, wanted.pages):
                    faults += 1
                    print(f"{capture}: {where}: {fault}", flush=True)
                for fault in labels.repeated_events(wanted.captures / capture):
                    faults += 1
                    print(f"{capture}: timeline: event twice: {fault}", flush=True)
                print(f"{capture}: walked", flush=True)
                driver.get("about:blank")
    print(f"{faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
