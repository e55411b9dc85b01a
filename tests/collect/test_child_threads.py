"""Threads that ask to be recorded, with real threads that compute."""

import gc
import os
import queue
import sys
import threading
import time
from collections import Counter

import pytest

from steplens import profile, schedule, tensorboard_trace_handler
from steplens.collect.torch_internals import child_threads, torch_threads

torch = pytest.importorskip("torch")

# the recorder records every thread; how others join a window is a matter of Kineto's
pytestmark = pytest.mark.usefixtures("with_kineto")

can_join = pytest.mark.skipif(torch_threads.load_thread_calls() is None, reason="this PyTorch does not let threads join")


def handler(folder="out"):
    return tensorboard_trace_handler(folder, analyse_flag=False)


def calls(look, run, name="aten::mm"):
    """How often an operator was recorded, by native thread id."""
    return Counter(event["tid"] for event in look.raw(run)["traceEvents"] if event.get("name") == name)


class Worker:
    """A thread that multiplies matrices when told to.

    Args:
        ask: what it calls first, and after it was asked to end.
    """

    def __init__(self, ask=profile.enable_profiler_in_child_thread, leave=profile.disable_profiler_in_child_thread):
        self._ask, self._leave = ask, leave
        self._orders = queue.Queue()
        self._done = queue.Queue()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.native_id = self._done.get(timeout=300)

    def _run(self):
        self._ask()
        self._done.put(threading.get_native_id())
        a = torch.ones(4, 4)
        while (order := self._orders.get()) is not None:
            count = order
            if callable(order):
                order()
                count = 0
            for _ in range(count):
                torch.mm(a, a)
            self._done.put(None)
        if self._leave is not None:
            self._leave()

    def do(self, order):
        """Let it multiply so many times, or call a function; returns when it has."""
        self._orders.put(order)
        self._done.get(timeout=300)

    def end(self):
        self._orders.put(None)
        self.thread.join(timeout=300)
        assert not self.thread.is_alive()


def multiply(count):
    a = torch.ones(4, 4)
    for _ in range(count):
        torch.mm(a, a)


@can_join
def test_threads_of_an_inference_join_the_open_window(look, capfd):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    seen = {}

    def infer(child):
        if child:
            profile.enable_profiler_in_child_thread(with_modules=True)
        with torch.inference_mode():
            for _ in range(5):
                model(torch.ones(2, 8))
        if child:
            profile.disable_profiler_in_child_thread()
            multiply(3)
        seen[threading.get_native_id()] = child

    with profile(on_trace_ready=handler(), record_shapes=True, profile_memory=True, with_modules=True):
        threads = [threading.Thread(target=infer, args=(True,)) for _ in range(2)]
        threads.append(threading.Thread(target=infer, args=(False,)))
        for thread in threads:
            thread.start()
        infer(False)
        for thread in threads:
            thread.join()
    (run,) = look.runs("out")
    asked = {tid for tid, child in seen.items() if child}
    recorded = {*asked, os.getpid()}
    assert calls(look, run, "aten::addmm") == dict.fromkeys(recorded, 10)
    assert not calls(look, run, "aten::mm")
    assert calls(look, run, "nn.Module: Sequential.0") == dict.fromkeys(recorded, 5)
    assert set(calls(look, run, "[memory]")) == recorded
    shapes = {str(event["args"].get("Input Dims")) for event in look.raw(run)["traceEvents"] if event["name"] == "aten::addmm"}
    assert len(shapes) == 1 and "[2, 8]" in shapes.pop()
    assert look.checks(run) == []
    # nothing is left behind that would record the next window twice
    with profile(on_trace_ready=handler("next")):
        multiply(4)
    assert calls(look, look.runs("next")[0]) == {os.getpid(): 4}
    assert "Requested callback" not in capfd.readouterr().err


@can_join
def test_a_worker_is_recorded_in_every_window_and_only_there(look):
    first, second = Worker(), Worker()
    model = torch.nn.Identity()
    prof = profile(schedule=schedule(wait=1, warmup=1, active=1, repeat=3), on_trace_ready=handler(), profile_memory=True)
    prof.start()
    for step in range(9):
        if not step:
            first.do(lambda: model(1))
            second.do(lambda: model(1))
        first.do(10 + step)
        second.do(30 + step)
        multiply(50 + step)
        prof.step()
    prof.stop()
    first.do(7)
    first.end(), second.end()
    runs = look.runs("out")
    assert [calls(look, run) for run in runs] == [
        {first.native_id: 10 + step, second.native_id: 30 + step, os.getpid(): 50 + step} for step in (2, 5, 8)
    ]
    for run in runs:
        assert set(calls(look, run, "[memory]")) == {first.native_id, second.native_id, os.getpid()}
        assert look.checks(run) == []


@can_join
def test_threads_pay_only_while_a_profiler_runs(look):
    model = torch.nn.Identity()
    seen = []

    def look_there():
        model(1)
        seen.append(sys.getprofile() is not None)

    worker = Worker()
    prof = profile(schedule=schedule(wait=1, warmup=0, active=1, repeat=1), on_trace_ready=handler(), profile_memory=True)
    worker.do(look_there)
    for folder in ("first", "second"):
        prof.start()
        assert torch.nn.modules.module._global_forward_pre_hooks
        worker.do(look_there)
        assert not torch.nn.modules.module._global_forward_pre_hooks
        prof.step()
        worker.do(3)
        prof.step()
        worker.do(look_there)
        prof.stop()
        worker.do(look_there)
        (run,) = look.runs("out")
        run.parent.rename(folder)
        (run,) = look.runs(folder)
        assert calls(look, run) == {worker.native_id: 3}
        assert look.checks(run) == []
    worker.end()
    assert seen == [False, True, True, False, True, True, False]


@can_join
def test_windows_end_while_threads_compute(look, monkeypatch):
    # these threads are never stuck, but on a busy machine one may be left inside of an operator for long
    monkeypatch.setattr(child_threads, "WAIT_S", 60.0)
    stop = threading.Event()
    model = torch.nn.Linear(16, 16)
    requests = Counter()

    def busy(train):
        profile.enable_profiler_in_child_thread()
        while not stop.is_set():
            with torch.profiler.record_function("request"):
                result = model(torch.ones(4, 16))
                if train:
                    result.sum().backward()
            requests[train] += 1
        profile.disable_profiler_in_child_thread()

    threads = [threading.Thread(target=busy, args=(train,)) for train in (True, False)]
    plan = schedule(wait=0, warmup=1, active=1, repeat=8)
    with profile(schedule=plan, on_trace_ready=handler(), record_shapes=True) as prof:
        for thread in threads:
            thread.start()
        for _ in range(17):
            # until both have begun and ended requests in this step, however busy the machine is
            before, until = requests.copy(), time.monotonic() + 60
            while min(requests[train] - before[train] for train in (True, False)) < 3 and time.monotonic() < until:
                time.sleep(0.01)
            prof.step()
    stop.set()
    for thread in threads:
        thread.join()
    runs = look.runs("out")
    assert len(runs) == 8
    recorded = Counter(tid for run in runs for tid in calls(look, run, "aten::addmm"))
    assert set(recorded) == {thread.native_id for thread in threads}
    assert sum(recorded.values()) > 8
    for run in runs:
        assert "save_failed" not in look.checks(run)
        assert look.raw(run, "host_events.json")["collection"]["thread_wait_ns"] < child_threads.WAIT_S * 1e9


@can_join
def test_a_range_that_spans_windows_keeps_its_thread_out_of_the_next(look):
    ranges = [torch.profiler.record_function("long")]
    prof = profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=3), on_trace_ready=handler())
    prof.start()
    worker = Worker()
    worker.do(lambda: ranges[0].__enter__())
    worker.do(1)
    prof.step()
    worker.do(2)
    worker.do(lambda: ranges[0].__exit__(None, None, None))
    prof.step()
    worker.do(3)
    prof.step()
    prof.stop()
    worker.end()
    assert [calls(look, run)[worker.native_id] for run in look.runs("out")] == [1, 0, 3]


@can_join
def test_more_options_than_the_profiler_has(look, capfd):
    with profile(on_trace_ready=handler(), profile_memory=True):
        worker = Worker(lambda: profile.enable_profiler_in_child_thread(record_shapes=True, profile_memory=True))
        worker.do(1)
        worker.end()
    (run,) = look.runs("out")
    assert calls(look, run)[worker.native_id] == 1
    (finding,) = look.state(run)["health"]
    assert finding["check"] == "child_thread_options"
    assert finding["message"].startswith("A child thread asked for record_shapes, which the profiler object does not record: its")
    assert "record_shapes" in capfd.readouterr().err


@can_join
def test_threads_that_end_without_a_word(look):
    with profile(on_trace_ready=handler()):
        workers = [Worker(leave=None) for _ in range(3)]
        for worker in workers:
            worker.do(2)
            worker.end()
        multiply(2)
    (run,) = look.runs("out")
    assert calls(look, run) == {**{worker.native_id: 2 for worker in workers}, os.getpid(): 2}
    gc.collect()
    assert not child_threads._state.members
    with profile(on_trace_ready=handler("next")):
        multiply(2)
    assert calls(look, look.runs("next")[0]) == {os.getpid(): 2}


@can_join
def test_a_stuck_thread_costs_its_window_and_nothing_else(look, monkeypatch, capfd):
    monkeypatch.setattr(child_threads, "WAIT_S", 0.1)
    stop = spins = False

    def spin():
        nonlocal spins
        a = torch.ones(64, 64)
        # Operators only: nothing from here on gives the thread control.
        spins = True
        while not stop:
            a @ a

    with profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=2), on_trace_ready=handler()) as prof:
        worker = Worker()
        worker._orders.put(spin)
        until = time.monotonic() + 60
        while not spins and time.monotonic() < until:
            time.sleep(0.001)
        prof.step()
        # the training did not wait until the thread was done
        assert worker._done.empty()
        multiply(5)
        stop = True
        worker._done.get(timeout=300)
        prof.step()
    stuck, refused = look.runs("out")
    assert "save_failed" in look.checks(stuck)
    assert "was inside an operator" in look.state(stuck)["health"][0]["message"]
    assert look.state(stuck)["state"] == "failed" and look.state(refused)["state"] != "collected"
    # on a busy machine the thread may take longer than that to get back to waiting for orders
    monkeypatch.setattr(child_threads, "WAIT_S", 60.0)
    with profile(on_trace_ready=handler("after")):
        worker.do(profile.enable_profiler_in_child_thread)
        worker.do(2)
        multiply(3)
    worker.end()
    assert calls(look, look.runs("after")[0]) == {worker.native_id: 2, os.getpid(): 3}


def test_another_profiler_of_python_keeps_its_thread(look, capfd):
    seen = []

    def watch(frame, event, argument):
        seen.append(event)

    def ask():
        sys.setprofile(watch)
        profile.enable_profiler_in_child_thread()

    with profile(on_trace_ready=handler()):
        worker = Worker(ask)
        worker.do(2)
        kept = []
        worker.do(lambda: kept.append(sys.getprofile()))
        worker.end()
    (run,) = look.runs("out")
    assert kept == [watch] and seen
    assert look.checks(run) == ["not_collected"]
    assert calls(look, run) == {}


@pytest.mark.parametrize("reason", ["old torch", "with_stack", "asleep"])
def test_where_threads_cannot_join_later_windows_record_all(reason, look, monkeypatch, capfd):
    if reason == "old torch":
        monkeypatch.setattr(torch_threads, "load_thread_calls", lambda: None)
    worker = Worker()
    with profile(on_trace_ready=handler(), with_stack=reason == "with_stack", profile_memory=True):
        worker.do(3)
        if reason == "old torch":
            late = Worker()
            late.do(4)
            late.end()
        multiply(2)
    worker.end()
    (run,) = look.runs("out")
    expected = {worker.native_id: 3, os.getpid(): 2} | ({late.native_id: 4} if reason == "old torch" else {})
    assert calls(look, run) == expected
    (finding,) = look.state(run)["health"]
    assert finding["unsafe"] == "memory"
    assert finding["message"] == "Kineto cannot record memory while it records all threads."
    with profile(on_trace_ready=handler("after")):
        multiply(2)
    assert calls(look, look.runs("after")[0]) == {os.getpid(): 2}


def test_where_threads_cannot_join_an_open_window_says_so(look, monkeypatch, capfd):
    monkeypatch.setattr(torch_threads, "load_thread_calls", lambda: None)
    with profile(on_trace_ready=handler()):
        worker = Worker()
        worker.do(3)
        worker.end()
    (run,) = look.runs("out")
    assert calls(look, run) == {}
    (finding,) = look.state(run)["health"]
    assert finding["check"] == "not_collected"
    assert "does not let a thread join" in finding["message"]


def test_the_recording_thread_may_ask_as_well(look):
    profile.enable_profiler_in_child_thread()
    with profile(on_trace_ready=handler()):
        multiply(2)
        profile.disable_profiler_in_child_thread()
        multiply(2)
    profile.disable_profiler_in_child_thread()
    (run,) = look.runs("out")
    assert calls(look, run) == {os.getpid(): 4}
    assert sys.getprofile() is None


FORK = """
import os, sys, threading
import torch
from steplens import profile, tensorboard_trace_handler
with profile(on_trace_ready=tensorboard_trace_handler("out", analyse_flag=False)):
    def child():
        profile.enable_profiler_in_child_thread()
        torch.ones(4).cumsum(0)
        pid = os.fork()
        if not pid:
            torch.ones(4).cumsum(0)
            os._exit(0 if sys.getprofile() is None else 3)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
        torch.ones(4).cumsum(0)
        profile.disable_profiler_in_child_thread()
    thread = threading.Thread(target=child)
    thread.start()
    thread.join()
"""


@can_join
def test_a_forked_process_is_not_recorded(look, tmp_path):
    done = look.warm_python(FORK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = look.runs(tmp_path / "out")
    assert sum(calls(look, run, "aten::cumsum").values()) == 2
