"""Good text results of the Ascend PyTorch Profiler, damaged in one way each."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from steplens.run import open_run
from steplens.trace.health import ERROR, INFO, WARNING

from .ascend_results import OUTPUT, Event, Table, Timeline, copied, drop_key, moved, read_text, shift_device
from .kineto_file import Finding, equal_tables, findings

LEVEL0 = "text_level0/rank0_ascend_pt"
LEVEL1 = "text_level1/rank0_ascend_pt"
BOTH = [LEVEL0, LEVEL1]


def new_findings(run: Path, name: str, tmp_path: Path) -> list[Finding]:
    """The findings that the untouched results do not have."""
    known = findings(read_text(copied(name, tmp_path / "untouched")))
    return [one for one in findings(read_text(run)) if one not in known]


def dropped(timeline: Timeline, wanted: Callable[[Event], bool], share: float) -> int:
    """Remove a share of the events that are wanted, at least one; how many."""
    rows = [row for row, event in enumerate(timeline.events) if wanted(event)]
    gone = set(random.Random(1).sample(rows, max(int(share * len(rows)), 1)))
    timeline.events = [event for row, event in enumerate(timeline.events) if row not in gone]
    timeline.write()
    return len(gone)


def computes(timeline: Timeline) -> Callable[[Event], bool]:
    return lambda event: timeline.is_task(event) and event["args"].get("Task Type") in ("AI_CORE", "AI_VECTOR_CORE", "N/A")


@pytest.mark.parametrize("share", [0, 0.1])
@pytest.mark.parametrize("name", BOTH)
def test_tasks_lost_from_the_timeline(name: str, share: float, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    timeline = Timeline(run)
    lost = dropped(timeline, computes(timeline), share)
    found = {check: count for check, _, count in new_findings(run, name, tmp_path)}
    assert found.pop("tasks_not_in_timeline") == lost
    # the list of kernels still has them, but nobody knows who launched them
    assert found.pop("kernels_without_operator") == lost
    if name == LEVEL1:
        assert found.pop("launches_without_kernels", 0) + found.pop("unfinished_launches", 0) == lost
    assert set(found) <= {"unmatched_launches"}


@pytest.mark.parametrize("name", BOTH)
def test_rows_lost_from_the_list_of_kernels(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    table = Table(run, "kernel_details.csv")
    gone = set(random.Random(2).sample(range(len(table.rows)), 40))
    table.rows = [row for number, row in enumerate(table.rows) if number not in gone]
    table.write()
    assert new_findings(run, name, tmp_path) == [("tasks_not_listed", WARNING, 40)]


def test_lost_launches(tmp_path: Path) -> None:
    run = copied(LEVEL1, tmp_path)
    lost = dropped(Timeline(run), lambda event: event.get("name") == "Node@launch", 0.1)
    assert new_findings(run, LEVEL1, tmp_path) == [("kernels_without_launches", WARNING, lost)]


@pytest.mark.parametrize("end", ["s", "f"])
@pytest.mark.parametrize("name", BOTH)
def test_lost_arrows(name: str, end: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    dropped(Timeline(run), lambda event: event.get("cat") == "HostToDevice" and event.get("ph") == end, 0.1)
    found = {check: severity for check, severity, _ in new_findings(run, name, tmp_path)}
    assert found.pop("unmatched_launches") == WARNING
    assert set(found) <= {"kernels_without_operator"}


@pytest.mark.parametrize("name", BOTH)
def test_lost_halves_of_the_task_queue(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    lost = dropped(Timeline(run), lambda event: str(event.get("name")).startswith("Enqueue"), 0.1)
    assert ("half_queued_tasks", WARNING, lost) in new_findings(run, name, tmp_path)


@pytest.mark.parametrize("name", BOTH)
def test_the_device_clock_is_early(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    shift_device(run, -5000)
    assert [(check, severity) for check, severity, _ in new_findings(run, name, tmp_path)] == [("tasks_before_launch", ERROR)]


def test_the_device_clock_is_late(tmp_path: Path) -> None:
    run = copied(LEVEL1, tmp_path)
    shift_device(run, 5000)
    assert [(check, severity) for check, severity, _ in new_findings(run, LEVEL1, tmp_path)] == [("device_clock_late", ERROR)]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("microseconds", [-5000, 5000])
def test_timeline_and_list_of_kernels_disagree_about_the_time(name: str, microseconds: int, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    timeline = Timeline(run)
    timeline.shift(microseconds, timeline.is_task)
    timeline.write()
    checks = {check for check, _, _ in new_findings(run, name, tmp_path)}
    assert {"tasks_not_in_timeline", "tasks_not_listed"} <= checks


@pytest.mark.parametrize("microseconds", [-5000, 5000])
def test_a_rank_with_another_clock(microseconds: int, tmp_path: Path) -> None:
    copied(LEVEL1, tmp_path / "run")
    other = copied("text_level1/rank1_ascend_pt", tmp_path / "run")
    timeline = Timeline(other)
    timeline.shift(microseconds, lambda event: True)
    timeline.write()
    table = Table(other, "kernel_details.csv")
    for row in table.rows:
        row["Start Time(us)"] = moved(row["Start Time(us)"], microseconds)
    table.write()
    health = open_run(tmp_path / "run").health()
    (message,) = health.filter(health["check"] == "rank_clock_offset")["message"]
    assert f"ms {'ahead of' if microseconds > 0 else 'behind'} that of rank 0" in message
    # the clocks of the recorded ranks agree to some microseconds
    assert any(f" {distance} ms" in message for distance in ("4.98", "4.99", "5", "5.01", "5.02", "5.03"))


def test_a_rank_that_is_gone_or_not_said(tmp_path: Path) -> None:
    run = copied(LEVEL1, tmp_path)
    (info,) = run.glob("profiler_info_*.json")
    drop_key(info, "rank_id")
    info.rename(run / "profiler_info.json")
    assert new_findings(run, LEVEL1, tmp_path) == [("rank_unknown", WARNING, 1)]


@pytest.mark.parametrize("name", BOTH)
def test_order_does_not_matter(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    original = read_text(run)
    timeline = Timeline(run)
    names = [event for event in timeline.events if event.get("ph") == "M"]
    others = [event for event in timeline.events if event.get("ph") != "M"]
    random.Random(4).shuffle(others)
    timeline.events = others[:100] + names + others[100:]
    timeline.write()
    table = Table(run, "kernel_details.csv")
    random.Random(4).shuffle(table.rows)
    table.write()
    shuffled = read_text(run)
    assert findings(original) == findings(shuffled)
    for name_of_table in set(original) - {"health", "python"}:
        one, other = original.table(name_of_table), shuffled.table(name_of_table)
        assert one.sort(one.columns).equals(other.sort(other.columns)), name_of_table
    # Python calls are numbered in the order of the file
    one, other = (trace.python.drop("id", "parent") for trace in (original, shuffled))
    assert one.sort(one.columns).equals(other.sort(other.columns))


@pytest.mark.parametrize("kind", ["cpu_op", "python_function"])
@pytest.mark.parametrize("name", BOTH)
def test_events_that_are_there_twice(name: str, kind: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    timeline = Timeline(run)
    timeline.events += random.Random(5).sample([event for event in timeline.events if event.get("cat") == kind], 4)
    timeline.write()
    assert ("duplicated_events", ERROR, 4) in new_findings(run, name, tmp_path)


@pytest.mark.parametrize("name", BOTH)
def test_tasks_that_are_there_twice(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    timeline = Timeline(run)
    timeline.events += random.Random(6).sample([event for event in timeline.events if timeline.is_task(event)], 4)
    timeline.write()
    assert ("duplicated_events", ERROR, 4) in new_findings(run, name, tmp_path)


@pytest.mark.parametrize("name", BOTH)
def test_lost_digits(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    timeline = Timeline(run)
    for event in timeline.events:
        if "ts" in event:
            event["ts"] = str(event["ts"]).split(".")[0]
    timeline.write()
    assert ("timestamp_precision", INFO, 1) in new_findings(run, name, tmp_path)


@pytest.mark.parametrize("name", BOTH)
def test_negative_durations(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    timeline = Timeline(run)
    for event in (next(event for event in timeline.events if event.get("cat") == "cpu_op"), _first_task(timeline)):
        event["dur"] = moved(event["dur"], -1_000_000)
    timeline.write()
    assert ("negative_duration", ERROR, 1) in new_findings(run, name, tmp_path)


def _first_task(timeline: Timeline) -> Event:
    return next(event for event in timeline.events if computes(timeline)(event))


@pytest.mark.parametrize(
    ("file", "check"),
    [
        ("trace_view.json", "missing_file"),
        ("kernel_details.csv", "missing_file"),
        ("memory_record.csv", "missing_file"),
        ("operator_memory.csv", "missing_file"),
        ("communication.json", "missing_file"),
        ("communication_matrix.json", "missing_results"),
        ("op_statistic.csv", "missing_results"),
        ("api_statistic.csv", "missing_results"),
        ("step_trace_time.csv", "missing_results"),
        ("operator_details.csv", "missing_results"),
        ("npu_module_mem.csv", "missing_results"),
        ("l2_cache.csv", "missing_results"),
        ("../profiler_info_0.json", "missing_profiler_info"),
    ],
)
def test_a_file_that_is_gone(file: str, check: str, tmp_path: Path) -> None:
    run = copied(LEVEL1, tmp_path)
    (run / OUTPUT / file).unlink()
    assert check in {found for found, _, _ in new_findings(run, LEVEL1, tmp_path)}


def test_a_folder_of_a_few_files_lacks_no_results(tmp_path: Path) -> None:
    run = copied(LEVEL1, tmp_path)
    for path in (run / OUTPUT).iterdir():
        if path.name not in ("trace_view.json", "kernel_details.csv", "memory_record.csv", "operator_memory.csv"):
            path.unlink()
    assert "missing_results" not in {check for check, _, _ in findings(read_text(run))}


# more places where the same file is cut
@pytest.mark.parametrize("cuts", [4, pytest.param(24, marks=pytest.mark.long)])
@pytest.mark.parametrize("file", ["kernel_details.csv", "memory_record.csv", "operator_memory.csv", "communication.json"])
def test_cut_files_say_so(file: str, cuts: int, tmp_path: Path) -> None:
    """Cut anywhere but between two rows, of which nothing tells how many there were."""
    run = copied(LEVEL1, tmp_path)
    whole = read_text(run)
    path = run / OUTPUT / file
    data = path.read_bytes()
    random_numbers = random.Random(8)
    for offset in [*random_numbers.sample(range(1, len(data)), cuts), len(data) - 1, len(data) - 2, len(data) - 3]:
        path.write_bytes(data[:offset])
        trace = read_text(run)
        found = {check for check, _, _ in findings(trace)} - {check for check, _, _ in findings(whole)}
        between_rows = any(part in b"\r\n" for part in (data[offset - 1 : offset], data[offset : offset + 1]))
        assert found & {"truncated_file", "unreadable_file"} or between_rows or equal_tables(whole, trace), offset


def test_a_cut_timeline_says_so(tmp_path: Path) -> None:
    run = copied(LEVEL0, tmp_path)
    path = run / OUTPUT / "trace_view.json"
    data = path.read_bytes()
    for share in (0.3, 0.7, 0.999):
        path.write_bytes(data[: int(len(data) * share)])
        assert ("truncated_file", ERROR, 1) in findings(read_text(run))


def test_a_garbled_event_is_counted(tmp_path: Path) -> None:
    run = copied(LEVEL0, tmp_path)
    path = run / OUTPUT / "trace_view.json"
    text = path.read_text()
    where = text.index('"cpu_op"')
    path.write_text(text[:where] + "\x01" + text[where + 1 :])
    checks = {check: count for check, _, count in new_findings(run, LEVEL0, tmp_path)}
    assert checks["damaged_events"] == 1
    assert read_text(run).ops.height == 859
