"""Good raw captures of the Ascend PyTorch Profiler, damaged in one way each."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steplens.readers.ascend.capture import ascend_raw
from steplens.trace.health import ERROR, WARNING

from ..readers import ascend_fixture as fixture
from .kineto_file import Finding, equal_tables, findings

#: records of a fixed size; the others say their length
FLAT = {"torch.python_tracer_func": 33, "torch.gc_record": 24}
Records = list[bytes]


def capture(folder: Path) -> Path:
    """Three steps of thirty iterations, their times to the ns, as real clocks have them."""
    run = fixture.write_large(folder, steps=3, iterations=30)
    # 13 ns later for each record, so that nothing is a multiple of a microsecond
    change(run, "torch.op_range", lambda records: [_later(record, 13 * number) for number, record in enumerate(records)])
    return run


def _later(record: bytes, ns: int) -> bytes:
    start, end = struct.unpack_from("<2q", record, 6)
    return record[:6] + struct.pack("<2q", start + ns % 400, end + ns % 400) + record[22:]


def change(run: Path, name: str, how: Callable[[Records], Records]) -> None:
    """Change the records of a file of FRAMEWORK."""
    path = run / "FRAMEWORK" / name
    data, records, position = path.read_bytes(), [], 0
    while position < len(data):
        length = FLAT.get(name) or 6 + struct.unpack_from("<HI", data, position)[1]
        records.append(data[position : position + length])
        position += length
    path.write_bytes(b"".join(how(records)))


def change_timeline(run: Path, how: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Change the events of CANN's timeline."""
    (path,) = run.rglob("msprof_*.json")
    path.write_text(json.dumps(how(json.loads(path.read_text()))))


def shuffled(records: list[Any]) -> list[Any]:
    return random.Random(3).sample(records, len(records))


def new_findings(run: Path, tmp_path: Path) -> list[Finding]:
    """The findings that the untouched capture does not have."""
    known = findings(ascend_raw.read_trace(capture(tmp_path / "untouched")))
    return [one for one in findings(ascend_raw.read_trace(run)) if one not in known]


@pytest.mark.parametrize("name", ["torch.op_range", "torch.op_mark", "torch.python_tracer_func", "torch.python_tracer_hash"])
def test_order_of_records_does_not_matter(name: str, tmp_path: Path) -> None:
    run = capture(tmp_path)
    original = ascend_raw.read_trace(run)
    change(run, name, shuffled)
    other = ascend_raw.read_trace(run)
    assert findings(original) == findings(other)
    assert equal_tables(original, other)


def test_order_of_the_timeline_does_not_matter(tmp_path: Path) -> None:
    run = capture(tmp_path)
    original = ascend_raw.read_trace(run)
    change_timeline(run, shuffled)
    other = ascend_raw.read_trace(run)
    assert findings(original) == findings(other)
    assert equal_tables(original, other)


@pytest.mark.parametrize("name", ["torch.op_range", "torch.op_mark", "torch.python_tracer_func", "torch.python_tracer_hash"])
def test_a_cut_record_says_so(name: str, tmp_path: Path) -> None:
    """Cut anywhere but between two records, of which nothing tells how many there were."""
    run = capture(tmp_path)
    path = run / "FRAMEWORK" / name
    data = path.read_bytes()
    boundaries: set[int] = set()

    def note(records: Records) -> Records:
        boundaries.update(len(b"".join(records[:number])) for number in range(len(records)))
        return records

    change(run, name, note)
    for offset in [*random.Random(4).sample(range(1, len(data)), 12), len(data) - 1]:
        path.write_bytes(data[:offset])
        checks = {check for check, severity, _ in findings(ascend_raw.read_trace(run)) if severity == ERROR}
        assert checks & {"truncated_file", "no_framework_data"} or offset in boundaries, offset


@pytest.mark.parametrize("name", ["torch.op_range", "torch.op_mark", "torch.python_tracer_hash"])
def test_a_garbled_record_says_so(name: str, tmp_path: Path) -> None:
    run = capture(tmp_path)
    change(run, name, lambda records: [records[0], b"\xff" * len(records[1]), *records[2:]])
    assert ("truncated_file", ERROR, 1) in new_findings(run, tmp_path)


def test_garbled_python_records_are_counted(tmp_path: Path) -> None:
    run = capture(tmp_path)
    change(run, "torch.python_tracer_func", lambda records: [*records[:5], b"\xff" * 33, *records[6:]])
    assert ("impossible_times", ERROR, 1) in new_findings(run, tmp_path)


def test_operator_records_that_are_there_twice(tmp_path: Path) -> None:
    run = capture(tmp_path)
    change(run, "torch.op_range", lambda records: records + records[5:9])
    assert ("duplicated_events", ERROR, 4) in new_findings(run, tmp_path)


def test_queue_records_that_are_gone_or_there_twice(tmp_path: Path) -> None:
    run = capture(tmp_path)
    change(run, "torch.op_mark", lambda records: records + records[5:8])
    assert ("unmatched_marks", WARNING, 3) in new_findings(run, tmp_path)
    other = capture(tmp_path / "other")
    change(other, "torch.op_mark", lambda records: [record for number, record in enumerate(records) if number % 10 != 3])
    assert {"unmatched_marks", "half_queued_tasks"} <= {check for check, _, _ in new_findings(other, tmp_path / "again")}


def test_tasks_that_are_gone_or_there_twice(tmp_path: Path) -> None:
    def is_task(event: dict[str, Any]) -> bool:
        return event.get("ph") == "X" and event["pid"] == fixture.HARDWARE_PID

    run = capture(tmp_path)
    change_timeline(run, lambda events: events + [event for event in events if is_task(event)][:3])
    assert ("duplicated_events", ERROR, 3) in new_findings(run, tmp_path)
    other = capture(tmp_path / "other")
    tasks = 0

    def drop(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        nonlocal tasks
        kept = []
        for event in events:
            tasks += is_task(event)
            if not (is_task(event) and tasks % 10 == 0):
                kept.append(event)
        return kept

    change_timeline(other, drop)
    found = new_findings(other, tmp_path / "again")
    assert ("tasks_not_in_timeline", WARNING, tasks // 10) in found


def test_the_device_clock_is_early(tmp_path: Path) -> None:
    run = capture(tmp_path)

    def earlier(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for event in events:
            if event.get("pid") in (fixture.HARDWARE_PID, fixture.OVERLAP_PID) and "ts" in event:
                event["ts"] = fixture.us_text(
                    round(float(event["ts"]) % 1e9 * 1000) + int(float(event["ts"]) // 1e9 * 1e12) - 5_000_000
                )
        return events

    change_timeline(run, earlier)
    (path,) = run.rglob("op_summary_*.csv")
    path.unlink()
    assert ("tasks_before_launch", ERROR, 90) in new_findings(run, tmp_path)


@pytest.mark.parametrize(
    ("file", "check"),
    [
        ("FRAMEWORK/torch.op_range", "no_framework_data"),
        ("FRAMEWORK/torch.memory_usage", "missing_file"),
        ("FRAMEWORK/torch.python_tracer_func", "missing_file"),
        ("FRAMEWORK/torch.python_tracer_hash", "nameless_python_calls"),
        ("FRAMEWORK/torch.op_mark", "kernels_without_operator"),
        ("PROF_*/mindstudio_profiler_output/msprof_*.json", "missing_file"),
        ("PROF_*/mindstudio_profiler_output/op_summary_*.csv", "missing_file"),
        ("PROF_*/analyze/communication.json", "missing_file"),
        ("profiler_info_0.json", "missing_profiler_info"),
    ],
)
def test_a_file_that_is_gone(file: str, check: str, tmp_path: Path) -> None:
    run = fixture.write_golden(tmp_path)
    known = findings(ascend_raw.read_trace(run))
    (path,) = run.glob(file)
    path.unlink()
    assert check in {found for found, _, count in findings(ascend_raw.read_trace(run)) if (found, _, count) not in known}


def test_no_device_data(tmp_path: Path) -> None:
    run = fixture.without_prof(fixture.write_golden(tmp_path))
    assert ("no_device_data", ERROR, 1) in findings(ascend_raw.read_trace(run))
