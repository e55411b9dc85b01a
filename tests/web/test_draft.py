"""The draft of a timeline: shown while a large trace is read, then what it is a draft of takes its place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from steplens.readers.common import json_sample
from steplens.run import Run, open_run
from steplens.server import runs

from . import scripts
from .conftest import DEADLINE_S, Site
from .test_opening import trace_of

pytestmark = pytest.mark.slow

MARKED = "return performance.getEntriesByName(arguments[0]).length"
STATUS = "return document.querySelector('.timeline-status')?.innerText ?? ''"
PRESS = """
const scroller = document.querySelector('.timeline-scroll');
scroller.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true, cancelable: true}));"""


def test_a_timeline_is_looked_at_while_it_is_read(
    browse: Callable[[Sequence[Path]], Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let = threading.Event()

    def later(path: Path, *reports: Any, **options: Any) -> Run:
        let.wait(DEADLINE_S)
        return open_run(path, *reports, **options)

    monkeypatch.setattr(runs, "open_run", later)
    monkeypatch.setattr(json_sample, "_LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(json_sample, "_END_BYTES", 8 << 10)
    path = tmp_path / "large.json"
    path.write_text(trace_of(40_000))
    site = browse([path])
    site.until("return document.querySelector('main .progress') !== null", "how far it is is told")
    site.script("location.hash = '#/0/timeline'")
    site.until(MARKED, "the draft is painted", "draft painted")
    assert site.script(MARKED, "timeline painted") == 0
    assert site.text("h1") == "Opening large.json"
    assert site.text("main .callout").startswith("A draft: about one of every ")
    # no other page has one
    site.script("location.hash = '#/0/operators'")
    site.until("return document.querySelector('main .timeline-view') === null", "the other page is shown")
    assert site.text("h1") == "Opening large.json"
    site.script("location.hash = '#/0/timeline'")
    site.until("return document.querySelector('main .timeline-status')?.innerText.includes('From')", "the draft is shown again")
    for _ in range(4):
        site.script(PRESS, "w")
    site.until("return performance.now() > arguments[0] + 500", "it has come to rest", site.script("return performance.now()"))
    window = str(site.script(STATUS)).partition(" · ")[0]
    assert "wide" in window and "400 ms" not in window
    let.set()
    site.until(MARKED, "all of it is painted", "timeline painted")
    site.until(scripts.READY, "the page is whole")
    site.until("return document.querySelector('main .callout') === null", "it is no draft any more")
    assert site.text("h1") == "Timeline"
    assert str(site.script(STATUS)).partition(" · ")[0] == window, "the user looks where they looked before"
    assert site.console() == []
