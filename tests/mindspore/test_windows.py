"""What becomes of windows that end unusually: replaced by later ones, empty, left by ``break``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import steplens
from steplens.cli.main import app

from .conftest import Run

pytestmark = pytest.mark.slow


def test_results_say_which_windows_they_lack(run: Run, tmp_path: Path) -> None:
    """By default windows behind an analysis replace its results, which would pass for all that the process recorded."""
    run(
        """
from steplens.mindspore import Profiler
from steplens.mindspore.r2_2 import Profiler as Older
mode("graph")
step = stepper()
def loop(batches):
    for batch in pipeline(batches).create_dict_iterator(num_epochs=1):
        step(batch["data"], batch["label"])
def windows(path, *lengths, moved=False, **more):
    profiler = Profiler(output_path=path, start_profile=False, **more)
    for length in lengths:
        profiler.start()
        loop(length)
        profiler.stop()
        profiler.analyse()
        if moved:
            os.rename(path, path + "_of_" + str(length))
windows("replaced", 2, 3, 4)
windows("kept", 2, 3, 4, data_simplification=False)
windows("away", 2, 3, moved=True)
for length in (2, 3):
    older = Older(output_path="older", data_process=False)
    loop(length)
    older.stop()
older.analyse()
"""
    )
    expected = {"replaced": (4, 2), "kept": (9, 0), "away_of_2": (2, 0), "away_of_3": (3, 0), "older": (3, 1)}
    for name, (steps, lacking) in expected.items():
        opened = steplens.open(tmp_path / name)
        assert opened.steps().height == steps
        lost = opened.health().filter(check="window_lost")
        assert lost["count"].to_list() == ([lacking] if lacking else []), name
        assert all(f"begin with window {lacking + 1} " in message for message in lost["message"])
    shown = CliRunner().invoke(app, ["summary", str(tmp_path / "replaced")])
    assert "they replaced those of the 2 windows before it" in " ".join(shown.output.split())
