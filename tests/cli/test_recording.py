"""What ``steplens run`` says when nothing was recorded: the true reason."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from steplens.cli.recording import recording
from steplens.collect.dynamic import launched_processes
from steplens.common import partial

LONGER = "let it run longer"
NO_WINDOW = "no window was opened and kept; messages of the profiler above say why"


def said(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    steps: int,
    schedule: dict[str, int],
    *,
    failed: bool = False,
    ended: bool = True,
) -> str:
    (tmp_path / "1.json").write_text(json.dumps({"pid": 1, "steps": steps, "failed": failed, "ended": ended}))
    recorded = recording.Recorded(tmp_path / "out", tmp_path)
    recorded.collect()
    order = launched_processes.Order(out="out", answers=str(tmp_path), profile={}, schedule=schedule, experimental={})
    recording.report_recorded(recorded, max(sum(schedule.values()), 1), order, command=False)
    return capfd.readouterr().err


@pytest.mark.parametrize(
    ("steps", "schedule", "sentence"),
    [
        (1, {"skip_first": 0, "wait": 1, "warmup": 1}, LONGER),
        (2, {"skip_first": 0, "wait": 1, "warmup": 1}, NO_WINDOW),
        (8, {"skip_first": 0, "wait": 1, "warmup": 1}, NO_WINDOW),
        # nothing is recorded in the first step, which is the schedule's wait
        (1, {"skip_first": 0, "wait": 0, "warmup": 1}, LONGER),
        (2, {"skip_first": 0, "wait": 0, "warmup": 1}, NO_WINDOW),
    ],
)
def test_longer_only_where_that_helps(
    steps: int, schedule: dict[str, int], sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = said(tmp_path, capfd, steps, schedule)
    assert sentence in text
    assert (LONGER in text) is (sentence == LONGER)


def test_steps_that_nobody_counted_are_not_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A process leaves word at its first step and at its end; one that is killed may have taken any number."""
    text = said(tmp_path, capfd, 1, {"skip_first": 0, "wait": 100, "warmup": 1}, ended=False)
    assert "process 1 took steps and left no word of how many, as one does that is killed" in text
    assert "took 1 " not in text and LONGER not in text


def test_a_lost_window_is_told_as_its_reader_tells_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whether its process ended, still runs or could not save it is in the state file."""
    (tmp_path / "1.json").write_text(json.dumps({"pid": 1, "steps": 9, "failed": False, "ended": True}))
    recorded = recording.Recorded(tmp_path / "out", tmp_path)
    states = {
        "host_1_20260101000000000_ascend_pt": {"state": "failed", "health": [{"severity": "error", "message": "No space."}]},
        "host_1_20260101000000001_ascend_pt": {"state": "recording", "machine": partial.machine_identity(), "pid": os.getpid()},
    }
    for name, state in states.items():
        raw = tmp_path / "out" / name / "KINETO"
        raw.mkdir(parents=True)
        (raw / "state.json").write_text(json.dumps({"pid": 1, "first_step": 3, "health": [], **state}))
    recorded.collect()
    order = launched_processes.Order(out="out", answers=str(tmp_path), profile={}, schedule={}, experimental={})
    recording.report_recorded(recorded, 1, order, command=False)
    first, second = capfd.readouterr().err.splitlines()
    assert first.endswith("_ascend_pt holds no trace: No space")
    assert second.endswith(f"the window that began at step 3 is open, or is being saved (process {os.getpid()} runs)")


def test_a_failure_is_not_explained_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = said(tmp_path, capfd, 8, {"skip_first": 0, "wait": 1, "warmup": 1}, failed=True)
    assert "nothing was recorded" in text and LONGER not in text
