"""What lies behind a URL gives the same answers as on this machine, byte for byte, but for the path that is shown."""

from __future__ import annotations

import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import steplens
from steplens.advice.prepare import prepare_answers
from steplens.cli.main import main

from ..shared_data import shared
from .conftest import JOB, RUN, TRACE, Place

COMMANDS = (("summary",), ("table", "steps", "--json"), ("advise",), ("open", "--json"))


def said(capsys: pytest.CaptureFixture[str], path: str | Path, command: tuple[str, ...]) -> str:
    assert main([command[0], str(path), *command[1:]]) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    return shown.out + shown.err


def check(capsys: pytest.CaptureFixture[str], path: Path, url: str) -> None:
    for command in COMMANDS:
        here = said(capsys, path, command).replace(str(path), url)
        # once as it lies there, and once from what is kept
        assert said(capsys, url, command) == here
        assert said(capsys, url, command) == here


@pytest.mark.parametrize("name", [RUN, TRACE, JOB])
def test_in_memory(name: str, local: Path, memory: Place, capsys: pytest.CaptureFixture[str]) -> None:
    check(capsys, local / name, memory.put(local / name, name))


@pytest.mark.parametrize("name", [RUN, TRACE, JOB])
def test_on_a_server_of_s3(name: str, local: Path, s3: Place, capsys: pytest.CaptureFixture[str]) -> None:
    check(capsys, local / name, s3.put(local / name, name))


@pytest.mark.parametrize("kind", ["text_level0", "db_level0"])
def test_folders_of_ascend(kind: str, s3: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "rank0_ascend_pt"
    path = shutil.copytree(shared("ascend_pytorch", kind, name), tmp_path / name, ignore=shutil.ignore_patterns(".steplens"))
    check(capsys, path, s3.put(path, name))


def test_parts_of_a_run_directory(local: Path, memory: Place, capsys: pytest.CaptureFixture[str]) -> None:
    url = memory.put(local / RUN, RUN)
    for part in ("KINETO", "KINETO/trace.json"):
        here = said(capsys, local / RUN / part, ("table", "steps")).replace(str(local / RUN), url)
        assert said(capsys, f"{url}/{part}", ("table", "steps")) == here


def test_a_process_pool(local: Path, s3: Place) -> None:
    url = s3.put(local / JOB, JOB)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        run = steplens.open(url, executor=pool)
        # the processes read it: this one looked at names and first bytes
        assert s3.fetched_bytes < 1 << 18
        prepare_answers(run)
    here = steplens.open(local / JOB)
    assert run.steps().equals(here.steps()) and run.advise().equals(here.advise())
    assert s3.fetched_bytes < 1 << 18
