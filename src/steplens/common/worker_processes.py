"""Tasks of one kind, shared with processes that work beside this one: from the front here, from the back there.

What many traces are asked takes one core, whatever their number: queries over small tables spend most of their time in Python.
A worker runs a module whose main function calls ``serve``; it is a process of its own and not a fork, which would copy the
locks of the threads that the caller has, and not a pool, which would import the main module of the user's script again. A worker
that cannot start, that dies, or that has no answer costs time and nothing else: its tasks are done here.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import IO, Any, TypeVar

import msgspec

from steplens.common import json_text, parent

Given = TypeVar("Given")
Made = TypeVar("Made")

#: tells a process that it is a worker, which shares its tasks with nobody
_WORKER = "STEPLENS_WORKER"
#: tells it which core it has: a number, of which the remainder by their count is taken
_CORE = "STEPLENS_WORKER_CORE"
#: a worker has one core to itself; threads of its libraries would take turns with those of the others
_ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
#: like ``python -m``, but nothing is imported from the current folder, which may be that of a capture of somebody else
_RUN_MODULE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import runpy
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
#: what takes no longer than this here is not worth the start of a worker, seconds
_WORTH_S = 1.0
#: how long tasks are done here alone, to learn how long one takes, seconds
_ALONE_S = 0.2
#: however many cores a machine has
_MOST_WORKERS = 31
#: tasks that a worker gets at a time: a part of those that are left, at most so many
_SHARE = 8
_MOST_AT_ONCE = 16
#: a worker that has no answer to so many tasks in a row, as where nothing can be kept, gets no more
_MOST_UNANSWERED = 8
_LENGTH_BYTES = 8


def is_worker() -> bool:
    """Whether this process is a worker itself."""
    return os.environ.get(_WORKER) == "1"


def start_worker(
    module: str, *arguments: str, pipes: int | None = subprocess.DEVNULL, number: int = 0
) -> subprocess.Popen[bytes]:
    """Start a Python process that works for this one: it has one core, finds the same modules, and ends with this process.

    Args:
        module: what it runs as its main module.
        arguments: of the module.
        pipes: its standard input and output; nothing by default.
        number: of the processes that this one starts together: each has another core as long as there are enough.

    Raises:
        OSError: there are no more processes, no memory for one, or nobody knows where Python is, as where it is embedded.
    """
    if not sys.executable:
        raise FileNotFoundError("the program of Python is not known")
    environment = {
        **os.environ,
        **_ONE_THREAD,
        _WORKER: "1",
        _CORE: str(os.getpid() + number),
        parent.VARIABLE: str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    command = [sys.executable, "-c", _RUN_MODULE, module, *arguments]
    return subprocess.Popen(command, env=environment, stdin=pipes, stdout=pipes, stderr=subprocess.DEVNULL)


class SharedTasks:
    """The tasks 0 to ``count - 1``.

    Args:
        count: how many there are.
        module: what a worker runs.
        request: what its ``start`` is given, as JSON.
        at_once: whether it is known that they take long: else tasks are done here first, to learn that.
        most_workers: how many workers there may be, as for lack of memory, asked before any is started; at most one less than
            there are cores whatever it says.
    """

    def __init__(
        self,
        count: int,
        module: str,
        request: Any,
        *,
        at_once: bool = False,
        most_workers: Callable[[], int] | None = None,
    ) -> None:
        self._waiting = deque(range(count))
        self._count = count
        self._module = module
        self._request = request
        self._most_workers = most_workers
        self._lock = threading.Lock()
        self._answers: dict[int, Any] = {}
        self._at_once = at_once
        self._here = 0
        self._taken = 0

    @property
    def done(self) -> int:
        """How many tasks are done."""
        return self._here + self._taken + len(self._answers)

    def run(self, do: Callable[[int], None], take: Callable[[int, Any], None] | None = None) -> dict[int, Any]:
        """Do all tasks.

        Args:
            do: does one of them here; what it raises ends all.
            take: is given what the workers answer, and to which task, in this thread: thousands of answers take memory.

        Returns:
            What the workers answered to the others, by number of the task; nothing where ``take`` was given it.
        """
        began = time.perf_counter()
        with contextlib.ExitStack() as workers:
            threads: list[threading.Thread] = []

            def start_workers(count: int) -> None:
                for place in range(min(count, self._room()) if count > 0 else 0):
                    worker = workers.enter_context(_Worker(self._module, self._request, place))
                    threads.append(threading.Thread(target=self._feed, args=(worker,), name="steplens-worker", daemon=True))
                    threads[-1].start()

            is_decided = self._at_once or is_worker()
            if self._at_once:
                start_workers(self._count - 1)
            while (number := self._next_or_unanswered(threads)) is not None:
                do(number)
                self._here += 1
                self._hand_over(take)
                seconds = time.perf_counter() - began
                if not is_decided and seconds > _ALONE_S:
                    left_s = seconds / self._here * len(self._waiting)
                    # a task may take longer than those before it
                    is_decided = left_s > _WORTH_S or not self._waiting
                    start_workers(int(left_s / _WORTH_S))
            self._hand_over(take)
            return self._answers

    def _hand_over(self, take: Callable[[int, Any], None] | None) -> None:
        """Give away what workers have answered by now."""
        if take is None:
            return
        with self._lock:
            answered, self._answers = self._answers, {}
            self._taken += len(answered)
        for number, answer in answered.items():
            take(number, answer)

    def _room(self) -> int:
        """How many workers may be started."""
        if is_worker():
            return 0
        most = _MOST_WORKERS if self._most_workers is None else min(self._most_workers(), _MOST_WORKERS)
        return min(most, (os.cpu_count() or 1) - 1)

    def _next_or_unanswered(self, threads: list[threading.Thread]) -> int | None:
        """The next task that nobody does; where there is none, what the workers, once they are through, did not answer."""
        number = self._next()
        if number is None:
            for thread in threads:
                thread.join()
            number = self._next()
        return number

    def _next(self) -> int | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _task_portion(self) -> list[int]:
        """Tasks from the back: fewer towards the end, so that nobody waits long for the last ones."""
        with self._lock:
            size = min(-(-len(self._waiting) // _SHARE), _MOST_AT_ONCE)
            return [self._waiting.pop() for _ in range(size)]

    def _feed(self, worker: _Worker) -> None:
        """Let a worker answer until nothing is left, or it answers nothing any more."""
        unanswered: list[int] = []
        in_a_row = 0
        while in_a_row < _MOST_UNANSWERED and worker.lives and (numbers := self._task_portion()):
            answers = worker.ask(numbers)
            failed = [number for number in numbers if number not in answers]
            in_a_row = in_a_row + len(failed) if not answers else 0
            # nobody asks a worker twice
            unanswered += failed
            with self._lock:
                self._answers |= answers
        with self._lock:
            self._waiting.extend(sorted(unanswered, reverse=True))


class _Worker:
    """One process that answers.

    Args:
        module: what it runs.
        request: what it is given first.
        number: of the workers that are started together.
    """

    def __init__(self, module: str, request: Any, number: int) -> None:
        self._number = number
        self._module = module
        self._request = request
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Worker:
        with contextlib.suppress(OSError):  # no more processes or files: there is no such worker, and it answers nothing
            self._process = start_worker(self._module, pipes=subprocess.PIPE, number=self._number)
            self._tell(self._request)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):  # what was not sent is of no use any more
                    assert pipe is not None
                    pipe.close()

    @property
    def lives(self) -> bool:
        """Whether it can be asked."""
        return self._process is not None and self._process.poll() is None

    def ask(self, numbers: list[int]) -> dict[int, Any]:
        """What it answers to some tasks, without those to which it has no answer."""
        answers = {}
        # a worker that died has no answers
        with contextlib.suppress(OSError, ValueError, msgspec.DecodeError):
            self._tell(numbers)
            for number in numbers:
                is_answer, answer = self._read()
                if is_answer:
                    answers[number] = answer
        return answers

    def _tell(self, value: Any) -> None:
        assert self._process is None or self._process.stdin is not None
        if self._process is None or self._process.stdin is None:
            raise BrokenPipeError
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        length = int.from_bytes(_read_exactly(self._process.stdout, _LENGTH_BYTES), "little")
        return msgspec.msgpack.decode(_read_exactly(self._process.stdout, length))


def _read_exactly(pipe: IO[bytes], size: int) -> bytes:
    """So many bytes of a pipe.

    Raises:
        BrokenPipeError: it ended before.
    """
    content = pipe.read(size)
    if len(content) < size:
        raise BrokenPipeError
    return content


def serve_tasks(start: Callable[[Any], Callable[[int], Any]]) -> None:
    """The life of a worker: answer tasks until there are no more, or whoever asks is gone.

    Args:
        start: gives, from the request, what answers a task: with values that MessagePack knows. What it raises is no answer.
    """
    parent.end_with_parent()
    _stay_on_one_core()
    # what somebody prints is no answer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    answer = start(json_text.loads_stored(sys.stdin.buffer.readline()))
    for line in iter(sys.stdin.buffer.readline, b""):
        for number in json_text.loads_stored(line):
            try:
                content = msgspec.msgpack.encode((True, answer(number)))
            except Exception:  # the boundary of a task: who asks does it, too, and sees what is wrong
                content = msgspec.msgpack.encode((False, None))
            answers.write(len(content).to_bytes(_LENGTH_BYTES, "little") + content)
            answers.flush()


def _stay_on_one_core() -> None:
    """Run all threads of this process on one core: a query goes to polars' thread and back, a third faster than between two."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not every system lets a process choose
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ.get(_CORE, "0")) % len(cores)]})


def map_in_two_threads(work: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
    """``work`` of each item, once, in the order of the items, by two threads: for work that leaves Python to others.

    This thread does all of it where the machine has one processor, where this process has one to itself, and where there is no
    second thread.

    Raises:
        BaseException: what ``work`` raised; of some items the first.
    """
    all_items = list(items)
    left = deque(range(len(all_items)))
    made: dict[int, Made] = {}
    failed: dict[int, BaseException] = {}

    def take_turns() -> None:
        while left and not failed:
            try:
                number = left.popleft()
            except IndexError:  # the helper was quicker
                return
            try:
                made[number] = work(all_items[number])
            except BaseException as error:  # raised below
                failed[number] = error

    helper = None
    if len(all_items) > 1 and (os.cpu_count() or 1) > 1 and not is_worker():
        helper = threading.Thread(target=take_turns, name="steplens-share", daemon=True)
        try:
            helper.start()
        except RuntimeError:  # there is none
            helper = None
    take_turns()
    if helper is not None:
        helper.join()
    if failed:
        raise failed[min(failed)]
    return [made[number] for number in range(len(all_items))]
