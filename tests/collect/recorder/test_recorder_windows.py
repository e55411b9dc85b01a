"""Windows and black boxes that the recorder fills: programs as users write them, and what they find afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.readers.recorder.recorder_file import read_recording

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to build the recorder with")

PROGRAM = """
import os, signal, sys, torch, steplens
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 14 * 14, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def train():
    loss = net(torch.randn(4, 3, 16, 16)).sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
out = sys.argv[1]
"""
PROFILE = """
handler = steplens.tensorboard_trace_handler(out, analyse_flag=False)
options = dict(record_shapes=True, profile_memory=True, with_flops=True)
schedule = steplens.schedule(wait=1, warmup=1, active=3, repeat=2)
with steplens.profile(schedule=schedule, on_trace_ready=handler, **options) as prof:
    for _ in range(12):
        train(); prof.step()
"""


def run_program(text: str, out: Path, *, recorder: str = "on", exit_code: int = 0, **environment: str) -> str:
    """What a program writes to stdout and stderr."""
    command = [sys.executable, "-c", PROGRAM + text, str(out)]
    variables = {**os.environ, "STEPLENS_RECORDER": recorder, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=variables)
    assert done.returncode == exit_code, done.stderr[-2000:]
    return done.stdout + done.stderr


def raw_names(out: Path) -> list[set[str]]:
    """What recorded each run directory."""
    return [{path.name for path in folder.iterdir()} & {"operators.rec", "trace.json"} for folder in sorted(out.glob("*/KINETO"))]


def test_windows_hold_what_kineto_would(tmp_path: Path) -> None:
    ending = "print(sorted((e.key, e.count) for e in prof.key_averages() if e.key.startswith('aten::')))"
    ours = run_program(PROFILE + ending, tmp_path / "ours")
    theirs = run_program(PROFILE + ending, tmp_path / "theirs", recorder="off")
    assert raw_names(tmp_path / "ours") == [{"operators.rec"}] * 2
    assert raw_names(tmp_path / "theirs") == [{"trace.json"}] * 2
    assert ours.splitlines()[0] == theirs.splitlines()[0] and "aten::mkldnn_convolution" in ours
    runs = [steplens.open(tmp_path / name) for name in ("ours", "theirs")]
    assert [sorted(run.steps()["step"]) for run in runs] == [[2, 3, 4, 7, 8, 9]] * 2
    columns = ["name", "calls"]
    tables = [run.operators().select(columns).sort(columns) for run in runs]
    assert tables[0].equals(tables[1])


STACKS = PROFILE.replace("profile_memory=True", "with_stack=True")


def test_windows_hold_the_calls_of_python_that_kineto_would(tmp_path: Path) -> None:
    ending = """
prof.export_stacks(out + "/stacks.log")
averages = prof.key_averages(group_by_stack_n=20)
print(sorted((e.key, e.count, " ".join(e.stack)) for e in averages if e.key.startswith("aten::")))
print(sys.getprofile())
"""
    ours = run_program(STACKS + ending, tmp_path / "ours")
    theirs = run_program(STACKS + ending, tmp_path / "theirs", recorder="off")
    assert raw_names(tmp_path / "ours") == [{"operators.rec"}] * 2
    assert raw_names(tmp_path / "theirs") == [{"trace.json"}] * 2
    assert without_addresses(ours.splitlines()[0]) == without_addresses(theirs.splitlines()[0])
    assert ours.splitlines()[1] == "None"
    exported = [
        {without_addresses(line.rpartition(" ")[0]) for line in (tmp_path / name / "stacks.log").read_text().splitlines()}
        for name in ("ours", "theirs")
    ]
    assert exported[0] == exported[1] and any("nn.Module: Linear_0" in stack for stack in exported[0])


def without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def test_threads_that_asked_are_recorded_and_ask_again(tmp_path: Path) -> None:
    text = """
import queue, threading
tasks, done = queue.Queue(), queue.Queue()
def in_a_thread():
    steplens.profile.enable_profiler_in_child_thread(with_stack=True)
    while tasks.get(): train(); done.put(1)
    steplens.profile.disable_profiler_in_child_thread()
thread = threading.Thread(target=in_a_thread, daemon=True); thread.start()
handler = steplens.tensorboard_trace_handler(out, analyse_flag=False)
with steplens.profile(schedule=steplens.schedule(wait=1, warmup=1, active=2), on_trace_ready=handler, with_stack=True) as prof:
    for _ in range(4):
        train(); tasks.put(1); done.get(timeout=20); prof.step()
tasks.put(0); thread.join()
"""
    said = run_program(text, tmp_path)
    assert "warning" not in said.lower() and raw_names(tmp_path) == [{"operators.rec"}]
    trace = read_recording(next(tmp_path.glob("*/KINETO/operators.rec")))
    python = trace.table("python")
    assert python is not None
    trains = python.filter(pl.col("name").cast(pl.String).str.ends_with(": train"))
    assert sorted(trains.group_by("tid").len()["len"].to_list()) == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("program", [PROFILE, STACKS], ids=["memory", "stacks"])
def test_every_analysis_answers_alike(program: str, tmp_path: Path) -> None:
    from steplens.analysis.catalogue import ANALYSES

    program = program.replace("repeat=2", "repeat=1")
    for recorder in ("on", "off"):
        run_program(program, tmp_path / recorder, recorder=recorder)
    runs = [steplens.open(tmp_path / recorder) for recorder in ("on", "off")]
    for analysis in ANALYSES:
        # what is doubtful about a recording may differ
        if analysis.name != "health":
            ours, theirs = (run.table(analysis.name) for run in runs)
            assert (analysis.name, ours.schema, ours.height) == (analysis.name, theirs.schema, theirs.height)


def test_another_profiler_of_the_program_takes_nothing_away(tmp_path: Path) -> None:
    text = PROFILE.replace("train(); prof.step()", "torch.profiler.profile(); train_profiled(); prof.step()")
    inside = """
from torch.profiler import profile, ProfilerActivity
def train_profiled():
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True): train()
"""
    said = run_program(inside + text, tmp_path)
    assert "Another profiler" not in said and raw_names(tmp_path) == [{"operators.rec"}] * 2
    assert sorted(steplens.open(tmp_path).steps()["step"]) == [2, 3, 4, 7, 8, 9]


def test_categories_of_memory_are_kinetos_unless_the_recorder_is_asked_for(tmp_path: Path) -> None:
    text = PROFILE.replace("with_flops=True", "with_stack=True") + "prof.export_memory_timeline(out + '/memory.html')\n"
    said = run_program(text, tmp_path / "auto", recorder="auto")
    assert "in place of the recorder" not in said and "categories of memory are unknown" not in said
    assert raw_names(tmp_path / "auto") == [{"trace.json"}] * 2
    said = run_program(text, tmp_path / "on")
    assert "the categories of memory are unknown, because the recorder recorded the window" in said
    assert raw_names(tmp_path / "on") == [{"operators.rec"}] * 2
    pages = {name: (tmp_path / name / "memory.html").read_text().lower() for name in ("auto", "on")}
    assert "categories of memory are unknown" in pages["on"] and "categories of memory are unknown" not in pages["auto"]


def test_without_native_libraries_kineto_records(tmp_path: Path) -> None:
    said = run_program(PROFILE, tmp_path / "off", STEPLENS_NATIVE="off")
    assert "Kineto records in place of the recorder" in said and "STEPLENS_NATIVE=off forbids native libraries" in said
    assert raw_names(tmp_path / "off") == [{"trace.json"}] * 2


def test_a_killed_window_says_what_it_was_in(tmp_path: Path) -> None:
    text = """
import time
with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(out), record_shapes=True) as prof:
    for _ in range(10): train(); prof.step()
    with torch.autograd.profiler.record_function("the last thing"):
        time.sleep(0.15)
        os.kill(os.getpid(), signal.SIGKILL)
"""
    run_program(text, tmp_path, exit_code=-9)
    run = steplens.open(tmp_path)
    operators = dict(run.operators().select("name", "calls").rows())
    assert operators["aten::mkldnn_convolution"] == 10
    messages = " ".join(run.health()["message"])
    assert "the last thing" in messages and "has no end" in messages


def test_a_black_box_leaves_nothing_when_it_ends_and_its_steps_when_it_is_killed(tmp_path: Path) -> None:
    text = """
with steplens.BlackBox(out, record_shapes=True, profile_memory=True, on_slow_step=False, keep_steps=4) as box:
    for number in range(60):
        train(); box.step()
        if number == 40 and CAPTURES: box.capture("why not")
    if KILLS:
        import time; time.sleep(0.15)
        os.kill(os.getpid(), signal.SIGKILL)
"""
    run_program("CAPTURES, KILLS = False, False\n" + text, tmp_path / "quiet")
    assert not list((tmp_path / "quiet").iterdir())
    run_program("CAPTURES, KILLS = True, False\n" + text, tmp_path / "captured")
    (event,) = (tmp_path / "captured").iterdir()
    said = json.loads((event / "black_box.json").read_text())
    assert said["message"] == "why not" and said["run_directories"]
    assert {40, 39, 38, 37} <= set(steplens.open(event).steps()["step"])
    run_program("CAPTURES, KILLS = False, True\n" + text, tmp_path / "killed", exit_code=-9)
    (left,) = (tmp_path / "killed").iterdir()
    assert left.name.endswith("_last_steps")
    # the last one is open still: it has no work, and no end
    assert {56, 57, 58, 59} <= set(steplens.open(left).steps()["step"])
