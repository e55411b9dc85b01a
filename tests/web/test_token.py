"""Who has the token: every tab of the pages, and nobody else whom the same browser visits."""

from __future__ import annotations

import http.server
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from steplens.server.http import browser

from . import mouse, scripts
from .conftest import DEADLINE_S, TOKEN, Site
from .test_opening import trace_of

pytestmark = pytest.mark.slow

HASH_READY = "return document.body?.dataset.ready === arguments[0]"


@pytest.fixture
def small(browse: Callable[[Sequence[Path]], Site], tmp_path: Path) -> Site:
    """A run that is open at once."""
    capture = tmp_path / "small.pt.trace.json"
    capture.write_text(trace_of(50))
    site = browse([capture])
    site.until(scripts.READY, "the run is open")
    return site


@pytest.fixture
def tab(small: Site) -> Iterator[Site]:
    """The same pages in another tab, which nothing was opened in."""
    first = small.driver.current_window_handle
    small.driver.switch_to.new_window("tab")
    yield small
    small.driver.close()
    small.driver.switch_to.window(first)


def test_another_tab_and_a_reload_need_no_link(tab: Site) -> None:
    for _ in range(2):
        tab.driver.get(f"{tab.address}/#/0/steps")
        tab.until(HASH_READY, "the page is there without the token in its address", "#/0/steps")
        tab.driver.refresh()
        tab.until(HASH_READY, "the page is back", "#/0/steps")
        assert tab.count(".problem") == 0 and "token" not in tab.driver.current_url
        # what a link of the page opens beside it
        tab.script("window.open('#/0/tables', '_blank', 'noopener')")
        opened = tab.driver.window_handles[-1]
        tab.driver.close()
        tab.driver.switch_to.window(opened)
        tab.until(HASH_READY, "the page that the link opens is there", "#/0/tables")
    assert tab.console() == []


def test_the_private_file_that_a_browser_is_given_leads_to_the_pages(tab: Site, tmp_path: Path) -> None:
    page = tmp_path / "view.html"
    page.write_text(browser._PAGE.format(link=f"{tab.address}/?token={TOKEN}"))
    tab.driver.get(page.as_uri())
    tab.until("return location.protocol === 'http:' && document.body?.dataset.ready !== undefined", "the file leads to the link")
    tab.driver.refresh()
    tab.until(scripts.READY, "and the page survives a reload")
    assert tab.count(".problem") == 0 and "token" not in tab.driver.current_url


def test_where_nothing_is_kept_the_address_keeps_the_token(tab: Site) -> None:
    closed = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('closed', 'SecurityError'); }})"
    added = tab.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": closed})
    try:
        tab.driver.get(f"{tab.address}/?token={TOKEN}#/0/steps")
        tab.until(HASH_READY, "the page is there", "#/0/steps")
        tab.driver.refresh()
        tab.until(HASH_READY, "the page is back", "#/0/steps")
        assert tab.count(".problem") == 0
    finally:
        tab.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": added["identifier"]})


def test_without_the_token_the_pages_say_where_it_is(tab: Site) -> None:
    # another origin of the same server, as another browser would be
    tab.driver.get(f"{tab.address.replace('127.0.0.1', 'localhost')}/#/0/overview")
    tab.until("return document.querySelector('.problem') !== null", "the page says what is wrong")
    assert "the token is missing or wrong" in tab.text(".problem")
    assert "Open the link" in tab.text(".problem")
    assert any(" 401 " in line for line in tab.console())


def test_another_server_of_the_host_learns_nothing(tab: Site) -> None:
    """Browsers send the cookies of a host to all of its ports; other users of the machine may have servers there."""
    asked: list[str] = []

    class Strange(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path}\n{self.headers}")
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>strange</title><body></body>")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Strange)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        tab.driver.get(f"http://127.0.0.1:{server.server_port}/")
        found = tab.driver.execute_async_script(
            "const done = arguments[1];"
            "const held = () => JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}]);"
            "fetch('/again').then(() => fetch(arguments[0] + '/api/session')).then(one => done(one.status), one => done(held()))",
            tab.address,
        )
        # without CORS the page is not told that it was refused
        assert found == '["",{},{}]'
        assert [one.partition("\n")[0] for one in asked if "favicon" not in one] == ["/", "/again"]
        assert not any(re.search(f"{TOKEN}|cookie|authorization", one, re.IGNORECASE) for one in asked)
        # neither does leading the browser to a file of the run give anything
        tab.script("location.href = arguments[0] + '/api/runs/0/tables/recorded_ops/csv'", tab.address)
        tab.until("return document.body?.innerText.includes('another site')", "the navigation is refused")
    finally:
        server.shutdown()
        server.server_close()
        thread.join(DEADLINE_S)
    tab.console()


def test_a_file_is_saved_without_the_token_in_any_address(small: Site, tmp_path: Path) -> None:
    small.open("#/0/tables?rank=0&table=recorded_ops")
    small.until("return document.querySelector('main .table-tools a[download]') !== null", "the link is there")
    small.requests()
    small.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    # each click is a ticket of its own
    for _ in range(2):
        mouse.click(small, "main .table-tools a[download]")
        deadline = time.monotonic() + DEADLINE_S
        while not (found := list(tmp_path.glob("*.csv"))):
            assert time.monotonic() < deadline, list(tmp_path.iterdir())
            time.sleep(0.05)
        assert found[0].read_text(encoding="utf-8-sig").count("aten::add") == 50
        found[0].unlink()
    assert not any(TOKEN in one for one in small.requests())
    assert small.console() == []
