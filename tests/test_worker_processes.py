"""Tasks that several processes share: each is done once, whatever becomes of the processes beside this one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from steplens.common import worker_processes
from steplens.common.worker_processes import SharedTasks, is_worker, start_worker

#: a worker whose answers are what ``ANSWER`` says
WORKER = """
import os, sys, time
from steplens.common.worker_processes import serve_tasks

def start(request):
    def answer(number):
        {answer}
    {start}
    return answer

if __name__ == "__main__":
    serve_tasks(start)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which modules are imported, on a machine of several cores."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    return folder


def shared(
    folder: Path, count: int, *, answer: str, start: str = "", slow_s: float = 0.02
) -> tuple[list[int], dict[int, object]]:
    """What was done here, and what workers answered, of so many tasks that take some time here."""
    text = textwrap.dedent(WORKER).format(answer=answer, start=start or "pass")
    (folder / "a_worker_of_tests.py").write_text(text)
    done: list[int] = []

    def do(number: int) -> None:
        done.append(number)
        time.sleep(slow_s)

    tasks = SharedTasks(count, "a_worker_of_tests", {"add": 100}, at_once=True)
    answers = tasks.run(do)
    assert tasks.done == count
    return done, answers


def test_every_task_is_done_once(modules: Path) -> None:
    done, answers = shared(modules, 300, answer="return [number + request['add'], str(os.getpid()).encode()]")
    assert sorted([*done, *answers]) == list(range(300))
    assert done == sorted(done), "here from the front"
    assert len(answers) > 20 and all(answer[0] == number + 100 for number, answer in answers.items())  # type: ignore[index]
    assert str(os.getpid()).encode() not in {answer[1] for answer in answers.values()}  # type: ignore[index]


def test_what_workers_answer_is_handed_over_as_it_comes(modules: Path) -> None:
    (modules / "a_worker_of_tests.py").write_text(textwrap.dedent(WORKER).format(answer="return number + 1", start="pass"))
    taken: dict[int, int] = {}
    done: list[int] = []
    most_waiting = 0

    def do_task(number: int) -> None:
        nonlocal most_waiting
        done.append(number)
        time.sleep(0.02)
        most_waiting = max(most_waiting, tasks.done - len(taken) - len(done))

    tasks = SharedTasks(300, "a_worker_of_tests", None, at_once=True)
    assert tasks.run(do_task, take=taken.__setitem__) == {} and tasks.done == 300
    assert sorted([*done, *taken]) == list(range(300)) and len(taken) > 20
    assert all(answer == number + 1 for number, answer in taken.items())
    assert most_waiting < len(taken)


def test_what_a_worker_does_not_answer_is_done_here(modules: Path) -> None:
    done, answers = shared(modules, 200, answer="return 1 // (number % 3)")
    assert sorted([*done, *answers]) == list(range(200))
    assert answers and all(number % 3 for number in answers)


@pytest.mark.parametrize(
    "worker",
    [
        {"answer": "os._exit(9)"},
        {"answer": "raise KeyboardInterrupt"},
        {"answer": "return object()"},
        {"answer": "return 1", "start": "raise RuntimeError"},
        {"answer": "return 1", "start": "sys.stdin.close()"},
        {"answer": "return 1", "start": "os.write(3, b'x'); os._exit(0)"},
    ],
    ids=["dies", "is interrupted", "answers nothing that can be sent", "does not start", "cannot hear", "ends"],
)
def test_a_worker_that_fails_costs_no_task(modules: Path, worker: dict[str, str]) -> None:
    done, answers = shared(modules, 60, slow_s=0.0, **worker)
    assert answers == {}
    assert sorted(done) == list(range(60))


def test_a_worker_that_dies_later_keeps_what_it_answered(modules: Path) -> None:
    done, answers = shared(modules, 120, answer="return os._exit(1) if number < 80 else number")
    assert sorted([*done, *answers]) == list(range(120))
    assert all(number >= 80 for number in answers)


def test_without_processes_all_is_done_here(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    done, answers = shared(modules, 20, answer="return 1", slow_s=0.0)
    assert done == list(range(20)) and answers == {}


def test_what_a_worker_prints_is_no_answer(modules: Path) -> None:
    _, answers = shared(modules, 200, answer="print('hello'); os.write(1, b'hello'); return number")
    assert answers and all(number == answer for number, answer in answers.items())


def test_quick_tasks_and_those_of_workers_start_nobody(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    done: list[int] = []
    SharedTasks(50, "nobody", None).run(done.append)
    SharedTasks(0, "nobody", None, at_once=True).run(done.append)
    SharedTasks(9, "nobody", None, at_once=True, most_workers=lambda: 0).run(done.append)
    monkeypatch.setenv("STEPLENS_WORKER", "1")
    assert is_worker()
    SharedTasks(9, "nobody", None, at_once=True).run(done.append)
    assert done == [*range(50), *range(9), *range(9)]


def test_slow_tasks_start_workers(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "_ALONE_S", 0.02)
    started: list[object] = []
    monkeypatch.setattr(SharedTasks, "_feed", lambda _, worker: started.append(worker))
    SharedTasks(100, "nobody", None).run(lambda _: time.sleep(0.03))
    assert len(started) == 2, "one less than there are cores, of 3"


def test_an_interrupt_ends_the_workers(modules: Path) -> None:
    (modules / "a_worker_of_tests.py").write_text(WORKER.format(answer="time.sleep(60)", start="pass"))
    others, pids = set(children()), list[int]()

    def do(number: int) -> None:
        deadline = time.monotonic() + 30
        while not pids and time.monotonic() < deadline:
            pids.extend(set(children()) - others)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SharedTasks(50, "a_worker_of_tests", None, at_once=True).run(do)
    assert pids and not set(pids) & set(children())
    deadline = time.monotonic() + 30
    while any(thread.name == "steplens-worker" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "steplens-worker"]


def children() -> list[int]:
    """The processes that this one started and that are still there."""
    return [int(pid) for pid in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()]


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be that of a capture of somebody else."""
    for name in ("polars", "msgspec", "json", "runpy", "random"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    process = start_worker("steplens.advice.prepare", pipes=subprocess.PIPE)
    _, _ = process.communicate(b"{}\n", timeout=60)
    assert process.returncode != 0, "it has no path to open"
    assert not (tmp_path / "was_run").exists()


def test_two_threads_give_what_one_gives_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    both = threading.Barrier(2, timeout=30)

    def square(number: int) -> int:
        if number < 2:  # nobody passes alone
            both.wait()
        return number * number

    assert worker_processes.map_in_two_threads(square, range(9)) == [number * number for number in range(9)]


@pytest.mark.parametrize("why", ["one processor", "a worker", "no threads", "one item"])
def test_one_thread_does_all_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1 if why == "one processor" else 2)
    monkeypatch.setattr(worker_processes, "is_worker", lambda: why == "a worker")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    if why == "no threads":
        monkeypatch.setattr(threading.Thread, "start", refuse)
    items = range(1 if why == "one item" else 5)
    threads = worker_processes.map_in_two_threads(lambda _: threading.current_thread(), items)
    assert threads == [threading.current_thread()] * len(items)


def test_what_fails_in_a_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        worker_processes.map_in_two_threads(lambda number: 1 // number, [1, 0, 2])
