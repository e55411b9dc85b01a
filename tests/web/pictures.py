"""Makes the pictures of the pages under docs/images anew, from runs that it records.

    python tests/web/pictures.py [--out docs/images] [--keep FOLDER] [--only NAME ...]

Needs the built front end (``make web``), Chromium with its driver and selenium, and Pillow to make the files small: without it
they stay as the browser wrote them, which is said. Recorded are ``examples/demo.py``, once with one thread and once with all,
and ``tests/server/cluster_job.py`` on four ranks. ``--keep`` uses the runs of a folder, and records there what it has not.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # as a script it is not part of a package
    sys.path.insert(0, str(ROOT))

from tests.web import scripts  # noqa: E402

WIDTH = 1280
#: of a picture: a page that is longer is cut
LONGEST = 1500
LARGEST_BYTES = 200_000
#: of the palette of a picture: the most frequent ones, so that no two slices or badges become one
COLOURS = 256
RANKS = 4
DEADLINE_S = 60
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en",
)  # fmt: skip
#: shows the details of the first finding
OPEN_FIRST_FINDING = "document.querySelector('details.finding-card').open = true"


@dataclass(frozen=True)
class Picture:
    """One picture: its file, the runs and the address that it shows, and what is done before it is taken."""

    name: str
    runs: str
    address: str
    height: int = LONGEST
    theme: str = "light"
    act: str = ""


PICTURES = (
    Picture("overview", "demo", "#/0/overview"),
    Picture("advice", "job", "#/0/advice", 1000, act=OPEN_FIRST_FINDING),
    Picture("steps", "demo", "#/0/steps", 1150),
    Picture("timeline", "demo", "#/0/timeline?step=6", 1000, theme="dark"),
    Picture("operators", "demo", "#/0/operators", 1350),
    Picture("kernels", "demo", "#/0/kernels?chart=bar", 1200),
    Picture("memory", "demo", "#/0/memory", 1150),
    Picture("pipeline", "demo", "#/0/pipeline", 1250),
    Picture("communication", "job", "#/0/communication", 1400),
    Picture("ranks", "job", "#/0/ranks", 1400),
    Picture("ranks_over_time", "job", "#/0/marey", 1050),
    Picture("compare", "two", "#/0/compare", 1250),
    Picture("report", "report", "#/0/report", 1000),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record what is missing, take the pictures, and say how large each is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="where the pictures go")
    parser.add_argument("--keep", type=Path, help="folder of the recorded runs; a temporary one otherwise")
    parser.add_argument("--only", nargs="+", choices=[one.name for one in PICTURES], help="only these")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="steplens-pictures-") as temporary:
        folder = (options.keep or Path(temporary)).absolute()
        shown = record(folder)
        options.out.mkdir(parents=True, exist_ok=True)
        wanted = [one for one in PICTURES if not options.only or one.name in options.only]
        with browser(Path(temporary)) as driver:
            for runs in dict.fromkeys(one.runs for one in wanted):
                with opened(driver, runs, shown, folder):
                    for picture in (one for one in wanted if one.runs == runs):
                        data = small(take(driver, picture))
                        path = options.out / f"{picture.name}.png"
                        path.write_bytes(data)
                        print(f"{path}: {len(data):,} bytes{' (too large)' if len(data) > LARGEST_BYTES else ''}", flush=True)
    return 0


def record(folder: Path) -> dict[str, list[Path]]:
    """The runs that are shown, by the name that pictures have for them; what is there already is not recorded again."""
    demo, all_threads, job = folder / "demo", folder / "demo_all_threads", folder / "job"
    example = str(ROOT / "examples" / "demo.py")
    commands: dict[Path, tuple[list[str], dict[str, str]]] = {
        all_threads: ([sys.executable, example, "--out", str(all_threads)], {}),
        demo: ([sys.executable, example, "--out", str(demo)], {"OMP_NUM_THREADS": "1"}),
        job: (
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(RANKS)),
                *(str(ROOT / "tests" / "server" / "cluster_job.py"), str(job)),
            ],
            {},
        ),
    }
    for path, (command, more) in commands.items():
        if not path.is_dir():
            print(f"recording {path}", flush=True)
            done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"recording {path} failed:\n{done.stderr[-3000:]}")
    return {"demo": [demo], "job": [job], "two": [all_threads, demo], "report": [demo]}


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    """A headless Chromium that counts the answers it waits for."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in (*_FLAGS, f"--user-data-dir={folder / 'chromium'}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": scripts.COUNT_ANSWERS})
        yield driver
    finally:
        driver.quit()


@contextmanager
def opened(driver: Any, runs: str, shown: dict[str, list[Path]], folder: Path) -> Iterator[None]:
    """Show runs in the browser: as a report that is opened from the disk, or by the command that users start."""
    command = [sys.executable, "-m", "steplens"]
    if runs == "report":
        file = folder / "report.html"
        subprocess.run([*command, "report", *map(str, shown[runs]), "--output", str(file)], check=True, capture_output=True)
        driver.get(file.as_uri())
        until(driver, scripts.READY)
        yield
        return
    server = subprocess.Popen(
        [*command, "view", "--no-browser", *map(str, shown[runs])], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        driver.get(server.stdout.readline().strip())
        until(driver, scripts.READY)
        until(driver, scripts.ALL_OPEN)
        yield
    finally:
        server.terminate()
        server.wait()


def take(driver: Any, picture: Picture) -> bytes:
    """A page as PNG: as wide as on a usual screen, and as long as it is, up to the picture's height."""
    look(driver, 900)
    driver.execute_script(scripts.PICK, "dark", picture.theme)
    driver.execute_script(
        "delete document.body.dataset.ready;"
        "if (location.hash === arguments[0]) dispatchEvent(new Event('hashchange')); else location.hash = arguments[0]",
        picture.address,
    )
    until(driver, scripts.READY)
    settle(driver)
    if picture.act:
        driver.execute_script(picture.act)
    look(driver, min(max(int(driver.execute_script("return document.documentElement.scrollHeight")), 700), picture.height))
    settle(driver)
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])


def look(driver: Any, height: int) -> None:
    """Make the window so high."""
    metrics = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def until(driver: Any, code: str) -> None:
    """Wait until a script answers something true."""
    wait(lambda: bool(driver.execute_script(code)), code, driver)


def settle(driver: Any) -> None:
    """Wait until the page stays as it is: nothing is on its way, and nothing was added for a while."""
    before: list[object] = [None, None]

    def quiet() -> bool:
        before.append(driver.execute_script(scripts.STATE))
        time.sleep(0.25)
        return before[-1] is not None and before[-1] == before[-2] == before[-3]

    wait(quiet, "the page settles", driver)


def wait(done: Callable[[], bool], what: str, driver: Any) -> None:
    """Ask until something is done, and give up when it takes too long."""
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {DEADLINE_S} s in vain: {what}: {driver.current_url}: {driver.page_source[:1000]}")
        time.sleep(0.05)


def small(data: bytes) -> bytes:
    """The same picture with a palette, where Pillow is installed."""
    try:
        from PIL import Image  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError:
        print("Pillow is not installed: the picture keeps all its colours", flush=True)
        return data
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    packed = io.BytesIO()
    found = sorted(picture.getcolors(picture.width * picture.height), reverse=True)[:COLOURS]
    palette = Image.new("P", (1, 1))
    palette.putpalette([value for _, colour in found for value in colour])
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    return packed.getvalue()


if __name__ == "__main__":
    sys.exit(main())
