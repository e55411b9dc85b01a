"""Many windows in one process, and processes that are killed at any moment."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from .. import light_optimizer

pytestmark = pytest.mark.slow

pytest.importorskip("torch")

MEMORY = """
import shutil, sys, torch, steplens
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

def black_box():
    return steplens.BlackBox("box", keep_steps=2, on_slow_step=False, analyse_flag=False), 2

def windows():
    handler = steplens.tensorboard_trace_handler("result", analyse_flag=False)
    schedule = steplens.schedule(wait=0, warmup=0, active=1)
    return steplens.profile(schedule=schedule, on_trace_ready=handler, max_seconds=100.0, max_bytes=10**9, max_overhead=10.0), 1

recorder, steps = globals()[sys.argv[1]]()
with recorder:
    for number in range(1001):
        for _ in range(steps):
            step()
            recorder.step()
        if number == 10:
            tenth = resident()
        if number % 50 == 0:
            shutil.rmtree("result", ignore_errors=True)
print(resident() - tenth)
"""

TRAINING = f"""
import sys, torch, steplens
{light_optimizer.SGD}
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = SGD(model.parameters(), lr=0.1)
handler = steplens.tensorboard_trace_handler("result", async_mode=True)
print("ready", flush=True)
with steplens.profile(schedule=steplens.schedule(wait=0, warmup=1, active=2), on_trace_ready=handler, show_plan=True) as prof:
    while True:
        optimizer.zero_grad()
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        prof.step()
"""

BOX = (
    TRAINING.split("handler")[0]
    + """
print("ready", flush=True)
with steplens.BlackBox("box", keep_steps=2, on_slow_step=False, analyse_flag=False) as box:
    while True:
        optimizer.zero_grad()
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        box.step()
"""
)


# a thousand windows of a whole profiler are long; the box takes the same way with less
@pytest.mark.parametrize("what", [pytest.param("windows", marks=pytest.mark.long), "black_box"])
def test_a_thousand_windows_take_no_memory(look, tmp_path, what):
    done = look.warm_python(MEMORY, what, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 5


def processes_of(folder):
    """Ids of processes that run in a folder, without this one."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                if os.path.realpath(f"/proc/{name}/cwd") == str(folder):
                    found.append(int(name))
            except OSError:
                continue
    return found


# one moment of many is enough for every change
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_kill_leaves_closed_windows_and_no_process(tmp_path, seed):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(random.Random(seed).uniform(0.3, 2.5))
    process.kill()
    process.wait()
    process.stdout.close()
    # an analysis ends with its training
    until = time.monotonic() + 120
    while processes_of(tmp_path) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_of(tmp_path) == []
    closed = []
    for run in sorted((tmp_path / "result").glob("*_ascend_pt")):
        path = run / "KINETO" / "state.json"
        # killed between creating the folder and saying so in it
        if path.is_file() and json.loads(path.read_text())["state"] == "collected":
            closed.append(run)
    for run in closed[:3]:
        command = [sys.executable, "-m", "steplens", "analyse", str(run)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (run / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists()


def test_a_killed_black_box_leaves_no_process_and_its_last_steps(tmp_path, each_recorder):
    process = subprocess.Popen([sys.executable, "-c", BOX], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    kept = [path.name.rpartition("_last_")[2] for path in tmp_path.glob("box/*")]
    assert kept == ([] if each_recorder == "off" else ["steps"])
    assert processes_of(tmp_path) == []


def test_an_analysis_that_was_killed_half_way_is_done_again(tmp_path, train):
    import steplens

    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(tmp_path, analyse_flag=False)) as prof:
        train(2)
    run = prof.run_directory
    # killed where the status would be written, when all result files are there
    code = f"""
import os, signal, steplens
from pathlib import Path
from steplens.common import rundir
write = rundir.write_json
def killed(path, *arguments, **options):
    if (Path(path).parent / "trace_view.json").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, *arguments, **options)
rundir.write_json = killed
steplens.analyse({str(run)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (run / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").exists()
    assert not (run / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists()
    again = subprocess.run([sys.executable, "-m", "steplens", "analyse", str(run)], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert (run / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists()
