"""``steplens baseline``: with a baseline a comparison says what it says with its recordings; other files are refused."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.comparison.baselines.document import VERSION

from .test_compare import almost, program


@pytest.fixture
def versions(cli: Any) -> Any:
    """Three recordings of a program, two of a slower one, and one of the first that is recorded later."""
    for side, lengths in (("old", (4000, 4060, 3950)), ("new", (5000, 5080))):
        for number, length in enumerate(lengths):
            events = program(length, 12, first_us=1000 + 900_000 * number)
            cli.write(f"{side}/{number}.json", "")
            processor_time = {"ran_ns": 990_000, "waited_ns": 10_000}
            cli.trace(f"{side}/{number}.json", events, pid=100 + number, torch_version="2.13", processor_time=processor_time)
    return cli


def file_of(versions: Any, name: str = "main") -> Path:
    path: Path = versions.folder / "steplens-baselines" / f"{name}.baseline"
    return path


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """A comparison without where its sides lie, and without how sure causes are, which a baseline has from some of the steps."""
    (found,) = document["comparisons"]
    if found["causes"] is not None:
        del found["causes"]["explained"], found["causes"]["rest_ns"]
        for cause in found["causes"]["causes"]:
            del cause["error_ns"]
    for side in ("before", "after"):
        del found[side]["path"]
    return found


def test_a_baseline_compares_as_its_recordings_do(versions: Any) -> None:
    saved = versions.run("baseline", "save", "main", "old").stdout
    assert saved.startswith("saved main: 9.99") or saved.startswith("saved main: 10.0")
    assert "36 steps, 3 recordings" in saved and "next: steplens compare baseline:main RUN" in saved
    assert file_of(versions).stat().st_size < 20_000
    limits = ("--fail-on", "step>2%", "--fail-on", "operators.aten::mm>5%", "--fail-on", "forward>50%")
    arguments = ("--json", *limits)
    fresh = comparable(json.loads(versions.run("compare", "old", "new", *arguments, expect=1).stdout))
    assert fresh["step"]["verdict"] == "slower" and fresh["doubts"] == []
    for named in ("baseline:main", "steplens-baselines/main.baseline", file_of(versions)):
        kept = comparable(json.loads(versions.run("compare", named, "new", *arguments, expect=1).stdout))
        almost(kept, fresh)
    # on either side
    later = comparable(versions.json("compare", "old", "baseline:main"))
    assert later["step"]["ratio"] == pytest.approx(0.0, abs=1e-7) and later["doubts"] == ["both sides hold the same 3 recordings"]
    text = versions.run("compare", "baseline:main", "new").stdout
    assert "before: steplens-baselines/main.baseline: " in text and "next: steplens view new" in text
    assert "steplens advise" not in text
    monthly = steplens.compare(file_of(versions), versions.folder / "new")
    assert monthly.step is not None and monthly.step.ratio == pytest.approx(fresh["step"]["ratio"])
    assert monthly.before.run is None and monthly.operators["name"][0] == "aten::mm"


def test_the_same_recordings_give_the_same_bytes(versions: Any) -> None:
    versions.run("baseline", "save", "main", "old")
    versions.run("baseline", "save", "again", "old")
    assert file_of(versions).read_bytes() == file_of(versions, "again").read_bytes()
    versions.run("baseline", "save", "other", "new")
    assert file_of(versions).read_bytes() != file_of(versions, "other").read_bytes()


def test_a_name_that_is_taken_is_replaced_or_added_to_when_asked(versions: Any) -> None:
    versions.run("baseline", "save", "main", "old/0.json", "old/1.json")
    refusal = versions.refused("baseline", "save", "main", "new")
    assert "main.baseline: there is a baseline of this name. Put the new one in its place with --replace" in refusal
    assert "24 steps, 2 recordings" in versions.run("baseline", "list").stdout
    assert "it would count twice" in versions.refused("baseline", "save", "main", "old/0.json", "--add")
    versions.run("baseline", "save", "main", "old/2.json", "--add")
    # recordings that came one by one, and those that came together
    almost(comparable(versions.json("compare", "baseline:main", "new")), comparable(versions.json("compare", "old", "new")))
    versions.run("baseline", "save", "main", "new", "--replace")
    assert "24 steps, 2 recordings" in versions.run("baseline", "list").stdout
    versions.run("baseline", "save", "begun", "new", "--add", "--into", "elsewhere")
    assert "begun" in versions.run("baseline", "list", "--from", "elsewhere").stdout
    assert "contradict each other" in versions.refused("baseline", "save", "main", "new", "--add", "--replace")


def test_what_a_baseline_holds_is_shown(versions: Any) -> None:
    versions.run("baseline", "save", "main", "old")
    text = versions.run("baseline", "show", "main").stdout
    assert "36 steps, 3 recordings" in text and "PyTorch 2.13" in text and "recorded 1970-01-01" in text
    assert "forward" in text and "aten::mm" in text
    document = versions.json("baseline", "show", "baseline:main")
    assert document["parts"]["forward_ns"] == pytest.approx(4.1e6, rel=0.02) and document["machine"] == {
        "torch_version": ["2.13"]
    }
    assert document["operators"][0]["name"] == "aten::mm" and document["operators"][0]["calls"] == 1
    listed = versions.json("baseline", "list")["baselines"]
    assert [(row["name"], row["recordings"], row["steps"]) for row in listed] == [("main", 3, 36)]


def test_the_commit_that_is_checked_out_is_recorded(versions: Any) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git here")

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=somebody", "-c", "user.email=somebody@localhost", *arguments]
        return subprocess.run(command, cwd=versions.folder, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    versions.write("train.py", "print(1)")
    git("add", "train.py")
    git("commit", "-q", "-m", "first")
    versions.run("baseline", "save", "main", "old")
    document = versions.json("baseline", "show", "main")
    assert (document["commits"], document["changed"]) == ([git("rev-parse", "HEAD")], False)
    # the file itself, which is committed, is no change of the program
    git("add", "steplens-baselines")
    git("commit", "-q", "-m", "baseline")
    versions.run("baseline", "save", "main", "new", "--replace")
    document = versions.json("baseline", "show", "main")
    assert (document["commits"], document["changed"]) == ([git("rev-parse", "HEAD")], False)
    versions.write("train.py", "print(2)")
    versions.run("baseline", "save", "main", "new", "--replace")
    assert versions.json("baseline", "show", "main")["changed"] is True
    # the recordings are older than that commit may be
    for command in (("list",), ("show", "main")):
        assert (
            f", saved at commit {git('rev-parse', 'HEAD')[:10]} with changes, by steplens "
            in versions.run("baseline", *command).stdout
        )


def test_what_is_no_baseline_is_refused_in_one_sentence(versions: Any) -> None:
    assert "main.baseline: there is no such baseline. Save it with" in versions.refused("compare", "baseline:main", "new")
    assert "no baselines in steplens-baselines; save one with" in versions.run("baseline", "list").stdout
    versions.run("baseline", "save", "main", "old")
    path = file_of(versions)
    whole = path.read_bytes()
    document = json.loads(gzip.decompress(whole))

    def refusal_of(content: bytes) -> str:
        path.write_bytes(content)
        refusal: str = versions.refused("compare", "baseline:main", "new")
        assert versions.refused("baseline", "show", "main") == refusal
        assert "main.baseline: " in refusal
        return refusal

    def packed(**changes: Any) -> bytes:
        return gzip.compress(json.dumps({**document, **changes}).encode())

    assert "is a damaged baseline, or none" in refusal_of(whole[: len(whole) // 2])
    assert "is a damaged baseline, or none" in refusal_of(b"")
    assert "is a damaged baseline, or none" in refusal_of(b"{}")
    assert "is a damaged baseline, or none" in refusal_of(whole[:200] + b"\0" + whole[201:])
    assert f"is a baseline of format {VERSION + 1}, and this version of steplens reads" in refusal_of(packed(version=VERSION + 1))
    assert "is no baseline of steplens" in refusal_of(packed(format="another"))
    # a bomb
    assert "more than was asked for" in refusal_of(gzip.compress(b"[" + bytes(1 << 27)))
    assert "is a damaged baseline" in refusal_of(gzip.compress(b"[" * 100_000))
    side = document["side"]
    operators = {**side["operators"], "calls": side["operators"]["calls"][1:]}
    assert "columns of a table have other lengths" in refusal_of(packed(side={**side, "operators": operators}))
    paths = {**side["paths"], "parent": [10**6 for _ in side["paths"]["parent"]]}
    assert "a call lies in none that is there" in refusal_of(packed(side={**side, "paths": paths}))
    operators = {**side["operators"], "time_ns": ["a" for _ in side["operators"]["time_ns"]]}
    assert "is a damaged baseline" in refusal_of(packed(side={**side, "operators": operators}))
    recording = side["recordings"][0]
    steps = {**recording["steps"], "step_time_ns": [0 for _ in recording["steps"]["step_time_ns"]]}
    assert "took no time" in refusal_of(packed(side={**side, "recordings": [{**recording, "steps": steps}]}))
    assert "is a damaged baseline" in refusal_of(packed(side={**side, "recordings": []}))
    # others are listed all the same
    path.write_bytes(whole)
    path.with_name("broken.baseline").write_bytes(b"no")
    done = versions.run("baseline", "list", expect=2)
    assert done.stdout.startswith("main ") and len(done.stderr.splitlines()) == 1 and "broken.baseline" in done.stderr
    assert versions.json("baseline", "list", expect=2)["problems"]
    path.write_bytes(whole)
    os.truncate(path, 33 << 20)
    assert "is larger than a baseline may be" in versions.refused("baseline", "show", "main")


def test_what_cannot_be_a_baseline_is_refused(versions: Any) -> None:
    for name in ("../main", "a/b", ".hidden", "-x", "", "a" * 61, "main\n"):
        arguments = ("baseline", "save", "--", name, "old")
        assert len(versions.run(*arguments, expect=2).stderr.splitlines()) == 1
    assert not (versions.folder.parent / "main.baseline").exists()
    assert "cannot be the name of a baseline" in versions.refused("compare", "baseline:../main", "new")
    versions.trace("one.json", program(4000, 1))
    assert "has one step" in versions.refused("baseline", "save", "main", "one.json")
    text = (versions.folder / "old" / "0.json").read_text()
    versions.write("cut.json", text[: len(text) // 2])
    assert "the data is truncated" in versions.refused("baseline", "save", "main", "cut.json")
    assert "does not exist" in versions.refused("baseline", "save", "main", "missing")
    info = {"rank": 1, "world_size": 2, "backend": "gloo"}
    versions.trace("second.json", program(4000), distributedInfo=info)
    assert "second.json: is of rank 1, and old" in versions.refused("baseline", "save", "main", "old", "second.json")
    assert not file_of(versions).exists()
    versions.write("steplens-baselines", "a file")
    assert "cannot be written" in versions.refused("baseline", "save", "main", "old")
    assert "is no folder" in versions.refused("baseline", "list")
    versions.run("baseline", "save", "main", "old", "--into", "kept")
    assert "a baseline cannot be divided" in versions.refused("compare", "kept/main.baseline", "new", "--rank", "3")


def test_another_folder_may_be_said_once(versions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPLENS_BASELINES", str(versions.folder / "kept"))
    versions.run("baseline", "save", "main", "old")
    assert (versions.folder / "kept" / "main.baseline").is_file()
    assert versions.json("compare", "baseline:main", "new")["comparisons"][0]["step"]["verdict"] == "slower"


@pytest.mark.parametrize("command", [("view",), ("summary",), ("history",), ("report", "-o", "report.html")])
def test_what_has_no_events_is_refused_with_what_can_be_done(versions: Any, command: tuple[str, ...]) -> None:
    assert "there is no such baseline" in versions.refused(*command, "baseline:main")
    versions.run("baseline", "save", "main", "old")
    line = versions.refused(*command, "baseline:main")
    assert "is a baseline, which keeps figures and no events" in line
    assert "steplens compare baseline:main RUN" in line and "steplens history steplens-baselines" in line


def test_a_history_of_the_folder_above_leads_to_the_baselines(versions: Any) -> None:
    versions.run("baseline", "save", "main", "old", "--into", "project/steplens-baselines")
    versions.run("baseline", "save", "next", "new", "--into", "project/steplens-baselines")
    line = versions.refused("history", "project")
    assert "holds 0 versions" in line and line.endswith("steplens history project/steplens-baselines")
    versions.run("history", "project/steplens-baselines")
