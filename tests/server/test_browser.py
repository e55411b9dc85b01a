"""What the browser is told: no secret on a command line, and a private file that is gone afterwards."""

from __future__ import annotations

import html
import logging
import os
import queue
import re
import stat
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from steplens.common.storage import private_folder
from steplens.server.http import browser

from .conftest import DEADLINE_S

LINK = "http://127.0.0.1:1234/?token=the-secret&more=<1>"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for what only this user may read; nothing is in it yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(private_folder, "MEMORY", tmp_path / "no such place" / "memory")
    return tmp_path / "state" / "steplens"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[str]:
    """The addresses that the browser is told."""
    found: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr("webbrowser.open", found.put)
    return found


def test_the_browser_is_told_a_private_file_that_leads_to_the_link(state: Path, told: queue.SimpleQueue[str]) -> None:
    before = os.umask(0)
    try:
        with browser.open_in_browser(LINK):
            address = told.get(timeout=DEADLINE_S)
            assert "secret" not in address
            path = Path(urlsplit(address).path)
            assert urlsplit(address).scheme == "file" and path.parent == state
            assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(state.stat().st_mode) == 0o700
            text = path.read_text()
    finally:
        os.umask(before)
    leads = re.findall(r'(?:url=|href=")([^"]*)"', text)
    assert len(leads) == 2 and all(html.unescape(one) == LINK for one in leads)
    assert "<script" not in text
    assert os.listdir(state) == []


def test_the_file_is_removed_when_the_browser_has_had_its_time(
    state: Path, told: queue.SimpleQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "_KEPT_S", 0.0)
    with browser.open_in_browser(LINK):
        told.get(timeout=DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while os.listdir(state):
            assert time.monotonic() < deadline, "the file stays"
            time.sleep(0.01)


def test_files_of_servers_that_were_killed_go_and_nothing_else_does(state: Path, told: queue.SimpleQueue[str]) -> None:
    state.mkdir(parents=True, mode=0o700)
    old, new, other = state / f"view-{'a' * 16}.html", state / f"view-{'b' * 16}.html", state / "view-mine.html"
    for path in (old, new, other):
        path.write_text("x")
    for path in (old, other):
        os.utime(path, (1, 1))
    with browser.open_in_browser(LINK):
        told.get(timeout=DEADLINE_S)
        assert len(os.listdir(state)) == 3
    assert sorted(os.listdir(state)) == sorted([new.name, other.name])


@pytest.mark.parametrize("prepared", ["open to others", "a link", "a file"])
def test_without_a_private_place_no_browser_is_opened_and_one_line_says_why(
    state: Path, told: queue.SimpleQueue[str], caplog: pytest.LogCaptureFixture, prepared: str
) -> None:
    state.parent.mkdir()
    if prepared == "open to others":
        state.mkdir()
        state.chmod(0o777)
    elif prepared == "a link":
        (state.parent / "elsewhere").mkdir()
        state.symlink_to("elsewhere")
    else:
        state.write_text("")
    with caplog.at_level(logging.WARNING), browser.open_in_browser(LINK):
        pass
    assert told.empty()
    assert len(caplog.records) == 1 and str(state) in (said := caplog.records[0].getMessage())
    assert "secret" not in said
    assert not [path for path in state.parent.rglob("*") if path.suffix == ".html"]
