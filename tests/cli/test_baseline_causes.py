"""What explains a change is said with a baseline as with its recordings, on either side and in every report."""

from __future__ import annotations

import gzip
import html
import json
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.comparison.comparison import Comparison

from .test_compare import program

HELD_MIB = {"old": 10, "new": 30}


def held(mib: int, at_us: float) -> list[dict[str, Any]]:
    """Memory that aten::mm holds, and that aten::add_ holds beside it."""
    total, events = 0, []
    for offset_us, address, size in ((150, 1, mib), (5500, 2, 5), (5600, 1, -mib), (5700, 2, -5)):
        total += size
        amounts = {"Total Allocated": total << 20, "Bytes": size * (1 << 20), "Addr": address, "Device Type": 0, "Device Id": -1}
        events.append({"ph": "i", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": at_us + offset_us, "args": amounts})
    return events


@pytest.fixture
def versions(cli: Any) -> Any:
    """Two recordings of a program, and two of one whose aten::mm is slower and holds more; a baseline of each."""
    for side, lengths in (("old", (4000, 4010)), ("new", (5000, 5010))):
        cli.write(f"{side}/0.json", "")
        for number, length in enumerate(lengths):
            first_us = 1000 + 900_000 * number
            events = [*program(length, 12, first_us=first_us), *held(HELD_MIB[side], first_us)]
            cli.trace(f"{side}/{number}.json", events, pid=100 + number, torch_version="2.13")
        cli.run("baseline", "save", side, side)
    return cli


def path_of(versions: Any, name: str) -> Path:
    path: Path = versions.folder / "steplens-baselines" / f"{name}.baseline"
    return path


def rewrite(path: Path, change: Any) -> None:
    """A baseline whose document was changed."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    change(document["side"])
    path.write_bytes(gzip.compress(json.dumps(document).encode()))


def forget(side: dict[str, Any]) -> None:
    """What an earlier steplens did not save."""
    del side["causes"]
    for recording in side["recordings"]:
        del recording["held"]


@pytest.mark.parametrize("sides", [("baseline:old", "new"), ("old", "baseline:new"), ("baseline:old", "baseline:new")])
def test_causes_and_what_holds_memory_are_named(versions: Any, sides: tuple[str, str]) -> None:
    (fresh,) = versions.json("compare", "old", "new")["comparisons"]
    first = fresh["causes"]["causes"][0]
    assert (first["kind"], first["names"]) == ("speed", ["aten::mm"]) and first["is_certain"]
    assert [row["name"] for row in fresh["memory"]] == ["", "aten::mm"]
    (kept,) = versions.json("compare", *sides)["comparisons"]
    assert kept["memory"] == fresh["memory"] and kept["unexplained"] == []
    same = kept["causes"]["causes"][0]
    assert same["sentence"] == first["sentence"] and same["is_certain"]
    assert same["difference_ns"] == pytest.approx(first["difference_ns"], abs=1.0)
    assert [cause["kind"] for cause in kept["causes"]["causes"]] == [cause["kind"] for cause in fresh["causes"]["causes"]]
    said = "aten::mm in forward takes 25 % longer"
    text = versions.run("compare", *sides, "--markdown", "found.md", "--junit", "found.xml").stdout
    for report in (text, *((versions.folder / name).read_text("utf-8") for name in ("found.md", "found.xml"))):
        plain = html.unescape(report.replace("\\", ""))
        assert said in plain and "aten::mm holds 10.0 MiB -> 30.0 MiB" in plain and "earlier steplens" not in plain


def test_a_baseline_of_an_earlier_steplens_says_that_it_explains_nothing(versions: Any) -> None:
    rewrite(path_of(versions, "old"), forget)
    sentence = "holds nothing that explains a change of time or memory: it was saved by an earlier steplens"
    text = versions.run("compare", "baseline:old", "new", "--markdown", "found.md", "--junit", "found.xml").stdout
    assert sentence in text and "what explains the change" not in text and "memory at its peak" not in text and "aten::mm" in text
    for name in ("found.md", "found.xml"):
        assert sentence in (versions.folder / name).read_text("utf-8")
    (kept,) = versions.json("compare", "new", "baseline:old")["comparisons"]
    assert kept["causes"] is None and kept["memory"] == [] and sentence in kept["unexplained"][0]
    # recordings that are added to it do not tell what the others would
    versions.trace("more.json", program(4005, 12, first_us=9_000_000), pid=300, torch_version="2.13")
    versions.run("baseline", "save", "old", "more.json", "--add")
    (added,) = versions.json("compare", "baseline:old", "new")["comparisons"]
    assert added["causes"] is None and added["before"]["recordings"] == 3 and sentence in added["unexplained"][0]


def test_recordings_that_are_added_are_explained_with_the_others(versions: Any) -> None:
    versions.run("baseline", "save", "together", "old/0.json")
    versions.run("baseline", "save", "together", "old/1.json", "--add")
    found: Comparison = steplens.compare(path_of(versions, "together"), versions.folder / "new")
    fresh: Comparison = steplens.compare(versions.folder / "old", versions.folder / "new")
    assert found.causes is not None and fresh.causes is not None and found.memory_changes == fresh.memory_changes
    assert found.causes.causes[0].sentence == fresh.causes.causes[0].sentence
    assert (
        json.loads(gzip.decompress(path_of(versions, "together").read_bytes()))["side"]
        == (json.loads(gzip.decompress(path_of(versions, "old").read_bytes()))["side"])
    )


def test_what_explains_nothing_any_more_is_refused_in_one_sentence(versions: Any) -> None:
    """Of each way in which a table can contradict another one."""
    path = path_of(versions, "old")
    whole = path.read_bytes()

    def refusal_of(change: Any) -> str:
        path.write_bytes(whole)
        rewrite(path, change)
        refusal: str = versions.refused("compare", "baseline:old", "new")
        assert "old.baseline: is a damaged baseline, or none (" in refusal
        return refusal

    def set_first(*names: str, value: Any) -> Any:
        def change(side: dict[str, Any]) -> None:
            node: Any = side
            for name in names[:-1]:
                node = node[0] if isinstance(node, list) else node
                node = node[name]
            node = node[0] if isinstance(node, list) else node
            node[names[-1]] = [value, *node[names[-1]][1:]] if isinstance(node[names[-1]], list) else value

        return change

    host = ("causes", "host")
    assert "a path begins with none that is there" in refusal_of(set_first("causes", "paths", "outer", value=7))
    assert "a row has a path that is not there" in refusal_of(set_first(*host, "path", value=10_000))
    assert "a row has a text that is not there" in refusal_of(set_first(*host, "leaf", "rows", value=10_000))
    assert "a row is of no part of a step" in refusal_of(set_first(*host, "part", "texts", value="idle_ns"))
    assert "a row is of no part of a step" in refusal_of(set_first(*host, "leaf", "texts", value="leaf"))
    assert "a row is of no part of a step" in refusal_of(set_first(*host, "calls", value=-1))
    assert "an operator answers to none that is there" in refusal_of(set_first("causes", "sequence", "answers", value=10_000))
    assert "single steps are of a row" in refusal_of(set_first(*host, "recordings", "rows", value=10_000))
    assert "columns of a table have other lengths" in refusal_of(set_first(*host, "recordings", "levels", value="??"))
    for character in ("\u00e9", "\u6b65", "~"):
        assert "too far off" in refusal_of(
            lambda side, text=character: side["causes"]["host"]["recordings"][0].update(
                levels=text + side["causes"]["host"]["recordings"][0]["levels"][1:]
            )
        )
    assert "Expected `int` <= 1000" in refusal_of(set_first(*host, "recordings", "steps", value=1 << 40))
    assert "Expected `object`" in refusal_of(set_first("causes", "paths", value=3))
    assert "columns of a table have other lengths" in refusal_of(lambda side: side["recordings"][0]["held"]["name"].pop())
    chain = list(range(-1, 60_000))
    deep = {"name": ["an operator"] * len(chain), "outer": chain}
    assert "too deep in each other" in refusal_of(set_first("causes", "paths", value=deep))
    assert "too deep in each other" in refusal_of(
        lambda side: (
            side["causes"].update(paths={"name": ["a"] * 10_000, "outer": chain[:10_000]})
            or side["causes"]["host"].update(path=[9_999] * len(side["causes"]["host"]["path"]))
        )
    )
