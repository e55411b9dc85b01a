"""The export methods of the profiler object, on real windows."""

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from steplens import export_memory_timeline, profile, schedule, tensorboard_trace_handler
from steplens.collect.pytorch import kineto
from steplens.collect.torch_internals.memory_categories import write_categories

torch = pytest.importorskip("torch")


@pytest.fixture
def train():
    """A function that trains a small network with Adam, whose state is memory too."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters())

    def run(steps, profiler):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(16, 32)).sum().backward()
            optimizer.step()
            profiler.step()

    return run


ALL = {"record_shapes": True, "profile_memory": True, "with_stack": True}
PLAN = schedule(wait=0, warmup=1, active=2, repeat=1)


def messages(capfd):
    lines = [line for line in capfd.readouterr().err.splitlines() if "profiler.py: " in line]
    return [line.split("] ", 1)[1] for line in lines]


def points(events, to_us):
    """Points by category as PyTorch adds them up, from its events."""
    times, sizes = [], []
    for time, _, size, category in events:
        time = time if time == -1 else to_us(time)
        if not times or times[-1] != time:
            times.append(time)
            sizes.append(list(sizes[-1]) if sizes else [0] * 9)
        sizes[-1][category + 1] += size
    return [[times[1] if time == -1 else time for time in times], sizes]


def test_memory_timeline_equals_that_of_pytorch(train, tmp_path, capfd):
    torch_memory = pytest.importorskip("torch.profiler._memory_profiler")
    expected = {}

    def handler(prof):
        results = prof._session.closed.results
        timeline = torch_memory.MemoryProfileTimeline(torch_memory.MemoryProfile(results))
        timeline.export_memory_timeline(tmp_path / "torch.json", "cpu")
        timeline.export_memory_timeline_raw(tmp_path / "torch_raw.json", "cpu")
        for name in ("ours.json", "ours.json.gz", "ours_raw.json.gz", "ours.html"):
            prof.export_memory_timeline(tmp_path / name)
        expected["run"] = prof.run_directory

    with profile(schedule=PLAN, on_trace_ready=handler, **ALL) as prof:
        train(4, prof)
        # PyTorch counts its actions from 1
        events = [
            [time, action - 1, size, category]
            for time, action, size, category in json.loads((tmp_path / "torch_raw.json").read_bytes())
        ]
        assert json.loads(gzip.decompress((tmp_path / "ours_raw.json.gz").read_bytes())) == events
        theirs = json.loads((tmp_path / "torch.json").read_bytes())
        ours = json.loads((tmp_path / "ours.json").read_bytes())
        # it divides in floating point, which is a microsecond off now and then
        assert theirs == points(events, lambda ns: int(ns / 1000))
        assert ours == points(events, lambda ns: ns // 1000)
        assert json.loads(gzip.decompress((tmp_path / "ours.json.gz").read_bytes())) == ours
        assert "data:image/png;base64," in (tmp_path / "ours.html").read_text()
        # everything but what nothing tells about
        used = {category for _, _, _, category in events}
        assert used >= {0, 1, 2, 3, 4, 5, 6}
        # the same, later, from the run directory alone
        export_memory_timeline(expected["run"], tmp_path / "offline.json")
        assert json.loads((tmp_path / "offline.json").read_bytes()) == ours
    lines = messages(capfd)
    assert [line for line in lines if "training waits" in line and "memory" in line and "INFO" in line]
    assert len([line for line in lines if "Computing what memory was used for" in line]) == 1
    assert not [line for line in lines if "WARNING" in line or "ERROR" in line]


def test_modules_are_enough_for_categories(train, tmp_path, capfd):
    with profile(schedule=PLAN, record_shapes=True, profile_memory=True, with_modules=True) as prof:
        train(4, prof)
    prof.export_memory_timeline(str(tmp_path / "raw.json.gz"), "cpu")
    used = {event[3] for event in json.loads(gzip.decompress((tmp_path / "raw.json.gz").read_bytes()))}
    assert used >= {0, 3, 4, 5}
    assert not [line for line in messages(capfd) if "WARNING" in line or "ERROR" in line]


def test_what_was_not_recorded(train, tmp_path, capfd):
    with profile(schedule=PLAN, profile_memory=True) as prof:
        train(4, prof)
    assert prof._session.closed.results is None
    prof.export_memory_timeline(tmp_path / "raw.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "raw.json.gz").read_bytes()))
    assert len(events) > 20 and {event[3] for event in events} == {7}
    prof.export_stacks(tmp_path / "stacks.log")
    assert not (tmp_path / "stacks.log").exists()
    memory, stacks = messages(capfd)
    assert "needs record_shapes=True and with_stack=True or with_modules=True" in memory and "WARNING" in memory
    assert "export_stacks needs with_stack=True, nothing is written" in stacks and "WARNING" in stacks
    with profile(schedule=PLAN, record_shapes=True, with_stack=True) as prof:
        train(4, prof)
    prof.export_memory_timeline(tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()
    assert "export_memory_timeline needs profile_memory=True, nothing is written" in messages(capfd)[0]


def test_the_recorder_knows_no_categories(train, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("STEPLENS_RECORDER", "on")
    with profile(record_shapes=True, profile_memory=True, with_modules=True) as prof:
        train(2, prof)
    prof.export_memory_timeline(tmp_path / "memory.json")
    (line,) = messages(capfd)
    assert "because the recorder recorded the window, and they need what Kineto keeps: set STEPLENS_RECORDER=off" in line
    times, sizes = json.loads((tmp_path / "memory.json").read_bytes())
    assert len(times) == len(sizes) > 2


def test_a_window_too_large_for_categories(train, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(kineto, "KEPT_TRACE_BYTES", 1000)
    with profile(schedule=PLAN, **ALL) as prof:
        train(4, prof)
    prof.export_memory_timeline(tmp_path / "a.html")
    (line,) = messages(capfd)
    assert "WARNING" in line and "because the window is too large for them: record fewer steps" in line
    assert "categories of memory are unknown" in (tmp_path / "a.html").read_text().lower()


def test_events_of_a_small_window_that_are_gone(train, tmp_path, capfd):
    """They are given away by the first export; a window that is small enough is not called too large."""
    with profile(schedule=PLAN, **ALL) as prof:
        train(4, prof)
    prof._session.closed.results = None
    prof.export_memory_timeline(tmp_path / "a.html")
    (line,) = messages(capfd)
    assert "the categories of memory are unknown, and the window's events are gone" in line and "too large" not in line


def test_categories_that_cannot_be_found(train, tmp_path, capfd, monkeypatch):
    torch_memory = pytest.importorskip("torch.profiler._memory_profiler")

    class Broken:
        def __init__(self, results):
            raise AssertionError("version mismatch")

    monkeypatch.setattr(torch_memory, "MemoryProfile", Broken)
    with profile(schedule=PLAN, **ALL) as prof:
        train(4, prof)
    prof.export_memory_timeline(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_bytes())[0]
    assert [line for line in messages(capfd) if "PyTorch could not find them: AssertionError: version mismatch" in line]


def test_results_are_kept_until_the_next_window(train, tmp_path):
    with profile(schedule=schedule(wait=1, warmup=1, active=1, repeat=2), **ALL) as prof:
        train(3, prof)
        assert prof._session.closed.results is not None
        train(1, prof)
        # the second window has begun to warm up
        assert prof._session.closed is None


def test_devices(train, tmp_path, capfd):
    with profile(schedule=PLAN, **ALL) as prof:
        train(4, prof)
    prof.export_memory_timeline(tmp_path / "a.json", "cuda:0")
    prof.export_memory_timeline(tmp_path / "a.json", "what")
    assert not (tmp_path / "a.json").exists()
    missing, unknown = [line for line in messages(capfd) if "ERROR" in line]
    assert "no memory timeline data" in missing and "has no memory events of cuda:0" in missing
    assert "cannot have a device 'what'" in unknown


def test_categories_of_a_gpu(tmp_path, monkeypatch):
    """PyTorch's events of two GPUs, as its analysis hands them out."""
    torch_memory = pytest.importorskip("torch.profiler._memory_profiler")
    devices = [torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cpu")]
    keys = [torch_memory.TensorKey(device, number, torch_memory._Storage(64, number)) for number, device in enumerate(devices)]
    categories = torch_memory.CategoryDict()
    categories.set_by_id(keys[0], torch_memory.Category.PARAMETER)
    categories.set_by_version(keys[1], 0, torch_memory.Category.ACTIVATION)
    categories.set_by_version(keys[1], 1, torch_memory.Category.GRADIENT)
    action = torch_memory.Action

    class Profile:
        def __init__(self, results):
            self._categories = categories
            self.timeline = (
                (-1, action.PREEXISTING, (keys[0], 0), 100),
                (5, action.CREATE, (keys[1], 0), 30),
                (6, action.INCREMENT_VERSION, (keys[1], 0), 30),
                (7, action.DESTROY, (torch_memory.Key(devices[2]), 0), 8),
            )

    monkeypatch.setattr(torch_memory, "MemoryProfile", Profile)
    (tmp_path / "KINETO").mkdir()
    assert write_categories(None, tmp_path) == 5
    value = json.loads((tmp_path / "KINETO" / "memory_categories.json").read_bytes())
    assert value["devices"] == ["cuda:0", "cuda:1", "cpu"]
    rows = zip(*(value[name] for name in ("time_ns", "action", "bytes", "category", "device")), strict=True)
    assert list(rows) == [(-1, 0, 100, 0, 0), (5, 1, 30, 4, 1), (6, 2, -30, 4, 1), (6, 2, 30, 5, 1), (7, 3, -8, 7, 2)]


def test_stacks(train, look, tmp_path, capfd):
    with profile(schedule=PLAN, with_stack=True) as prof:
        train(4, prof)
        prof.export_stacks(tmp_path / "stacks.txt", metric="what")
    text = (tmp_path / "stacks.log").read_text()
    assert not (tmp_path / "stacks.txt").exists()
    lines = text.splitlines()
    assert len(lines) > 5
    assert all(re.fullmatch(r".+ [1-9]\d*", line) for line in lines)
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines)
    # the sum of the lines is that of the operators' own time, but for what is cut off
    operators = defaultdict(int)
    for event in look.raw(prof.run_directory)["traceEvents"]:
        if event.get("cat") in ("cpu_op", "user_annotation"):
            operators[event["name"]] += event["dur"]
    total = sum(int(line.rpartition(" ")[2]) for line in lines)
    assert (
        0
        < total
        <= operators["ProfilerStep#1"]
        + operators["ProfilerStep#2"]
        + sum(duration for name, duration in operators.items() if name.startswith("autograd::engine"))
    )
    assert [line for line in lines if "torch/optim/adam.py" in line and line.index("test_exports") < line.index("adam.py")]
    metric, suffix = messages(capfd)
    assert "metric should be one of self_cpu_time_total, self_npu_time_total, self_cuda_time_total" in metric
    assert "should end in .log" in suffix
    prof.export_stacks(tmp_path / "device.log", metric="self_cuda_time_total")
    assert "has no device tasks" in messages(capfd)[0]
    assert not (tmp_path / "device.log").exists()


def test_a_trace(train, tmp_path):
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path / "out"), analyse_flag=False), schedule=PLAN) as prof:
        train(4, prof)
    prof.export_chrome_trace(str(tmp_path / "deep" / "er" / "trace.json"))
    prof.export_chrome_trace(tmp_path / "trace.json.gz")
    events = json.loads((tmp_path / "deep" / "er" / "trace.json").read_bytes())
    assert isinstance(events, list)
    assert "ProfilerStep#1" in {event["name"] for event in events}
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())) == events


def test_before_a_window(tmp_path, capfd):
    prof = profile(schedule=PLAN, **ALL)
    prof.export_chrome_trace(tmp_path / "a.json")
    prof.export_stacks(tmp_path / "a.log")
    prof.export_memory_timeline(tmp_path / "a.html")
    lines = messages(capfd)
    assert len(lines) == 3
    assert all("there is no recorded window" in line and "ERROR" in line for line in lines)
    assert list(Path(tmp_path).glob("a.*")) == []
