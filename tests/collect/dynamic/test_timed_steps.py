"""Steps that are timed before others are recorded: nothing is recorded, or made ready for it, earlier than needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steplens.collect.dynamic import launched_processes
from steplens.collect.dynamic.launched_processes import Order, StepRecording, Watcher
from steplens.collect.loaders import loader

from .. import conftest


def order_of(folder: Path, active: int, timing: bool = True) -> Order:
    timed = {"folder": str(folder), "skip": 1, "steps": 3} if timing else None
    schedule = {"skip_first": 0, "wait": 0, "warmup": 1, "active": active, "repeat": 1}
    return Order(str(folder / "out"), str(folder), {}, schedule, {}, timing=timed)


def take_steps(watcher: Watcher, count: int) -> None:
    for _ in range(count):
        watcher._steps.count += 1
        watcher._on_step()


def answers(folder: Path) -> list[dict[str, Any]]:
    return launched_processes.read_answers(folder)


def test_no_profiler_while_steps_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    watcher = Watcher(order_of(tmp_path, active=2))
    monkeypatch.setattr(StepRecording, "on_step", lambda self: counts.append(watcher._steps.count))
    take_steps(watcher, 4)
    assert counts == [] and not any(answer["closed"] for answer in answers(tmp_path))
    # the fifth end is that of the third timed step; one is for warmup, and two are recorded
    take_steps(watcher, 3)
    assert counts == [5, 6, 7] and not any(answer["closed"] for answer in answers(tmp_path))
    (times,) = tmp_path.glob("step_times_*.json")
    assert len(json.loads(times.read_text())["step_ns"]) == 3
    take_steps(watcher, 1)
    assert [(answer["steps"], answer["closed"]) for answer in answers(tmp_path)] == [(8, True)]


def test_nothing_is_watched_where_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[bool] = []
    monkeypatch.setattr(loader, "profiler_starts", lambda: watched.append(True))
    StepRecording(order_of(tmp_path, active=0), pytest.fail).prepare()
    assert watched == []
    StepRecording(order_of(tmp_path, active=2), pytest.fail).prepare()
    StepRecording(order_of(tmp_path, active=2, timing=False), pytest.fail).prepare()
    assert watched == [True, True]
    watcher = Watcher(order_of(tmp_path, active=0))
    monkeypatch.setattr(StepRecording, "on_step", lambda self: pytest.fail("nothing is to be recorded"))
    take_steps(watcher, 6)
    assert [(answer["steps"], answer["closed"]) for answer in answers(tmp_path)] == [(5, True)]


def test_recorded_steps_have_the_numbers_that_they_have_in_the_program(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    watcher = Watcher(order_of(tmp_path, active=2))
    take_steps(watcher, 8)
    (raw,) = (tmp_path / "out").rglob("KINETO")
    names = {event.get("name") for event in conftest.raw(raw.parent)["traceEvents"]}
    assert {name for name in names if str(name).startswith("ProfilerStep#")} == {"ProfilerStep#6", "ProfilerStep#7"}
