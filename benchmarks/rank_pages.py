"""Measures the pages of a job of many ranks in a real browser: when they are painted, how large they are, what they ask.

Usage: ``python benchmarks/rank_pages.py JOB [--pictures FOLDER]`` (a job: ``python -m benchmarks.jobs``)

``steplens view`` of the job is started in a process of its own and has to be ready; nothing else is warmed. Each page is a
navigation of its own. Painted: milliseconds from the start of the navigation to the first frame with a card of the page.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from browser import Browser, missing
from view import View

PAGES = ("overview", "ranks", "communication", "advice", "steps", "memory", "timeline")
_DEADLINE_S = 600
#: says when a card is in a frame that was painted
_WATCH = """
const look = () => {
  if (document.querySelector('main .card, main .timeline-view, main .nothing')) {
    requestAnimationFrame(() => performance.mark('content painted'));
  } else requestAnimationFrame(look);
};
document.addEventListener('DOMContentLoaded', look);
"""
_FOUND = """
const api = performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/'));
const settled = document.body.dataset.ready !== undefined;
return {
  painted_ms: performance.getEntriesByName('content painted')[0]?.startTime ?? null,
  settled,
  now_ms: performance.now(),
  nodes: document.querySelectorAll('*').length,
  options: Math.max(0, ...[...document.querySelectorAll('select')].map((one) => one.options.length)),
  rows: Math.max(0, ...[...document.querySelectorAll('table')].map((one) => one.rows.length)),
  answers: api.length,
  bytes: api.reduce((sum, one) => sum + one.encodedBodySize, 0),
  longest: Math.max(0, ...api.map((one) => one.responseEnd - one.startTime)),
};
"""


def measure_page(browser: Browser, link: str, page: str) -> dict[str, Any]:
    """What a page takes, once it asks for nothing more."""
    browser.driver.get("about:blank")
    browser.driver.get(f"{link}#/0/{page}")
    began = time.monotonic()
    while not (found := browser.driver.execute_script(_FOUND))["settled"] or found["painted_ms"] is None:
        if time.monotonic() - began > _DEADLINE_S:
            raise RuntimeError(f"{page} is not there")
        time.sleep(0.05)
    result: dict[str, Any] = found
    return result


def main() -> None:
    """Measure the pages of the job that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path)
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each page")
    parser.add_argument("--link", help="of a server that runs already")
    parser.add_argument("--pages", nargs="*", default=PAGES)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if (problem := missing()) is not None:
        parser.error(problem)
    view = None if options.link else View(options.job)
    browser = Browser()
    try:
        if view is not None:
            print(f"ready after {view.wait(lambda progress: progress['state'] in ('ready', 'failed')):.1f} s")
        browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        print("| page | painted | settled | elements | rows of a table | options of a list | answers | their bytes |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for page in options.pages:
            rounds = [measure_page(browser, options.link or view.link, page) for _ in range(options.rounds)]
            best = min(rounds, key=lambda one: one["painted_ms"])
            print(
                f"| {page} | {best['painted_ms']:.0f} ms | {best['now_ms']:.0f} ms | {best['nodes']} | {best['rows']} | "
                f"{best['options']} | {best['answers']} | {best['bytes'] / 1000:.0f} kB |",
                flush=True,
            )
            if options.pictures:
                options.pictures.mkdir(parents=True, exist_ok=True)
                height = browser.driver.execute_script("return document.documentElement.scrollHeight")
                browser.driver.set_window_size(1500, min(height + 100, 6000))
                time.sleep(0.5)
                browser.driver.save_screenshot(str(options.pictures / f"{page}.png"))
                browser.driver.set_window_size(1500, 1000)
    finally:
        browser.close()
        if view is not None:
            view.close()


if __name__ == "__main__":
    main()
