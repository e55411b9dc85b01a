"""``steplens history``: versions in folders and as baselines, where figures moved, and what is no history."""

from __future__ import annotations

from typing import Any

import pytest

from .test_compare import program


@pytest.fixture
def versions(cli: Any) -> Any:
    """Nine versions of a program: from the sixth on its matrix product takes a quarter longer."""
    for number in range(9):
        events = program(5000 if number >= 5 else 4000 + number % 3, 8, first_us=1000 + 1_000_000 * number)
        cli.write(f"all/v{number}/trace.json", "")
        cli.trace(f"all/v{number}/trace.json", events, pid=100 + number)
    return cli


def test_a_change_is_told_with_its_version_and_what_moved_with_it(versions: Any) -> None:
    text = versions.run("history", "all").stdout
    assert "all: 9 versions, 9 recordings" in text and "A step of v8 takes 11.00 ms" in text
    lines = text.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("v5"))
    assert lines[at + 1].startswith("  step: +10.0 % of 10.00 ms; +") and "with 95 %" in lines[at + 1]
    assert any(line.startswith("  aten::mm: +25.0 % of 4.00 ms") for line in lines[at + 1 :])
    assert any(line.startswith("  forward: +2") for line in lines[at + 1 :]) and "optimizer" not in text
    assert "next: steplens compare all/v4 all/v5" in text and "next: steplens view all" in text

    found = versions.json("history", "all")
    assert [version["name"] for version in found["versions"]] == [f"v{number}" for number in range(9)]
    step = found["figures"][0]
    assert step["figure"] == "step" and len(step["points"]) == 9
    (change,) = step["changes"]
    assert (change["version"], change["lasts"]) == (5, True) and change["low"] < change["ratio"] < change["high"]
    assert change["ratio"] == pytest.approx(0.1, abs=0.002) and found["problems"] == []


def test_baselines_are_versions_too_and_names_can_be_the_order(versions: Any) -> None:
    for number in range(9):
        # recorded in the order of numbers, named the other way round
        versions.run("baseline", "save", f"b{9 - number}", f"all/v{number}", "--into", "kept")
    by_time, by_name = (versions.json("history", "kept", *more) for more in ([], ["--by", "name"]))
    assert [version["name"] for version in by_time["versions"]][:2] == ["b9", "b8"]
    assert [version["name"] for version in by_name["versions"]][:2] == ["b1", "b2"]
    assert [change["version"] for change in by_time["figures"][0]["changes"]] == [5]
    (faster,) = by_name["figures"][0]["changes"]
    assert faster["version"] == 4 and faster["ratio"] == pytest.approx(-0.091, abs=0.002)
    fresh = versions.json("history", "all")
    assert [figure["figure"] for figure in by_time["figures"]] == [figure["figure"] for figure in fresh["figures"]]
    for kept, measured in zip(by_time["figures"], fresh["figures"], strict=True):
        assert [point["value"] for point in kept["points"]] == pytest.approx([point["value"] for point in measured["points"]])


def test_what_is_no_history_is_refused_in_a_sentence(versions: Any) -> None:
    assert "is a file, and a history is of a folder" in versions.run("history", "all/v0/trace.json", expect=2).stderr
    one = versions.run("history", "all/v0", expect=2).stderr
    assert "holds 0 versions of a program with steps, and a history has 2 at least" in one and one.count("\n") == 1
    assert "does not exist" in versions.run("history", "missing", expect=2).stderr
    versions.write("all/v3/trace.json", "{")
    text = versions.run("history", "all").stdout
    assert "left out: " in text and "all: 8 versions" in text
