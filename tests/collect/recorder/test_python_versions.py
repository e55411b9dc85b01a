"""The recorder's calls of Python in each version of Python that is installed here, against a profile function of Python itself.

Those versions have no PyTorch: the library is loaded beside the one that it is built for.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.readers.recorder.recorder_file import read_recording

PROGRAM = Path(__file__).parent / "python_program.py"
ROOT = "program_begins_here"
SOURCE = Path(__file__).resolve().parents[3] / "src"


def interpreters() -> list[str]:
    """This one, and those of the versions that are supported that pyenv has."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    others = [str(path / "bin" / "python") for path in sorted(versions.glob("3.1[0-3].*")) if (path / "bin" / "python").is_file()]
    return [sys.executable, *others]


def without_details(name: str) -> str:
    """A name without an address, and without the number of a module."""
    return re.sub(r"^(nn\.Module: \w+)_\d+$", r"\1", re.sub(r" at 0x[0-9a-f]+", "", name))


@pytest.mark.parametrize("interpreter", interpreters())
def test_calls_are_what_a_profile_function_sees(interpreter: str, tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    from steplens.collect.recorder import recorder_library

    try:
        library = recorder_library.load_recorder()._name
    except recorder_library.RecorderError as error:
        pytest.skip(f"there is no recorder here: {error}")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "LD_LIBRARY_PATH": str(Path(torch.__file__).parent / "lib")}
    # warnings of versions that look at forks and threads are theirs
    command = [interpreter, "-W", "ignore", str(PROGRAM), library, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode == 0 and not done.stderr, done.stderr[-3000:]
    true = [(depth, without_details(name)) for depth, name in json.loads((tmp_path / "x.json").read_text())]
    found = calls_below(tmp_path / "x.rec")
    assert len(true) > 25 and found == [true] * 3


def calls_below(path: Path) -> list[list[tuple[int, str]]]:
    frame = read_recording(path).table("python")
    assert frame is not None
    found: list[list[tuple[int, str]]] = []
    places: dict[int, tuple[int, int]] = {}
    for number, parent, name in frame.select("id", "parent", pl.col("name").cast(pl.String)).rows():
        if parent in places:
            place, depth = places[parent]
            places[number] = place, depth + 1
            found[place].append((depth + 1, without_details(name)))
        elif name.endswith(f": {ROOT}"):
            places[number] = len(found), 0
            found.append([])
    return found
