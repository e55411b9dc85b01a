"""The black box: what makes it write, what it writes, and what stays quiet."""

import gc
import json
import math
import os
import random
import signal
import time

import pytest

from steplens import BlackBox
from steplens.collect.black_box.step_history import StepHistory

torch = pytest.importorskip("torch")


def box(folder, **options):
    return BlackBox(folder, analyse_flag=False, **options)


def work():
    torch.ones(2)


class Clock:
    """Time passes only when it is told to, so that no disturbance of the machine makes a step slow."""

    def __init__(self):
        self.now_ns = 0

    def take(self, milliseconds):
        work()
        self.now_ns += milliseconds * 1_000_000


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr("steplens.collect.common.clock.monotonic_ns", lambda: found.now_ns)
    return found


def event(folder):
    return json.loads((folder / "black_box.json").read_text())


def steps_in(look, folder):
    """The steps in the run directories of an event."""
    found = []
    for name in event(folder)["run_directories"]:
        assert look.state(folder / name)["state"] == "collected"
        found += [int(text.split("#")[1]) for text in look.names(folder / name) if text.startswith("ProfilerStep#")]
    return found


# --- slow steps


@pytest.mark.parametrize("slow", [20, 21, 22, 23, 24, 25])
def test_a_step_of_four_times_its_neighbours_is_written_with_those_before_it(look, tmp_path, clock, slow, each_recorder):
    # keep_steps=4: wherever in a window the step falls
    with box(tmp_path, keep_steps=4) as recorder:
        for step in range(30):
            clock.take(80 if step == slow else 20)
            recorder.step()
    (folder,) = recorder.captures
    found = event(folder)
    assert found["event"] == "slow_step"
    assert found["step"] == slow
    assert found["message"] == f"step {slow} took 80 ms, 4 times the usual 20 ms"
    steps = steps_in(look, folder)
    assert steps == list(range(steps[0], slow + 1))
    # the event and at least the four before; a window of the recorder is no shorter than half a second, 25 of these steps
    assert 5 <= len(steps) <= (8 if each_recorder == "off" else slow + 1)
    last = found["steps"][-1]
    assert last["step"] == slow
    assert last["duration_ns"] == 80_000_000
    assert [row["step"] for row in found["steps"]] == list(range(slow + 1))
    # a folder of its own, private
    assert folder.parent == tmp_path
    assert folder.name.endswith(f"step{slow}_slow_step")
    assert folder.stat().st_mode & 0o777 == 0o750


def test_the_event_opens_as_one_run(tmp_path):
    import steplens

    before, after = [], [time.monotonic_ns()]
    with box(tmp_path, keep_steps=3, on_slow_step=False) as recorder:
        after.append(time.monotonic_ns())
        for step in range(20):
            work()
            time.sleep(0.02)
            if step == 18:
                os.kill(os.getpid(), signal.SIGUSR2)
            before.append(time.monotonic_ns())
            recorder.step()
            after.append(time.monotonic_ns())
    before.insert(0, after.pop(0))
    (folder,) = recorder.captures
    table = steplens.open(str(folder)).steps().sort("step")
    steps = table["step"].to_list()
    assert steps[-3:] == [16, 17, 18]
    durations = dict(zip(steps, table["duration_ns"].to_list(), strict=True))
    rows = {row["step"]: row["duration_ns"] for row in event(folder)["steps"]}
    for step in steps:
        # What the loop measured lies within what the black box did, that within Kineto's range of the step, and this within the
        # calls around the step: on a busy machine too. 1 % is for Kineto's clock, which counts ticks of the processor.
        assert before[step + 1] - after[step] <= rows[step] <= durations[step] * 1.01
        assert durations[step] <= (after[step + 1] - before[step]) * 1.01


JITTER = {
    "constant": lambda dice, step: 1e7,
    "log-normal, 5 %": lambda dice, step: 1e7 * dice.lognormvariate(0, 0.05),
    "log-normal, 30 %": lambda dice, step: 1e7 * dice.lognormvariate(0, 0.3),
    "exponential tail": lambda dice, step: 1e7 + dice.expovariate(1 / 2e6),
    "one in fifty up to 2.5 times": lambda dice, step: (
        1e7 * dice.gauss(1, 0.05) * (dice.uniform(1, 2.5) if dice.random() < 0.02 else 1)
    ),
    "becomes three times as slow": lambda dice, step: 1e7 * (1 + step / 5000) * dice.gauss(1, 0.05),
    "two lengths of sequences": lambda dice, step: 1e7 * dice.choice([1, 1, 1, 2.5]) * dice.gauss(1, 0.05),
    "anything up to four times": lambda dice, step: 1e7 * dice.uniform(1, 4),
    "a slow first step": lambda dice, step: 5e9 if step == 0 else 1e7 * dice.gauss(1, 0.05),
}


@pytest.mark.parametrize("name", JITTER)
@pytest.mark.parametrize("seed", range(5))
def test_ten_thousand_normal_steps_are_no_event(name, seed):
    dice, history = random.Random(seed), StepHistory()
    assert [step for step in range(10_000) if history.add(int(JITTER[name](dice, step)))] == []


# more seeds of the same
@pytest.mark.parametrize("seeds", [range(50), pytest.param(range(50, 1000), marks=pytest.mark.long)])
@pytest.mark.parametrize("spread", [0, 0.05, 0.1, 0.15])
def test_four_times_the_neighbours_is_an_event(spread, seeds):
    for seed in seeds:
        dice, history = random.Random(seed), StepHistory()
        for _ in range(dice.randint(12, 2000)):
            history.add(int(1e7 * dice.lognormvariate(0, spread)))
        neighbours = math.exp(dice.gauss(0, spread / 3))
        assert history.add(int(4e7 * max(neighbours, 1))), seed


def test_a_habit_is_no_event():
    history = StepHistory()
    slow = [step for step in range(5000) if history.add(80_000_000 if step % 100 == 99 else 10_000_000)]
    assert slow == [99, 199, 299]


def test_after_a_capture_the_next_slow_step_is_written_too(tmp_path, clock):
    with box(tmp_path, keep_steps=2, record_operators=False) as recorder:
        for step in range(40):
            clock.take(80 if step in (20, 35) else 10)
            recorder.step()
    assert [event(folder)["step"] for folder in recorder.captures] == [20, 35]


def test_no_more_than_so_many(tmp_path, capfd):
    with box(tmp_path, keep_steps=2, max_captures=1) as recorder:
        for _ in range(6):
            work()
            os.kill(os.getpid(), signal.SIGUSR2)
            recorder.step()
    assert len(recorder.captures) == 1
    said = capfd.readouterr().err
    assert said.count("Black box: the process got SIGUSR2") == 1
    assert said.count("Black box: max_captures=1 are written, nothing else will be.") == 1


# --- other events


def test_an_exception_is_written_and_goes_on(look, tmp_path):
    recorder = box(tmp_path, keep_steps=3)

    def train():
        with recorder:
            for step in range(10):
                work()
                if step == 7:
                    raise RuntimeError("out of luck")
                recorder.step()

    with pytest.raises(RuntimeError, match="out of luck"):
        train()
    (folder,) = recorder.captures
    assert event(folder)["message"] == "step 7 ended with RuntimeError: out of luck"
    assert steps_in(look, folder)[-3:] == [5, 6, 7]


def test_an_exception_that_ends_the_program(look, tmp_path):
    code = """
import torch, steplens
box = steplens.BlackBox("box", keep_steps=3, analyse_flag=False)
box.start()
for step in range(9):
    torch.ones(2)
    if step == 6: raise ValueError("mine")
    box.step()
"""
    done = look.warm_python(code, cwd=tmp_path)
    assert done.returncode == 1
    assert "ValueError: mine" in done.stderr
    (folder,) = (tmp_path / "box").iterdir()
    assert steps_in(look, folder)[-3:] == [4, 5, 6]


def test_system_exit_is_no_event(tmp_path):
    with pytest.raises(SystemExit), box(tmp_path) as recorder:
        raise SystemExit(0)
    assert recorder.captures == []


def test_a_signal_is_written_at_the_end_of_the_step_and_passed_on(look, tmp_path):
    got = []
    before = signal.signal(signal.SIGUSR2, lambda *_: got.append(1))
    try:
        with box(tmp_path, keep_steps=3) as recorder:
            for step in range(8):
                work()
                if step == 5:
                    os.kill(os.getpid(), signal.SIGUSR2)
                recorder.step()
        assert got == [1]
        os.kill(os.getpid(), signal.SIGUSR2)
        assert got == [1, 1]
    finally:
        signal.signal(signal.SIGUSR2, before)
    (folder,) = recorder.captures
    assert event(folder)["event"] == "signal" and event(folder)["message"] == "the process got SIGUSR2"
    assert steps_in(look, folder)[-3:] == [3, 4, 5]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("loss", [float("nan"), float("inf"), torch.tensor(float("nan"), requires_grad=True)])
def test_a_loss_that_is_not_finite(look, tmp_path, loss):
    with box(tmp_path, keep_steps=3, on_nan_loss=True) as recorder:
        for step in range(8):
            work()
            recorder.step(loss=loss if step == 5 else torch.tensor(1.0))
    (folder,) = recorder.captures
    assert event(folder)["event"] == "nan_loss"
    assert event(folder)["message"].startswith("the loss of step 5 is ")
    assert steps_in(look, folder)[-3:] == [3, 4, 5]


def test_the_loss_is_not_looked_at_unless_asked(tmp_path):
    class Loss:
        def __float__(self):
            raise AssertionError

    with box(tmp_path, on_signal=None) as recorder:
        for _ in range(3):
            recorder.step(loss=Loss())
    assert recorder.captures == []


def test_asked_for_by_the_program(look, tmp_path):
    with box(tmp_path, keep_steps=2) as recorder:
        for step in range(6):
            work()
            if step == 4:
                recorder.capture("let me see")
                torch.zeros(3)
            recorder.step()
        recorder.capture()
    first, second = recorder.captures
    assert event(first)["message"] == "let me see"
    assert event(second)["message"] == "asked for by the program"
    assert steps_in(look, first)[-3:] == [2, 3, 4]
    # the rest of step 4 is in the next
    assert steps_in(look, second)[:2] == [4, 5]


# --- what is kept of steps


def test_numbers_of_a_step(tmp_path):
    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            time.sleep(0.06 if index == 8 else 0.005)
            return index

    gc.disable()
    try:
        with box(tmp_path, record_operators=False) as recorder:
            for step, _ in enumerate(torch.utils.data.DataLoader(Slow(), batch_size=None)):
                if step == 5:
                    gc.collect()
                    gc.collect()
                recorder.step()
            recorder.capture()
    finally:
        gc.enable()
    rows = event(recorder.captures[-1])["steps"]
    assert [row["step"] for row in rows][:12] == list(range(12))
    waits = [row["data_wait_ns"] for row in rows[:12]]
    assert waits[8] >= 60e6
    assert all(wait >= 5e6 for wait in waits)
    # the waits are part of the steps, and nearly all of these
    for row in rows[:12]:
        assert row["data_wait_ns"] <= row["duration_ns"]
    assert [row["gc_count"] for row in rows[:12]] == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]
    assert rows[5]["gc_ns"] > 0
    assert all(row["resident_bytes"] > 10 << 20 for row in rows)
    assert all(row["cpu_ns"] >= 0 for row in rows)
    starts = [row["start_ns"] for row in rows]
    assert starts == sorted(starts)
    # nothing is left behind
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__.__module__ == "torch.utils.data.dataloader"
    assert not hasattr(torch.utils.data.dataloader._BaseDataLoaderIter.__next__, "__wrapped__")


def test_a_slow_step_says_what_it_waited_for(tmp_path, clock):
    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, index):
            clock.take(150 if index == 14 else 10)
            return index

    with box(tmp_path, record_operators=False) as recorder:
        for _ in torch.utils.data.DataLoader(Slow(), batch_size=None):
            clock.take(5)
            recorder.step()
    (folder,) = recorder.captures
    assert event(folder)["message"] == "step 14 took 155 ms, 10.3 times the usual 15 ms, 150 ms waiting for data"


def test_only_the_last_thousand_steps_are_kept(tmp_path):
    with box(tmp_path, record_operators=False, on_slow_step=False) as recorder:
        for _ in range(1500):
            recorder.step()
        recorder.capture()
    rows = event(recorder.captures[0])["steps"]
    assert [row["step"] for row in rows] == list(range(1500 - 1023, 1501))


# --- not in the way


def test_forked_workers_have_no_black_box(tmp_path):
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            running.step()
            return int(running._running)

    with box(tmp_path, keep_steps=2) as running:
        loader = torch.utils.data.DataLoader(Data(), batch_size=1, num_workers=2, multiprocessing_context="fork")
        assert [int(batch) for batch in loader] == [0] * 6
        running.step()
        running.capture()
    assert [row["step"] for row in event(running.captures[0])["steps"]] == [0, 1]


def test_another_profiler_keeps_kineto(look, tmp_path, capfd, with_kineto):
    with torch.profiler.profile() as other, box(tmp_path) as recorder:
        for _ in range(3):
            work()
            recorder.step()
        recorder.capture()
    assert "goes on with the times of steps alone" in capfd.readouterr().err
    assert event(recorder.captures[0])["run_directories"] == []
    assert any(item.key == "aten::ones" for item in other.key_averages())


def test_a_folder_that_cannot_be_written(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    with box(tmp_path / "file", on_signal=None) as recorder:
        for _ in range(3):
            recorder.step()
        recorder.capture()
        recorder.step()
    assert recorder.captures == []
    err = capfd.readouterr().err
    assert err.count("[ERROR]") == 1
    assert "Traceback" not in err


def test_wrong_values_are_reset(capfd):
    BlackBox(5, keep_steps=0, on_signal="USR2", max_captures=True, record_operators=1)
    err = capfd.readouterr().err
    for name in ("directory", "keep_steps", "on_signal", "max_captures", "record_operators"):
        assert f"Parameter {name} " in err


def test_disabled_and_stopped(tmp_path):
    recorder = box(tmp_path)
    recorder.step()
    recorder.capture()
    recorder.stop()
    recorder.start()
    recorder.step()
    recorder.stop()
    recorder.stop()
    assert list(tmp_path.iterdir()) == []


def test_quiet_steps_leave_nothing(tmp_path, each_recorder):
    with box(tmp_path, keep_steps=3, on_slow_step=False) as recorder:
        for _ in range(50):
            work()
            recorder.step()
        # what the recorder keeps is on the disk, for when the process is killed
        kept = [path.name.endswith("_last_steps") for path in tmp_path.iterdir()]
        assert kept == ([] if each_recorder == "off" else [True])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_analysis_runs_beside(tmp_path, look):
    code = """
import torch, steplens
with steplens.BlackBox("box", keep_steps=2) as box:
    for step in range(5):
        torch.ones(2)
        box.step()
    box.capture()
"""
    done = look.warm_python(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "box").iterdir()
    runs = look.runs(folder)
    # these steps are shorter than a window of the recorder
    assert len(runs) == 1
    assert all((run / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists() for run in runs)
