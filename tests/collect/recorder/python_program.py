"""A program without PyTorch whose calls of Python are recorded by the library, and by a profile function of Python: what is true.

Usage: ``python python_program.py LIBRARY FOLDER``, in any version of Python. The recording is ``FOLDER/x.rec``, and what is true
of each call of ``program_begins_here`` is ``FOLDER/x.json``: how deep each call below it lies, and its name.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import threading
import types
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

from steplens.collect.recorder import python_calls  # noqa: E402
from steplens.formats import recorder as layout  # noqa: E402

library = ctypes.CDLL(sys.argv[1])
folder = Path(sys.argv[2])
library.steplens_recorder_start.argtypes = (
    ctypes.c_char_p, ctypes.c_uint32, ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t,
)  # fmt: skip


def start(name: str) -> None:
    path = folder / f"{name}.rec"
    path.unlink(missing_ok=True)
    assert not library.steplens_recorder_start(os.fsencode(path), layout.WITH_PYTHON, 32 << 20, b"{}", None, 0)
    python_calls.start_python_calls(library)


def finish() -> dict[str, int]:
    library.steplens_recorder_stop()
    python_calls.stop_python_calls()
    totals = (ctypes.c_uint64 * len(layout.TOTAL_FIELDS))()
    library.steplens_recorder_finish(b"{}", totals)
    return dict(zip((name for name, _ in layout.TOTAL_FIELDS), totals, strict=False))


class Inner(Module):
    def forward(self, value: str) -> int:
        return len(value)


class Outer(Module):
    def __init__(self) -> None:
        self.first, self.second = Inner(), Inner()

    def forward(self, value: str) -> None:
        self.first(value)
        self.second(value)


model = Outer()


def numbers() -> Any:
    yield 1
    yield len("")


async def waits() -> int:
    return len("")


def fails(depth: int) -> None:
    if depth:
        fails(depth - 1)
    raise ValueError


def program_begins_here() -> None:
    model("x")
    list(numbers())
    with contextlib.suppress(StopIteration):
        waits().send(None)
    with contextlib.suppress(ValueError):
        fails(5)
    with contextlib.suppress(IndexError):
        [].pop()
    generator = numbers()
    next(generator)
    generator.close()
    sorted([3, 1], key=lambda value: -value)
    [each + 1 for each in range(2)]
    {"a": str(1)}.get("a")
    "".join(["a"])


def observed() -> list[tuple[int, str]]:
    """What a profile function of Python sees."""
    seen: list[tuple[int, str]] = []
    depth = -1

    def on_event(frame: Any, event: str, argument: Any) -> None:
        nonlocal depth
        code = frame.f_code
        if event == "call" and (depth >= 0 or code is program_begins_here.__code__):
            depth += 1
            is_module = code is Module._wrapped_call.__code__
            name = f"{code.co_filename}({frame.f_lineno}): {code.co_name}"
            seen.append((depth, f"nn.Module: {type(frame.f_locals['self']).__name__}" if is_module else name))
        elif event == "c_call" and depth >= 0:
            depth += 1
            seen.append((depth, repr(argument)))
        elif event in ("return", "c_return", "c_exception") and depth >= 0:
            depth -= 1

    sys.setprofile(on_event)
    program_begins_here()
    sys.setprofile(None)
    return [entry for entry in seen if entry[0] > 0]


def record_threads() -> None:
    """In this thread, in one that was there before, and in one that begins."""
    begins, is_done = threading.Event(), threading.Event()

    def worker() -> None:
        is_done.set()
        begins.wait()
        program_begins_here()

    before = threading.Thread(target=worker)
    before.start()
    is_done.wait()
    start("x")
    program_begins_here()
    begins.set()
    before.join()
    after = threading.Thread(target=program_begins_here)
    after.start()
    after.join()
    totals = finish()
    assert sys.getprofile() is None and threading.getprofile() is None
    assert [totals[name] for name in ("dropped_python_calls", "refused_python_threads", "lost_python_threads")] == [0, 0, 0], (
        totals
    )


def record_beside_threads() -> None:
    halts = threading.Event()

    def computes() -> None:
        while not halts.is_set():
            program_begins_here()

    threads = [threading.Thread(target=computes) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        start("many")
        program_begins_here()
        assert finish()["python_calls"] > 20
    halts.set()
    for thread in threads:
        thread.join()


def meet_other_profilers() -> None:
    def mine(*_: Any) -> None:
        pass

    sys.setprofile(mine)
    start("refused")
    assert finish()["refused_python_threads"] == 1 and sys.getprofile() is mine
    sys.setprofile(None)
    start("lost")
    before = sys.getprofile()
    sys.setprofile(mine)
    program_begins_here()
    sys.setprofile(before)
    program_begins_here()
    totals = finish()
    assert totals["lost_python_threads"] == 1 and totals["python_calls"] > 20 and sys.getprofile() is None
    sys.setprofile(before)
    program_begins_here()
    assert sys.getprofile() is None


def fork() -> None:
    start("parent")
    child = os.fork()
    if not child:
        code = 1
        try:
            program_begins_here()
            assert sys.getprofile() is None
            start("child")
            program_begins_here()
            assert finish()["python_calls"] > 20
            code = 0
        finally:
            os._exit(code)
    program_begins_here()
    assert os.waitpid(child, 0)[1] == 0
    finish()


if __name__ == "__main__":
    program_begins_here()
    record_threads()
    (folder / "x.json").write_text(json.dumps(observed()))
    record_beside_threads()
    meet_other_profilers()
    fork()
