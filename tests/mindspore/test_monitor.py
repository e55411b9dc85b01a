"""The end of a training that ``DynamicProfilerMonitor`` watches: its last step is the last one that is told of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steplens

from .conftest import Run

pytestmark = pytest.mark.slow

#: a training of four steps, and what the monitor then says of itself and of its requests
TRAINING = """
from steplens.mindspore import DynamicProfilerMonitor
from steplens.collect.mindspore.recording.window import open_window
mode("graph")
os.makedirs("cfg")
with open("cfg/profiler_config.json", "w") as file:
    json.dump({"start_step": 3, "stop_step": int(sys.argv[1]), "analyse_mode": 0}, file)
monitor = DynamicProfilerMonitor("cfg", "result")
class Offers(ms.Callback):
    def on_train_step_begin(self, run_context):
        if run_context.original_args().cur_step_num == 3 and len(sys.argv) > 2:
            monitor._agent.offer("later", "edit", {"start_step": 5, "stop_step": 6, "analyse_mode": 0})
def train(batches):
    model().train(1, pipeline(batches), callbacks=[monitor, Offers()], dataset_sink_mode=False)
    assert open_window() is None
    record = monitor._agent.record()
    print(json.dumps([record["current_step"], *[[each["state"], each["reason"]] for each in record["requests"]]]))
train(4)
train(2)
"""


def told(stdout: str) -> list[list[object]]:
    """What was said after each of the trainings."""
    return [json.loads(line) for line in stdout.splitlines() if line.startswith('["')]


def test_a_capture_that_ends_with_the_training(run: Run, tmp_path: Path) -> None:
    first, second = told(run(TRAINING, "4").stdout)
    assert (first, second) == (["4", ["done", ""]], ["2", ["done", ""]])
    assert steplens.open(tmp_path / "result" / "rank0_start3_stop4").steps()["step"].to_list() == [3, 4]


def test_a_capture_that_the_training_ends_before(run: Run, tmp_path: Path) -> None:
    """What it has is kept and analysed, and its window records nothing behind the training."""
    first, second = told(run(TRAINING, "9").stdout)
    reason = "RuntimeError: the training ended with step 4, before step 9 that was asked for; it is recorded up to there"
    assert (first, second) == (["4", ["failed", reason]], ["2", ["failed", reason]])
    assert steplens.open(tmp_path / "result" / "rank0_start3_stop9").steps()["step"].to_list() == [3, 4]


def test_a_capture_does_not_begin_behind_the_last_step(run: Run, tmp_path: Path) -> None:
    first, _ = told(run(TRAINING, "4", "another").stdout)
    assert first == ["4", ["done", ""], ["failed", "the training ended with step 4"]]
    assert [path.name for path in (tmp_path / "result").iterdir()] == ["rank0_start3_stop4"]
