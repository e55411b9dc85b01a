"""A real run, a real server and a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from steplens.cli.view_captures import Trainings
from steplens.server.app import STATIC, create_app
from steplens.server.http import connections
from steplens.server.http.address import open_listening_socket
from steplens.server.runs import RunLibrary

from ..once import once, run_ranks
from . import scripts

TOKEN = "the-token-of-the-tests"
AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
TRAINING = Path(__file__).with_name("training.py")
PAGES = (
    "overview", "advice", "steps", "timeline", "operators", "kernels", "shapes", "memory", "pipeline", "communication",
    "ranks", "marey", "health", "live", "tables",
)  # fmt: skip
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1280,900",
    "--disable-software-rasterizer", "--disable-extensions", "--num-raster-threads=1", "--disable-site-isolation-trials",
    # what it does for the user of a window takes a quarter of the time of its own process
    "--disable-features=PaintHolding,Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,"
    "InterestFeedContentSuggestions,CertificateTransparencyComponentUpdater,AutofillServerCommunication,"
    "SpareRendererForSitePerProcess,BackForwardCache",
)  # fmt: skip
LIGHT = "return document.documentElement.dataset.theme !== 'dark'"
#: a busy machine may take long for a page
DEADLINE_S = 120


def _missing() -> str | None:
    if not (STATIC / "index.html").is_file():
        return f"the front end is not built ({STATIC} has no index.html): make web"
    for name in ("chromium", "chromedriver"):
        if shutil.which(name) is None:
            return f"there is no {name}: apt-get install chromium chromium-driver"
    return None


@pytest.fixture(scope="session")
def run_of_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded training with two ranks, a data loader, memory, shapes, stacks, modules and hostile names."""
    return once(tmp_path_factory, "web", lambda folder: run_ranks(2, TRAINING, folder / "run", folder=folder)) / "run"


class Site:
    """A server and a browser that shows it."""

    def __init__(self, driver: Any, port: int) -> None:
        self.driver = driver
        self.address = f"http://127.0.0.1:{port}"

    def open(self, address: str) -> None:
        """Go to an address of the pages, and wait until the page is there."""
        assert self.waits(scripts.OPENED, address), f"{address} is not shown: {self.text('body')[:1500]}"

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def waits(self, code: str, *arguments: Any) -> Any:
        """What a script answers that waits in the page itself, as long as its last argument says: not as long as the driver."""
        return self.driver.execute_async_script(code, *arguments, DEADLINE_S * 900)

    def until(self, code: str, what: str, *arguments: Any) -> Any:
        """Wait until a script answers something true."""
        deadline = time.monotonic() + DEADLINE_S
        while not (answer := self.script(code, *arguments)):
            assert time.monotonic() < deadline, f"waited {DEADLINE_S} s until {what}: {self.text('body')[:1500]}"
            time.sleep(0.05)
        return answer

    def settle(self) -> None:
        """Wait until the page is as it stays: answers and tiles are there, it waits to do nothing more, and is painted."""
        assert self.waits(scripts.SETTLED), f"the page does not settle: {self.text('main')[:500]}"

    def language(self, code: str) -> None:
        """Choose a language in the header, and wait until the page is shown in it."""
        self.script("delete document.body.dataset.ready")
        self.script(scripts.PICK, "zh", code)
        self.until("return document.body.dataset.ready !== undefined", f"the page is there in {code}")

    def spoken(self) -> str:
        """The language that the pages are in."""
        return str(self.script("return document.documentElement.lang"))

    def theme(self, name: str) -> None:
        """Choose the colours in the header."""
        self.script(scripts.PICK, "dark", name)

    def text(self, selector: str) -> str:
        return str(self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def count(self, selector: str) -> int:
        return int(self.script("return document.querySelectorAll(arguments[0]).length", selector))

    def console(self) -> list[str]:
        """What went wrong since the last call: errors, warnings and violations of the policy.

        Of what is no page, such as a download, the browser itself asks for ``favicon.ico``, without a token.
        """
        entries = [entry for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]
        return [f"{entry['level']} {entry['message']}" for entry in entries if "/favicon.ico " not in entry["message"]]

    def requests(self) -> list[str]:
        """Addresses that the browser asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def foreign(self) -> list[str]:
        """Those of them that left the server."""
        ours = ("data:", "blob:", "chrome:", "about:")
        own = urlsplit(self.address).netloc
        return [url for url in self.requests() if not url.startswith(ours) and urlsplit(url).netloc != own]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium with a profile of its own."""
    if (missing := _missing()) is not None:
        # only a developer's machine may do without them
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install 'steplens[test]'")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.add_argument("--lang=en")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = started(lambda: webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver"))))
    # what runs in a page may take as long as the page itself
    made.set_script_timeout(DEADLINE_S)
    made.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": scripts.COUNT_ANSWERS})
    yield made
    made.quit()


def started(start: Callable[[], Any]) -> Any:
    """What a driver starts; on a busy machine a browser may not be up within the time that the driver gives it."""
    from selenium.common.exceptions import WebDriverException

    for _ in range(2):
        with contextlib.suppress(WebDriverException):
            return start()
    return start()


@pytest.fixture(scope="session")
def axe() -> str:
    """The program that checks a page against the rules of WCAG."""
    if not AXE.is_file():
        reason = f"axe-core is not installed ({AXE}): make web"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return AXE.read_text(encoding="utf-8")


@contextlib.contextmanager
def served(paths: Sequence[Path], port: int = 0) -> Iterator[int]:
    """A server of runs, by default on a free port."""
    library = RunLibrary(paths)
    bound = open_listening_socket("127.0.0.1", port)
    server = connections.create_server(create_app(library, TOKEN, control=Trainings()))
    thread = threading.Thread(target=lambda: server.run(sockets=[bound]), daemon=True)
    thread.start()
    library.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def rest(driver: Any, port: int) -> None:
    """Leave the pages for a picture of the same server: for an empty page the browser would start another process."""
    if driver.current_url != (picture := f"http://127.0.0.1:{port}/icon.svg"):
        driver.get(picture)


def visit(driver: Any, port: int, page: str = "") -> Site:
    """A page, by default the first, in a browser that was never there: opened with the token, in English and light colours."""
    site = Site(driver, port)
    rest(driver, port)
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": site.address, "storageTypes": "all"})
    driver.get_log("browser")
    driver.get_log("performance")
    driver.get(f"{site.address}/?token={TOKEN}{page}")
    site.until("return document.querySelector('main')?.childElementCount > 0", "the first page is there")
    return site


@pytest.fixture
def browse(driver: Any) -> Iterator[Callable[[Sequence[Path]], Site]]:
    """Shows runs by a server of their own."""
    with contextlib.ExitStack() as servers:
        yield lambda paths: visit(driver, servers.enter_context(served(paths)))
        # a page that still asks would tell the next test's console that its server is gone
        driver.get("about:blank")


@pytest.fixture(scope="session")
def ports() -> Iterator[Callable[[Sequence[Path]], int]]:
    """One server of the same runs for all tests that change nothing in them: they are opened once."""
    with contextlib.ExitStack() as servers:
        ports: dict[tuple[Path, ...], int] = {}

        def port(paths: Sequence[Path]) -> int:
            if (key := tuple(paths)) not in ports:
                ports[key] = servers.enter_context(served(paths))
            return ports[key]

        yield port


@pytest.fixture
def look(driver: Any, ports: Callable[[Sequence[Path]], int]) -> Iterator[Callable[[Sequence[Path]], Site]]:
    """Shows runs that the test does not change, by a server that other tests use, too."""
    site = None

    def shown(paths: Sequence[Path]) -> Site:
        nonlocal site
        site = visit(driver, ports(paths))
        return site

    yield shown
    # what it still asks for is not asked beside the next test
    if site is not None:
        rest(driver, int(site.address.rpartition(":")[2]))


@pytest.fixture
def site(driver: Any, ports: Callable[[Sequence[Path]], int], run_of_two_ranks: Path) -> Iterator[Site]:
    """A page of the run of two ranks that takes little to show: tests open the one that they are about."""
    port = ports([run_of_two_ranks])
    shown = visit(driver, port, "#/0/health")
    shown.until("return document.body.dataset.ready !== undefined", "the run is open")
    yield shown
    rest(driver, port)


@pytest.fixture(scope="session")
def kept_site(driver: Any, ports: Callable[[Sequence[Path]], int], run_of_two_ranks: Path) -> Callable[[], Site]:
    """The same without loading the pages anew where the test before looked at them, too."""
    kept = Site(driver, ports([run_of_two_ranks]))

    def get() -> Site:
        # a test that failed may leave other colours
        if driver.current_url.startswith(f"{kept.address}/#") and kept.script(LIGHT):
            kept.console()
            kept.requests()
            return kept
        visited = visit(driver, ports([run_of_two_ranks]), "#/0/health")
        visited.until("return document.body.dataset.ready !== undefined", "the run is open")
        return visited

    return get


@pytest.fixture
def same_site(kept_site: Callable[[], Site]) -> Site:
    """For tests of one page after the other: in English, light and as large as ever."""
    shown = kept_site()
    if shown.spoken() != "en":
        shown.language("en")
    return shown
