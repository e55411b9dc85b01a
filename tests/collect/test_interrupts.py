"""Interrupts while a window is saved: no complete window is lost, and the interrupt reaches the script."""

import gc
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from steplens import _ExperimentalConfig, profile, schedule, tensorboard_trace_handler
from steplens.collect.black_box import ring_session
from steplens.collect.common import interrupts
from steplens.collect.handoff import handler
from steplens.collect.pytorch import saving
from steplens.collect.recorder import recorder_library

pytestmark = pytest.mark.usefixtures("each_recorder")

ONE_WINDOW = schedule(wait=0, warmup=1, active=2, repeat=1)
TWO_WINDOWS = schedule(wait=0, warmup=0, active=1, repeat=2)


@pytest.fixture(autouse=True)
def _handlers_are_given_back():
    """Whatever happens, the program's handlers are its own again."""
    before = {number: signal.getsignal(number) for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before
    assert interrupts._active is None


def trace_handler(folder="out"):
    return tensorboard_trace_handler(str(folder), analyse_flag=False)


class AtLine:
    """A tracer that calls ``act`` at the n-th line of Python that runs."""

    def __init__(self, number, act):
        self._number = number
        self._act = act
        self.lines = 0

    def __call__(self, frame, event, argument):
        if event == "line":
            self.lines += 1
            if self.lines == self._number:
                self._act()
        return self

    def run(self, call):
        before = sys.gettrace()
        # a collection in the middle runs lines of finalizers, elsewhere in every run, and Python drops what is raised in them
        collects = gc.isenabled()
        gc.disable()
        sys.settrace(self)
        try:
            call()
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()


def save_in_step(folder, train, traced):
    with profile(schedule=ONE_WINDOW, on_trace_ready=trace_handler(folder), **everything()) as prof:
        train(2, prof)
        train(1)
        traced.run(prof.step)


def save_and_open_the_next(folder, train, traced):
    with profile(schedule=TWO_WINDOWS, on_trace_ready=trace_handler(folder), **everything()) as prof:
        train(1)
        traced.run(prof.step)
        train(1, prof)


def save_in_stop(folder, train, traced):
    prof = profile(on_trace_ready=trace_handler(folder), **everything())
    prof.start()
    train(2)
    try:
        traced.run(prof.stop)
    finally:
        prof._end_of_program()  # what a script that ends here does


def everything():
    return {"with_modules": True, "experimental_config": _ExperimentalConfig(mstx=True, data_loader=True, gc_detect_threshold=0)}


def assert_complete(run, look):
    assert look.state(run)["state"] == "collected"
    recorded = run / "KINETO" / "operators.rec"
    if recorded.exists():
        # read with nothing but this: it is done hundreds of times
        content = recorded.read_bytes()
        assert b'{"name":"aten::linear"' in content
        # its last block is the one of its end
        assert struct.unpack_from("<II", content, len(content) - 136) == (0x4B4C4253, 8)
    else:
        assert "aten::linear" in look.names(run)


def interrupt():
    signal.raise_signal(signal.SIGINT)


NEVER = AtLine(0, interrupt)


def test_an_interrupt_inside_of_holding_gives_all_signals_back():
    """At every line between the first signal that is held and the last that is given back."""

    def hold():
        with interrupts.hold_signals():
            interrupts.deliver_signals()
            with interrupts.allow_signals():
                pass

    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)}
        NEVER.run(hold)  # what is made once
        counted = AtLine(0, interrupt)
        counted.run(hold)
        assert counted.lines > 100
        for line in range(1, counted.lines + 1):
            with pytest.raises(KeyboardInterrupt):
                AtLine(line, interrupt).run(hold)
            assert {number: signal.getsignal(number) for number in handlers} == handlers, line
            assert interrupts._active is None, line
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("save", "points"),
    [
        (save_in_step, 40), (save_in_stop, 40), (save_and_open_the_next, 40),
        # more points of the same way
        pytest.param(save_in_step, 200, marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_ctrl_c_at_any_point_of_saving(save, points, train, look, tmp_path):
    save(tmp_path / "first", train, NEVER)  # what is imported and made once
    counted = AtLine(0, interrupt)
    save(tmp_path / "counted", train, counted)
    assert counted.lines > 2000
    for point in range(points):
        folder = tmp_path / str(point)
        traced = AtLine(1 + counted.lines * point // points, interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(folder, train, traced)
        first, *others = look.runs(folder)
        assert_complete(first, look)
        assert all(look.state(run)["state"] != "recording" for run in others)
        assert not [path for path in folder.rglob("*") if path.name.endswith(".partial")]


@pytest.mark.parametrize("save", [save_in_step, save_in_stop])
def test_an_interrupt_that_no_signal_brings(save, train, look, tmp_path, monkeypatch, each_recorder):
    """As of PyThreadState_SetAsyncExc: every call of the action table is cut off in the middle, and is made again."""
    writes = (saving, "_check_complete") if each_recorder == "off" else (recorder_library, "finish_recorder")
    for module, name in (writes, (saving, "write_side_files"), (saving.metadata, "software_versions")):
        original, left = getattr(module, name), ["before", "after"]

        def cut_off(*arguments, original=original, left=left):
            if left and left.pop(0) == "before":
                raise KeyboardInterrupt
            return original(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(module, name, cut_off)
            with pytest.raises(KeyboardInterrupt):
                save(tmp_path / name, train, NEVER)
        (run,) = look.runs(tmp_path / name)
        assert_complete(run, look)


@pytest.fixture
def while_saving(monkeypatch):
    """A function that lets something happen when the trace is about to be written, by Kineto or to its end by the recorder."""

    def at_save(act):
        for module, name in ((saving, "save_trace"), (recorder_library, "finish_recorder")):
            original = getattr(module, name)

            def save_trace(*arguments, original=original):
                act()
                return original(*arguments)

            monkeypatch.setattr(module, name, save_trace)

    return at_save


@pytest.mark.parametrize("plan", [None, ONE_WINDOW])
def test_an_interrupt_of_start_leaves_nothing_open(plan, train, look, monkeypatch):
    original = saving.rundir.write_json
    with monkeypatch.context() as patched:
        patched.setattr(saving.rundir, "write_json", lambda *arguments, **named: (interrupt(), original(*arguments, **named))[1])
        with pytest.raises(KeyboardInterrupt), profile(schedule=plan, on_trace_ready=trace_handler()):
            pytest.fail("it is entered")
    assert [look.state(run)["state"] for run in look.runs("out")] == ([] if plan else ["collected"])
    with profile(on_trace_ready=trace_handler("after")):
        train(1)
    assert_complete(look.runs("after")[0], look)


def test_exception_of_the_scripts_own_handler(train, look, while_saving, monkeypatch):
    def alarm(number, frame):
        raise TimeoutError("too long")

    previous = signal.signal(signal.SIGALRM, alarm)
    try:
        while_saving(lambda: signal.raise_signal(signal.SIGALRM))
        with pytest.raises(TimeoutError, match="too long"), profile(schedule=ONE_WINDOW, on_trace_ready=trace_handler()) as prof:
            train(3, prof)
    finally:
        signal.signal(signal.SIGALRM, previous)
    (run,) = look.runs("out")
    assert_complete(run, look)
    assert look.checks(run) == []


def test_handlers_that_do_not_raise_do_not_end_the_recording(train, look, while_saving):
    seen = []
    previous = signal.signal(signal.SIGUSR1, lambda *_: seen.append(len(look.runs("out"))))
    try:
        while_saving(lambda: signal.raise_signal(signal.SIGUSR1))
        with profile(schedule=TWO_WINDOWS, on_trace_ready=trace_handler()) as prof:
            train(2, prof)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert seen == [1, 2]
    for run in look.runs("out"):
        assert_complete(run, look)


def test_two_interrupts_at_once_are_one(train, look, while_saving, capfd):
    """As a launcher and a terminal send them to the same process."""
    while_saving(lambda: (interrupt(), interrupt()))
    with pytest.raises(KeyboardInterrupt), profile(schedule=ONE_WINDOW, on_trace_ready=trace_handler()) as prof:
        train(3, prof)
    (run,) = look.runs("out")
    assert_complete(run, look)
    assert capfd.readouterr().err.count("it takes effect when that is done") == 1


def test_asked_twice_saving_is_broken_off(train, look, while_saving, monkeypatch, capfd, each_recorder):
    monkeypatch.setattr(interrupts, "PATIENCE_S", 0.0)
    times = iter((2, 0, 0))
    while_saving(lambda: [interrupt() for _ in range(next(times))])
    with pytest.raises(KeyboardInterrupt), profile(schedule=ONE_WINDOW, on_trace_ready=trace_handler()) as prof:
        train(3, prof)
    (run,) = look.runs("out")
    state = look.state(run)
    assert look.checks(run) == ["save_failed"]
    if each_recorder == "off":
        assert state["state"] == "failed"
        assert "is given up: the program was interrupted twice meanwhile" in state["health"][0]["message"]
    else:
        assert_complete(run, look)
        assert "is on disk, but perhaps not all of what belongs to it" in state["health"][0]["message"]
    assert state["health"][0]["message"] in capfd.readouterr().err
    with profile(on_trace_ready=trace_handler("after")):
        train(1)
    assert_complete(look.runs("after")[0], look)


def test_asked_twice_behind_the_trace(train, look, monkeypatch, capfd):
    """What is on disk is not denied."""
    monkeypatch.setattr(interrupts, "PATIENCE_S", 0.0)
    original = saving.write_side_files
    monkeypatch.setattr(saving, "write_side_files", lambda *arguments: (interrupt(), interrupt(), original(*arguments)))
    with pytest.raises(KeyboardInterrupt), profile(schedule=ONE_WINDOW, on_trace_ready=trace_handler()) as prof:
        train(3, prof)
    (run,) = look.runs("out")
    assert_complete(run, look)
    assert "is on disk" in capfd.readouterr().err


def test_a_handler_of_windows_comes_to_its_end(train, look):
    handled = []

    def take(prof):
        interrupt()
        handled.append(prof.run_directory)

    with pytest.raises(KeyboardInterrupt), profile(schedule=TWO_WINDOWS, on_trace_ready=take) as prof:
        train(2, prof)
    assert [run.name for run in handled] == [run.name for run in look.runs(".")] and len(handled) == 1


def test_an_analysis_at_once_is_not_waited_for(train, look, monkeypatch, capfd):
    code = "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(600)"
    monkeypatch.setattr(handler, "offline_command", lambda *_: [sys.executable, "-c", code])
    with pytest.raises(KeyboardInterrupt), profile(schedule=ONE_WINDOW, on_trace_ready=tensorboard_trace_handler("out")) as prof:
        train(3, prof)
    (run,) = look.runs("out")
    assert_complete(run, look)
    assert f"{run.absolute()} is not analysed, because the program was interrupted" in capfd.readouterr().err


def test_an_analysis_does_not_begin_behind_an_interrupt(train, look, monkeypatch, while_saving, capfd):
    monkeypatch.setattr(handler, "_start_analysis", lambda *_, **__: pytest.fail("it begins"))
    while_saving(interrupt)
    with pytest.raises(KeyboardInterrupt), profile(schedule=ONE_WINDOW, on_trace_ready=tensorboard_trace_handler("out")) as prof:
        train(3, prof)
    assert_complete(look.runs("out")[0], look)
    assert "is not analysed, because the program was interrupted" in capfd.readouterr().err


def test_a_forked_child_does_not_wait(train, while_saving):
    ended = []

    def fork():
        child = os.fork()
        if not child:
            signal.raise_signal(signal.SIGTERM)
            os._exit(3)
        ended.append(os.waitpid(child, 0)[1])

    while_saving(fork)
    with profile(schedule=ONE_WINDOW, on_trace_ready=trace_handler()) as prof:
        train(3, prof)
    assert [os.WTERMSIG(status) for status in ended if os.WIFSIGNALED(status)] == [signal.SIGTERM]


def test_ctrl_c_in_the_middle_of_an_event_of_the_black_box(train, look, while_saving, tmp_path, monkeypatch):
    from steplens import BlackBox

    monkeypatch.setattr(ring_session.RecorderRingSession, "least_window_ns", 0)
    with BlackBox(tmp_path / "box", keep_steps=1, analyse_flag=False) as box:
        train(3, box)
        while_saving(interrupt)
        with pytest.raises(KeyboardInterrupt):
            box.capture()
    event, *_ = sorted((tmp_path / "box").iterdir())
    written = json.loads((event / "black_box.json").read_bytes())
    assert len(written["run_directories"]) == 2
    for name in written["run_directories"]:
        assert look.state(event / name)["state"] == "collected"


PROGRAM = """
import signal, sys, torch, steplens
from steplens.collect.pytorch import saving
from steplens.collect.recorder import recorder_library
model = torch.nn.Linear(8, 2)
handler = steplens.tensorboard_trace_handler("out", analyse_flag=False)
plan = steplens.schedule(wait=0, warmup=0, active=1, repeat=0)
"""

TERMINATED = """
for module, name in ((saving, "save_trace"), (recorder_library, "finish_recorder")):
    original = getattr(module, name)
    setattr(module, name, lambda *arguments, original=original: (signal.raise_signal(signal.SIGTERM), original(*arguments))[1])
with steplens.profile(schedule=plan, on_trace_ready=handler) as prof:
    model(torch.ones(4, 8)).sum().backward()
    prof.step()
print("not reached")
"""


@pytest.mark.slow
def test_a_program_without_a_handler_of_sigterm_ends_behind_saving(look, tmp_path):
    done = look.warm_python(PROGRAM + TERMINATED, cwd=tmp_path)
    assert done.returncode == -signal.SIGTERM
    assert "not reached" not in done.stdout
    (run,) = look.runs(tmp_path / "out")
    assert_complete(run, look)


ROUNDS = """
for _ in range(int(sys.argv[1])):
    try:
        with steplens.profile(schedule=plan, on_trace_ready=handler) as prof:
            print("go", flush=True)
            while True:
                model(torch.ones(4, 8)).sum().backward()
                prof.step()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.slow
def test_a_signal_that_comes_again_ends_a_program_without_a_handler(look, tmp_path):
    text = """
import os, signal
from steplens.collect.common import interrupts
interrupts.PATIENCE_S = 0.0
with interrupts.hold_signals():
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
print("never")
"""
    done = look.python(text, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")
    assert "SIGTERM came again: the process ends, and what was not saved yet is lost." in done.stderr


def test_signals_from_outside(look, tmp_path):
    """The windows of a training follow each other without a pause, so that most of its time is saving."""
    rounds = 8
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    command = [sys.executable, "-c", PROGRAM + ROUNDS, str(rounds)]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        for number in range(rounds):
            assert program.stdout.readline() == b"go\n"
            seen = len(look.runs(tmp_path / "out"))
            while len(look.runs(tmp_path / "out")) < seen + number % 3 and program.poll() is None:
                pass
            program.send_signal(signal.SIGINT)
            assert program.stdout.readline() == b"interrupted\n"
    assert program.returncode == 0
    found = look.runs(tmp_path / "out")
    assert len(found) >= rounds
    assert {look.state(run)["state"] for run in found} == {"collected"}
    assert all(look.raw(run)["traceEvents"] for run in found)


NOT_PYTHONS = """
import ctypes, faulthandler, os, signal, sys
from steplens.collect.common import interrupts

def action(number):
    kept = ctypes.create_string_buffer(1024)
    assert ctypes.CDLL(None).sigaction(number, None, kept) == 0
    # the handler and, in glibc, its flags, of which one without meaning is added to a signal that never had a handler
    return kept.raw[:8], kept.raw[136:140] if number != signal.SIGHUP else b""

faulthandler.register(signal.SIGTERM, file=sys.stdout, all_threads=False, chain=False)
faulthandler.register(signal.SIGINT, file=sys.stdout, all_threads=False, chain=False)
signal.signal(signal.SIGUSR1, lambda *_: print("restarted", flush=True))
signal.siginterrupt(signal.SIGUSR1, False)
numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
before = [action(number) for number in numbers]
for number in numbers[:3]:
    with interrupts.hold_signals():
        os.kill(os.getpid(), number)
        print("held", flush=True)
    assert [action(number) for number in numbers] == before
if sys.argv[1] == "impatient":
    interrupts.PATIENCE_S = 0
    with interrupts.hold_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert [action(number) for number in numbers] == before
print("alive")
"""


@pytest.mark.parametrize("how", ["patient", "impatient"])
def test_handlers_of_other_languages_and_their_flags_are_given_back(look, tmp_path, how):
    done = look.python(NOT_PYTHONS, how, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    stack = "Stack (most recent call first):"
    told = [line for line in done.stdout.splitlines() if line in (stack, "held", "restarted", "alive")]
    assert told == ["held", stack, "held", stack, "held", "restarted", *([stack] if how == "impatient" else []), "alive"]
    assert "the process ends" not in done.stderr
