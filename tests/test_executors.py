"""A job is read and judged by executors of several kinds with the same answers, byte for byte; what they lose is done here."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from benchmarks.jobs.job import write_job
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.program import Model

import steplens
from steplens import offline
from steplens.advice.prepare import keep_answers, prepare_answers
from steplens.common.errors import InputError
from steplens.common.executors import map_ranks, named_executor
from steplens.trace.cache.seal import SIZE

from .command_line import run_process

RANKS = 6


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job") / "ranks"
    write_job(folder, Layout(RANKS, 1, 1), Model(layers=1), [], steps=3, seed=1)
    return folder


def answered(job: Path, folder: Path, executor: Any) -> dict[str, bytes]:
    """What is kept of each rank when a copy of the job is opened and prepared with an executor, without the seals."""
    shutil.copytree(job, folder)
    run = steplens.open(folder, executor=executor)
    prepare_answers(run)
    keep_answers(run)
    kept = {path.parent.name: path.read_bytes()[SIZE:] for path in folder.rglob("answers-*.msgpack")}
    assert len(kept) == RANKS
    return kept


@pytest.fixture(scope="module")
def here(job: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return answered(job, tmp_path_factory.mktemp("here") / "ranks", None)


def test_a_process_pool(job: Path, here: dict[str, bytes], tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert answered(job, tmp_path / "ranks", pool) == here


class Losing:
    """An executor one of whose processes is killed on the way: what it had to do is lost, and it takes no more."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self.lost = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        if arguments[-1] == 2:
            self.lost += 1
            return self._pool.submit(_die)
        return self._pool.submit(function, *arguments)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_loses_nothing(job: Path, here: dict[str, bytes], tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        executor = Losing(pool)
        assert answered(job, tmp_path / "ranks", executor) == here
    assert executor.lost


def test_submitit(job: Path, here: dict[str, bytes], tmp_path: Path) -> None:
    """It has ``submit`` and its jobs have ``result``, and it is no executor of the standard library."""
    submitit = pytest.importorskip("submitit")
    executor = submitit.LocalExecutor(folder=tmp_path / "logs")
    executor.update_parameters(timeout_min=5)
    assert answered(job, tmp_path / "ranks", executor) == here


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Dask as its users start it: a scheduler and two workers, each a process of its own; its address and its file."""
    pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("dask")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = folder / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny"]
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    host = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--scheduler-file", str(file)]
    processes = [subprocess.Popen([*dask, *host], **quiet)]
    try:
        for _ in range(300):
            if file.exists():
                break
            time.sleep(0.1)
        processes += [
            subprocess.Popen([*worker, "--no-dashboard", "--local-directory", str(folder / name)], **quiet) for name in "ab"
        ]
        yield f"tcp://127.0.0.1:{port}", file
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def test_dask(job: Path, here: dict[str, bytes], scheduler: tuple[str, Path], tmp_path: Path) -> None:
    address, file = scheduler
    executor: Any = named_executor(address)
    try:
        assert answered(job, tmp_path / "ranks", executor) == here
    finally:
        executor._client.close()
    shutil.copytree(job, tmp_path / "again")
    asked = run_process("summary", tmp_path / "again", "--scheduler", file, folder=tmp_path)
    assert asked.returncode == 0, asked.stderr
    told = run_process("summary", job, folder=tmp_path)
    assert asked.stdout.replace(str(tmp_path / "again"), "JOB") == told.stdout.replace(str(job), "JOB")


def test_runs_are_analysed_there_and_what_is_lost_here(job: Path, tmp_path: Path) -> None:
    shutil.copytree(job, tmp_path / "job")
    done = []

    class Losing:
        def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
            future: Future[Any] = Future()
            if done:
                future.set_exception(RuntimeError("lost"))
            else:
                done.append(function(*arguments))
                future.set_result(done[0])
            return future

    for unwanted in sorted((tmp_path / "job").glob("*.json"))[2:]:
        unwanted.unlink()
    results = offline.analyse(tmp_path / "job", 1, "text", output=tmp_path / "results", executor=Losing())
    assert [result.ok for result in results] == [True, True]
    assert results[0] is done[0]
    assert len(list((tmp_path / "results").rglob("step_trace_time.csv"))) == 2


@pytest.mark.parametrize("name", ["nobody", "tcp://127.0.0.1:9"])
def test_an_executor_that_is_not_there(name: str) -> None:
    with pytest.raises(InputError) as refused:
        named_executor(name)
    assert name in str(refused.value) and len(str(refused.value).splitlines()) <= 2


def test_what_fails_is_left_to_the_caller() -> None:
    class Here:
        def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
            future: Future[Any] = Future()
            try:
                future.set_result(function(*arguments))
            except ZeroDivisionError as error:
                future.set_exception(error)
            return future

    assert list(map_ranks(Here(), lambda number: 6 // number, range(4))) == [(1, 6), (2, 3), (3, 2)]
