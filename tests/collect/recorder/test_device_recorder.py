"""Windows whose host half the recorder fills, and whose other half Kineto: programs as users write them, without a GPU.

Kineto records ranges of the user and memory then, and no device tasks; how a GPU's tasks join the operators is tested on captures
in ``tests/readers/test_recorder_device.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import steplens

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to build the recorder with")

#: a session for a GPU takes the place of that of the host alone
PROGRAM = """
import os, signal, sys, threading, torch, steplens
from steplens.collect.pytorch import kineto_profile
from steplens.collect.pytorch.device_recorder_session import DeviceRecorderSession
if sys.argv[2] == "halves": kineto_profile.RecorderSession = DeviceRecorderSession
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 14 * 14, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def train():
    with torch.profiler.record_function("forward"): loss = net(torch.randn(4, 3, 16, 16)).sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
out = sys.argv[1]
handler = steplens.tensorboard_trace_handler(out, analyse_flag=False)
options = dict(record_shapes=True, profile_memory=True, with_flops=True)
schedule = steplens.schedule(wait=1, warmup=1, active=3, repeat=2)
def profiled(**more): return steplens.profile(schedule=schedule, on_trace_ready=handler, **{**options, **more})
"""
TRAIN = """
with profiled() as prof:
    for _ in range(12): train(); prof.step()
"""


def run_program(text: str, out: Path, *, halves: bool = True, exit_code: int = 0) -> str:
    """What a program writes to stdout and stderr."""
    mode = "halves" if halves else "kineto"
    command = [sys.executable, "-c", PROGRAM + text, str(out), mode]
    variables = {**os.environ, "STEPLENS_RECORDER": "on" if halves else "off"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=variables)
    assert done.returncode == exit_code, done.stderr[-2000:]
    return done.stdout + done.stderr


def device_events(run: Path) -> list[dict[str, Any]]:
    """The events of Kineto's half that are no metadata."""
    events: list[dict[str, Any]] = json.loads((run / "KINETO" / "device.json").read_text())["traceEvents"]
    return [event for event in events if event.get("cat") not in (None, "Trace")]


def counts(run: Path) -> dict[str, Any]:
    """What a window holds: operator calls by name, and how much was allocated."""
    trace = steplens.open(run).trace()
    operators = dict(trace.required("ops").collect()["name"].cast(str).value_counts().sort("name").rows())
    memory = trace.required("memory").collect()
    return {"operators": operators, "allocated": int(memory["bytes"].filter(memory["bytes"] > 0).sum())}


def test_both_halves_hold_what_kineto_alone_does(tmp_path: Path) -> None:
    ending = "print(sorted((e.key, e.count) for e in prof.key_averages() if e.key.startswith('aten::')))"
    ours, theirs = (run_program(TRAIN + ending, tmp_path / str(halves), halves=halves) for halves in (True, False))
    assert ours.splitlines()[0] == theirs.splitlines()[0] and "aten::mkldnn_convolution" in ours
    runs = [sorted((tmp_path / str(halves)).iterdir()) for halves in (True, False)]
    assert len(runs[0]) == len(runs[1]) == 2
    for halved, whole in zip(*runs, strict=True):
        assert counts(halved) == counts(whole)
        kinds = {event["cat"] for event in device_events(halved)}
        # Kineto has no operator calls to record, which is what it costs
        assert kinds == {"user_annotation", "cpu_instant_event"}
        steps = [steplens.open(run).steps()["step"].to_list() for run in (halved, whole)]
        assert steps[0] == steps[1]
    assert "Traceback" not in ours


def test_a_killed_process_leaves_the_host_half(tmp_path: Path) -> None:
    text = """
with steplens.profile(on_trace_ready=handler) as prof:
    for step in range(200): train(); prof.step()
    import time; time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    run_program(text, tmp_path, exit_code=-signal.SIGKILL)
    (run,) = tmp_path.iterdir()
    trace = steplens.open(run).trace()
    operators = dict(steplens.open(run).operators().select("name", "calls").rows())
    assert operators["aten::mkldnn_convolution"] >= 150
    assert "unended_recording" in trace.required("health").collect()["check"].to_list()


def test_another_profiler_ends_a_window_and_the_next_one_records(tmp_path: Path) -> None:
    text = """
with profiled() as prof:
    for step in range(12):
        train()
        if step == 3:
            with torch.profiler.profile() as other: train()
        prof.step()
print(sum(event.name.startswith("aten::") for event in other.events()) > 10)
"""
    said = run_program(text, tmp_path)
    assert said.startswith("True") and "Another profiler of the program begins" in said and "Traceback" not in said
    first, second = sorted(tmp_path.iterdir())
    assert len(steplens.open(second).steps()) == 3 and counts(first)["operators"]


def test_windows_without_a_recording_leave_nothing_behind(tmp_path: Path) -> None:
    text = """
from steplens.collect.recorder import recorder_library
prof = profiled()
prof.start()
train(); prof.step()
prof.stop()
assert not recorder_library.is_recorder_recording()
# warm-up had begun, and nothing was recorded: the next profiler can
with steplens.profile(on_trace_ready=handler): train()
# a failure of Kineto's beginning ends the recorder's half as well
from steplens.collect.torch_internals import device_profile
def fail(kineto): raise RuntimeError("no device today")
begin, device_profile.begin_device_profile = device_profile.begin_device_profile, fail
with steplens.profile(on_trace_ready=handler): train()
assert not recorder_library.is_recorder_recording()
device_profile.begin_device_profile = begin
with steplens.profile(on_trace_ready=handler): train()
"""
    said = run_program(text, tmp_path)
    assert "no device today" in said and "Traceback" not in said
    whole = [run for run in tmp_path.iterdir() if (run / "KINETO" / "device.json").is_file()]
    assert len(whole) == 2
    assert all(counts(run)["operators"] for run in whole)


def test_threads_that_ask_and_toggles(tmp_path: Path) -> None:
    text = """
asked, go = threading.Event(), threading.Event()
def work():
    steplens.profile.enable_profiler_in_child_thread()
    asked.set(); go.wait()
    for _ in range(5): train()
thread = threading.Thread(target=work); thread.start(); asked.wait()
with steplens.profile(on_trace_ready=handler) as prof:
    go.set(); thread.join(); train()
    prof.toggle_collection_dynamic(False, [torch.profiler.ProfilerActivity.CPU])
    train()
    prof.toggle_collection_dynamic(True, [torch.profiler.ProfilerActivity.CPU])
"""
    said = run_program(text, tmp_path)
    assert "Traceback" not in said
    (run,) = tmp_path.iterdir()
    ops = steplens.open(run).trace().required("ops").collect()
    convolutions = ops.filter(ops["name"].cast(str) == "aten::convolution")
    # five of the thread, and that before the program turned it off
    assert convolutions["tid"].value_counts()["count"].sort().to_list() == [1, 5]
