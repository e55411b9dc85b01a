"""The library that makes columns of Kineto's events finds what Python finds, and reads what Kineto writes in any of its ways."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from steplens.common.native import build
from steplens.common.native.libraries import VARIABLE
from steplens.readers.common.json_events import JsonEventFile, Piece
from steplens.readers.kineto import kineto, kineto_events, two_processes
from steplens.readers.kineto.kineto_events import EventColumns
from steplens.readers.kineto.native_decoder import LIBRARY
from steplens.trace.trace import Trace

from ..fuzz.decoder_pieces import PieceMaker
from ..mutation.kineto_file import CUDA, capture, dumps, shuffle, write
from ..shared_data import shared
from .native_frames import assert_same_columns, read_pieces

#: every recording of Kineto that lies beside the checkout
RECORDINGS = [*CUDA, "cpu_only_rank34", "cuda_rank_missing"]

CALL = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10.5, "dur": 3, "args": {"External id": 4}}'
KERNEL = (
    b'{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10.5, "dur": 3, "args": {"External id": 4, '
    b'"device": 0, "stream": 7, "correlation": 9, "registers per thread": 32, "grid": [1, 1, 1]}}'
)
COPY = KERNEL.replace(b"kernel", b"gpu_memcpy").replace(b'"grid": [1, 1, 1]', b'"bytes": 5, "memory bandwidth (GB/s)": 1.5')


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    """The library, built once for all tests of this module."""
    if build.find_compiler() is None:
        pytest.skip("there is no C++ compiler")
    build.build_library(LIBRARY)


@pytest.fixture(params=RECORDINGS)
def recording(request: pytest.FixtureRequest) -> Path:
    return shared("kineto", f"{request.param}.json.gz")


def read_without_library(path: Path) -> Trace:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "off")
        return kineto.read(path)


def arrow_bytes(frame: pl.DataFrame) -> bytes:
    """A table as Arrow, with names as text: the numbers of categories depend on what the process read before.

    Built anew from its values, since bits behind the last row may be anything, and are others where pieces are put together.
    """
    buffer = io.BytesIO()
    named = frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
    pl.DataFrame([pl.Series(column.name, column.to_list(), dtype=column.dtype) for column in named]).write_ipc(buffer)
    return buffer.getvalue()


def assert_same_trace(found: Trace, expected: Trace) -> None:
    assert list(found) == list(expected)
    for name in expected:
        assert arrow_bytes(found.table(name)) == arrow_bytes(expected.table(name)), name
    assert (found.health is None) == (expected.health is None)
    if found.health is not None and expected.health is not None:
        assert found.health.equals(expected.health)


def test_recordings_give_the_same_tables(recording: Path) -> None:
    assert_same_trace(kineto.read(recording), read_without_library(recording))


def test_recordings_are_read_by_the_library(recording: Path) -> None:
    pieces = [bytes(piece) for piece in JsonEventFile(recording)]
    found = read_pieces(pieces, native=True)
    assert (found.by_library, found.by_python) == (len(pieces), 0)
    assert_same_columns(found, read_pieces(pieces, native=False))


@pytest.mark.parametrize("name", ["cuda_alexnet", "rocm_mi250_minitoy"])
def test_members_in_another_order_and_events_without_spaces(name: str, tmp_path: Path) -> None:
    document = capture(name)
    shuffle(document, seed=3)
    document["traceEvents"] = [dict(sorted(event.items())) for event in document["traceEvents"]]
    path = write(document, tmp_path / "trace.json")
    assert_same_trace(kineto.read(path), read_without_library(path))
    path.write_text(dumps(document, separators=(",", ":")))
    assert_same_trace(kineto.read(path), read_without_library(path))


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_pieces_give_the_same_columns(first: int) -> None:
    pieces = [PieceMaker(seed).make_piece() for seed in range(first, first + 50)]
    by_library = 0
    for piece in pieces:
        found = read_pieces([piece], native=True)
        assert_same_columns(found, read_pieces([piece], native=False))
        by_library += found.by_library
    assert by_library > 15
    # of one file, with rows of either way between those of the other
    assert_same_columns(read_pieces(pieces, native=True), read_pieces(pieces, native=False))


@pytest.mark.parametrize(
    "event",
    [
        CALL,
        b'\n{\t"args":{ "Input Dims" :[[2, 3]],"x":{"y":[1,{}]} } ,"dur":3,\r\n"ts":1e3,"tid":2,"pid":1,'
        b'"name":"a","cat":"cpu_op","ph":"X"}',
        b'{"ph": "X", "cat": "cpu_op", "name": "\\u00e9\\ud83d\\ude00 \\"x\\"\\n", "pid": 1, "tid": 2, "ts": 1, "dur": 0.001}',
        b'{"ph": "X", "cat": "cpu_op", "\\u006eame": "aten::conv", "pid": 1, "tid": 2, "ts": 1, "dur": 2, "args": '
        b'{"Concrete Inputs": ["\\\\"], "Call stack": "a;b", "flops": 3.9}}',
        # times since 1970: microseconds with and without a fraction
        CALL.replace(b"10.5", b"1689800000000000"),
        CALL.replace(b"10.5", b"1689800000000000.123"),
        CALL.replace(b"10.5", b"1689800000000000.0005"),
        CALL.replace(b"10.5", b"4e15"),
        CALL.replace(b'"dur": 3, ', b""),
        CALL.replace(b'"pid": 1', b'"pid": null'),
        CALL.replace(b"cpu_op", b"user_annotation"),
        CALL.replace(b"cpu_op", b"another tool's"),
        CALL.replace(b"X", b"B") + b"," + CALL.replace(b"X", b"E").replace(b"10.5", b"20"),
        KERNEL,
        KERNEL + b"," + KERNEL.replace(b"[1, 1, 1]", b"[2, 1, 1]") + b"," + COPY,
        # of a task that does not say how it was launched, and one that says of itself what others say of it
        KERNEL + b"," + KERNEL.replace(b'"registers per thread": 32, ', b""),
        KERNEL.replace(b'"grid"', b'"context": 3, "grid"'),
        COPY,
        CALL.replace(b"cpu_op", b"hip_runtime").replace(b"aten::mm", b"hipLaunchKernel"),
        CALL.replace(b"cpu_op", b"python_function"),
        CALL.replace(b"cpu_op", b"Trace").replace(b'"pid": 1', b'"pid": "Spans"'),
        b'{"ph": "i", "name": "[memory]", "pid": 1, "tid": 2, "ts": 5.25, "s": "t", '
        b'"args": {"Addr": 1, "Bytes": -4, "Device Id": -1}}',
        b'{"ph": "s", "id": 3, "pid": 1, "tid": 2, "ts": 5.25, "cat": "ac2g", "name": "ac2g"}',
        b'{"ph": "M", "name": "process_labels", "pid": 1, "tid": "Spans", "ts": 0, "args": {"labels": "GPU 0"}}',
        b'{"ph": "C", "values": [1.5, "NaN", [true, false, null]]}',
    ],
)
def test_the_library_reads(event: bytes) -> None:
    piece = b"[" + event + b"]"
    found = read_pieces([piece], native=True)
    assert (found.by_library, found.by_python) == (1, 0)
    assert_same_columns(found, read_pieces([piece], native=False))


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"[]",
        b"1",
        CALL[:-1],
        CALL + b"}",
        CALL.replace(b"mm", b"m\xff"),
        CALL.replace(b"mm", b"m\x01"),
        CALL.replace(b"mm", b"m\\q"),
        CALL.replace(b"mm", b"m\\ud800"),
        CALL.replace(b"10.5", b'"10.5"'),
        CALL.replace(b"10.5", b"NaN"),
        CALL.replace(b"10.5", b"1e999"),
        CALL.replace(b"10.5", b"010.5"),
        CALL.replace(b"10.5", b"10."),
        CALL.replace(b'"pid": 1', b'"pid": "gpu 0"'),
        CALL.replace(b'"pid": 1', b'"pid": 1.0'),
        CALL.replace(b'"pid": 1', b'"pid": 123456789012345678901234567890'),
        CALL.replace(b'"aten::mm"', b"3"),
        CALL.replace(b'"X"', b'"I"'),
        CALL.replace(b'"ph": "X", ', b""),
        CALL.replace(b'"tid": 2', b'"pid": 2, "tid": 2'),
        CALL.replace(b'{"External id": 4}', b'{"External id": "4"}'),
        CALL.replace(b'{"External id": 4}', b'{"External id": 4, "External id": 5}'),
        CALL.replace(b'{"External id": 4}', b"[]"),
        CALL.replace(b'{"External id": 4}', b"[" * 70 + b"]" * 70),
        CALL.replace(b'{"External id": 4}', b'{"a": [1, 2,]}'),
        KERNEL.replace(b'"grid"', b'"note": "registers per thread", "grid"'),
        b'{"ph": "M", "name": 5, "pid": 1, "args": {"name": "x"}}',
    ],
)
def test_python_reads_what_the_library_leaves(event: bytes) -> None:
    pieces = [b"[" + text + b"]" for text in (CALL, event, CALL)]
    found = read_pieces(pieces, native=True)
    assert (found.by_library, found.by_python) == (2, 1) if event else (3, 0)
    assert_same_columns(found, read_pieces(pieces, native=False))


def test_pieces_that_are_none() -> None:
    for piece in (b"", b"[", b"]", b"{}", b"null", b" ", b"[\0]"):
        assert_same_columns(read_pieces([piece], native=True), read_pieces([piece], native=False))


def test_texts_that_are_all_different() -> None:
    """More names, shapes, categories and unused arguments than any table of the library has places for at its beginning."""
    pieces = []
    for first in range(0, 9000, 3000):
        events = [
            CALL.replace(b"mm", b"mm%d" % number)
            .replace(b"4}", b'4, "Input Dims": [[%d]], "more": ["%s%d"]}' % (number, b"x" * 1000, number))
            .replace(b"cpu_op", b"cpu_op" if number % 60 else b"category %d" % number)
            for number in range(first, first + 3000)
        ]
        pieces.append(b"[" + b",".join(events) + b"]")
    found = read_pieces(pieces, native=True)
    assert found.by_library == 3
    assert_same_columns(found, read_pieces(pieces, native=False))


#: sets the limit of memory a few MB above what the process has; a piece whose rows need more is one for Python
SHORT_OF_MEMORY = """
import resource
from steplens.readers.kineto.kineto_events import EventColumns

columns = EventColumns()
native = columns._native
call = b'{"ph":"X","cat":"cpu_op","pid":1,"tid":2,"ts":1,"dur":1,"args":{"External id":1,"Sequence number":1,"flops":1}}'
piece = b"[" + b",".join([call] * 600_000) + b"]"
assert native.decode_piece(b"[]", text_times=False)
pages = int(open("/proc/self/statm").read().split()[0])
limit, most = resource.getrlimit(resource.RLIMIT_AS)


def within(megabytes, call):
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (megabytes << 20), most))
    try:
        return call()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


assert not within(16, lambda: native.decode_piece(piece, text_times=False))
assert native.decode_piece(piece, text_times=False)
assert not within(0, lambda: native.commit_piece(piece))
assert columns.as_read("operators").height == 0
assert native.decode_piece(piece, text_times=False) and native.commit_piece(piece)
assert columns.as_read("operators").height == 600_000
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is that of Linux")
def test_where_memory_is_short_a_piece_is_one_for_python() -> None:
    done = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_damage_anywhere_is_what_python_finds() -> None:
    piece = b"[" + CALL + b", " + KERNEL + b"]"
    for at in range(len(piece)):
        for changed in (
            piece[:at] + piece[at + 1 :],
            piece[:at] + b'"' + piece[at:],
            piece[: at + 1],
            piece[:at] + b"]" + piece[at:],
        ):
            found = read_pieces([changed], native=True)
            if found.by_library:
                assert_same_columns(found, read_pieces([changed], native=False))


def assert_same_rows(found: EventColumns, expected: EventColumns) -> None:
    """Of files that were cut at other places: kernels come before copies piece by piece."""
    for columns in (found, expected):
        columns.convert()
    for kind in expected.kinds:
        frames = [columns.frame(kind).with_columns(pl.col(pl.Categorical).cast(pl.String)) for columns in (found, expected)]
        if frames[1].width:
            first, second = (frame.select(sorted(frame.columns)).sort(pl.all()) for frame in frames)
            assert first.equals(second), kind
    assert (found.count, found.skipped, found.damaged) == (expected.count, expected.skipped, expected.damaged)
    assert found.thread_names == expected.thread_names


def test_a_second_thread_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(capture("cuda_alexnet"), tmp_path / "large.json")
    alone, _ = two_processes.read_columns(path)
    halves: list[str] = []
    read = two_processes._read_with_thread
    monkeypatch.setattr(two_processes, "_read_with_thread", lambda *given: halves.append("both") or read(*given))
    together, file = two_processes.read_columns(path, parallel_bytes=0)
    assert halves == ["both"]
    assert not file.truncated
    assert_same_rows(together, alone)


def test_without_a_second_thread_one_reads_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    path = write(capture("cuda_alexnet"), tmp_path / "large.json")
    alone, _ = two_processes.read_columns(path)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        found, _ = two_processes.read_columns(path, parallel_bytes=0)
    assert_same_columns(found, alone)


def test_what_fails_in_the_second_thread_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingFile(JsonEventFile):
        def __iter__(self) -> Iterator[Piece]:
            if self._to is not None:
                raise MemoryError
            return super().__iter__()

    path = write(capture("cuda_alexnet"), tmp_path / "large.json")
    alone, _ = two_processes.read_columns(path)
    monkeypatch.setattr(two_processes, "JsonEventFile", FailingFile)
    found, _ = two_processes.read_columns(path, parallel_bytes=0)
    assert_same_columns(found, alone)


def test_without_the_library_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EventColumns().is_native
    monkeypatch.setenv(VARIABLE, "off")
    assert not EventColumns().is_native


def test_a_large_file_has_the_library_built_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(capture("cuda_alexnet"), tmp_path / "large.json")
    with_library, _ = two_processes.read_columns(path)
    started: list[str] = []
    monkeypatch.setattr(kineto_events, "load_library", lambda: None)
    monkeypatch.setattr(two_processes, "build_in_background", started.append)
    without, _ = two_processes.read_columns(path)
    assert started == []
    without, _ = two_processes.read_columns(path, parallel_bytes=0)
    assert started == [LIBRARY.name]
    assert not without.is_native
    assert_same_rows(with_library, without)


@pytest.mark.long
def test_the_library_under_sanitizers() -> None:
    """Reads behind the end of a piece show with the tools of the compiler alone; building for them takes long."""
    command = [sys.executable, "-m", "tests.fuzz.native_decoder", "--seconds", "30", "--sanitized"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
