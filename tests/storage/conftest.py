"""The same small captures on this machine, in memory, and on a server of S3 that runs here."""

from __future__ import annotations

import gzip
import importlib
import inspect
import json
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ..once import once

BUCKET = "captures"
#: names of the captures
RUN, JOB, TRACE = "host_7_20260101000000000_ascend_pt", "job", "trace.json.gz"


def small_trace() -> str:
    """A trace of two steps with a call each."""
    common = {"ph": "X", "pid": 5, "tid": 5}
    steps = [{**common, "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": 1000.0 * n, "dur": 900} for n in (1, 2)]
    calls = [{**common, "cat": "cpu_op", "name": "aten::mm", "ts": 1000.0 * n + 9, "dur": 50.0} for n in (1, 2)]
    return json.dumps({"schemaVersion": 1, "traceEvents": [*steps, *calls]})


@dataclass
class Place:
    """Where captures lie that a test copied there.

    Attributes:
        url: of the folder with all of them.
        fetched: of each range that was read: the end of its file's name, and its bytes.
        listed: what was listed.
    """

    url: str
    file_system: Any
    fetched: list[tuple[str, int]] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)

    @property
    def fetched_bytes(self) -> int:
        """All that was read since ``forget``."""
        return sum(size for _, size in self.fetched)

    def forget(self) -> None:
        """Count anew."""
        self.fetched.clear()
        self.listed.clear()

    def put(self, source: Path, name: str) -> str:
        """Copy a file or folder there; its URL."""
        root = self.url.partition("://")[2]
        for path in [source] if source.is_file() else sorted(source.rglob("*")):
            if path.is_file() and ".steplens" not in path.parts:
                below = name if path == source else f"{name}/{path.relative_to(source).as_posix()}"
                self.file_system.pipe_file(f"{root}/{below}", path.read_bytes())
        return f"{self.url}/{name}"


def counted(patch: pytest.MonkeyPatch, owner: type, place: Place) -> None:
    """Note what is read and listed there."""

    def note_read(path: str, start: int | None, end: int | None) -> None:
        assert start is not None and end is not None, "a whole file at once"
        place.fetched.append((path, end - start))

    def note_listing(path: str, *_: object) -> None:
        # a listing of everything is made of those of its folders in some file systems
        if sys._getframe(2).f_code.co_name != "walk":
            place.listed.append(path)

    # of S3 what all listings end in
    listings = ("_lsdir",) if hasattr(owner, "_lsdir") else ("find", "ls")
    reading = "_cat_file" if hasattr(owner, "_cat_file") else "cat_file"
    for name, note in ((reading, note_read), *((name, note_listing) for name in listings)):
        patch.setattr(owner, name, _noting(getattr(owner, name), note))


def _noting(function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    """A method that notes what it is asked before it does it."""
    if inspect.iscoroutinefunction(function):

        async def noted_later(self: Any, path: str, *arguments: Any, **more: Any) -> Any:
            note(path, more.get("start"), more.get("end"))
            return await function(self, path, *arguments, **more)

        return noted_later

    def noted(self: Any, path: str, *arguments: Any, **more: Any) -> Any:
        note(path, more.get("start"), more.get("end"))
        return function(self, path, *arguments, **more)

    return noted


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of two ranks, a run directory and a compressed trace; nobody changes it."""

    def make(folder: Path) -> None:
        from benchmarks.jobs.job import write_job
        from benchmarks.jobs.layout import Layout
        from benchmarks.jobs.program import Model

        write_job(folder / JOB, Layout(2, 1, 1), Model(layers=1), [], steps=3, seed=1)
        raw = folder / RUN / "KINETO"
        raw.mkdir(parents=True)
        (raw / "trace.json").write_text(small_trace())
        (raw.parent / "profiler_info.json").write_text('{"config": {}, "rank_id": 0}')
        (folder / TRACE).write_bytes(gzip.compress(small_trace().encode(), 1))

    return once(tmp_path_factory, "storage", make)


@pytest.fixture
def local(captures: Path, tmp_path: Path) -> Path:
    """The captures on this machine, with nothing kept of them."""
    return shutil.copytree(captures, tmp_path / "local", ignore=shutil.ignore_patterns(".steplens"))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """An empty place in the memory of this process."""
    pytest.importorskip("fsspec", reason="URLs are read with fsspec, which is not installed here")
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    name = uuid.uuid4().hex
    place = Place(f"memory://{name}", fsspec.filesystem("memory"))
    counted(monkeypatch, MemoryFileSystem, place)
    yield place
    place.file_system.rm(f"/{name}", recursive=True) if place.file_system.exists(f"/{name}") else None


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a server of S3 on this machine."""
    pytest.importorskip("s3fs", reason="s3:// is read with s3fs, which is not installed here")
    pytest.importorskip("moto.server", reason="the server of S3 is that of moto[server], which is not installed here")
    server: Any = importlib.import_module("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty bucket; who reads it gets address and account from the environment, as processes of an executor do."""
    for name, value in (
        ("AWS_ENDPOINT_URL", s3_server),
        ("AWS_ACCESS_KEY_ID", "somebody"),
        ("AWS_SECRET_ACCESS_KEY", "unsaid-secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    from s3fs import S3FileSystem

    file_system = S3FileSystem(skip_instance_cache=True)
    name = f"{BUCKET}-{uuid.uuid4().hex[:12]}"
    file_system.mkdir(name)
    place = Place(f"s3://{name}", file_system)
    counted(monkeypatch, S3FileSystem, place)
    # those that were made before have the methods that they had then
    S3FileSystem.clear_instance_cache()
    return place
