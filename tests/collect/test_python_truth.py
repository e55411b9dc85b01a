"""Calls of Python of the recorder against those of Kineto: the same program is recorded by one after the other.

Python has one profile function for each thread, so that both cannot record at once. What is compared is what the program called,
from a function of this file on, in every detail that does not differ from run to run.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import re
import threading
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

from steplens.collect.recorder import python_calls  # noqa: E402
from steplens.collect.recorder import recorder_library as recorder  # noqa: E402

#: the function that everything compared is below of
ROOT = "program_begins_here"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@pytest.fixture(autouse=True)
def library() -> Iterator[None]:
    try:
        recorder.load_recorder()
    except recorder.RecorderError as error:
        pytest.skip(f"there is no recorder here: {error}")
    if reason := python_calls.why_not_recorded():
        pytest.skip(reason)
    yield
    recorder.stop_recorder()
    recorder.finish_recorder({})


def program_begins_here(work: Callable[[], Any]) -> None:
    work()


def record_each(folder: Path, work: Callable[[], Any]) -> tuple[Trace, Trace]:
    """What the recorder and Kineto say of a function that each recorded once, after it ran once without."""
    program_begins_here(work)
    recorder.start_recorder(folder / "x.rec", recorder.WITH_PYTHON, {})
    program_begins_here(work)
    recorder.stop_recorder()
    totals = recorder.finish_recorder({})
    assert totals.dropped_python_calls == totals.error_number == totals.lost_python_threads == totals.refused_python_threads == 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profiler:
        program_begins_here(work)
    profiler.export_chrome_trace(str(folder / "x.json"))
    return read_recording(folder / "x.rec"), kineto.read(folder / "x.json")


def python_rows(trace: Trace) -> list[dict[str, Any]]:
    frame = trace.table("python")
    assert frame is not None
    columns = ("id", "name", "start_ns", "end_ns", "tid", "parent", "module_id")
    return frame.with_columns(pl.col("name").cast(pl.String)).select(columns).rows(named=True)


def calls_below(trace: Trace, root: str) -> list[list[tuple[int, str, int | None]]]:
    """For each call of a function all calls below it, in their order: how deep each lies, its name, its number as a module."""
    rows = python_rows(trace)
    depth: dict[int, int] = {}
    found: list[list[tuple[int, str, int | None]]] = []
    places: dict[int, int] = {}
    for row in rows:
        parent = row["parent"]
        if parent in places:
            places[row["id"]] = places[parent]
            depth[row["id"]] = depth[parent] + 1
            found[places[parent]].append((depth[row["id"]], _ADDRESS.sub("", row["name"]), row["module_id"]))
        elif row["name"].endswith(f": {root}"):
            places[row["id"]], depth[row["id"]] = len(found), 0
            found.append([])
    return found


def are_nested(trace: Trace) -> bool:
    """Whether each call lies inside of the one that it says it is of, on its thread."""
    rows = {row["id"]: row for row in python_rows(trace)}
    return all(
        rows[row["parent"]]["tid"] == row["tid"]
        and rows[row["parent"]]["start_ns"] <= row["start_ns"] <= row["end_ns"] <= rows[row["parent"]]["end_ns"]
        for row in rows.values()
        if row["parent"] is not None
    )


# --- programs


def network() -> Callable[[], None]:
    class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.BatchNorm2d(3), torch.nn.ReLU())

        def forward(self, value: Any) -> Any:
            return value + self.layers(value)

    model = torch.nn.Sequential(Block(), Block(), torch.nn.Flatten(), torch.nn.Linear(3 * 64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def train() -> None:
        for step in range(2):
            with torch.profiler.record_function(f"step {step}"):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(torch.randn(2, 3, 8, 8)), torch.tensor([1, 3])).backward()
                optimizer.step()

    return train


def nested_functions() -> Callable[[], None]:
    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*arguments: Any) -> Any:
            return function(*arguments)

        return inner

    @decorated
    def sum_of(values: list[int]) -> int:
        return sum(value + 1 for value in values)

    class Thing:
        attribute = property(lambda self: len("thing"))

        def __init__(self) -> None:
            self.values = [3, 1, 2]

        def __enter__(self) -> Thing:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def __call__(self) -> int:
            return self.attribute

        @classmethod
        def make(cls) -> Thing:
            return cls()

    def work() -> None:
        with Thing.make() as thing:
            thing()
            sum_of(thing.values)
            sorted(thing.values, key=lambda value: -value)
            list(map(abs, thing.values))
            [each for each in thing.values if each]
            {each: str(each) for each in thing.values}
        type("Made", (), {"method": lambda self: None})().method()
        exec("def of_text(): return len([])\nof_text()", {})
        functools.partial(sum_of, [1])()

    return work


def exceptions() -> Callable[[], None]:
    def deep(depth: int) -> None:
        if depth:
            try:
                deep(depth - 1)
            finally:
                len("")
        raise ValueError(depth)

    def work() -> None:
        with contextlib.suppress(ValueError):
            deep(4)
        with contextlib.suppress(IndexError):
            [].pop()
        with contextlib.suppress(ValueError):
            int("no number")
        with contextlib.suppress(RuntimeError):
            torch.ones(2, 3) @ torch.ones(2, 3)
        with contextlib.suppress(StopIteration):
            next(iter([]))
        getattr(work, "nothing", None)

    return work


def generators() -> Callable[[], None]:
    def numbers(count: int) -> Iterator[int]:
        for number in range(count):
            yield number + len("")
        len("")

    def delegates() -> Iterator[int]:
        yield from numbers(2)
        received = yield 3
        yield received

    async def waits() -> int:
        return len("waits")

    async def awaits() -> int:
        return await waits() + await waits()

    def work() -> None:
        list(numbers(3))
        generator = delegates()
        next(generator), next(generator), next(generator)
        generator.send(4)
        generator.close()
        thrown = numbers(2)
        next(thrown)
        with contextlib.suppress(KeyError):
            thrown.throw(KeyError("thrown"))
        with contextlib.suppress(StopIteration):
            awaits().send(None)
        for number in numbers(2):
            if number:
                break

    return work


def recursion() -> Callable[[], None]:
    def count(depth: int) -> int:
        return depth and count(depth - 1) + 1

    return lambda: [count(depth) for depth in (0, 1, 300)] and None


def batches() -> Callable[[], None]:
    loader = torch.utils.data.DataLoader(torch.ones(6, 2), batch_size=2, shuffle=True)

    def work() -> None:
        for _ in loader:
            pass

    return work


def hooks_and_functions() -> Callable[[], None]:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            return value * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2

    layer = torch.nn.Linear(2, 2)
    layer.register_forward_hook(lambda *_: None)
    layer.register_full_backward_hook(lambda *_: None)

    def work() -> None:
        weight = torch.ones(2, 2, requires_grad=True)
        weight.register_hook(lambda gradient: gradient + 1)
        layer(Twice.apply(weight)).sum().backward()
        torch.utils.checkpoint.checkpoint(layer, weight, use_reentrant=False).sum().backward()

    return work


PROGRAMS = [network, nested_functions, exceptions, generators, recursion, batches, hooks_and_functions]


@pytest.mark.parametrize("make", PROGRAMS)
def test_calls_are_those_of_kineto(make: Callable[[], Callable[[], None]], tmp_path: Path) -> None:
    ours, theirs = record_each(tmp_path, make())
    (our_calls,), (their_calls,) = calls_below(ours, ROOT), calls_below(theirs, ROOT)
    assert our_calls == their_calls and len(our_calls) > 10
    assert are_nested(ours)
    assert stacks(ours) == stacks(theirs)


def stacks(trace: Trace) -> list[tuple[str, str]]:
    """The operators below the program, each with the stack of what called it, up to the program."""
    ops = trace.required("ops").select(pl.col("name", "stack").cast(pl.String)).collect()
    return [
        (name, _ADDRESS.sub("", stack.partition(f": {ROOT}")[0])) for name, stack in ops.rows() if stack and f": {ROOT}" in stack
    ]


def test_calls_of_another_thread_are_those_of_kineto(tmp_path: Path) -> None:
    tasks: queue.Queue[Callable[[], None] | None] = queue.Queue()
    done: queue.Queue[int] = queue.Queue()

    def works() -> None:
        while (task := tasks.get()) is not None:
            program_begins_here(task)
            done.put(1)

    # Kineto records the threads that are there when it begins
    thread = threading.Thread(target=works)
    thread.start()
    inner = network()

    def work() -> None:
        tasks.put(inner)
        done.get()
        len("")

    ours, theirs = record_each(tmp_path, work)
    tasks.put(None)
    thread.join()
    # how often who waits has to look does not matter
    assert sorted(map(len, calls_below(theirs, ROOT)))[-1] > 100
    assert any(row["name"].endswith(": works") and row["tid"] == thread.native_id for row in python_rows(ours))
    of_thread = [max(calls_below(trace, ROOT), key=len) for trace in (ours, theirs)]
    assert of_thread[0] == of_thread[1]
    assert are_nested(ours)


def test_threads_that_begin_while_recording_goes_on_are_recorded(tmp_path: Path) -> None:
    """Kineto leaves them out: what they call is compared with what the main thread calls."""
    work = nested_functions()

    def both() -> None:
        program_begins_here(work)
        thread = threading.Thread(target=program_begins_here, args=(work,))
        thread.start()
        thread.join()

    program_begins_here(work)
    recorder.start_recorder(tmp_path / "x.rec", recorder.WITH_PYTHON, {})
    both()
    recorder.stop_recorder()
    recorder.finish_recorder({})
    trace = read_recording(tmp_path / "x.rec")
    found = calls_below(trace, ROOT)
    assert len(found) == 2 and found[0] == found[1]
    began = {row["tid"]: row["start_ns"] for row in reversed(python_rows(trace))}
    started = next(row for row in python_rows(trace) if row["name"] == "<built-in function start_new_thread>")
    # not before it was made
    assert max(began.values()) >= started["start_ns"] and began[started["tid"]] < started["start_ns"]
    counts = Counter(row["tid"] for row in python_rows(trace))
    assert len(counts) == 2 and min(counts.values()) > len(found[0])
