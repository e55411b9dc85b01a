"""Tables of FRAMEWORK: clocks, calls, task queue, Python replay, memory; against the golden capture and plain loops."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.readers.ascend.capture import framework
from steplens.readers.ascend.capture.framework import read_framework
from steplens.readers.ascend.capture.python_replay import replay_calls
from steplens.readers.ascend.prof_directory import Clock, find_clock, find_prof
from steplens.trace.health import HealthLog

from . import ascend_fixture as fixture
from .ascend_fixture import BACKWARD, DEQUEUE, MAIN, OFF, PID, ns

CLOCK = Clock(OFF)


def checks(health: HealthLog) -> dict[str, int]:
    return {finding.check: finding.count for finding in health.findings}


def relative(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows with times in µs after OFF and names as text."""
    return frame.select(
        (pl.col(column) - OFF) / 1000 if column.endswith("_ns") else pl.col(column).cast(pl.String)
        if frame[column].dtype == pl.Categorical
        else pl.col(column)
        for column in columns
    ).rows()  # fmt: skip


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    folder = fixture.write_framework(tmp_path_factory.mktemp("golden"), fixture.golden_framework())
    health = HealthLog()
    tables = read_framework(folder, CLOCK, health, physical_device=3)
    assert not health.findings
    return tables


# --- the golden capture ---------------------------------------------------------------------------------------------------


def test_calls(golden: dict[str, pl.DataFrame]) -> None:
    ops = golden["ops"]
    assert relative(ops, "name", "start_ns", "end_ns", "pid", "tid", "scope", "sequence", "forward_tid") == [
        ("ProfilerStep#0", 1, 100, PID, MAIN, 0, None, 0),
        ("aten::linear", 2, 30, PID, MAIN, 0, 5, 0),
        ("aten::mm", 4, 20, PID, MAIN, 0, 6, 0),
        ("autograd::engine::evaluate_function: LinearBackward0", 40, 70, PID, BACKWARD, 1, 5, 1),
        ("aten::mm", 45, 60, PID, BACKWARD, 0, None, 0),
        ("ProfilerStep#1", 100.001, 200, PID, MAIN, 0, None, 0),
        ("aten::add", 110, 120, PID, MAIN, 0, None, 0),
    ]
    assert relative(ops, "input_shapes", "input_types", "stack", "module")[:2] == [
        (None, None, None, None),
        ("2,3;4,3", "float;float", "a.py(1): f;b.py(2): g", None),
    ]


def test_task_queue(golden: dict[str, pl.DataFrame]) -> None:
    columns = ["correlation", "name", "pid", "enqueue_tid", "enqueue_start_ns", "enqueue_end_ns"]
    columns += ["dequeue_tid", "dequeue_start_ns", "dequeue_end_ns"]
    assert relative(golden["task_queue"], *columns) == [
        (1, "aclnnMm", PID, MAIN, 5, 6, DEQUEUE, 7, 9),
        (2, "aclnnMmB", PID, BACKWARD, 47, 48, DEQUEUE, 49, 52),
        (3, "aclnnAdd", PID, MAIN, 111, 112, DEQUEUE, 113, 115),
    ]


def test_python_calls(golden: dict[str, pl.DataFrame]) -> None:
    assert relative(golden["python"], "id", "parent", "name", "start_ns", "end_ns", "tid", "module_id") == [
        (0, None, "a.py(1): f", 1.5, 35, MAIN, None),
        (1, 0, "nn.Module: Linear_0", 1.6, 35, MAIN, 0),
        (2, 1, "<built-in method x>", 1.7, 1.8, MAIN, None),
    ]


def test_memory(golden: dict[str, pl.DataFrame]) -> None:
    columns = ["address", "time_ns", "tid", "component", "event", "bytes", "allocated", "reserved", "active", "stream"]
    mib = fixture.MIB
    assert relative(golden["memory"], *columns, "device_type", "device") == [
        (0x100, 4.5, MAIN, "PTA", "allocate", 2 * mib, 2 * mib, 20 * mib, 2 * mib, 77, "NPU", 3),
        (0x100, 19, MAIN, "PTA", "free", -2 * mib, 0, 20 * mib, 2 * mib, 77, "NPU", 3),
        (0x100, 21, MAIN, "PTA", "block_free", -2 * mib, 0, 20 * mib, 0, 77, "NPU", 3),
        (0x200, 8, DEQUEUE, "WORKSPACE", "allocate", 512, 512, 20 * mib, 512, 77, "NPU", 3),
        (0x300, 112.5, MAIN, "PTA", "allocate", 1024, 1024, 20 * mib, 1024, 77, "NPU", 3),
        (0x400, 111.5, MAIN, "PTA", None, 4096, 4096, 0, 0, 0, "CPU", -1),
    ]


def test_collections(golden: dict[str, pl.DataFrame]) -> None:
    assert relative(golden["gc"], "start_ns", "end_ns", "pid", "tid") == [(80, 90, PID, PID)]
    assert set(golden) == {"ops", "task_queue", "python", "memory", "gc"}


def test_parameters(tmp_path: Path) -> None:
    folder = fixture.write_framework(tmp_path, {"torch.param_tensor_info": [fixture.parameter(1, "w)t)g"), fixture.parameter(2)]})
    table = read_framework(folder, CLOCK, HealthLog())["source_tables"]
    assert [json.loads(record) for record in table["record"]] == [
        {"key": 1, "module": "w)t)g", "optimizer": None},
        {"key": 2, "module": None, "optimizer": None},
    ]


# --- clocks ---------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 1 << 50), min_size=1, max_size=20),
    st.integers(0, 1 << 50),
    st.integers(0, 1 << 60),
    st.integers(1000, 5_000_000),
)
def test_counts_become_ns_exactly(counts: list[int], start: int, offset: int, kilohertz: int) -> None:
    frequency = Fraction(kilohertz, 1000)
    clock = Clock(0, frequency, start, offset)
    raw = np.array(counts, dtype=np.int64)
    covered = clock.covers(raw)
    # int() cuts towards zero, as the format says
    expected = [int((count - start) * 1000 / frequency) + offset for count in counts]
    assert clock.unix_ns(raw)[covered].tolist() == [value for value, whole in zip(expected, covered, strict=True) if whole]


def test_times_that_no_clock_shows_are_left_out(tmp_path: Path) -> None:
    records = [fixture.op_range("fine", 5, 6), fixture.op_range("early", -1, 6), fixture.op_range("late", 5, (1 << 63) - 1)]
    folder = fixture.write_framework(tmp_path, {"torch.op_range": records})
    health = HealthLog()
    assert relative(read_framework(folder, CLOCK, health)["ops"], "name") == [("fine",)]
    assert checks(health) == {"impossible_times": 2}


def prof_with(tmp_path: Path, **host: str) -> Path:
    run = tmp_path / "run"
    prof = run / fixture.PROF_NAME
    (prof / "host").mkdir(parents=True)
    for name, text in host.items():
        path = prof / "host" / name.replace("_json", ".json").replace("_log", ".log")
        path.write_text(text)
    return run


STARTED = json.dumps({"collectionTimeBegin": "1700000000000000", "clockMonotonicRaw": "5000"})
HOST_LOG = "[Device]\ncntvct: 1\nclock_monotonic_raw: 1\n[Host]\nclock_monotonic_raw: 7000\ncntvct: 900\ncntvct_diff: 0\n"


def test_clock_of_the_wall(tmp_path: Path) -> None:
    info = {"start_info": {"syscnt_enable": False}, "end_info": {"collectionTimeEnd": 90, "MonotonicTimeEnd": 40}}
    run = prof_with(tmp_path, start_info=STARTED)
    (prof,) = find_prof(run)
    assert find_clock(prof, info, 1, HealthLog()) == Clock(OFF - 5000)
    assert find_clock(None, info, 1, HealthLog()) == Clock(50)
    # a device's start is as good as the host's, and equal clocks are none
    (run / fixture.PROF_NAME / "host" / "start_info").write_text('{"collectionTimeBegin": "5", "clockMonotonicRaw": "5000"}')
    (run / fixture.PROF_NAME / "device_2").mkdir()
    (run / fixture.PROF_NAME / "device_2" / "start_info.2").write_text(STARTED)
    (prof,) = find_prof(run)
    assert prof.devices == (2,)
    assert find_clock(prof, info, 1, HealthLog()) == Clock(OFF - 5000)


def test_clock_of_a_counter(tmp_path: Path) -> None:
    start = {"syscnt_enable": True, "freq": 50, "start_cnt": 10, "start_monotonic": 20}
    run = prof_with(tmp_path, start_info=STARTED, host_start_log=HOST_LOG, info_json='{"CPU": [{"Frequency": "1650.5"}]}')
    (prof,) = find_prof(run)
    info = {"start_info": start}
    assert find_clock(prof, info, 1, HealthLog()) == Clock(OFF - 5000, Fraction("1650.5"), 900, 7000)
    (run / fixture.PROF_NAME / "host" / "host_start.log").write_text("[Host]\nnothing\n")
    (run / fixture.PROF_NAME / "host" / "info.json").write_text("{}")
    assert find_clock(prof, info, 1, HealthLog()) == Clock(OFF - 5000, Fraction(50), 10, 20)
    assert find_clock(prof, {"start_info": {**start, "freq": 0}}, 1, HealthLog()).frequency_mhz == 100


@pytest.mark.parametrize(
    "damaged",
    ["", "[", "[]", '{"CPU": 3}', '{"CPU": [{"Frequency": "1e999"}]}', '{"CPU": [{"Frequency": -1}]}', "\x00" * 10],
)
def test_damaged_clock_files_count_as_missing(tmp_path: Path, damaged: str) -> None:
    run = prof_with(tmp_path, start_info=damaged, host_start_log=damaged, info_json=damaged)
    (prof,) = find_prof(run)
    health = HealthLog()
    clock = find_clock(prof, {"start_info": {"syscnt_enable": True, "freq": "abc"}}, 1, health)
    assert clock == Clock(None, Fraction(100), 0, 0)
    assert checks(health) == {"no_time_base": 1}


def test_without_profiler_info_times_are_what_lies_near_the_start(tmp_path: Path) -> None:
    log = "[Host]\nclock_monotonic_raw: 8000000000000\ncntvct: 1000000000\n"
    started = json.dumps({"collectionTimeBegin": "1700000000000000", "clockMonotonicRaw": "8000000000000"})
    run = prof_with(tmp_path, start_info=started, host_start_log=log, info_json='{"CPU": [{"Frequency": "100"}]}')
    (prof,) = find_prof(run)
    offset = OFF - 8_000_000_000_000
    assert find_clock(prof, {}, 8_000_000_500_000, HealthLog()) == Clock(offset)
    assert find_clock(prof, {}, 1_000_050_000, HealthLog()) == Clock(offset, Fraction(100), 1_000_000_000, 8_000_000_000_000)


def test_collections_timed_in_ns_beside_a_counter(tmp_path: Path) -> None:
    clock = Clock(OFF, Fraction(100), 1_000_000_000, 8_000_000_000_000)
    for start in (8_000_000_001_000, 1_000_000_100):
        folder = fixture.write_framework(tmp_path, {"torch.gc_record": [fixture.collection(start, start + 10)]})
        table = read_framework(folder, clock, HealthLog())["gc"]
        assert table["start_ns"].to_list() == [OFF + 8_000_000_001_000]


# --- task queue -----------------------------------------------------------------------------------------------------------

MARKS = st.lists(
    st.tuples(
        st.integers(0, 5),  # category: two do not exist
        st.integers(0, 12),  # time
        st.integers(1, 3),  # correlation
        st.sampled_from(["a", "b"]),
        st.sampled_from([1, 2]),  # tid
        st.sampled_from([1, 2]),  # pid
    ),
    max_size=40,
)


def naive_queue(marks: list[tuple[int, int, int, str, int, int]]) -> list[tuple[Any, ...]]:
    """Starts in lists by thread, name and half; an end takes the last start and clears the list."""
    halves: dict[int, list[tuple[int, int, int, int, int, str]]] = {0: [], 1: []}
    lists: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for category, time, correlation, name, tid, pid in sorted(marks, key=lambda mark: mark[1]):
        if category > 3:
            continue
        key = pid, tid, name, category // 2
        if category % 2 == 0:
            lists.setdefault(key, []).append((time, correlation))
        elif lists.get(key):
            start, of = lists.pop(key)[-1]
            halves[category // 2].append((start, time, of, tid, pid, name))
    rows = []
    for side in halves.values():
        side.sort(key=lambda half: half[0])
    keys = {(half[4], half[2]) for side in halves.values() for half in side}
    for pid, correlation in keys:
        enqueues, dequeues = ([half for half in halves[n] if (half[4], half[2]) == (pid, correlation)] for n in (0, 1))
        for number in range(max(len(enqueues), len(dequeues))):
            enqueue = enqueues[number] if number < len(enqueues) else None
            dequeue = dequeues[number] if number < len(dequeues) else None
            rows.append((
                pid, correlation, dequeue[5] if dequeue else None,
                *((enqueue[3], enqueue[0], enqueue[1]) if enqueue else (None, None, None)),
                *((dequeue[3], dequeue[0], dequeue[1]) if dequeue else (None, None, None)),
            ))  # fmt: skip
    return sorted(rows, key=str)


@given(MARKS)
def test_task_queue_like_lists_of_starts(
    tmp_path_factory: pytest.TempPathFactory, marks: list[tuple[int, int, int, str, int, int]]
) -> None:
    # of simultaneous halves with one id, which pairs with which is anybody's guess
    marks = [(category, time * 100 + number, *rest) for number, (category, time, *rest) in enumerate(marks)]
    records = [fixture.op_mark(category, time, of, name, tid=tid, pid=pid) for category, time, of, name, tid, pid in marks]
    folder = fixture.write_framework(tmp_path_factory.mktemp("queue"), {"torch.op_mark": records})
    health = HealthLog()
    found = framework.task_queue(folder, Clock(0), health)
    expected = naive_queue(marks)
    columns = ["pid", "correlation", "name", "enqueue_tid", "enqueue_start_ns", "enqueue_end_ns"]
    columns += ["dequeue_tid", "dequeue_start_ns", "dequeue_end_ns"]
    rows = found.select(columns).rows() if found.height else []
    assert sorted(rows, key=str) == expected
    matched = sum(2 * (row[3] is not None) + 2 * (row[6] is not None) for row in expected)
    assert checks(health).get("unmatched_marks", 0) == len(marks) - matched


def test_a_million_equal_ids_do_not_multiply(tmp_path: Path) -> None:
    records = [
        fixture.op_mark(category, number * 10 + category, 7, "op", tid=1 + category // 2)
        for number in range(5000)
        for category in range(4)
    ]
    folder = fixture.write_framework(tmp_path, {"torch.op_mark": records})
    found = framework.task_queue(folder, CLOCK, HealthLog())
    assert found.height == 5000
    assert (found["dequeue_start_ns"] - found["enqueue_start_ns"] == 2).all()


# --- Python ---------------------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 30),  # time
        st.sampled_from([1, 2]),  # tid
        st.integers(0, 3),  # code
        st.booleans(),  # call
    ),
    max_size=60,
)


def naive_replay(events: list[tuple[int, int, int, bool]]) -> tuple[list[tuple[Any, ...]], int, int]:
    """Rows (tid, start, end, code, start of the caller's row), calls cut short, returns without call; a list as stack."""
    rows: list[list[Any]] = []
    cut_short = unmatched = 0
    for tid in sorted({event[1] for event in events}):
        mine = sorted((event for event in events if event[1] == tid), key=lambda event: event[0])
        stack: list[int] = []
        for time, _, code, is_call in mine:
            if is_call:
                stack.append(len(rows))
                rows.append([tid, time, mine[-1][0], code, stack[-2] if len(stack) > 1 else -1])
                continue
            places = [place for place, row in enumerate(stack) if rows[row][3] == code]
            if not places:
                unmatched += 1
                continue
            for row in stack[places[-1] :]:
                rows[row][2] = time
            cut_short += len(stack) - places[-1] - 1
            del stack[places[-1] :]
    return [tuple(row) for row in rows], cut_short, unmatched


def replayed(events: list[tuple[int, int, int, bool]]) -> tuple[list[tuple[Any, ...]], int, int]:
    time, tid, code, is_call = (np.array([event[i] for event in events], dtype=np.int64) for i in range(4))
    calls = replay_calls(time, np.ones_like(time), tid, code, is_call.astype(bool))
    rows = zip(*(column.tolist() for column in (calls.tid, calls.start, calls.end, calls.code, calls.parent)), strict=True)
    return list(rows), calls.cut_short, calls.unmatched


@given(EVENTS)
def test_replay_like_a_stack(events: list[tuple[int, int, int, bool]]) -> None:
    assert replayed(events) == naive_replay(events)


@given(st.recursive(st.just([]), lambda inner: st.lists(st.tuples(st.integers(0, 3), inner), max_size=4), max_leaves=30))
def test_replay_of_proper_nesting(tree: list[Any]) -> None:
    events: list[tuple[int, int, int, bool]] = []

    def walk(calls: list[Any]) -> None:
        for code, inner in calls:
            events.append((len(events), 1, code, True))
            walk(inner)
            events.append((len(events), 1, code, False))

    walk(tree)
    found = replayed(events)
    assert found == naive_replay(events)
    assert found[1:] == (0, 0)


def test_a_lost_record_does_not_shift_the_nesting(tmp_path: Path) -> None:
    """f calls g, whose return was lost; then f returns and h, called by nobody, follows."""
    records = [(1, 11, 0), (2, 12, 0), (5, 11, 1), (6, 13, 0), (8, 13, 1), (9, 14, 1)]
    files = {
        "torch.python_tracer_func": [fixture.python_event(time, key, tag) for time, key, tag in records],
        "torch.python_tracer_hash": [
            fixture.python_name(key, name) for key, name in ((11, "f"), (12, "g"), (13, "h"), (14, "x"))
        ],
    }
    health = HealthLog()
    table = read_framework(fixture.write_framework(tmp_path, files), Clock(0), health)["python"]
    assert table.select(pl.col("name").cast(pl.String), "start_ns", "end_ns", "parent").rows() == [
        ("f", 1, 5, None),
        ("g", 2, 5, 0),
        ("h", 6, 8, None),
    ]
    assert [(finding.check, finding.count) for finding in health.findings] == [("unbalanced_python_calls", 1)] * 2


def test_replay_of_hostile_records_is_not_quadratic() -> None:
    count = 200_000
    time = np.arange(2 * count)
    calls = np.r_[np.ones(count, bool), np.zeros(count, bool)]
    code = np.r_[np.zeros(count, np.int64), np.ones(count, np.int64)]
    found = replay_calls(time, np.ones_like(time), np.ones_like(time), code, calls)
    assert (found.unmatched, found.cut_short, int(found.parent[-1])) == (count, 0, count - 2)


def test_the_end_of_recording_is_no_call(tmp_path: Path) -> None:
    files = {
        "torch.python_tracer_func": [fixture.python_event(1, 11, 0), fixture.python_event(9, 99, 1)],
        "torch.python_tracer_hash": [
            fixture.python_name(11, "f"),
            fixture.python_name(99, "__torch_npu_profiler_python_tracer_exit"),
        ],
    }
    health = HealthLog()
    table = read_framework(fixture.write_framework(tmp_path, files), Clock(0), health)["python"]
    assert table.select("start_ns", "end_ns").rows() == [(1, 9)]
    assert not health.findings


def test_ids_are_unique_in_the_run(tmp_path: Path) -> None:
    """Two threads call f, which calls g: callers are those of the own thread."""
    events = [(1, 11, 0), (2, 12, 0), (3, 12, 1), (4, 11, 1)]
    files = {
        "torch.python_tracer_func": [
            fixture.python_event(time, key, tag, tid=tid) for time, key, tag in events for tid in (2, 1)
        ],
        "torch.python_tracer_hash": [fixture.python_name(11, "f"), fixture.python_name(12, "g")],
    }
    table = read_framework(fixture.write_framework(tmp_path, files), Clock(0), HealthLog())["python"]
    assert table.select("id", "parent", "tid", pl.col("name").cast(pl.String)).rows() == [
        (0, None, 1, "f"),
        (1, 0, 1, "g"),
        (2, None, 2, "f"),
        (3, 2, 2, "g"),
    ]


def test_modules_are_numbered_per_class_and_thread(tmp_path: Path) -> None:
    names = {1: "Linear######140", 2: "Linear######150", 3: "ReLU######160"}
    called = [(2, 1), (3, 1), (1, 1), (2, 1), (1, 2)]
    files = {
        "torch.python_tracer_func": [
            fixture.python_event(10 * number + tag, key, tag, tid=tid)
            for number, (key, tid) in enumerate(called)
            for tag in (0, 1)
        ],
        "torch.python_tracer_hash": [fixture.python_name(key, name) for key, name in names.items()],
    }
    table = read_framework(fixture.write_framework(tmp_path, files), Clock(0), HealthLog())["python"]
    assert table.select(pl.col("name").cast(pl.String), "module_id", "tid").rows() == [
        ("nn.Module: Linear_0", 0, 1),
        ("nn.Module: ReLU_0", 0, 1),
        ("nn.Module: Linear_1", 1, 1),
        ("nn.Module: Linear_0", 0, 1),
        ("nn.Module: Linear_0", 0, 2),
    ]


def test_calls_without_a_name(tmp_path: Path) -> None:
    files = {"torch.python_tracer_func": [fixture.python_event(1, 11, 0), fixture.python_event(2, 12, 0)]}
    health = HealthLog()
    table = read_framework(fixture.write_framework(tmp_path, files), Clock(0), health)["python"]
    assert table["name"].cast(pl.String).to_list() == ["N/A", "N/A"]
    assert checks(health) == {"nameless_python_calls": 2}


# --- memory ---------------------------------------------------------------------------------------------------------------


def test_foreign_allocator_events(tmp_path: Path) -> None:
    records = [
        fixture.memory_usage(1, ns(1), 8, allocator=1),
        fixture.memory_usage(1, ns(1), 8, device_type=3),
        fixture.memory_usage(1, ns(1), 8, event=9),
        fixture.memory_usage(2, ns(2), 8),
    ]
    health = HealthLog()
    table = read_framework(fixture.write_framework(tmp_path, {"torch.memory_usage": records}), CLOCK, health)["memory"]
    assert table["address"].to_list() == [2]
    assert checks(health) == {"external_allocator": 1, "unknown_memory_events": 2}


def test_calls_without_a_name_field(tmp_path: Path) -> None:
    bare = fixture.tagged(1, bytes(58), {})
    folder = fixture.write_framework(tmp_path, {"torch.op_range": [bare, fixture.op_range("mm", 1, 2)]})
    assert relative(read_framework(folder, CLOCK, HealthLog())["ops"], "name") == [("N/A",), ("mm",)]
