"""What ``steplens run`` says when nothing was recorded: the true reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steplens.cli import recording
from steplens.collect import launched

LONGER = "let it run longer"
NO_WINDOW = "no window could be opened; an error of the profiler above says why"


def said(tmp_path: Path, capfd: pytest.CaptureFixture[str], steps: int, schedule: dict[str, int], *, failed: bool = False) -> str:
    (tmp_path / "1.json").write_text(json.dumps({"pid": 1, "steps": steps, "failed": failed}))
    recorded = recording.Recorded(tmp_path / "out", tmp_path)
    recorded.collect()
    order = launched.Order(out="out", answers=str(tmp_path), profile={}, schedule=schedule, experimental={})
    recording.report(recorded, max(sum(schedule.values()), 1), order, command=False)
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


def test_a_failure_is_not_explained_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = said(tmp_path, capfd, 8, {"skip_first": 0, "wait": 1, "warmup": 1}, failed=True)
    assert "nothing was recorded" in text and LONGER not in text
