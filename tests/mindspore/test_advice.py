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

#: seconds that a slow batch takes to make, and that the rest of a step takes
SLOW_BATCH_S, WORK_S = 0.2, 0.02

#: the rules about data pipelines
PIPELINE = {rule.name for rule in built_in_rules() if rule.judge.__module__.startswith("steplens.advice.rules.pipeline")}
#: steps 4 to 15 of 18; prints what lay between each two of them, by the loop's own clock. Whether the loop waits for its batches
#: is no matter of luck, however busy the machine is: a slow batch is begun when the step before it has ended, and a training
#: whose batches take no time begins when all of them have been made
TRAIN = """
import threading
from steplens.mindspore import Profiler
mode("pynative")
batch_s, work_s = map(float, sys.argv[1:3])
asked = threading.Semaphore(1)
waited, had = [], []

class Samples:
    def __len__(self):
        return 36
    def __getitem__(self, number):
        if batch_s and number % 2 == 0:
            asked.acquire()
        time.sleep(batch_s / 2)
        had.append(number)
        return np.full([8], number, np.float32), np.array(number % 2, np.int32)

class Window(ms.Callback):
    def __init__(self):
        super().__init__()
        self.profiler = Profiler(start_profile=False, output_path="result", data_process=True)
        self.ended = 0
    def on_train_step_begin(self, run_context):
        step = run_context.original_args().cur_step_num
        if 4 < step < 16:
            waited.append(time.perf_counter_ns() - self.ended)
        if step == 1 and not batch_s:
            until = time.monotonic() + 120
            while len(had) < 36 and time.monotonic() < until:
                time.sleep(0.01)
        if step == 4:
            self.profiler.start()
        time.sleep(work_s)
    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 15:
            self.profiler.stop()
        self.ended = time.perf_counter_ns()
        asked.release()

trained = model()
trained.train(1, pipeline(3), dataset_sink_mode=False)
data = ds.GeneratorDataset(Samples(), ["data", "label"], shuffle=False, num_parallel_workers=1).batch(2)
window = Window()
trained.train(1, data, callbacks=[window], dataset_sink_mode=False)
window.profiler.analyse()
print(json.dumps(waited))
"""

pytestmark = pytest.mark.slow


def trained(folder: Path, batch_s: float) -> tuple[list[int], Advice]:
    """How long the program waited for each batch by its own clock (ns), and what is advised."""
    done = run_program(folder, NETWORK + TRAIN, str(batch_s), str(WORK_S))
    return json.loads(done.stdout.splitlines()[-1]), advise(steplens.open(folder / "result"))


def test_a_slow_generator_is_named_and_priced(tmp_path: Path) -> None:
    """What the same run would not have waited, had it got its batches as the healthy one usually gets them."""
    slow_ns, slow = trained(tmp_path / "slow", SLOW_BATCH_S)
    assert min(slow_ns) > SLOW_BATCH_S * 1e9
    found = {finding.rule: finding for finding in slow.findings}
    # the finding that names the operation has the price, and those that only say that the loop waits are explained by it
    assert "slow_generator" in found and not {"iteration_interval", "data_processing"} & set(found)
    assert found["slow_generator"].level == "high"
    healthy_ns, healthy = trained(tmp_path / "healthy", 0)
    saving = found["slow_generator"].saving
    assert saving is not None
    # on a busy machine a single step may be much longer than the others, which moves their mean
    usual = [statistics.mean(slow_ns), statistics.median(slow_ns)]
    waits = [length - statistics.median(healthy_ns) for length in usual]
    assert 0.7 * min(waits) <= saving.likely_ns <= 1.3 * max(waits)
    told = {finding.rule: finding for finding in healthy.findings}
    assert "data_pipeline_healthy" in told
    blamed = {rule for rule, finding in told.items() if finding.level != "low" and rule in PIPELINE}
    # a batch that is there takes long to get where the machine is busy: then that, and no more than the loop waited
    assert blamed <= {"iteration_interval"}
    for rule in blamed:
        promised = told[rule].saving
        assert promised is not None and promised.likely_ns <= statistics.mean(healthy_ns)
