"""The recorder of operators against Kineto: both record the same calls at once, and what is read of them is compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.readers.kineto import kineto
from steplens.readers.recorder.recorder_file import read_recording
from steplens.trace.trace import Trace

torch = pytest.importorskip("torch")

from steplens.collect.recorder import recorder_library as recorder  # noqa: E402

#: both read the clock one after the other around each call, within so much in the median
CLOSE_NS = 5_000
SAME = (
    "name", "pid", "tid", "parent", "depth", "counted_as", "step", "scope", "sequence", "forward_tid", "input_shapes",
    "input_types", "arguments", "module",
)  # fmt: skip


@pytest.fixture(autouse=True)
def library() -> Iterator[None]:
    try:
        recorder.load_recorder()
    except recorder.RecorderError as error:
        pytest.skip(f"there is no recorder here: {error}")
    yield
    recorder.stop_recorder()
    recorder.finish_recorder({})
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def record_both(folder: Path, work: Callable[[], Any]) -> tuple[Trace, Trace]:
    """What the recorder and Kineto say of a function that both recorded at once, after it ran once without."""
    work()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        recorder.start_recorder(folder / "x.rec", recorder.WITH_SHAPES, {})
        work()
        recorder.stop_recorder()
    totals = recorder.finish_recorder({})
    assert totals.dropped_calls == totals.error_number == 0
    profiler.export_chrome_trace(str(folder / "x.json"))
    return read_recording(folder / "x.rec"), kineto.read(folder / "x.json")


def rows(trace: Trace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = trace.table(table)
    if frame is None:
        return []
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).select(columns).rows()


def network() -> Callable[[], None]:
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 5)
    )
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1, momentum=0.9, foreach=False)
    steps = iter(range(1 << 20))

    def train() -> None:
        for _ in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{next(steps)}"):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(layers(torch.randn(2, 3, 8, 8)), torch.tensor([1, 3])).backward()
                optimizer.step()

    return train


def lists() -> Callable[[], None]:
    weights = [torch.ones(3, requires_grad=True), torch.ones(2, 2, requires_grad=True)]
    optimizers = [torch.optim.Adam(weights, foreach=True), torch.optim.SGD(weights, foreach=True), torch.optim.AdamW(weights)]

    def work() -> None:
        torch.cat([torch.ones(2), torch.ones(3)])
        torch.stack([torch.ones(2), torch.zeros(2)], dim=1)
        torch.cat([torch.ones(0), torch.ones(1)])
        torch.block_diag(*weights)
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
        torch.split(torch.ones(6, 2), [1, 2, 3])
        torch.ones(2, 3)[torch.tensor([0, 1]), None]
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=False)
            sum(weight.sum() for weight in weights).backward()  # type: ignore[union-attr]
            optimizer.step()

    return work


def kinds_of_tensors() -> Callable[[], None]:
    def work() -> None:
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        (nested * 2).size(0)
        torch.nn.functional.conv1d(torch.ones(1, 1, 4), torch.ones(1, 1, 2), bias=None)
        torch.ones(2, dtype=torch.complex64).conj() * 2j
        torch.ones(2, 2, dtype=torch.half) @ torch.ones(2, 2, dtype=torch.half)
        torch.ones(2, dtype=torch.bfloat16).to(torch.double)
        torch.ones(()) + torch.ones(0, 3)
        torch.ones(0, 3).sum(1)
        torch.eye(3).to_sparse().coalesce()
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8).dequantize()
        torch.ones(2, dtype=torch.bool) & torch.ones(2, dtype=torch.uint8).bool()
        torch.ones(2, device="meta") * 2
        torch.arange(0, 1, 0.25)
        torch.full((2,), float("nan"))
        torch.empty(2).normal_(generator=torch.Generator())
        torch.einsum("ij,jk->ik", torch.ones(2, 2), torch.ones(2, 2))
        torch.ones(1, 1, 3, 3, requires_grad=True).unfold(2, 2, 1).sum().backward()

    return work


def exceptions() -> Callable[[], None]:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            return value * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (gradient + 1).sum()
            raise ValueError("in backward")

    def work() -> None:
        for call in (
            lambda: torch.ones(2, 3) @ torch.ones(2, 3),
            lambda: torch.nn.functional.conv2d(torch.ones(1), torch.ones(2)),
            lambda: Failing.apply(torch.ones(2, requires_grad=True)).sum().backward(),
        ):
            with pytest.raises((RuntimeError, ValueError)), torch.profiler.record_function("around"):
                call()
        torch.ones(2) + 1

    return work


def ranges() -> Callable[[], None]:
    def work() -> None:
        with torch.profiler.record_function("outer"), torch.profiler.record_function("inner"):
            torch.ones(2) + 1
            with torch.profiler.record_function("outer", "with arguments"):
                pass
        with torch.profiler.record_function(""):
            torch.ones(1)
        for _ in torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2):
            pass

    return work


def autograd() -> Callable[[], None]:
    weight = torch.ones(3, 3, requires_grad=True)

    def block(value: Any) -> Any:
        return torch.relu(value @ weight).sin()

    def work() -> None:
        for reentrant in (True, False):
            value = torch.utils.checkpoint.checkpoint(block, torch.ones(3, 3, requires_grad=True), use_reentrant=reentrant)
            value.sum().backward()
        (slope,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
        slope.sum().backward()
        with torch.no_grad():
            block(torch.ones(3, 3))
        with torch.inference_mode():
            block(torch.ones(3, 3))
        loss = block(torch.ones(3, 3)).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    return work


def scripts() -> Callable[[], None]:
    def double(value: torch.Tensor) -> torch.Tensor:
        return value * 2 + 1

    scripted = torch.jit.script(double)

    def work() -> None:
        scripted(torch.ones(2, requires_grad=True)).sum().backward()
        torch.jit.wait(torch.jit.fork(double, torch.ones(3)))

    return work


def collectives() -> Callable[[], None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    layers = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))

    def work() -> None:
        torch.distributed.all_reduce(torch.ones(5))
        torch.distributed.broadcast(torch.ones(2, 3), src=0)
        handle = torch.distributed.all_gather([torch.ones(2)], torch.ones(2), async_op=True)
        layers(torch.ones(4, 3)).sum().backward()
        handle.wait()
        torch.distributed.barrier()
        # its threads end their calls a moment after they let go of those who wait
        time.sleep(0.05)

    return work


COMMUNICATION = ("name", "kind", "operation", "elements", "bytes", "dtype", "op", "peer", "stream")


@pytest.mark.parametrize("make", [network, lists, kinds_of_tensors, exceptions, ranges, autograd, scripts, collectives])
def test_calls_are_those_of_kineto(make: Callable[[], Callable[[], None]], tmp_path: Path) -> None:
    ours, theirs = record_both(tmp_path, make())
    assert rows(ours, "ops", *SAME) == rows(theirs, "ops", *SAME)
    assert rows(ours, "steps", "id") == rows(theirs, "steps", "id")
    assert rows(ours, "communication", *COMMUNICATION) == rows(theirs, "communication", *COMMUNICATION)
    # arrows by what they join: the ids of the calls that begin there
    assert arrows(ours) == arrows(theirs)
    lengths = [
        trace.required("ops").collect().select(start="start_ns", length=pl.col("end_ns") - pl.col("start_ns"))
        for trace in (ours, theirs)
    ]
    apart = (lengths[0] - lengths[1]).select(pl.all().abs().median()).row(0)
    assert max(apart) < CLOSE_NS
    names, their_names = (dict(rows(trace, "threads", "tid", "name")) for trace in (ours, theirs))
    # of other threads Kineto does not always know the name, or one from before they were given theirs
    assert names[threading.get_native_id()] == their_names[threading.get_native_id()]


def arrows(trace: Trace) -> set[tuple[int, int, int]]:
    """Number, and the calls that begin where an arrow begins and ends."""
    begins = {(tid, start): number for number, tid, start in reversed(rows(trace, "ops", "id", "tid", "start_ns"))}
    ends = ("flow_id", "from_tid", "from_ns", "to_tid", "to_ns")
    return {
        (number, begins[from_tid, start], begins[to_tid, end])
        for number, from_tid, start, to_tid, end in rows(trace, "flows", *ends)
    }


def record_memory(folder: Path, work: Callable[[], None]) -> tuple[Trace, Trace]:
    """What the recorder says of a function, and what Kineto says of it when it runs again: both see the same allocations."""
    work()
    recorder.start_recorder(folder / "m.rec", recorder.WITH_MEMORY, {})
    work()
    recorder.stop_recorder()
    recorder.finish_recorder({})
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    profiler.export_chrome_trace(str(folder / "m.json"))
    return read_recording(folder / "m.rec"), kineto.read(folder / "m.json")


@pytest.mark.parametrize("make", [network, autograd])
def test_memory_is_that_of_kineto(make: Callable[[], Callable[[], None]], tmp_path: Path) -> None:
    ours, theirs = record_memory(tmp_path, make())
    sizes = [Counter(size for (size,) in rows(trace, "memory", "bytes")) for trace in (ours, theirs)]
    assert sizes[0] == sizes[1] and sizes[0]
    totals = [[total for (total,) in rows(trace, "memory", "allocated")] for trace in (ours, theirs)]
    # Kineto counts on from recording to recording
    assert [total - totals[0][0] for total in totals[0]] == [total - totals[1][0] for total in totals[1]]
    names = dict(rows(ours, "ops", "id", "name")), dict(rows(theirs, "ops", "id", "name"))
    # libraries free null, which is none of what was allocated before
    assert ours.table("health") is None or "unknown_memory_events" not in ours.table("health")["check"].to_list()
    inside = [
        [str(by_id.get(op)).partition("#")[0] for (op,) in rows(trace, "memory", "op")]
        for by_id, trace in zip(names, (ours, theirs), strict=True)
    ]
    assert inside[0] == inside[1]


def test_names_that_kineto_does_not_write(tmp_path: Path) -> None:
    """Kineto calls such a range "unknown"."""
    name = '\N{GREEK SMALL LETTER ALPHA} "quoted"\n\t\\ name, \x7f\x01'
    recorder.start_recorder(tmp_path / "x.rec", recorder.WITH_SHAPES, {"name": name})
    with torch.profiler.record_function(name):
        pass
    recorder.stop_recorder()
    recorder.finish_recorder({"name": "at the end"})
    trace = read_recording(tmp_path / "x.rec")
    assert rows(trace, "ops", "name") == [(name,)]
    assert trace.meta_value("name") == "at the end"


def test_floating_point_operations_are_those_of_pytorch(tmp_path: Path) -> None:
    work = network()
    work()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True) as profiler:
        recorder.start_recorder(tmp_path / "x.rec", recorder.WITH_SHAPES | recorder.WITH_FLOPS, {})
        work()
        recorder.stop_recorder()
    recorder.finish_recorder({})
    ours = Counter((name, flops) for name, flops in rows(read_recording(tmp_path / "x.rec"), "ops", "name", "flops") if flops)
    assert ours == Counter((event.name, event.flops) for event in profiler.events() if event.flops)
    assert ours


def last_of(trace: Trace, name: str) -> float:
    """How long a range took, in seconds."""
    ((start, end),) = [row[1:] for row in rows(trace, "ops", "name", "start_ns", "end_ns") if row[0] == name]
    return float(end - start) / 1e9


def test_a_range_around_the_end_ends_with_the_recording(tmp_path: Path) -> None:
    recorder.start_recorder(tmp_path / "x.rec", recorder.WITH_SHAPES, {})
    began = time.monotonic()
    with torch.profiler.record_function("around the end"):
        time.sleep(0.1)
        recorder.stop_recorder()
        stopped = time.monotonic()
        time.sleep(0.3)
        recorder.finish_recorder({})
    trace = read_recording(tmp_path / "x.rec")
    assert 0.1 <= last_of(trace, "around the end") <= stopped - began
    # what is open still is none of the next recording
    with torch.profiler.record_function("over two recordings"):
        recorder.start_recorder(tmp_path / "y.rec", recorder.WITH_SHAPES, {})
        torch.ones(2)
        time.sleep(0.1)
        recorder.stop_recorder()
        recorder.finish_recorder({})
    assert "over two recordings" not in [name for (name,) in rows(read_recording(tmp_path / "y.rec"), "ops", "name")]


KILLED = """
import os, signal, sys, time, torch
from pathlib import Path
from steplens.collect.recorder import recorder_library as recorder
recorder.start_recorder(Path(sys.argv[1]), 7, {"rank": 4})
with torch.profiler.record_function("the first call"):
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_says_what_it_was_in(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    command = [sys.executable, "-c", KILLED, str(tmp_path / "x.rec")]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(source)}, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    trace = read_recording(tmp_path / "x.rec")
    assert last_of(trace, "the first call") > 0.3 and trace.meta_value("rank") == 4
    checks = [check for (check,) in rows(trace, "health", "check")]
    assert "unended_recording" in checks and "open_calls" in checks
