"""The README is short, its links lead somewhere, its commands exist, and its three lines record one window."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
_DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
_COMMAND = re.compile(r"(?:^ {4}|`)steplens ([a-z]+)\b", re.MULTILINE)
_SCHEDULE = re.compile(r"steplens\.schedule\(([^()]*)\)")


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_it_is_short_and_begins_with_a_picture() -> None:
    lines = README.read_text("utf-8").splitlines()
    assert len(lines) <= 120
    assert any("docs/images/" in line for line in lines[:10])


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    dead = []
    for target, anchor in _LINK.findall(path.read_text("utf-8")):
        place = (path.parent / target).resolve() if target else path
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in _anchors(place)):
            dead.append(f"{target}#{anchor}")
    assert dead == []


def test_its_commands_exist() -> None:
    commands = set(_COMMAND.findall(README.read_text("utf-8")))
    assert {"run", "view", "summary", "trigger"} <= commands
    there_are = [*main.app.registered_commands, *main.app.registered_groups]
    assert commands <= {command.name for command in there_are}


@pytest.mark.parametrize("page", ["README.md", "docs/recording.md", "docs/ascend.md"])
def test_three_lines_record_one_window(page: str) -> None:
    schedules = _SCHEDULE.findall((ROOT / page).read_text("utf-8"))
    assert schedules
    arguments: dict[str, Any] = {}
    for name, value in (item.split("=") for item in schedules[0].split(",")):
        arguments[name.strip()] = int(value)
    plan = steplens.schedule(**arguments)
    actions = [plan(step) for step in range(100)]
    action = steplens.ProfilerAction
    assert [step for step, what in enumerate(actions) if what in (action.RECORD, action.RECORD_AND_SAVE)] == [2, 3, 4]
    assert actions.count(action.RECORD_AND_SAVE) == 1
