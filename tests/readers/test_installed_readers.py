"""Readers of installed packages: a made-up format is opened, kept and shown; defects name the package."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import steplens
from steplens.cli.main import app
from steplens.common.errors import DefectError, InputError
from steplens.common.extensions import load_extensions
from steplens.readers import detect

#: what docs/extending.md shows
READER = (Path(__file__).parents[2] / "docs" / "extending.md").read_text().split("```python\n")[1].split("```")[0]
LINES = "step 0 5000\nforward 100 2000\nbackward 2000 4000\n"

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package on the path whose ``reader`` is an entry point of steplens."""

    def put(code: str, version: str = "1.0") -> None:
        folder = tmp_path / f"site-{version}"
        folder.mkdir()
        (folder / "lines_reader.py").write_text(code)
        information = folder / f"steplens_lines-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: steplens-lines\nVersion: {version}\n")
        (information / "entry_points.txt").write_text("[steplens.readers]\nlines = lines_reader:READER\n")
        monkeypatch.syspath_prepend(folder)
        sys.modules.pop("lines_reader", None)
        load_extensions.cache_clear()

    yield put
    sys.modules.pop("lines_reader", None)
    load_extensions.cache_clear()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A folder with a capture of the made-up format, one of Kineto and a file of nobody."""
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "worker.lines").write_text(LINES)
    (folder / "notes.txt").write_text("of nobody")
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
    (folder / "kineto.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    return folder


def test_a_format_of_an_installed_package_is_opened_and_kept(install: Install, capture: Path) -> None:
    install(READER)
    run = steplens.open(capture)
    assert [(source.path.name, source.format) for source in run.sources] == [
        ("kineto.json", "Kineto trace"),
        ("worker.lines", "Lines"),
    ]
    assert [item.path.name for item in run.unread] == ["notes.txt"]
    alone = steplens.open(capture / "worker.lines")
    assert alone.operators()["name"].to_list() == ["backward", "forward"]
    assert alone.steps().height == 1
    (kept,) = [found for found in detect.find_traces(capture) if found.format == "Lines"]
    assert detect.is_kept(kept) and (capture / ".steplens" / "worker.lines").is_dir()
    # read from what was kept
    os.utime(capture / "worker.lines", ns=(1, 1))
    assert not detect.is_kept(kept)
    for command in ("summary", "open"):
        shown = CliRunner().invoke(app, [command, str(capture / "worker.lines")])
        assert shown.exit_code == 0, shown.output
        assert "Lines" in shown.output or "backward" in shown.output


def test_another_version_of_the_package_reads_anew(install: Install, capture: Path) -> None:
    install(READER)
    steplens.open(capture / "worker.lines")
    assert detect.is_kept(detect.find_one(capture / "worker.lines"))
    install(READER.replace('"forward"', '"fwd"'), "1.1")
    assert not detect.is_kept(detect.find_one(capture / "worker.lines"))


def test_steplens_asks_its_own_readers_first(install: Install, capture: Path) -> None:
    install(READER.replace(".lines", ".json"))
    assert [found.format for found in detect.find_traces(capture)] == ["Kineto trace"]


@pytest.mark.parametrize("where", ["find_file", "find_in_folder", "sources", "read", "dependencies"])
def test_a_defect_of_a_package_costs_its_own_files(install: Install, capture: Path, where: str) -> None:
    install(
        READER.replace("READER = ", f"def fail(*_, **__):\n    raise KeyError('nobody')\n\nLinesReader.{where} = fail\nREADER = ")
    )
    run = steplens.open(capture)
    assert "kineto.json" in [source.path.name for source in run.sources]
    named = [error.problem for error in run.unreadable] + [item.reason for item in run.unread]
    told = [text for text in named if "defect of steplens-lines 1.0" in text]
    assert told and all("could not be read: KeyError: 'nobody'" in text for text in told)
    if where != "find_in_folder":
        with pytest.raises(DefectError, match=r"defect of steplens-lines 1\.0\. Please report it to its makers, or remove"):
            steplens.open(capture / "worker.lines")


def test_what_a_package_says_of_a_file_is_passed_on(install: Install, capture: Path) -> None:
    install(READER)
    (capture / "worker.lines").write_text("no numbers here\n")
    with pytest.raises(InputError, match="holds no lines of a name and two times"):
        steplens.open(capture / "worker.lines")


def test_what_its_sources_name_is_there_when_it_reads_behind_a_url(install: Install, capture: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="URLs are read with fsspec, which is not installed here")
    install(READER)
    files = fsspec.filesystem("memory")
    for path in capture.iterdir():
        files.pipe_file(f"/lines/{path.name}", path.read_bytes())
    run = steplens.open("memory://lines/worker.lines")
    assert run.operators().equals(steplens.open(capture / "worker.lines").operators())
    # another content of the same size, which is another one for its file system alone
    files.pipe_file("/lines/worker.lines", LINES.replace("forward", "for-war").encode())
    assert "for-war" in steplens.open("memory://lines").operators()["name"].to_list()
