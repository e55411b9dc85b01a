"""Sampled Python stacks against a program that knows how long it is in each of its functions, in every version of Python here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.operators.python_hotspots import python_hotspots
from steplens.readers.recorder.recorder_file import read_recording

from .test_python_versions import SOURCE, interpreters

PROGRAM = Path(__file__).parent / "sampling_program.py"
#: by which a share may be off: of 500 samples twice their chance, and as much for what else the machine does meanwhile
TOLERANCE = 0.09


@pytest.mark.parametrize("interpreter", interpreters())
def test_shares_are_those_of_the_program(interpreter: str, tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    from steplens.collect.recorder import recorder_library

    try:
        library = recorder_library.load_recorder()._name
    except recorder_library.RecorderError as error:
        pytest.skip(f"there is no recorder here: {error}")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "LD_LIBRARY_PATH": str(Path(torch.__file__).parent / "lib")}
    command = [interpreter, "-W", "ignore", str(PROGRAM), library, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=environment)
    assert done.returncode == 0 and not done.stderr, done.stderr[-3000:]
    true = json.loads((tmp_path / "x.json").read_text())
    trace = read_recording(tmp_path / "x.rec")
    by_thread = python_hotspots(trace, "thread")
    threads = {name.partition("(")[2].rstrip(")"): row for row in by_thread.rows(named=True) for name in [row["thread"]]}
    assert list(threads) == ["MainThread", "other", "waits for work"]
    for name, seconds in true["seconds"].items():
        # one sample of each period, whatever was late
        assert abs(threads[name]["samples"] / 200.0 - sum(seconds.values())) < 0.25
        assert abs(threads[name]["cpu_ns"] - true["processor_ns"][name]) < 0.15e9
        found = shares(trace, name)
        for function, part in seconds.items():
            assert abs(found[function] - part / sum(seconds.values())) < TOLERANCE, (name, found, seconds)
    helper = threads["waits for work"]
    assert helper["cpu_ns"] == 0 and helper["cpu_percent"] == 0 and helper["name"].endswith((": wait", ": get"))
    assert trace.table("health") is None
    for name in ("threads", "amid", "parent", "child", "stacks", "deep", "end"):
        recording = read_recording(tmp_path / f"{name}.rec")
        checks = recording.required("health").collect()["check"].to_list()
        # the last one was still open when its process ended
        assert checks == (["dropped_records"] if name in ("stacks", "deep") else ["unended_recording"] if name == "end" else [])


def shares(trace: Any, thread: str) -> dict[str, float]:
    """Of the samples inside of ``loop`` on a thread, those in each function that it calls."""
    rows = python_hotspots(trace).filter(pl.col("thread").str.ends_with(f"({thread})"))
    totals = {name.rpartition(": ")[2]: count for name, count in rows.select("name", "total_samples").rows()}
    return {name: totals.get(name, 0) / totals["loop"] for name in ("computes", "forward", "sleeps")}
