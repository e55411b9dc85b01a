"""A headless Chromium that measures when the timeline of ``steplens view`` is painted (part of ``timeline.py``)."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

#: as in tests/web/conftest.py, with the width of a usual screen
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1920,1080",
)  # fmt: skip
_DEADLINE_S = 300

PAINTED = "return performance.getEntriesByName('timeline painted')[0]?.startTime ?? null"
WHEN = """
const [navigation] = performance.getEntriesByType('navigation');
const api = performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/'));
return {
  page: navigation.domContentLoadedEventEnd,
  draft_ms: performance.getEntriesByName('draft painted')[0]?.startTime ?? null,
  asked: Object.fromEntries(api.map((one) => [new URL(one.name).pathname, [one.startTime, one.responseEnd]])),
};
"""
#: moves at random places, each measured until a frame in which no tile is missing any more
MOVES = """
const [count, seed, done] = arguments;
const view = document.querySelector('.timeline-view');
const scroller = view.querySelector('.timeline-scroll');
const canvas = view.querySelector('.timeline-canvas');
let state = seed;
const random = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
const frame = () => new Promise((next) => requestAnimationFrame(next));
const press = (key) => scroller.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
const zoom = (by) => {
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: by, ctrlKey: true, bubbles: true, cancelable: true,
    clientX: box.left + random() * box.width, clientY: box.top + 20}));
};
(async () => {
  const times = [], frames = [];
  let depth = 0;
  for (let move = 0; move < count; move++) {
    const kind = random();
    const begin = performance.now();
    if (depth > 14 || (depth > 0 && kind < 0.06)) { press('0'); depth = 0; }
    else if (kind < 0.5) { zoom(-200); depth++; }
    else if (kind < 0.65) { zoom(200); depth = Math.max(depth - 1, 0); }
    else press(kind < 0.83 ? 'a' : 'd');
    await frame();
    frames.push(performance.now() - begin);
    const deadline = begin + 20000;
    while (view.dataset.waiting !== 'false' && performance.now() < deadline) await frame();
    times.push(performance.now() - begin);
    await new Promise((next) => setTimeout(next, 20));
  }
  done({times, frames});
})();
"""


class Browser:
    """One headless Chromium; selenium drives it."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        self._profile = tempfile.TemporaryDirectory(prefix="steplens-chromium-")
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*_FLAGS, f"--user-data-dir={self._profile.name}"):
            options.add_argument(flag)
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_script_timeout(_DEADLINE_S)
        # what the browser does once when it is started is no part of any page
        self.driver.get("about:blank")

    def first_paint(self, link: str) -> dict[str, Any]:
        """Milliseconds from the start of the navigation to the first events painted, of a draft and of all; when answers came."""
        self.driver.get("about:blank")
        self.driver.get(f"{link}#/0/timeline")
        deadline = time.monotonic() + _DEADLINE_S
        while (painted := self.driver.execute_script(PAINTED)) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"no timeline is painted: {self.driver.execute_script('return document.body.innerText')[:500]}"
                )
            time.sleep(0.02)
        return {"painted_ms": painted, **self.driver.execute_script(WHEN)}

    def moves(self, count: int) -> dict[str, list[float]]:
        """Milliseconds of each of some zooms and pans on the page that is shown, until all is sharp and until the next frame."""
        found: dict[str, list[float]] = self.driver.execute_async_script(MOVES, count, 7)
        return found

    def close(self) -> None:
        """End it."""
        self.driver.quit()
        self._profile.cleanup()


def missing() -> str | None:
    """Why there can be no browser; None where there can."""
    for name in ("chromium", "chromedriver"):
        if shutil.which(name) is None:
            return f"there is no {name}"
    try:
        import selenium  # noqa: F401
    except ModuleNotFoundError:
        return "selenium is not installed"
    static = Path(__file__).resolve().parent.parent / "src" / "steplens" / "server" / "static" / "index.html"
    return None if static.is_file() else "the front end is not built: make web"
