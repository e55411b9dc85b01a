"""A program without PyTorch whose stacks are sampled by the library, and which knows how long it is in each of its functions.

Usage: ``python sampling_program.py LIBRARY FOLDER``, in any version of Python. The recording is ``FOLDER/x.rec``; what is true
of it is in ``FOLDER/x.json``: by thread and function the time that it took, in s, and the processor time of each thread in ns.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import random
import sys
import threading
import time
import types
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

torch = types.ModuleType("torch")
nn: Any = types.ModuleType("torch.nn")


class Module:
    """Stands for that of torch.nn."""

    def _wrapped_call(self, *arguments: Any) -> Any:
        return self.forward(*arguments)  # type: ignore[attr-defined]

    __call__ = _wrapped_call


nn.Module = Module
sys.modules["torch"], sys.modules["torch.nn"] = torch, nn

from steplens.collect.recorder import python_sampling  # noqa: E402
from steplens.formats import recorder as layout  # noqa: E402

library = ctypes.CDLL(sys.argv[1])
folder = Path(sys.argv[2])
library.steplens_recorder_start.argtypes = (
    ctypes.c_char_p, ctypes.c_uint32, ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t,
)  # fmt: skip
RATE_HZ = 200.0
SECONDS = 2.5
DATA = os.urandom(20_000)
clock = time.perf_counter
truth: dict[str, dict[str, float]] = {}
processor_ns: dict[str, int] = {}


def start(name: str, rate_hz: float = RATE_HZ) -> None:
    path = folder / f"{name}.rec"
    path.unlink(missing_ok=True)
    metadata = json.dumps({layout.SAMPLING_RATE: rate_hz}).encode()
    assert not library.steplens_recorder_start(os.fsencode(path), layout.WITH_SAMPLES, 32 << 20, metadata, None, 0)
    python_sampling.start_sampling(library, rate_hz)


def finish() -> dict[str, int]:
    library.steplens_recorder_stop()
    python_sampling.stop_sampling()
    totals = (ctypes.c_uint64 * len(layout.TOTAL_FIELDS))()
    library.steplens_recorder_finish(b"{}", totals)
    return dict(zip((name for name, _ in layout.TOTAL_FIELDS), totals, strict=True))


def computes(seconds: float) -> None:
    """In Python, which keeps its lock."""
    begin = clock()
    while clock() < begin + seconds:
        sum(range(100))


class Operator(Module):
    def forward(self, seconds: float) -> None:
        """In C, without the lock."""
        begin = clock()
        while clock() < begin + seconds:
            zlib.compress(DATA, 1)


operator = Operator()


def sleeps(seconds: float) -> None:
    time.sleep(seconds)


def loop(own: dict[str, float], parts: list[tuple[Callable[[float], None], float]]) -> None:
    thread_begin, begin = time.thread_time_ns(), clock()
    while clock() < begin + SECONDS:
        for part, seconds in parts:
            before = clock()
            part(seconds)
            name = getattr(part, "__name__", "forward")
            own[name] = own.get(name, 0.0) + clock() - before
    processor_ns[threading.current_thread().name] = time.thread_time_ns() - thread_begin


def sample_truth() -> None:
    """The main thread, beside one that sleeps more and one that waits all the time."""
    waiting: queue.Queue[int] = queue.Queue()
    helper = threading.Thread(target=waiting.get, name="waits for work")
    other = threading.Thread(target=lambda: loop(truth["other"], [(operator, 0.004), (sleeps, 0.016)]), name="other")
    truth.update(MainThread={}, other={})
    helper.start()
    start("x")
    other.start()
    # not of periods that anything else has, and short beside what a thread may keep the lock
    loop(truth["MainThread"], [(computes, 0.003), (operator, 0.005), (sleeps, 0.002)])
    other.join()
    totals = finish()
    waiting.put(1)
    helper.join()
    assert totals["python_samples"] > 0
    lost = [totals[name] for name in ("dropped_python_samples", "stackless_python_samples", "cut_python_samples")]
    assert lost == [0, 0, 0], totals
    (folder / "x.json").write_text(json.dumps({"seconds": truth, "processor_ns": processor_ns}))


def begin_and_end_threads() -> None:
    start("threads", 1000.0)
    for _ in range(100):
        threads = [threading.Thread(target=computes, args=(0.0005,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert finish()["python_samples"] > 20


def stop_amid_python() -> None:
    """Windows begin and end while several threads compute in Python, and give nobody the lock for long."""
    halts = threading.Event()

    def works() -> None:
        while not halts.is_set():
            computes(0.001)

    threads = [threading.Thread(target=works) for _ in range(3)]
    for thread in threads:
        thread.start()
    interval = sys.getswitchinterval()
    for number in range(60):
        start("amid", 1000.0)
        if number % 3:
            computes(0.002 * (number % 5))
        finish()
    assert sys.getswitchinterval() == interval
    halts.set()
    for thread in threads:
        thread.join()


def fork() -> None:
    start("parent", 1000.0)
    children = []
    for number in range(8):
        computes(0.003)
        child = os.fork()
        if not child:
            code = 1
            try:
                computes(0.01)
                if number % 2:
                    start("child", 500.0)
                    computes(0.1)
                    assert finish()["python_samples"] > 3
                code = 0
            finally:
                os._exit(code)
        children.append(child)
        computes(0.003)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    assert finish()["python_samples"] > 10


def one(depth: int) -> None:
    if depth:
        return (one if random.getrandbits(1) else two)(depth - 1)
    computes(0.002)


def two(depth: int) -> None:
    if depth:
        return (two if random.getrandbits(1) else one)(depth - 1)
    computes(0.002)


def has_more_stacks_than_any() -> None:
    """Every one another, and deep."""
    start("stacks", 1000.0)
    begin = clock()
    while clock() < begin + 2.5:
        one(480)
    totals = finish()
    assert totals["stackless_python_samples"] > 0 and totals["cut_python_samples"] == 0, totals
    sys.setrecursionlimit(3000)
    start("deep", 1000.0)
    begin = clock()
    while clock() < begin + 0.2:
        one(700)
    totals = finish()
    assert totals["cut_python_samples"] > 0 and totals["stackless_python_samples"] == 0, totals


if __name__ == "__main__":
    sample_truth()
    begin_and_end_threads()
    stop_amid_python()
    fork()
    has_more_stacks_than_any()
    # still sampling when Python ends
    start("end", 1000.0)
    print("to the end")
