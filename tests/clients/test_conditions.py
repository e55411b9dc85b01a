"""Circumstances: other users, permissions, odd paths, results that exist already, damaged and missing data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steplens.run import open_run
from steplens.writers.exports.export import export

from ..command_line import run_command
from ..shared_data import shared
from . import msprof, runs

pytestmark = pytest.mark.slow


#: starts a program as a user that is not root, with the files that root may read: the interpreter may lie in root's home
AS_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def raw_recording(run: Path) -> Path:
    """What the recorder wrote, or Kineto where there is no compiler."""
    (path,) = [path for name in ("operators.rec", "trace.json") if (path := run / "KINETO" / name).exists()]
    return path


@pytest.mark.parametrize("form", ["text", "db"])
def test_another_user_writable_files_and_odd_paths(job: Callable[[int], Path], tmp_path: Path, form: str) -> None:
    place = tmp_path / "Ergebnis für 训练 1"
    folder = shutil.copytree(job(2) / form, place / "runs", ignore=shutil.ignore_patterns("KINETO", ".steplens", "logs"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o770 if path.is_dir() else 0o660)
    root = os.getuid() == 0
    if root and subprocess.run([*AS_USER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("the tests run as root, and this system lets nobody map it to another user")
    ran = msprof.run(place / "out put", "cluster", "-d", folder, "-m", "all", before=AS_USER if root else ())
    assert ran.errors == []
    # it says so whenever it is
    assert "run this tool as root" not in ran.log
    expected = {"text": "cluster_communication_matrix.json", "db": "cluster_analysis.db"}[form]
    assert (place / "out put" / "cluster_analysis_output" / expected).stat().st_size > 0


def test_exit_codes_tell_nothing_part_and_all(job: Callable[[int], Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run_command("analyse", empty, folder=tmp_path).returncode == 2
    assert run_command("analyse", tmp_path / "missing", folder=tmp_path).returncode == 2
    folder = shutil.copytree(job(2) / "text", tmp_path / "job")
    assert run_command("analyse", folder, folder=tmp_path).returncode == 0
    damaged, _ = runs.run_directories(folder)
    raw_recording(damaged).write_bytes(b"{damaged")
    done = run_command("analyse", folder, folder=tmp_path)
    assert done.returncode == 3
    assert "Traceback" not in done.stdout + done.stderr
    assert not (runs.output(damaged) / "analyse.done").exists()


def test_no_stale_result_is_kept(job: Callable[[int], Path], tmp_path: Path) -> None:
    """A result made from other data is made again; so is the merged one of the client, which then holds the new data."""
    folder = shutil.copytree(job(2) / "text", tmp_path / "job")
    assert msprof.cluster(folder, folder).errors == []
    first = (folder / "cluster_analysis_output" / "cluster_step_trace_time.csv").read_text()
    zero, one = runs.run_directories(folder)
    before = (runs.output(zero) / "step_trace_time.csv").read_text()
    shutil.copyfile(raw_recording(one), raw_recording(zero))
    assert run_command("analyse", folder, folder=tmp_path).returncode == 0
    runs.text_alone(folder)
    after = (runs.output(zero) / "step_trace_time.csv").read_text()
    assert after == (runs.output(one) / "step_trace_time.csv").read_text() != before
    assert msprof.cluster(folder, folder).errors == []
    assert (folder / "cluster_analysis_output" / "cluster_step_trace_time.csv").read_text() != first


def close(found: Any, expected: Any, place: str = "") -> None:
    """Equal in structure and text, and in numbers but for the last digits of sums."""
    assert type(found) is type(expected) or isinstance(expected, int | float), place
    if isinstance(expected, dict):
        assert set(found) == set(expected), place
        for key, value in expected.items():
            close(found[key], value, f"{place}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for number, value in enumerate(expected):
            close(found[number], value, f"{place}/{number}")
    elif isinstance(expected, int | float) and not place.endswith("Start Timestamp(us)"):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6), place


def test_ascend_captures_merge_to_the_same_from_our_files(tmp_path: Path) -> None:
    """The client's files from two ranks' own results, and from what steplens writes of these."""
    capture = shutil.copytree(shared("ascend_pytorch", "text_level1"), tmp_path / "capture", copy_function=shutil.copyfile)
    export(open_run(capture), "text", tmp_path / "ours")
    for name in ("capture", "ours"):
        assert msprof.cluster(tmp_path / name, tmp_path / f"{name} merged").errors == []
    theirs, ours = (tmp_path / f"{name} merged" / "cluster_analysis_output" for name in ("capture", "ours"))
    assert {path.name for path in ours.iterdir()} == {path.name for path in theirs.iterdir()}
    for name in ("cluster_communication.json", "cluster_communication_matrix.json", "communication_group.json"):
        close(json.loads((ours / name).read_bytes()), json.loads((theirs / name).read_bytes()), name)
