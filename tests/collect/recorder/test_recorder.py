"""The recorder under what programs do to it: threads, forks, exceptions, other profilers, many starts, a full disk, a kill.

Each program is a process of its own, since there is one recorder in a process. What it records is looked at in
``test_recorder_truth.py``; here it is counted.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steplens.readers.recorder.recorder_file import read_recording

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to build the recorder with")

#: of every program: ``start``, ``finish`` and a training step of 104 calls and 28 allocator events
BEGINNING = """
import json, os, sys, threading, torch
from pathlib import Path
from steplens.collect.recorder import recorder_library as recorder
folder = Path(sys.argv[1])
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
def step():
    net(torch.randn(4, 8)).sum().backward()
step()
answers = {}
def start(name="window", options=7):
    path = folder / f"{name}.rec"
    path.unlink(missing_ok=True)
    recorder.start_recorder(path, options, {})
def finish():
    recorder.stop_recorder()
    totals = recorder.finish_recorder({})
    return [totals.calls, totals.memory_events, totals.dropped_calls, totals.dropped_memory_events, totals.error_number]
start(); step(); of_step = finish()
"""
ENDING = "\nprint(json.dumps({'of_step': of_step, **answers}))\n"


def run_program(tmp_path: Path, text: str, *, exit_code: int = 0) -> dict[str, Any]:
    """What a program leaves in ``answers``."""
    command = [sys.executable, "-c", BEGINNING + text + ENDING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == exit_code, done.stderr[-2000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if not exit_code else {}
    return answers


def test_a_step_is_counted_alike_each_time(tmp_path: Path) -> None:
    answers = run_program(
        tmp_path, "answers['counts'] = []\nfor _ in range(20): start(); step(); answers['counts'].append(finish())"
    )
    calls, memory_events, *rest = answers["of_step"]
    assert calls > 50 and memory_events > 10 and rest == [0, 0, 0]
    assert all(counts == answers["of_step"] for counts in answers["counts"])


@pytest.mark.slow
def test_ten_thousand_starts_beside_threads_that_compute(tmp_path: Path) -> None:
    text = """
halt, steps = False, [0]
def work():
    while not halt:
        step(); steps[0] += 1
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
calls = 0
for _ in range(10000):
    start(); calls += finish()[0]
halt = True
for thread in threads: thread.join()
answers.update(calls=calls, steps=steps[0])
start(); step(); answers['after'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["steps"] > 100 and answers["calls"] > 0
    assert answers["after"] == answers["of_step"]


def test_threads_that_end_in_the_window_are_complete(tmp_path: Path) -> None:
    text = """
start()
for _ in range(100):
    thread = threading.Thread(target=step); thread.start(); thread.join()
answers['counts'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["counts"] == [100 * count for count in answers["of_step"]]


def test_exceptions_inside_operators(tmp_path: Path) -> None:
    text = """
start()
for _ in range(50):
    try: torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    except RuntimeError: pass
answers['counts'] = finish()
start(); step(); answers['after'] = finish()
"""
    answers = run_program(tmp_path, text)
    # ones, with empty and fill_ inside, twice, and the product
    assert answers["counts"][0] == 50 * 7
    assert answers["after"] == answers["of_step"]


def test_profilers_of_the_program_begin_and_end_inside_and_around(tmp_path: Path) -> None:
    text = """
from torch.profiler import profile, ProfilerActivity
def other(): return profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True)
def names(found): return sum(event.name.startswith("aten::") for event in found.events())
with other() as alone: step()
start()
with other() as inside: step()
answers['inside'] = finish()
with other() as around:
    start(); step(); answers['around'] = finish()
late = other(); start(); late.start(); step(); answers['late'] = finish(); late.stop()
early = other(); early.start(); start(); step(); early.stop(); answers['early'] = finish()
answers['theirs'] = [names(found) for found in (alone, inside, around, late, early)]
"""
    answers = run_program(tmp_path, text)
    # what PyTorch does for its own profiler is recorded as well
    assert all(answers[name][0] >= answers["of_step"][0] for name in ("inside", "around", "late", "early"))
    assert len(set(answers["theirs"])) == 1


def test_forked_children_do_not_record_and_can(tmp_path: Path) -> None:
    text = """
start()
for number in range(20):
    child = os.fork()
    if not child:
        code = 1
        try:
            assert not recorder.is_recorder_recording()
            step()
            if number % 2:
                start(f"child{number}"); step(); assert finish() == of_step
            code = 0
        finally:
            os._exit(code)
    step()
    assert os.waitpid(child, 0)[1] == 0, number
answers['counts'] = finish()
loader = torch.utils.data.DataLoader(list(range(32)), batch_size=4, num_workers=2)
start(); answers['batches'] = sum(1 for _ in loader); answers['loader'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["counts"] == [20 * count for count in answers["of_step"]]
    assert answers["batches"] == 8 and answers["loader"][2:] == [0, 0, 0]


def test_calls_that_end_on_another_thread_and_deep_ones(tmp_path: Path) -> None:
    text = """
start()
handle = torch.ops.profiler._record_function_enter_new("elsewhere", None)
thread = threading.Thread(target=lambda: torch.ops.profiler._record_function_exit(handle)); thread.start(); thread.join()
step()
answers['elsewhere'] = finish()
start(); handle = torch.ops.profiler._record_function_enter_new("across", None); finish()
start(); torch.ops.profiler._record_function_exit(handle); step(); answers['across'] = finish()
def deep(depth):
    with torch.autograd.profiler.record_function("deep"):
        if depth > 1: deep(depth - 1)
sys.setrecursionlimit(10000)
start(); deep(600); answers['deep'] = finish()
start(); step(); answers['after'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["elsewhere"][0] == answers["of_step"][0] + 1
    assert answers["across"] == answers["of_step"] == answers["after"]
    # what is deeper than anything real is counted
    assert answers["deep"][0] + answers["deep"][2] == 600


#: ranges whose handles PyTorch frees long after their end, in any order, here, on another thread and when the program ends
RANGES_THAT_OUTLIVE_THEIR_END = """
import random
def outlive(count):
    handles = []
    for number in range(count):
        handle = torch.ops.profiler._record_function_enter_new("kept", None)
        step()
        torch.ops.profiler._record_function_exit(handle)
        handles.append(handle)
        if number % 3 == 0: handles.pop(random.randrange(len(handles)))
    random.Random(1).shuffle(handles)
    thread = threading.Thread(target=lambda: [handles.pop() for _ in range(count // 3)]); thread.start(); thread.join()
    return handles
start()
kept = outlive(60)
answers['outlived'] = finish()
kept_longer = kept[::2]; del kept
start(); step(); answers['after_outlived'] = finish()
"""


def test_ranges_whose_handles_outlive_their_end(tmp_path: Path) -> None:
    answers = run_program(tmp_path, RANGES_THAT_OUTLIVE_THEIR_END)
    calls, memory_events, *_ = answers["of_step"]
    assert answers["outlived"] == [60 * (calls + 1), 60 * memory_events, 0, 0, 0]
    assert answers["after_outlived"] == answers["of_step"]


LATE = """
enter, leave = torch.ops.profiler._record_function_enter_new, torch.ops.profiler._record_function_exit._RecordFunction
def end_elsewhere(handle):
    thread = threading.Thread(target=leave, args=(handle,)); thread.start(); thread.join()
def finish_late(end):
    recorder.start_recorder(folder / f"{end.__name__}.rec", 0, {})
    handle = enter("late", None)
    recorder.stop_recorder()
    end(handle)
    return recorder.finish_recorder({}).calls
def leave_here(handle): leave(handle)
answers['late'] = [finish_late(leave_here), finish_late(end_elsewhere)]
"""


def test_calls_that_end_as_the_recording_does_are_in_it(tmp_path: Path) -> None:
    """A collective ends a moment after its wait does, on a thread of its own: the last one of a window was lost now and then."""
    assert run_program(tmp_path, LATE)["late"] == [1, 1]
    for name in ("leave_here", "end_elsewhere"):
        trace = read_recording(tmp_path / f"{name}.rec")
        calls = trace.required("ops").collect()
        assert calls["name"].to_list() == ["late"] and (calls["end_ns"] > calls["start_ns"]).all()
        # it has an end, so nothing is said of it
        assert trace.required("health").collect().is_empty()


def test_refusals_say_why(tmp_path: Path) -> None:
    text = """
def why(call):
    try: call()
    except recorder.RecorderError as error: return str(error)
start()
answers['second'] = why(lambda: start("second"))
finish()
(folder / "there.rec").touch()
answers['there'] = why(lambda: recorder.start_recorder(folder / "there.rec", 0, {}))
answers['nowhere'] = why(lambda: recorder.start_recorder(folder / "no" / "such.rec", 0, {}))
start(); step(); answers['after'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert "records one window of a process at a time, and has another" in answers["second"]
    assert "File exists" in answers["there"] and "No such file" in answers["nowhere"]
    assert answers["after"] == answers["of_step"]


def test_a_full_disk_ends_writing_and_not_the_program(tmp_path: Path) -> None:
    text = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
start()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
for _ in range(200): step()
answers['counts'] = finish()
resource.setrlimit(resource.RLIMIT_FSIZE, limit)
start(); step(); answers['after'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["counts"][4] != 0
    assert answers["after"] == answers["of_step"]


def test_names_without_end_take_no_memory(tmp_path: Path) -> None:
    text = """
def resident(): return int(next(x for x in open("/proc/self/status") if x.startswith("VmRSS")).split()[1]) >> 10
def name_ranges(first, count):
    for number in range(first, first + count):
        with torch.autograd.profiler.record_function(f"range {number} " + "x" * 100): pass
start(); name_ranges(0, 100_000); before = resident(); name_ranges(100_000, 200_000); answers['grown'] = resident() - before
answers['counts'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["counts"] == [300_000, 0, 0, 0, 0]
    assert answers["grown"] < 64


def test_a_killed_process_leaves_all_but_the_last_tenth_of_a_second(tmp_path: Path) -> None:
    text = """
import signal, time
start("killed")
number = 0
until = time.monotonic() + 1.0
while time.monotonic() < until:
    with torch.autograd.profiler.record_function(f"step {number}"): step()
    number += 1
    (folder / "last").write_text(f"{number} {time.monotonic_ns()}")
    if number == 20: first = time.monotonic()
os.kill(os.getpid(), signal.SIGKILL)
"""
    run_program(tmp_path, text, exit_code=-9)
    content = (tmp_path / "killed.rec").read_bytes()
    steps, _ = (int(word) for word in (tmp_path / "last").read_text().split())
    kept = sum(f'"step {number}"'.encode() in content for number in range(steps))
    # a second had so many steps
    assert steps > 50 and kept >= steps * 0.85


@pytest.mark.slow
def test_addresses_and_undefined_behaviour(tmp_path: Path) -> None:
    """The library under the sanitizers of the compiler: they end the program, or say what they found."""
    from steplens.collect.recorder import recorder_library

    library = recorder_library.recorder_library()
    sources = [str(path) for path in library.source_files() if path.suffix == ".cpp"]
    built = tmp_path / "recorder.so"
    flags = (
        "-O1",
        "-g",
        "-std=c++17",
        "-fPIC",
        "-shared",
        "-DNDEBUG",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    )
    subprocess.run(["g++", *flags, "-o", str(built), *sources, *library.flags], check=True, timeout=300)
    preloaded = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    text = """
import ctypes
from torch.profiler import profile, ProfilerActivity
for number in range(300):
    start(); step(); finish()
start()
threads = [threading.Thread(target=lambda: [step() for _ in range(20)]) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
torch.cat([torch.ones(2), torch.ones(3)]); torch.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2))
with profile(activities=[ProfilerActivity.CPU], profile_memory=True): step()
if not os.fork():
    start("child"); step(); finish(); os._exit(0)
os.wait()
answers['counts'] = finish()
"""
    text += RANGES_THAT_OUTLIVE_THEIR_END
    replaced = BEGINNING.replace(
        "folder = Path(sys.argv[1])",
        f"folder = Path(sys.argv[1])\nimport steplens.collect.recorder.recorder_library as r\nr.build_library = lambda *_: None\n"
        f"import ctypes; r.load_built = lambda *_: ctypes.CDLL({str(built)!r})",
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(Path(recorder_library.__file__).parents[3]),
        "LD_PRELOAD": ":".join(preloaded),
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0",
    }
    command = [sys.executable, "-c", replaced + text + ENDING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "runtime error" not in done.stderr and "AddressSanitizer" not in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["counts"][2:] == [0, 0, 0]
