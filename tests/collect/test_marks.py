"""Marks and ranges of the user, and those recorded automatically."""

import asyncio
import io
import itertools
import json
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import steplens
from steplens import _ExperimentalConfig, mstx, profile, schedule, tensorboard_trace_handler
from steplens.collect.common import clock
from steplens.collect.common.health import Health
from steplens.collect.marks import automatic_marks, marks, stream_marks
from steplens.readers.steplens_run import host_events
from steplens.trace.health import HealthLog

from ..warm_python import run_warm_ranks

torch = pytest.importorskip("torch")

SOURCE = Path(steplens.__file__).resolve().parents[1]


def handler(folder="out"):
    return tensorboard_trace_handler(folder, analyse_flag=False)


def recording(folder="out", **options):
    return profile(on_trace_ready=handler(folder), experimental_config=_ExperimentalConfig(mstx=True, **options))


def marks_of(look, folder="out"):
    """The marks of the only run: rows of a frame, by message."""
    (run,) = look.runs(folder)
    tables = host_events.tables(run / "KINETO", {}, 1, HealthLog())
    return tables["marks"].sort("start_ns").to_dicts() if "marks" in tables else []


def messages(rows):
    return [row["message"] for row in rows]


@pytest.fixture
def recorder():
    """A recorder that records, without a profiler."""
    health = Health()
    new = marks.MarkRecorder([], [], health)
    new.found = health
    marks.open_recorder(new)
    yield new
    marks.close_recorder(new)


def rows_of(recorder):
    recorder.finish()
    texts = recorder.texts()
    columns = len(marks.COLUMNS)
    for row in (recorder._rows[at : at + columns] for at in range(0, len(recorder._rows), columns)):
        domain, message = texts[row[0]]
        yield SimpleNamespace(domain=domain, message=message, **dict(zip(marks.COLUMNS[1:], row[1:], strict=True)))


# --- the interface


def test_public_names():
    assert steplens.mstx is mstx
    assert all(callable(getattr(mstx, name)) for name in mstx.__all__)


def test_example_of_the_guide(look):
    def steps(profiler):
        for number in range(3):
            mstx.mark("mark_with_default_domain")
            range_id = mstx.range_start("range_with_default_domain")
            assert (range_id > 0) == (number == 1)
            time.sleep(0.002)
            mstx.range_end(range_id)
            mstx.mark("mark_with_domain1", domain="domain1")
            range_id1 = mstx.range_start("range_with_domain1", domain="domain1")
            mstx.range_end(range_id1, domain="domain1")
            mstx.mark("mark_with_domain2", domain="domain2")
            range_id2 = mstx.range_start("range_with_domain2", domain="domain2")
            mstx.range_end(range_id2, domain="domain2")
            profiler.step()

    config = _ExperimentalConfig(data_simplification=False, mstx=True, mstx_domain_include=["default", "domain1"])
    plan = schedule(wait=1, warmup=0, active=1, repeat=1)
    with profile(schedule=plan, on_trace_ready=handler(), experimental_config=config) as prof:
        steps(prof)
    found = marks_of(look)
    assert [(row["domain"], row["message"]) for row in found] == [
        ("default", "step 1"),
        ("default", "mark_with_default_domain"),
        ("default", "range_with_default_domain"),
        ("domain1", "mark_with_domain1"),
        ("domain1", "range_with_domain1"),
    ]
    step, mark, range_, *_ = found
    assert mark["start_ns"] == mark["end_ns"]
    assert range_["end_ns"] - range_["start_ns"] >= 2_000_000
    assert step["start_ns"] <= mark["start_ns"] and range_["end_ns"] <= step["end_ns"]
    assert {row["tid"] for row in found} == {threading.get_native_id()}
    (run,) = look.runs("out")
    assert look.checks(run) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"default", "a", "b"}),
        ({"mstx_domain_include": ["a"]}, {"a"}),
        ({"mstx_domain_exclude": ["a", "default"]}, {"b"}),
        ({"mstx_domain_include": ["a", "b"], "mstx_domain_exclude": ["a"]}, {"a", "b"}),
    ],
)
def test_domains(options, expected, look, capfd):
    with recording(**options):
        for domain in ("default", "a", "b"):
            mstx.mark("m", domain=domain)
            if domain not in expected:
                assert mstx.range_start("r", domain=domain) == 0
                assert mstx.range_push("r", domain=domain) == -1
            with mstx.annotate("block", domain=domain):
                pass
    assert {row["domain"] for row in marks_of(look)} == expected


def test_marks_lie_between_the_operators_around_them(look):
    a = torch.ones(4, 4)
    torch.mm(a, a)
    looks = []
    with recording():
        for _ in range(50):
            begin = time.time_ns()
            torch.mm(a, a)
            before = time.time_ns()
            mstx.mark("between")
            after = time.time_ns()
            torch.mm(a, a)
            looks.append((begin, before, after, time.time_ns()))
    (run,) = look.runs("out")
    raw = look.raw(run)
    base = raw["baseTimeNanoseconds"]
    ops = sorted((base + event["ts"] * 1000, event["dur"] * 1000) for event in raw["traceEvents"] if event["name"] == "aten::mm")
    between = [row["start_ns"] for row in marks_of(look)]
    assert len(ops) == 100 and len(between) == 50
    for (begin, before, after, end), mark, first, second in zip(looks, between, ops[0::2], ops[1::2], strict=True):
        assert before <= mark <= after
        # Kineto turns its clock into Unix time by measurements that are some hundred ns uncertain.
        assert begin - 3_000 <= first[0] and first[0] + first[1] <= before + 3_000
        assert after - 3_000 <= second[0] and second[0] + second[1] <= end + 3_000


def test_nothing_is_recorded_without_being_asked(look):
    with profile(on_trace_ready=handler()):
        mstx.mark("m")
        assert mstx.range_start("r") == 0
        assert mstx.range_push("r") == -1
        assert mstx.range_pop() == -1
        mstx.range_end(0)
    (run,) = look.runs("out")
    assert not (run / "KINETO" / "marks.bin").exists()
    assert marks_of(look) == []


def test_idle_cost():
    def nothing(message, stream=None, domain="default"):
        return None

    def cost(function):
        best = float("inf")
        for _ in range(20):
            begin = time.perf_counter_ns()
            for _ in itertools.repeat(None, 2000):
                function("message")
            best = min(best, time.perf_counter_ns() - begin)
        return best / 2000

    assert marks.recorder is None
    base = cost(nothing)
    for function in (mstx.mark, mstx.range_start, mstx.range_push):
        # measured: 1.6 times a function that does nothing
        assert cost(function) < 6 * base


@pytest.mark.parametrize("message", ["", None, 5, b"bytes", ["list"], {}])
def test_wrong_messages_are_left_out(message, recorder, capfd):
    mstx.mark(message)
    assert mstx.range_start(message) == 0
    assert mstx.range_push(message) == -1
    with mstx.annotate(message):
        pass
    assert capfd.readouterr().err.count("should be a string") == 1
    mstx.mark("m", domain=message)
    assert capfd.readouterr().err.count("domain of a mark") == 1
    assert list(rows_of(recorder)) == []
    assert sum(item["count"] for item in recorder.found.take() if item["check"] == "marks_rejected") == 5


def test_ranges_may_overlap_and_end_in_other_threads(recorder):
    first = mstx.range_start("first")
    second = mstx.range_start("second")
    assert first != second
    thread = threading.Thread(target=mstx.range_end, args=(first,))
    thread.start()
    thread.join()
    mstx.range_end(second, domain="default")
    mstx.range_end(second)
    mstx.range_end("no number")
    left = mstx.range_start("left open")
    found = {row.message: row for row in rows_of(recorder)}
    assert found["first"].start_ns < found["second"].start_ns < found["first"].end_ns < found["second"].end_ns
    assert found["first"].tid == threading.get_native_id()
    assert found["left open"].end_ns >= found["second"].end_ns
    assert {item["message"]: item["count"] for item in recorder.found.take()} == {
        "ranges were open when the window ended, and end with it": 1,
        "calls of range_end had no range to end": 2,
    }
    mstx.range_end(left)


def test_pushed_ranges_nest_per_thread_and_domain(recorder):
    assert mstx.range_pop() == -1
    assert [mstx.range_push("outer"), mstx.range_push("inner"), mstx.range_push("other", domain="d")] == [0, 1, 0]
    inside = []
    thread = threading.Thread(target=lambda: inside.extend([mstx.range_push("thread"), mstx.range_pop(), mstx.range_pop()]))
    thread.start()
    thread.join()
    assert inside == [0, 0, -1]
    assert [mstx.range_pop(), mstx.range_pop("d"), mstx.range_pop(), mstx.range_pop()] == [1, 0, 0, -1]
    found = {row.message: row for row in rows_of(recorder)}
    assert set(found) == {"outer", "inner", "other", "thread"}
    assert found["outer"].start_ns < found["inner"].start_ns < found["inner"].end_ns < found["outer"].end_ns
    assert {row.kind for row in found.values()} == {marks.PUSHED}


def test_decorators(recorder):
    @mstx.mstx_range("named", domain="d")
    def add(a, b=1):
        """Adds."""
        return a + b if a else add(1, b)

    @mstx.mstx_range
    def bare():
        return 7

    @mstx.annotate("fails")
    def fail():
        raise KeyError("out")

    @mstx.mstx_range("waits")
    async def wait():
        await asyncio.sleep(0.005)
        return 3

    assert add(0, b=2) == 3 and bare() == 7
    assert add.__doc__ == "Adds." and add.__name__ == "add"
    with pytest.raises(KeyError):
        fail()
    assert asyncio.run(wait()) == 3
    block = mstx.mstx_range("block")
    with block, block:
        pass
    with pytest.raises(ZeroDivisionError), mstx.annotate("raises"):
        1 / 0  # noqa: B018
    found = sorted(rows_of(recorder), key=lambda row: row.start_ns)
    name = test_decorators.__qualname__ + ".<locals>.bare"
    assert [row.message for row in found] == ["named", "named", name, "fails", "waits", "block", "block", "raises"]
    assert found[0].domain == "d" and found[0].end_ns >= found[1].end_ns
    assert found[4].end_ns - found[4].start_ns >= 4_000_000


def test_decorated_before_any_window_records_in_windows_only(look):
    @mstx.mstx_range("work")
    def work():
        return mstx.range_start("inner")

    assert work() == 0
    with recording():
        inner = work()
    mstx.range_end(inner)
    assert work() == 0
    assert messages(marks_of(look)) == ["work", "inner"]


def test_many_threads(recorder):
    def run(number):
        own.append(threading.get_native_id())
        for _ in range(2000):
            mstx.mark(f"thread {number}")
            mstx.range_end(mstx.range_start("range"))
        together.wait()

    own = []
    together = threading.Barrier(4)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = list(rows_of(recorder))
    assert len(found) == 4 * 2000 * 2
    by_thread = {number: {row.tid for row in found if row.message == f"thread {number}"} for number in range(4)}
    assert sorted(tid for tids in by_thread.values() for tid in tids) == sorted(own)
    assert all(row.start_ns <= row.end_ns for row in found)


IN_A_HANDLER = """
import faulthandler, json, signal, sys
from steplens import mstx
from steplens.collect.marks import marks
from steplens.collect.common.health import Health

def on_signal(number, frame):
    mstx.mark(f"in the handler {next(handled)}")
    mstx.mark("")

def between_lines(frame, event, argument):
    # a signal comes at every line of what a mark is, as one of the system would by chance
    if event == "line":
        signal.raise_signal(signal.SIGALRM)
    return between_lines if frame.f_globals.get("__name__") in ("steplens.mstx", marks.__name__) else None

class InterruptedHealth(dict):
    def __getitem__(self, key):
        if self.pop("once", False):
            signal.raise_signal(signal.SIGALRM)
        return dict.__getitem__(self, key)

faulthandler.dump_traceback_later(120, exit=True)
handled = iter(range(10_000))
signal.signal(signal.SIGALRM, on_signal)
health = Health()
marks.open_recorder(marks.MarkRecorder([], [], health))
sys.settrace(between_lines)
for number in range(20):
    mstx.mark(f"main {number}")
sys.settrace(None)
health.add("marks_rejected", "info", "first")
health._window[0] = InterruptedHealth(health._window[0], once=True)
health.add("marks_rejected", "info", "second")
recorder = marks.recorder
marks.close_recorder(recorder)
texts = recorder.texts()
print(json.dumps([texts[number][1] for number in recorder._rows[:: len(marks.COLUMNS)]]))
print(next(handled))
"""


@pytest.mark.slow
def test_a_mark_in_the_handler_of_a_signal_inside_of_a_mark(look, tmp_path):
    done = look.warm_python(IN_A_HANDLER, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, handled = map(json.loads, done.stdout.splitlines())
    assert handled > 100
    assert sorted(found) == sorted([f"main {number}" for number in range(20)] + [f"in the handler {n}" for n in range(handled)])


def test_bounds(recorder, monkeypatch):
    monkeypatch.setattr(marks, "LIMIT", 100)
    monkeypatch.setattr(marks, "TEXT_LIMIT", 2000)
    for number in range(130):
        mstx.mark("m")
        if number < 50:
            mstx.mark("x" * 100 + str(number))
    assert len(list(rows_of(recorder))) == 100
    found = recorder.found.take()
    assert all(finding["check"] == "marks_dropped" and finding["severity"] == "warning" for finding in found)
    kept = 2000 // len("x" * 100 + "10" + "default")
    assert {finding["message"]: finding["count"] for finding in found} == {
        "marks are missing: a window keeps 100 of them": 130 + kept - 100,
        "marks are missing: the texts of a window have at most 2000 bytes": 50 - kept,
    }


def test_a_text_beyond_the_limit_costs_no_other(recorder, monkeypatch):
    monkeypatch.setattr(marks, "TEXT_LIMIT", 100)
    for text in ("x" * 101, "after", "é" * 60, "and after", "after"):
        mstx.mark(text)
    assert [row.message for row in rows_of(recorder)] == ["after", "and after", "after"]
    (finding,) = recorder.found.take()
    assert finding["message"] == "marks are missing: the texts of a window have at most 100 bytes" and finding["count"] == 2


class Hostile(str):
    """A text all of whose methods raise."""

    def _no(self, *_):
        raise RuntimeError("no")

    __hash__ = __eq__ = __len__ = __bool__ = __str__ = __repr__ = encode = __format__ = _no


class Unasked:
    """What raises whatever it is asked."""

    __hash__ = __eq__ = __bool__ = __len__ = __str__ = __repr__ = Hostile._no
    __class__ = property(Hostile._no)


def test_no_argument_raises(recorder):
    for what in (Hostile("x"), Unasked(), ["x"], b"x", None, 5, "\ud800", ""):
        mstx.mark(what)
        mstx.range_end(mstx.range_start(what))
        mstx.range_push(what)
        mstx.mark("m", None, what)
        mstx.range_push("p", None, what)
        mstx.range_pop(what)
        mstx.range_end(what)
    mstx.mark("x")
    texts = [row.message for row in rows_of(recorder)]
    assert texts.count("x") == 4 and texts.count("m") == texts.count("p") == 2
    assert {type(text) for text in texts} == {str}


FORK = """
import os
import torch
from steplens import _ExperimentalConfig, mstx, profile, tensorboard_trace_handler
from steplens.collect.marks import marks
config = _ExperimentalConfig(mstx=True)
with profile(on_trace_ready=tensorboard_trace_handler("out", analyse_flag=False), experimental_config=config):
    mstx.mark("before")
    pid = os.fork()
    if not pid:
        mstx.mark("child")
        ok = marks.recorder is None and mstx.range_start("child") == 0
        os._exit(0 if ok else 3)
    assert os.waitpid(pid, 0)[1] == 0
    mstx.mark("after")
"""


def test_a_forked_process_records_nothing(look, tmp_path):
    done = look.warm_python(FORK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert messages(marks_of(look, tmp_path / "out")) == ["before", "after"]


# --- automatic marks


def test_phases_of_a_training(look):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(4, 4)

        def forward(self, x):
            if x.sum() < 0:
                raise ValueError("negative")
            return self.line(x)

    def originals():
        from torch.utils.data.dataloader import _BaseDataLoaderIter as Iterator

        hooks = torch.nn.modules.module
        return torch.save, Iterator.__next__, dict(hooks._global_forward_pre_hooks), dict(hooks._global_forward_hooks)

    net = Net()
    loader = torch.utils.data.DataLoader([torch.ones(4) for _ in range(6)], batch_size=2)
    before = originals()
    plan = schedule(wait=0, warmup=0, active=3, repeat=1)
    config = _ExperimentalConfig(profiler_level="Level_none")
    with profile(schedule=plan, on_trace_ready=handler(), experimental_config=config) as prof:
        for batch in loader:
            net(batch).sum().backward()
            prof.step()
            if prof.step_num == 1:
                torch.save(net.state_dict(), "checkpoint.pt")
                with pytest.raises(ValueError, match="negative"):
                    net(-batch)
                torch.save(net.state_dict(), io.BytesIO())
    found = marks_of(look)
    after = originals()
    assert after == before
    assert messages(found) == [
        *("step 0", "dataloader", "forward"),
        *("step 1", "save_checkpoint", "forward", "save_checkpoint", "dataloader", "forward"),
        *("step 2", "dataloader", "forward"),
    ]
    assert {row["domain"] for row in found} == {"default"}
    steps = [row for row in found if row["message"].startswith("step")]
    for row in found:
        assert any(step["start_ns"] <= row["start_ns"] and row["end_ns"] <= step["end_ns"] for step in steps)
    # The calls that Kineto recorded lie in the ranges of the same phase.
    (run,) = look.runs("out")
    # the one checkpoint that went to a file
    assert steplens.open(run).trace().meta_values()["checkpoint_bytes"] == Path("checkpoint.pt").stat().st_size
    raw = look.raw(run)
    base = raw["baseTimeNanoseconds"]
    loads = [event for event in raw["traceEvents"] if event["name"].startswith("enumerate(DataLoader)")]
    ranges = [row for row in found if row["message"] == "dataloader"]
    assert len(loads) == len(ranges) == 3
    for event, row in zip(sorted(loads, key=lambda event: event["ts"]), ranges, strict=True):
        assert row["start_ns"] - 3_000 <= base + event["ts"] * 1000
        assert base + (event["ts"] + event["dur"]) * 1000 <= row["end_ns"] + 3_000


def test_what_others_replace_meanwhile_stays(look):
    original = torch.save
    try:
        with recording():
            assert torch.save is not original
            mine = torch.save = lambda *args: None
        assert torch.save is mine
    finally:
        torch.save = original


RANK = """
import os, sys, torch, torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work
from steplens import _ExperimentalConfig, profile, tensorboard_trace_handler
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
before = [(owner, name, vars(owner)[name]) for owner in (ProcessGroup, Work) for name in vars(owner)]
early = dist.P2POp(dist.isend if rank == 0 else dist.irecv, torch.zeros(3), 1 - rank)
config = _ExperimentalConfig(mstx=True)
with profile(on_trace_ready=tensorboard_trace_handler(f"out{rank}", analyse_flag=False), experimental_config=config):
    x = torch.full((5, 2), float(rank))
    dist.all_reduce(x)
    assert x[0, 0] == 1
    work = dist.all_reduce(torch.ones(7, dtype=torch.float64), async_op=True)
    work.wait()
    dist.broadcast(torch.ones(3, dtype=torch.int32), src=0)
    dist.all_gather([torch.zeros(4), torch.zeros(4)], torch.ones(4))
    if rank == 0:
        dist.send(torch.ones(6, dtype=torch.float16), dst=1)
    else:
        dist.recv(torch.ones(6, dtype=torch.float16), src=0)
    late = dist.P2POp(dist.isend if rank == 0 else dist.irecv, torch.zeros(9), 1 - rank)
    for item in dist.batch_isend_irecv([early, late]):
        item.wait()
    dist.barrier()
assert before == [(owner, name, vars(owner)[name]) for owner in (ProcessGroup, Work) for name in vars(owner)]
dist.destroy_process_group()
# torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
os._exit(0)
"""

FORM = re.compile(
    r'\{"streamId": "(\d+)","count": "(\d+)","dataType": "(\w*)",'
    r'(?:"(srcRank|destRank)": "(\d+)",)?"groupName": "(\w+)","opName": "(\w+)"\}'
)


def test_communication(look, tmp_path):
    done = run_warm_ranks(2, "-c", RANK, tmp_path / "store", folder=tmp_path, env={"GLOO_SOCKET_IFNAME": "lo"})
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        found = [row for row in marks_of(look, tmp_path / f"out{rank}") if row["domain"] == "communication"]
        parsed = [FORM.fullmatch(row["message"]).groups() for row in found]
        assert all(json.loads(row["message"])["streamId"] == str(row["tid"]) for row in found)
        peer = ("destRank", "1") if rank == 0 else ("srcRank", "0")
        point = "GlooSend" if rank == 0 else "GlooRecv"
        assert [(int(count), kind, *item[3:5], item[6]) for item in parsed for count, kind in [item[1:3]]] == [
            (10, "fp32", None, None, "GlooAllreduce"),
            (7, "fp64", None, None, "GlooAllreduce"),
            (3, "int32", None, None, "GlooBroadcast"),
            (4, "fp32", None, None, "GlooAllgather"),
            (6, "fp16", *peer, point),
            (3, "fp32", *peer, point),
            (9, "fp32", *peer, point),
            (0, "", None, None, "GlooBarrier"),
        ]
        # A range ends when its work has been waited for, which for gloo is when the data is there.
        (run,) = look.runs(tmp_path / f"out{rank}")
        raw = look.raw(run)
        base = raw["baseTimeNanoseconds"]
        inner = [event for event in raw["traceEvents"] if event["name"] == "gloo:all_reduce"]
        first = min(inner, key=lambda event: event["ts"])
        assert found[0]["start_ns"] - 3_000 <= base + first["ts"] * 1000
        assert base + (first["ts"] + first["dur"]) * 1000 <= found[0]["end_ns"] + 3_000
        assert look.checks(run) == []


def test_messages_that_cannot_be_made_do_no_harm(recorder, capfd):
    class Group:
        group_name = "g"

        def name(self):
            raise RuntimeError("no name")

        def allreduce(self, tensors):
            return "result"

    automatic = automatic_marks.AutomaticMarks(recorder)
    call = automatic._collective("Allreduce", 0, Group.allreduce)
    assert call(Group(), [torch.ones(2)]) == call(Group(), []) == "result"
    assert capfd.readouterr().err.count("no name") == 1
    Group.name = lambda self: "gloo"
    assert call(Group(), [torch.ones(2), torch.ones(3)]) == "result"
    (row,) = rows_of(recorder)
    assert '"count": "5"' in row.message


# --- streams


def test_streams_of_a_cpu_are_passed_over_once(recorder, capfd):
    for stream in (torch.cpu.current_stream(), 7, object()):
        mstx.mark("m", stream)
        mstx.range_end(mstx.range_start("r", stream))
    assert capfd.readouterr().err.count("only the host's side is recorded") == 1
    assert [row.stream for row in rows_of(recorder)] == [-1] * 6


class Device:
    """A device whose clock began 5 s after the host's, and whose streams are 300 us behind."""

    type = "cuda"
    offset_ns, behind_ns = 5_000_000_000, 300_000

    def __init__(self):
        self.synchronized = 0

    def Event(self, enable_timing):
        assert enable_timing
        device = self

        class Event:
            def record(self, stream):
                behind = 0 if device.synchronized else device.behind_ns
                self.at = clock.now_ns() + behind - device.offset_ns

            def synchronize(self):
                pass

            def elapsed_time(self, other):
                return (other.at - self.at) / 1e6

        return Event()

    def synchronize(self, device):
        self.synchronized += 1

    def current_stream(self, device):
        return None


def test_device_ranges_are_put_on_the_clock_of_the_host(recorder, monkeypatch):
    # every look at the clock takes 1 us: a busy machine may leave any time between a mark of the host and that of the device
    now = itertools.count(1_700_000_000 * 10**9, 1_000)
    monkeypatch.setattr(clock, "now_ns", lambda: next(now))
    device = Device()
    monkeypatch.setattr(stream_marks, "_device_module", lambda _: device)
    numbers = ((3, 99), (0, 0))
    streams = [SimpleNamespace(device=device, stream_id=own, cuda_stream=driver) for own, driver in numbers]
    for stream in streams:
        number = mstx.range_start("kernels", stream)
        for _ in range(3000):
            clock.now_ns()
        mstx.range_end(number)
    mstx.mark("point", streams[0])
    left = mstx.range_start("left", streams[0])
    found = list(rows_of(recorder))
    assert left and device.synchronized == 1
    host = {(row.message, index): row for index, row in enumerate(found) if row.stream < 0}
    assert len(host) == 4
    on_device = [row for row in found if row.stream >= 0]
    assert [(row.message, row.stream) for row in on_device] == [("kernels", 3), ("kernels", 7), ("point", 3), ("left", 3)]
    for side, row in zip([row for row in found if row.stream < 0], on_device, strict=True):
        assert side.message == row.message
        assert abs(row.start_ns - side.start_ns - device.behind_ns) <= 5_000
        if row.message == "kernels":
            assert abs((row.end_ns - row.start_ns) - (side.end_ns - side.start_ns)) <= 5_000


def test_a_device_that_fails_costs_the_mark_on_it_alone(recorder, monkeypatch, capfd):
    class Broken(Device):
        def Event(self, enable_timing):
            raise RuntimeError("operation not permitted when stream is capturing")

    device = Broken()
    monkeypatch.setattr(stream_marks, "_device_module", lambda _: device)
    mstx.range_end(mstx.range_start("r", SimpleNamespace(device=device, stream_id=3)))
    assert "capturing" in capfd.readouterr().err
    assert [(row.message, row.stream) for row in rows_of(recorder)] == [("r", -1)]


def test_failures_beside_kineto_do_not_cost_the_window(look, monkeypatch, capfd):
    def fail(self):
        raise OSError("broken")

    monkeypatch.setattr(marks.MarkRecorder, "finish", fail)
    monkeypatch.setattr(marks.MarkRecorder, "save", lambda self, folder: fail(self))
    with recording():
        torch.ones(2).add(1)
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected"
    assert [item["count"] for item in look.state(run)["health"] if item["check"] == "call_failed"] == [2]
    assert marks.recorder is None
    assert "mstx failed" in capfd.readouterr().err


# --- results


def test_marks_reach_every_result(look):
    import sqlite3

    with profile(
        schedule=schedule(wait=0, warmup=0, active=1, repeat=1),
        on_trace_ready=tensorboard_trace_handler("out"),
        experimental_config=_ExperimentalConfig(mstx=True, export_type=["text", "db"]),
    ) as prof:
        mstx.mark("moment", domain="mine")
        with mstx.annotate("span"):
            torch.ones(4).add(1)
        prof.step()
    (run,) = look.runs("out")
    query = "select message, domain, start_ns, end_ns, pid, tid, stream from marks order by start_ns"
    rows = steplens.open(run).sql(query).to_dicts()
    assert messages(rows) == ["step 0", "moment", "span"]
    moment, span = rows[1:]
    assert moment["domain"] == "mine" and moment["start_ns"] == moment["end_ns"] and moment["stream"] is None
    output = run / "ASCEND_PROFILER_OUTPUT"
    events = json.loads((output / "trace_view.json").read_bytes())
    base = int(json.loads((run / "profiler_metadata.json").read_bytes())["base_time_ns"])
    drawn = {event["name"]: event for event in events if event.get("cat") == "mstx"}
    assert set(drawn) == {"step 0", "moment", "span"}
    assert abs(drawn["span"]["ts"] * 1000 + base - span["start_ns"]) < 10
    assert abs(drawn["span"]["dur"] * 1000 - (span["end_ns"] - span["start_ns"])) < 10
    with sqlite3.connect(next(output.glob("ascend_pytorch_profiler*.db"))) as database:
        stored = database.execute(
            "select m.value, d.value, startNs, endNs from MSTX_EVENTS e join STRING_IDS m on m.id = e.message "
            "join STRING_IDS d on d.id = e.domainId order by startNs"
        ).fetchall()
    assert stored == [(row["message"], row["domain"], row["start_ns"], row["end_ns"]) for row in rows]
