"""What lies behind a URL gives the same answers as on this machine, byte for byte, but for the path that is shown."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import steplens
from steplens.advice.prepare import prepare_answers
from steplens.cli.main import main
from steplens.common.storage.files import locate_path, private_address
from steplens.common.storage.user_cache import cache_root
from steplens.readers import many
from steplens.readers.detect import find_traces

from ..shared_data import shared
from .conftest import JOB, RUN, TRACE, Place

COMMANDS = (("summary",), ("table", "steps", "--json"), ("advise",))


def said(capsys: pytest.CaptureFixture[str], path: str | Path, command: tuple[str, ...]) -> str:
    assert main([command[0], str(path), *command[1:]]) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    return shown.out + shown.err


#: what the commands say of captures on this machine, by name, with a word in place of the path
HERE: dict[str, list[str]] = {}


def check(capsys: pytest.CaptureFixture[str], path: Path, url: str) -> None:
    """The commands about a URL: the first one reads what lies there, the others find it kept."""
    if path.name not in HERE:
        HERE[path.name] = [said(capsys, path, command).replace(str(path), "PATH") for command in COMMANDS]
    assert [said(capsys, url, command).replace(url, "PATH") for command in COMMANDS] == HERE[path.name]


@pytest.mark.parametrize("name", [RUN, TRACE, JOB])
@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_commands(name: str, kind: str, local: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    place: Place = request.getfixturevalue(kind)
    check(capsys, local / name, place.put(local / name, name))


@pytest.mark.parametrize("kind", ["memory", "s3"])
@pytest.mark.parametrize("form", ["text", "db"])
def test_folders_of_ascend(
    form: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    source = shared("ascend_pytorch", f"{form}_level0", "rank0_ascend_pt")
    name = f"{form}_ascend_pt"
    path = shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns(".steplens"))
    place: Place = request.getfixturevalue(kind)
    check(capsys, path, place.put(path, name))


def test_parts_of_a_run_directory(local: Path, memory: Place, capsys: pytest.CaptureFixture[str]) -> None:
    url = memory.put(local / RUN, RUN)
    for part in ("KINETO", "KINETO/trace.json"):
        here = said(capsys, local / RUN / part, ("table", "steps")).replace(str(local / RUN), url)
        assert said(capsys, f"{url}/{part}", ("table", "steps")) == here


def test_a_process_pool(local: Path, s3: Place) -> None:
    url = s3.put(local / JOB, JOB)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        run = steplens.open(url, executor=pool)
        # the processes read it: this one looked at names and first bytes
        assert s3.fetched_bytes < 1 << 18
        prepare_answers(run)
    here = steplens.open(local / JOB)
    assert run.steps().equals(here.steps()) and run.advise().equals(here.advise())
    assert s3.fetched_bytes < 1 << 18


def test_a_process_beside_this_one_believes_its_listing(local: Path, s3: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = locate_path(s3.put(local / JOB, JOB))
    assert len(find_traces(path)) == 2
    address = private_address(path)
    # as in a process that was just started
    monkeypatch.setattr("steplens.common.storage.files._STAND_INS", {})
    s3.forget()
    assert many._make_task(address)(1)
    assert s3.listed == [] and s3.fetched_bytes < (local / JOB / "truth.json").stat().st_size + 2 * sum(
        file.stat().st_size for file in (local / JOB).glob("*4001*")
    )


def test_pages(local: Path, memory: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fastapi", reason="the pages need the extra steplens[view]")
    from steplens.report.ask import InProcessClient
    from steplens.server.runs import RunLibrary

    url = memory.put(local / RUN, RUN)
    report = tmp_path / "report.html"
    assert main(["report", url, "--out", str(report)]) == 0
    assert url in capsys.readouterr().out
    library = RunLibrary([locate_path(url)])
    library.runs[0].open()
    state = InProcessClient(library).get("session", {}).json["runs"][0]
    assert (state["path"], state["name"]) == (url, RUN)
    for content in (report.read_text(), json.dumps(state)):
        assert str(cache_root()) not in content
