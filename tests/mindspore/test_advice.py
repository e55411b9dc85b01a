"""Real trainings with MindSpore on a CPU: a slow source is named and priced, and a pipeline that keeps up is called healthy."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

import steplens
from steplens.advice import Advice, advise
from steplens.advice.registry import built_in_rules

from .conftest import run_program
from .programs import NETWORK

#: seconds that a batch takes to make, and that the rest of a step takes
SLOW_BATCH_S, WORK_S = 0.4, 0.02
#: so often a training is run, at most, where the machine holds up a pipeline that keeps up
ATTEMPTS = 3
#: a loop that never waits for its batch so long (ns) was not held up
HELD_UP_NS = 5_000_000

#: the rules about data pipelines
PIPELINE = {rule.name for rule in built_in_rules() if rule.judge.__module__.startswith("steplens.advice.rules.pipeline")}
#: steps 4 to 15 of 18; prints what lay between each two of them, by the loop's own clock
TRAIN = """
from steplens.mindspore import Profiler
mode("pynative")
batch_s, work_s = map(float, sys.argv[1:3])
waited = []

class Window(ms.Callback):
    def __init__(self):
        super().__init__()
        self.profiler = Profiler(start_profile=False, output_path="result", data_process=True)
        self.ended = 0
    def on_train_step_begin(self, run_context):
        step = run_context.original_args().cur_step_num
        if 4 < step < 16:
            waited.append(time.perf_counter_ns() - self.ended)
        if step == 4:
            self.profiler.start()
        time.sleep(work_s)
    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 15:
            self.profiler.stop()
        self.ended = time.perf_counter_ns()

trained = model()
trained.train(1, pipeline(3), dataset_sink_mode=False)
if batch_s:
    # while the profiler starts, on a busy machine, a slow pipeline would make all batches in advance
    ds.config.set_prefetch_size(1)
window = Window()
trained.train(1, pipeline(18, delay_s=batch_s), callbacks=[window], dataset_sink_mode=False)
window.profiler.analyse()
print(json.dumps(waited))
"""

pytestmark = [pytest.mark.slow, pytest.mark.real_clock]


def trained(folder: Path, batch_s: float) -> tuple[list[int], Advice]:
    """How long the program waited for each batch by its own clock (ns), and what is advised."""
    done = run_program(folder, NETWORK + TRAIN, str(batch_s), str(WORK_S))
    return json.loads(done.stdout.splitlines()[-1]), advise(steplens.open(folder / "result"))


def test_a_slow_generator_is_named_and_priced(tmp_path: Path) -> None:
    """What the same run would not have waited, had it got its batches as the healthy one usually gets them."""
    for attempt in range(ATTEMPTS):
        slow_ns, slow = trained(tmp_path / f"slow{attempt}", SLOW_BATCH_S)
        if statistics.median(slow_ns) > SLOW_BATCH_S / 2 * 1e9:
            break
    else:
        pytest.skip(f"the machine is too busy: batches made every {SLOW_BATCH_S} s wait for the training")
    found = {finding.rule: finding for finding in slow.findings}
    assert {"iteration_interval", "slow_generator", "data_processing"} <= set(found)
    assert {found[name].level for name in ("iteration_interval", "slow_generator", "data_processing")} == {"high"}
    for attempt in range(ATTEMPTS):
        healthy_ns, healthy = trained(tmp_path / f"healthy{attempt}", 0)
        gained = statistics.mean(slow_ns) - statistics.median(healthy_ns)
        saving = found["iteration_interval"].saving
        assert saving is not None and saving.likely_ns == pytest.approx(gained, rel=0.3)
        blamed = [finding.id for finding in healthy.findings if finding.level != "low" and finding.rule in PIPELINE]
        if not blamed and "data_pipeline_healthy" in {finding.rule for finding in healthy.findings}:
            return
        # a busy machine holds up any pipeline: then the loop has waited for it
        assert max(healthy_ns) > HELD_UP_NS, blamed
    pytest.skip(f"the machine is too busy: without a delay the loop still waited {healthy_ns} ns")
