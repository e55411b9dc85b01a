"""The recorder's calls of Python under what programs do: threads, forks, profilers of their own, deep recursion, a kill.

Each program is a process of its own, since there is one recorder in a process. What is recorded is compared with Kineto's in
``test_python_truth.py``; here it is counted, and the program has to go on as without.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to build the recorder with")

#: of every program; ``program`` has 9 calls of Python in it: itself, of Python 5, of C 3
BEGINNING = """
import gc, json, os, sys, threading, time, weakref, torch
from pathlib import Path
from steplens.collect.recorder import recorder_library as recorder
folder = Path(sys.argv[1])
torch.set_num_threads(1)
answers = {}
def numbers():
    yield len("")
def count(depth): return depth and count(depth - 1)
def program():
    count(2); list(numbers()); [].append(1); len("")
def start(name="window"):
    path = folder / f"{name}.rec"
    path.unlink(missing_ok=True)
    recorder.start_recorder(path, recorder.WITH_PYTHON, {})
def finish():
    recorder.stop_recorder()
    totals = recorder.finish_recorder({})
    return [totals.python_calls, totals.dropped_python_calls, totals.refused_python_threads, totals.lost_python_threads]
def mine(*_): pass
start(); finish()
start(); of_nothing = finish()
start(); program(); of_program = finish()
"""
ENDING = "\nprint(json.dumps({'of_nothing': of_nothing, 'of_program': of_program, **answers}))\n"
OF_PROGRAM = 9


def run_program(tmp_path: Path, text: str, *, exit_code: int = 0) -> dict[str, Any]:
    """What a program leaves in ``answers``."""
    command = [sys.executable, "-c", BEGINNING + text + ENDING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == exit_code and "Exception ignored" not in done.stderr, done.stderr[-2000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if not exit_code else {}
    return answers


def names_of(tmp_path: Path, name: str = "window") -> list[str]:
    """The calls of Python in a file."""
    import polars as pl

    from steplens.readers.recorder.recorder_file import read_recording

    frame = read_recording(tmp_path / f"{name}.rec").table("python")
    assert frame is not None
    return [str(each) for each in frame["name"].cast(pl.String)]


def test_calls_are_counted_alike_each_time(tmp_path: Path) -> None:
    answers = run_program(
        tmp_path, "answers['counts'] = []\nfor _ in range(20): start(); program(); answers['counts'].append(finish())"
    )
    assert answers["of_program"][0] - answers["of_nothing"][0] == OF_PROGRAM
    assert answers["of_program"][1:] == [0, 0, 0]
    assert all(counts == answers["of_program"] for counts in answers["counts"])


def test_threads_that_begin_and_end_in_the_window_are_complete(tmp_path: Path) -> None:
    text = """
import _thread
start()
for _ in range(50):
    thread = threading.Thread(target=program); thread.start(); thread.join()
answers['counts'] = finish()
answers['hook'] = threading.getprofile() is None
"""
    answers = run_program(tmp_path, text)
    assert answers["counts"][1:] == [0, 0, 0] and answers["hook"]
    assert sum(name.endswith(": program") for name in names_of(tmp_path)) == 50


def test_a_thread_that_was_there_is_recorded_with_what_it_was_in(tmp_path: Path) -> None:
    text = """
begins, ends = threading.Event(), threading.Event()
def waits(): begins.wait(); program()
thread = threading.Thread(target=waits); thread.start()
time.sleep(0.1)
start(); begins.set(); thread.join(); answers['counts'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["counts"][1:] == [0, 0, 0]
    names = names_of(tmp_path)
    assert sum(name.endswith(": waits") for name in names) == 1 and sum(name.endswith(": program") for name in names) == 1


def test_a_profiler_of_the_program_stays_and_is_told_of(tmp_path: Path) -> None:
    text = """
sys.setprofile(mine); start(); program(); answers['before'] = finish(); answers['stays'] = sys.getprofile() is mine
sys.setprofile(None)
start(); program(); sys.setprofile(mine); program(); answers['inside'] = finish()
answers['stays_inside'] = sys.getprofile() is mine
sys.setprofile(None)
start(); program(); old = sys.getprofile(); sys.setprofile(mine); program(); sys.setprofile(old); program()
answers['around'] = finish()
answers['none_after'] = sys.getprofile() is None
sys.setprofile(old); program(); answers['none_of_old'] = sys.getprofile() is None
start(); old = sys.getprofile(); sys.setprofile(mine); program(); answers['kept'] = finish(); sys.setprofile(None)
threading.setprofile(mine); start(); threading.Thread(target=program).start(); finish()
answers['of_threads'] = threading.getprofile() is mine
threading.setprofile(None)
start(); program(); answers['after'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["before"] == [0, 0, 1, 0]
    assert answers["inside"][2:] == answers["around"][2:] == answers["kept"][2:] == [0, 1]
    # the third call was recorded again
    assert answers["around"][0] > answers["of_program"][0] + OF_PROGRAM
    for name in ("stays", "stays_inside", "none_after", "none_of_old", "of_threads"):
        assert answers[name], name
    assert answers["after"] == answers["of_program"]


def test_a_profiler_of_another_thread_stays(tmp_path: Path) -> None:
    text = """
begins, is_set = threading.Event(), threading.Event()
def waits():
    sys.setprofile(mine); is_set.set(); begins.wait(); program(); answers['stays'] = sys.getprofile() is mine
thread = threading.Thread(target=waits); thread.start(); is_set.wait()
start(); begins.set(); thread.join(); answers['counts'] = finish()
"""
    answers = run_program(tmp_path, text)
    if sys.version_info < (3, 13):
        assert answers["counts"][1:] == [0, 1, 0] and answers["stays"]


def test_a_profiler_of_pytorch_with_stacks_takes_the_threads_and_is_left_alone(tmp_path: Path) -> None:
    text = """
from torch.profiler import profile, ProfilerActivity
def other(): return profile(activities=[ProfilerActivity.CPU], with_stack=True)
def names(found): return sum(event.name.endswith(": program") for event in found.events())
start(); program()
with other() as inside: program()
program(); answers['inside'] = finish()
with other() as around:
    start(); program(); answers['around'] = finish()
    program()
answers['theirs'] = [names(inside), names(around)]
start(); program(); answers['after'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["inside"][2:] == [0, 1] and answers["inside"][0] > OF_PROGRAM
    assert answers["around"] == [0, 0, 1, 0]
    assert answers["theirs"] == [1, 2] and answers["after"] == answers["of_program"]


def test_forked_children_are_not_slowed_and_can_record(tmp_path: Path) -> None:
    text = """
start()
for number in range(6):
    child = os.fork()
    if not child:
        code = 1
        try:
            program()
            assert sys.getprofile() is None
            thread = threading.Thread(target=program); thread.start(); thread.join()
            if number % 2:
                start(f"child{number}"); program(); assert finish() == of_program
            code = 0
        finally:
            os._exit(code)
    program()
    assert os.waitpid(child, 0)[1] == 0, number
answers['counts'] = finish()
loader = torch.utils.data.DataLoader(list(range(32)), batch_size=4, num_workers=2)
start(); answers['batches'] = sum(1 for _ in loader); answers['loader'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["counts"][0] >= 6 * OF_PROGRAM and answers["counts"][1:] == [0, 0, 0]
    assert answers["batches"] == 8 and answers["loader"][1:] == [0, 0, 0]


def test_calls_that_are_deeper_than_any_are_counted(tmp_path: Path) -> None:
    text = """
sys.setrecursionlimit(20000); threading.stack_size(256 << 20)
def in_thread(): count(6000)
start(); thread = threading.Thread(target=in_thread); thread.start(); thread.join(); answers['deep'] = finish()
start(); program(); answers['after'] = finish()
"""
    answers = run_program(tmp_path, text)
    kept = sum(name.endswith(": count") for name in names_of(tmp_path)) if not answers["deep"][1] else 6001 - answers["deep"][1]
    assert answers["deep"][1] > 1000 and kept > 4000
    assert answers["after"] == answers["of_program"]


def test_full_buffers_lose_records_and_nothing_else(tmp_path: Path) -> None:
    text = """
recorder.MOST_WAITING_BYTES = 16 << 10
start()
for _ in range(200_000): len("")
answers['full'] = finish()
recorder.MOST_WAITING_BYTES = 32 << 20
start(); program(); answers['after'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["full"][1] > 0 and sum(answers["full"][:2]) >= 200_000
    assert answers["after"] == answers["of_program"]


def test_exceptions_generators_and_coroutines_leave_nothing_open(tmp_path: Path) -> None:
    text = """
import asyncio
async def waits(number):
    await asyncio.sleep(0.001)
    if number % 3 == 0: raise ValueError
    return number
async def gathers(): return await asyncio.gather(*(waits(number) for number in range(30)), return_exceptions=True)
def all_of_it():
    asyncio.run(gathers())
    for _ in range(50):
        open_one = numbers(); next(open_one); del open_one
        try: raise SystemExit
        except SystemExit: pass
start(); all_of_it(); program(); answers['counts'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["counts"][1:] == [0, 0, 0]
    names = names_of(tmp_path)
    assert sum(": waits" in name for name in names) == 60
    assert sum(name.endswith(": all_of_it") for name in names) == 1


def test_nothing_of_the_program_is_kept_alive(tmp_path: Path) -> None:
    text = """
class Layer(torch.nn.Module):
    def forward(self, value): return value.add(1)
def make():
    layer, value = Layer(), torch.ones(2)
    layer(value); value.sum()
    return weakref.ref(layer), weakref.ref(value)
start(); first, second = make(); gc.collect(); answers['alive'] = [first() is not None, second() is not None]; finish()
def functions():
    namespace = {}; exec("def made(): return 1", namespace); namespace["made"](); return weakref.ref(namespace["made"].__code__)
start(); code = functions(); answers['held'] = code() is not None; finish(); gc.collect(); answers['released'] = code() is None
start()
for number in range(70_000): exec("def made(): return 1", globals()); made()
answers['many'] = finish()
"""
    answers = run_program(tmp_path, text)
    assert answers["alive"] == [False, False] and answers["held"] and answers["released"]
    assert answers["many"][1:] == [0, 0, 0] and answers["many"][0] > 140_000


def test_a_program_that_ends_while_it_is_recorded(tmp_path: Path) -> None:
    run_program(tmp_path, "start(); threading.Thread(target=program).start(); program(); sys.exit(3)", exit_code=3)
    text = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); start(); program(); sys.exit(3)"
    run_program(tmp_path, text, exit_code=3)


def test_a_killed_process_says_what_of_python_it_was_in(tmp_path: Path) -> None:
    from steplens.readers.recorder.recorder_file import read_recording

    text = """
import signal
def ends_here():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
def around(): ends_here()
start(); around()
"""
    run_program(tmp_path, text, exit_code=-signal.SIGKILL)
    health = read_recording(tmp_path / "window.rec").table("health")
    assert health is not None
    (message,) = health.filter(check="open_calls")["message"]
    assert "<built-in function sleep> in <string>" in message and ": ends_here in <string>" in message and ": around" in message


MANY_STARTS = """
halt, rounds = False, [0]
def work():
    while not halt:
        program(); rounds[0] += 1
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
sys.setswitchinterval(1e-4)
for _ in range(STARTS): start(); program(); lost = finish(); assert lost[1:] == [0, 0, 0], lost
halt = True
for thread in threads: thread.join()
answers['rounds'] = rounds[0]
start(); program(); answers['after'] = finish()
"""


@pytest.mark.slow
def test_a_thousand_starts_beside_threads_that_compute(tmp_path: Path) -> None:
    answers = run_program(tmp_path, "STARTS = 1000\n" + MANY_STARTS)
    assert answers["rounds"] > 100 and answers["after"] == answers["of_program"]


@pytest.mark.slow
def test_addresses_and_undefined_behaviour(tmp_path: Path) -> None:
    """The library under the sanitizers of the compiler: they end the program, or say what they found."""
    from steplens.collect.recorder import recorder_library

    library = recorder_library.recorder_library()
    sources = [str(path) for path in library.source_files() if path.suffix == ".cpp"]
    built = tmp_path / "recorder.so"
    flags = ("-O1", "-g", "-std=c++17", "-fPIC", "-shared", "-DNDEBUG", "-fsanitize=address,undefined")
    more = ("-fno-sanitize-recover=undefined", "-o", str(built), *sources, *library.flags)
    subprocess.run(["g++", *flags, *more], check=True, timeout=300)
    preloaded = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    text = """
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
start()
threads = [threading.Thread(target=lambda: [program() for _ in range(20)]) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
model(torch.ones(1, 2)).sum().backward()
old = sys.getprofile(); sys.setprofile(mine); program(); sys.setprofile(old); program()
del old
if not os.fork():
    program(); start("child"); program(); finish(); os._exit(0)
os.wait()
answers['counts'] = finish()
"""
    load = f"import ctypes; r.load_built = lambda *_: ctypes.CDLL({str(built)!r})"
    replaced = BEGINNING.replace(
        "folder = Path(sys.argv[1])",
        "folder = Path(sys.argv[1])\nimport steplens.collect.recorder.recorder_library as r\n"
        f"r.build_library = lambda *_: None\n{load}",
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(Path(recorder_library.__file__).parents[3]),
        "LD_PRELOAD": ":".join(preloaded),
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0",
    }
    command = [sys.executable, "-c", replaced + "STARTS = 100\n" + MANY_STARTS + text + ENDING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "runtime error" not in done.stderr and "AddressSanitizer" not in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["counts"][1] == 0
