"""Files of the recorder of operators: every kind of block, the clock, links, memory, and what can be wrong with one."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.formats import recorder as layout
from steplens.readers.detect import find_one, find_traces
from steplens.readers.recorder.recorder_file import read_recording
from steplens.trace.trace import Trace

from . import recorder_files as files
from .recorder_files import BEGIN_NS, PID, Recording, call, calls, clocks, memory, signatures, thread

MS = 1_000_000
MM = {"name": "aten::mm", "shapes": [[2, 3], [3, 4], []], "types": ["float", "float", "Scalar"], "flops": 48}
CONV = {"name": "aten::conv2d", "shapes": [[1, 3, 8, 8]], "types": ["float"], "arguments": ["", "[1, 1]"]}
STEP = {"name": "ProfilerStep#3"}
BACKWARD = {"name": "autograd::engine::evaluate_function: MmBackward0"}
CAT = {"name": "aten::cat", "shapes": [[[2], [3, 1]], []], "types": ["TensorList", "Scalar"], "arguments": ["", "0"]}
TEXTS = (MM, CONV, STEP, BACKWARD, CAT)


def begin(**options: Any) -> Recording:
    """A file up to its records."""
    return Recording([files.header(**options)]).add(
        files.metadata({"rank": 2}), clocks(0, 30 * MS), thread(1, 77, 5), signatures(*TEXTS)
    )


def recorded() -> Recording:
    """One step with a convolution around a multiplication, and the backward call of the latter on another thread."""
    return begin().add(
        calls(call(2 * MS, 3 * MS, 0, sequence=4), call(MS, 4 * MS, 1, sequence=4), call(0, 9 * MS, 2, scope=7)),
        thread(2, 78, 6, "autograd"),
        calls(call(5 * MS, 7 * MS, 3, sequence=4, forward_thread=5, thread=2), thread=2),
        memory((1, 64, 100), (2, 128, 50), (3, 64, -1)),
        memory((MS, 128, -1), thread=2),
    )


def rows(trace: Trace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = trace.table(table)
    if frame is None:
        return []
    # categories are texts here
    return frame.select(pl.col(pl.Categorical).cast(pl.String), pl.exclude(pl.Categorical)).select(columns).rows()


def findings(trace: Trace) -> dict[str, str]:
    return dict(rows(trace, "health", "check", "message"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "x.rec"


def test_a_file_becomes_the_tables_of_a_trace(path: Path) -> None:
    trace = read_recording(recorded().add(files.metadata({"config": {}, "rank": 3}), files.end(4, 4)).write(path))
    assert rows(trace, "ops", "name", "tid", "start_ns", "end_ns", "parent", "scope", "sequence", "forward_tid") == [
        ("ProfilerStep#3", 77, BEGIN_NS, BEGIN_NS + 9 * MS, None, 7, None, None),
        ("aten::conv2d", 77, BEGIN_NS + MS, BEGIN_NS + 4 * MS, 0, 0, 4, 0),
        ("aten::mm", 77, BEGIN_NS + 2 * MS, BEGIN_NS + 3 * MS, 1, 0, 4, 0),
        (BACKWARD["name"], 78, BEGIN_NS + 5 * MS, BEGIN_NS + 7 * MS, None, 1, 4, 5),
    ]
    assert rows(trace, "ops", "input_shapes", "input_types", "arguments", "flops") == [
        (None, None, None, None),
        ("1,3,8,8", "float", '["", "[1, 1]"]', None),
        ("2,3;3,4;", "float;float;Scalar", None, 48),
        (None, None, None, None),
    ]
    assert rows(trace, "threads", "pid", "tid", "name") == [(PID, 77, "thread 77 (python)"), (PID, 78, "thread 78 (autograd)")]
    assert rows(trace, "steps", "id") == [(3,)]
    assert trace.meta_value("rank") == 3 and trace.meta_value("record_shapes") == 1
    assert not findings(trace)


def test_what_python_writes_as_json_is_read(path: Path) -> None:
    recording = recorded().add(files.metadata(b'{"rate": NaN, "text": "\\ud800", "empty": {}}'), files.end(4, 4))
    trace = read_recording(recording.write(path))
    assert trace.meta_value("text") == "?" and trace.meta_value("empty") == {}
    assert "damaged_records" not in findings(trace)


def test_lists_of_tensors_and_their_arguments(path: Path) -> None:
    trace = read_recording(begin().add(calls(call(0, 1, 4)), files.end(1)).write(path))
    assert rows(trace, "ops", "input_shapes", "input_types", "arguments") == [("[2;3,1];", "TensorList;Scalar", None)]


def test_the_size_of_a_release_is_that_of_its_allocation(path: Path) -> None:
    events = memory((1, 64, 100), (3, 64, -1), (5, 64, 7), (6, 999, -1), (8, 64, -1), (9, 0, -1))
    other = memory((2, 128, 50), (7, 128, -1), thread=2)
    trace = read_recording(begin().add(thread(2, 78, 6), other, events, files.end(0, 8)).write(path))
    assert rows(trace, "memory", "address", "bytes", "allocated", "tid") == [
        (64, 100, 100, 77), (128, 50, 150, 78), (64, -100, 50, 77), (64, 7, 57, 77), (128, -50, 7, 78), (64, -7, 0, 77),
    ]  # fmt: skip
    assert set(rows(trace, "memory", "device_type", "device", "reserved", "component")) == {("CPU", -1, 0, "PTA")}
    (finding,) = findings(trace).items()
    assert finding[0] == "unknown_memory_events" and "releases of memory that was allocated before recording began" in finding[1]


def test_arrows_go_from_the_latest_forward_call_to_the_first_backward_call(path: Path) -> None:
    forward = calls(
        call(10, 40, 0, sequence=7), call(20, 30, 0, sequence=7), call(50, 60, 0, sequence=8), call(70, 80, 0, sequence=-1)
    )
    back = calls(
        call(110, 120, 3, sequence=7, forward_thread=5, thread=2),
        call(100, 130, 3, sequence=7, forward_thread=5, thread=2),
        call(140, 150, 3, sequence=8, forward_thread=9, thread=2),
        call(160, 170, 3, sequence=9, forward_thread=5, thread=2),
        thread=2,
    )
    again = calls(call(200, 210, 0, sequence=7), call(220, 230, 3, sequence=7, forward_thread=5))
    trace = read_recording(begin().add(thread(2, 78, 6), forward, back, again, files.end(10)).write(path))
    arrows = rows(trace, "flows", "kind", "flow_id", "from_ns", "from_tid", "to_ns", "to_tid")
    assert arrows == [
        ("fwdbwd", 1, BEGIN_NS + 20, 77, BEGIN_NS + 110, 78),
        ("fwdbwd", 2, BEGIN_NS + 200, 77, BEGIN_NS + 220, 77),
    ]


def test_the_clock_may_change_its_rate(path: Path) -> None:
    recording = Recording().add(thread(1, 77, 5), signatures(MM))
    pairs = [(0, 0), (3000, 1000), (3000 + 6000, 1000 + 1000)]
    content = b"".join(files.struct.pack("<Qq", files.FIRST_TICKS + ticks, files.MONOTONIC_NS + ns) for ticks, ns in pairs)
    records = call(0, 0, 0)
    records["start_ticks"], records["end_ticks"] = files.FIRST_TICKS + 1500, files.FIRST_TICKS + 3000 + 6000 + 600
    recording.add(files.block(layout.CLOCKS, content, count=3), calls(records), files.end(1))
    trace = read_recording(recording.write(path))
    assert rows(trace, "ops", "start_ns", "end_ns") == [(BEGIN_NS + 500, BEGIN_NS + 2100)]


def test_nanoseconds_of_the_system_need_no_second_pair(path: Path) -> None:
    recording = Recording([files.header(source=layout.MONOTONIC_CLOCK)]).add(thread(1, 77, 5), signatures(MM))
    records = call(0, 0, 0)
    records["start_ticks"], records["end_ticks"] = files.MONOTONIC_NS + 5, files.MONOTONIC_NS + 9
    pair = files.struct.pack("<Qq", files.MONOTONIC_NS, files.MONOTONIC_NS)
    trace = read_recording(recording.add(files.block(layout.CLOCKS, pair, count=1), calls(records), files.end(1)).write(path))
    assert rows(trace, "ops", "start_ns", "end_ns") == [(BEGIN_NS + 5, BEGIN_NS + 9)]


def test_of_calls_that_begin_at_once_the_outer_one_comes_first(path: Path) -> None:
    trace = read_recording(begin().add(calls(call(5, 9, 0), call(5, 9, 1)), files.end(2)).write(path))
    assert rows(trace, "ops", "name", "parent") == [("aten::conv2d", None), ("aten::mm", 0)]


def test_what_found_no_room_is_counted(path: Path) -> None:
    recording = recorded().add(files.calls(call(0, 0, 0), kind=layout.OPEN_CALLS))
    trace = read_recording(recording.add(files.end(4, 4, dropped_calls=3, dropped_memory=2)).write(path))
    rows_of_health = rows(trace, "health", "check", "count", "unsafe")
    assert [(check, count) for check, count, _ in rows_of_health] == [("dropped_records", 3), ("dropped_records", 2)]
    assert "operator self times" in rows_of_health[0][2] and rows_of_health[1][2] == "memory"
    messages = [message for (message,) in rows(trace, "health", "message")]
    assert all("found no room on their way to the disk and were not recorded" in message for message in messages)
    # a lost record of the end of a call is no call without one
    assert trace.required("ops").collect().height == 4


def test_a_killed_process_leaves_what_it_was_in(path: Path) -> None:
    open_now = calls(call(0, 0, 2, scope=7), call(10 * MS, 0, 1), call(9 * MS, 0, 0), kind=layout.OPEN_CALLS)
    over = calls(call(5 * MS, 0, 3, thread=2), kind=layout.OPEN_CALLS, thread=2)
    recording = recorded()
    # the record of the step itself is the last one of its block: here it has not ended
    recording.parts[5] = calls(call(2 * MS, 3 * MS, 0, sequence=4), call(MS, 4 * MS, 1, sequence=4))
    trace = read_recording(recording.add(calls(call(0, 0, 0), kind=layout.OPEN_CALLS), open_now, over).write(path))
    last = BEGIN_NS + 30 * MS
    assert [row for row in rows(trace, "ops", "name", "start_ns", "end_ns") if row[2] == last] == [
        ("ProfilerStep#3", BEGIN_NS, last), ("aten::conv2d", BEGIN_NS + 10 * MS, last),
    ]  # fmt: skip
    found = findings(trace)
    reasons = "the recording has no end: its process was killed, still records, or could not write any more"
    assert reasons in found["unended_recording"]
    assert found["open_calls"].endswith("end with it here: ProfilerStep#3 (thread 77), aten::conv2d (thread 77)")
    assert "calls had not ended when the recording did" in found["open_calls"]


def test_calls_of_an_earlier_recording_are_no_open_calls(path: Path) -> None:
    early = call(0, 0, 0)
    early["start_ticks"] -= 1000
    trace = read_recording(begin().add(calls(call(1, 2, 1)), calls(early, call(7, 0, 2), kind=layout.OPEN_CALLS)).write(path))
    assert rows(trace, "ops", "name", "end_ns") == [("aten::conv2d", BEGIN_NS + 2), ("ProfilerStep#3", BEGIN_NS + 30 * MS)]


def test_a_full_disk(path: Path) -> None:
    trace = read_recording(recorded().add(files.end(4, 4, error=errno.ENOSPC)).write(path))
    assert findings(trace)["recording_stopped_early"] == "writing the recording ended early: No space left on device"


@pytest.mark.parametrize("cut", [1, 8, 23, 30, 100])
def test_a_file_that_breaks_off_is_read_up_to_there(path: Path, cut: int) -> None:
    whole = recorded().write(path).read_bytes()
    last = calls(call(20 * MS, 21 * MS, 0), call(22 * MS, 23 * MS, 0), call(24 * MS, 25 * MS, 0))
    path.write_bytes(whole + last[:-cut])
    trace = read_recording(path)
    found = findings(trace)
    assert "truncated_file" in found and "the recording breaks off inside a block" in found["truncated_file"]
    # records that are whole are read, each of 40 bytes
    assert trace.required("ops").collect().height == 4 + max(len(last) - cut - 24, 0) // 40


def test_damage_costs_what_is_damaged(path: Path) -> None:
    backwards, strange, far = call(9, 5, 0), call(10, 20, 99), call(5, 6, 0)
    far["end_ticks"] = (1 << 64) - 1
    recording = begin().add(
        calls(call(1, 2, 0), backwards, strange, far, call(30, 40, layout.NO_SIGNATURE)),
        memory((1, 64, -5), (2, 64, 1 << 60), (3, 64, 8)),
        files.block(99, b"of a later version", count=1),
        files.metadata(b"\xff not json"),
        files.metadata(b"[1]"),
        files.block(layout.CALLS, bytes(40), count=2),
        files.block(layout.OPEN_CALLS, bytes(41), count=1),
        files.block(layout.END, b"short", count=1),
    )
    trace = read_recording(recording.write(path))
    assert rows(trace, "ops", "name", "start_ns") == [
        ("aten::mm", BEGIN_NS + 1), ("(unnamed)", BEGIN_NS + 10), ("(unnamed)", BEGIN_NS + 30),
    ]  # fmt: skip
    assert rows(trace, "memory", "bytes") == [(8,)]
    counts = {(check, count) for check, count in rows(trace, "health", "check", "count")}
    assert {("damaged_records", 9), ("unnamed_calls", 2)} <= counts
    assert "operator calls have no name in the recording" in findings(trace)["unnamed_calls"]
    assert "blocks, records or texts of the recording are damaged" in findings(trace)["damaged_records"]


def test_texts_that_cannot_be_read_cost_a_name(path: Path) -> None:
    texts = signatures(b"not json", b'{"name":"a\xffb"}', b'{"name":7}', b'{"name":"n","shapes":7,"types":[1],"flops":-5}', b"")
    recording = Recording().add(clocks(0, MS), thread(1, 77, 5), texts, calls(*(call(n, n, n) for n in range(5))), files.end(5))
    trace = read_recording(recording.write(path))
    names = [name for (name,) in rows(trace, "ops", "name")]
    assert names == ["(unnamed)", "a\N{REPLACEMENT CHARACTER}b", "(unnamed)", "n", "(unnamed)"]


def test_a_block_that_is_no_block_is_passed_over(path: Path) -> None:
    broken = files.block(layout.CALLS, call(3, 4, 0).tobytes(), count=1, magic=b"KLBS")
    huge = bytearray(calls(call(5, 6, 0)))
    huge[16:24] = (1 << 60).to_bytes(8, "little")
    recording = begin().add(calls(call(1, 2, 0)), broken, bytes(huge), signatures({"name": "late"}, first=6))
    recording.add(calls(call(7, 8, 5), call(9, 10, 6)), signatures({"name": "again"}, first=0))
    trace = read_recording(recording.add(files.end(5)).write(path))
    # a block says which numbers its texts have: what was lost in between stays without a name, and nothing gets another's
    assert rows(trace, "ops", "name", "start_ns") == [
        ("aten::mm", BEGIN_NS + 1), ("(unnamed)", BEGIN_NS + 7), ("late", BEGIN_NS + 9),
    ]  # fmt: skip
    counts = rows(trace, "health", "check", "count")
    assert ("damaged_records", 4) in counts
    assert "operator calls that the recording counts at its end are not in it" in [
        row[0] for row in rows(trace, "health", "message")
    ]


def test_threads_that_nobody_named_have_lanes_of_their_own(path: Path) -> None:
    recording = begin().add(calls(call(1, 2, 0, thread=9), thread=1), calls(call(3, 4, 0, thread=9), thread=9), files.end(2))
    trace = read_recording(recording.write(path))
    assert rows(trace, "ops", "tid") == [(77,), ((1 << 32) + 9,)]
    assert ((1 << 32) + 9, "thread 9 of the recording") in rows(trace, "threads", "tid", "name")


def test_clock_pairs_that_cannot_be_true_are_left_out(path: Path) -> None:
    lies = files.block(layout.CLOCKS, files.struct.pack("<Qq", files.ticks_at(50 * MS), files.MONOTONIC_NS + 10), count=1)
    trace = read_recording(recorded().add(lies, files.end(4, 4)).write(path))
    assert rows(trace, "ops", "end_ns")[0] == (BEGIN_NS + 9 * MS,)
    assert ("damaged_records", 1) in rows(trace, "health", "check", "count")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"STPLREC\n\1", "breaks off in its header"),
        (files.header(version=2), "is of version 2 of the recorder's format, and this steplens reads version 1"),
        (files.header(call_bytes=8), "says that a record has 8 bytes, which none has"),
        (files.header(memory_bytes=1 << 31), "says that a record has 2147483648 bytes, which none has"),
        (files.header(source=9), "has times of an unknown clock (9)"),
        (files.header(), "breaks off before it says how fast its clock runs"),
        (files.header() + clocks(0), "breaks off before it says how fast its clock runs"),
        (
            files.struct.pack(layout.HEADER, layout.MAGIC, 1, 0, 1, 40, 24, 1, 1 << 62) + clocks(0, 5),
            "says that it was recorded at a time that no clock shows",
        ),
    ],
)
def test_what_cannot_be_read_at_all_is_refused_in_a_sentence(path: Path, content: bytes, words: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.rec: ") as caught:
        read_recording(path)
    assert words in str(caught.value)


def test_longer_records_of_the_same_version(path: Path) -> None:
    record = call(1, 2, 0).tobytes() + bytes(8)
    recording = Recording([files.header(call_bytes=48)]).add(clocks(0, MS), thread(1, 77, 5), signatures(MM))
    trace = read_recording(recording.add(files.block(layout.CALLS, record * 2, count=2, thread=1), files.end(2)).write(path))
    assert rows(trace, "ops", "name", "start_ns")[0] == ("aten::mm", BEGIN_NS + 1)


def test_an_empty_recording(path: Path) -> None:
    trace = read_recording(begin().add(files.end()).write(path))
    assert trace.table("ops") is None and not [check for check in findings(trace) if check != "rank_unknown"]


def run_directory(folder: Path, *, state: str = rundir.STATE_COLLECTED) -> Path:
    run = folder / f"host_{PID}_20260101000000000{rundir.RUN_SUFFIX}"
    recorded().add(files.end(4, 4)).write(run / rundir.RAW_DIRECTORY / rundir.RAW_OPERATORS)
    (run / rundir.RAW_DIRECTORY / rundir.STATE_FILE).write_text(json.dumps({"state": state, "pid": PID, "rank": 1}))
    events = {"gc": [[BEGIN_NS, BEGIN_NS + 5, 2, PID, 77]]}
    (run / rundir.RAW_DIRECTORY / rundir.HOST_EVENTS).write_text(json.dumps(events))
    return run


def test_a_run_directory_with_a_recording(tmp_path: Path) -> None:
    run = run_directory(tmp_path)
    (capture,) = find_traces(run)
    assert capture.format == "steplens run" and capture.reader.timeline(capture.where) is None
    assert run / rundir.RAW_DIRECTORY / rundir.RAW_OPERATORS in capture.reader.sources(capture.where)
    opened = steplens.open(run)
    trace = opened.traces[0]
    assert rows(trace, "ops", "name")[0][0] == "ProfilerStep#3"
    assert rows(trace, "gc", "generation") == [(2,)] and trace.meta_value("rank") == 1
    # the second time from the cache
    assert steplens.open(run).traces[0].required("ops").collect().height == 4


def test_kinetos_trace_comes_before_a_recording(tmp_path: Path) -> None:
    run = run_directory(tmp_path)
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::of_kineto", "pid": 1, "tid": 1, "ts": 5, "dur": 3, "args": {}}
    (run / rundir.RAW_DIRECTORY / rundir.RAW_TRACE).write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    assert rows(steplens.open(run).traces[0], "ops", "name") == [("aten::of_kineto",)]


def test_a_file_that_lies_alone(tmp_path: Path) -> None:
    path = recorded().add(files.end(4, 4)).write(tmp_path / "alone" / "x.rec")
    assert find_one(path).format == "steplens recording"
    # below a folder, too
    assert [capture.path for capture in find_traces(tmp_path)] == [path]
    assert steplens.open(path).traces[0].required("ops").collect().height == 4
    (tmp_path / "alone" / "other.rec").write_bytes(b"of somebody else")
    assert len(find_traces(tmp_path)) == 1
