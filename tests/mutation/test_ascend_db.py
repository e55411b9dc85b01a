"""Good result databases of the Ascend PyTorch Profiler, damaged in one way each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from steplens.common.errors import InputError
from steplens.trace.health import ERROR, INFO, WARNING

from .ascend_results import OUTPUT, copied, read_database, sql
from .kineto_file import Finding, equal_tables, findings

LEVEL0 = "db_level0/rank0_ascend_pt"
LEVEL2 = "db_level2/rank0_ascend_pt"
BOTH = [LEVEL0, LEVEL2]

MS = 1_000_000
COMPUTES = "globalTaskId IN (SELECT globalTaskId FROM COMPUTE_TASK_INFO)"


def shifted(ns: int) -> list[str]:
    """Statements that move the clock of the device."""
    return [f"UPDATE {table} SET startNs = startNs + {ns}, endNs = endNs + {ns}" for table in ("TASK", "COMMUNICATION_OP")]


def new_findings(run: Path, name: str, tmp_path: Path) -> list[Finding]:
    """The findings that the untouched database does not have."""
    known = findings(read_database(copied(name, tmp_path / "untouched")))
    return [one for one in findings(read_database(run)) if one not in known]


@pytest.mark.parametrize("statement", [f"DELETE FROM TASK WHERE {COMPUTES} AND globalTaskId % 10 = 0", "-"])
@pytest.mark.parametrize("name", BOTH)
def test_lost_tasks(name: str, statement: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    # without its description a task is one that nobody knows to compute
    sql(run, statement if statement != "-" else "DELETE FROM COMPUTE_TASK_INFO WHERE globalTaskId % 10 = 0")
    found = new_findings(run, name, tmp_path)
    (lost,) = (count for check, _, count in found if check == "launches_without_kernels")
    assert 10 < lost < 30
    assert {check for check, _, _ in found} <= {"launches_without_kernels", "unfinished_launches"}


@pytest.mark.parametrize("name", BOTH)
def test_all_tasks_lost(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    sql(run, "DELETE FROM TASK", "DELETE FROM COMMUNICATION_OP")
    assert ("launches_without_kernels", ERROR, 191) in new_findings(run, name, tmp_path)


@pytest.mark.parametrize("name", BOTH)
def test_lost_launches(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    before = read_database(run).api.height
    sql(run, "DELETE FROM CANN_API WHERE connectionId % 10 = 0")
    assert read_database(run).api.height < before
    assert [(check, severity) for check, severity, _ in new_findings(run, name, tmp_path)] == [
        ("kernels_without_launches", WARNING)
    ]


@pytest.mark.parametrize("name", BOTH)
def test_the_device_clock_is_early(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    sql(run, *shifted(-5 * MS))
    assert [(check, severity) for check, severity, _ in new_findings(run, name, tmp_path)] == [("tasks_before_launch", ERROR)]


@pytest.mark.parametrize("name", BOTH)
def test_the_device_clock_is_late(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    sql(run, *shifted(5 * MS))
    assert [(check, severity) for check, severity, _ in new_findings(run, name, tmp_path)] == [("device_clock_late", ERROR)]


@pytest.mark.parametrize("name", BOTH)
def test_order_does_not_matter(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    original = read_database(run)
    for table in ("TASK", "CANN_API", "PYTORCH_API", "COMPUTE_TASK_INFO", "CONNECTION_IDS"):
        statements = (
            f"CREATE TABLE shuffled AS SELECT * FROM {table} ORDER BY random()",
            f"DELETE FROM {table}",
            f"INSERT INTO {table} SELECT * FROM shuffled",
            "DROP TABLE shuffled",
        )
        sql(run, *statements)
    shuffled = read_database(run)
    assert findings(original) == findings(shuffled)
    assert equal_tables(original, shuffled)


@pytest.mark.parametrize(
    ("table", "condition", "what"),
    [
        ("TASK", "globalTaskId % 50 = 0", "device tasks"),
        ("PYTORCH_API", "type = 50001 AND rowid % 50 = 0", "operator calls"),
        ("OP_MEMORY", "rowid % 50 = 0", "allocations"),
    ],
)
@pytest.mark.parametrize("name", BOTH)
def test_rows_that_are_there_twice(name: str, table: str, condition: str, what: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    sql(run, f"INSERT INTO {table} SELECT * FROM {table} WHERE {condition}")
    health = read_database(run).health
    (message,) = health.filter(health["check"] == "duplicated_events")["message"]
    assert what in message


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE TASK SET endNs = startNs - 5 WHERE rowid = 7", ("negative_duration", ERROR, 1)),
        ("UPDATE PYTORCH_API SET endNs = startNs - 5 WHERE type = 50002 AND rowid < 3", ("negative_duration", ERROR, 2)),
        ("UPDATE PYTORCH_API SET endNs = startNs - 5 WHERE type = 50001 AND rowid % 300 = 0", ("negative_duration", ERROR, None)),
        ("UPDATE TASK SET startNs = 'x' WHERE rowid = 7", ("impossible_times", ERROR, 1)),
        ("UPDATE TASK SET startNs = NULL WHERE rowid = 7", ("impossible_times", ERROR, 1)),
        (
            "UPDATE CANN_API SET startNs = 17, endNs = 18 WHERE name = (SELECT min(name) FROM CANN_API)",
            ("out_of_range", ERROR, None),
        ),
        ("DELETE FROM STRING_IDS WHERE id % 10 = 0", ("missing_names", WARNING, None)),
        ("DROP TABLE PYTORCH_API", ("missing_data", WARNING, 1)),
    ],
)
def test_garbled_rows(statement: str, expected: tuple[str, str, int | None], tmp_path: Path) -> None:
    run = copied(LEVEL2, tmp_path)
    sql(run, statement)
    check, severity, count = expected
    found = new_findings(run, LEVEL2, tmp_path)
    assert [one for one in found if one[:2] == (check, severity) and count in (None, one[2])], found


@pytest.mark.parametrize("name", BOTH)
def test_lost_digits(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    for table in ("TASK", "COMMUNICATION_OP"):
        sql(run, f"UPDATE {table} SET startNs = startNs / 1000 * 1000, endNs = endNs / 1000 * 1000")
    assert ("timestamp_precision", INFO, 1) in new_findings(run, name, tmp_path)


@pytest.mark.parametrize(
    ("file", "check"), [("ASCEND_PROFILER_OUTPUT/analysis.db", "missing_file"), ("profiler_info_0.json", "missing_profiler_info")]
)
def test_a_file_that_is_gone(file: str, check: str, tmp_path: Path) -> None:
    run = copied(LEVEL2, tmp_path)
    (run / file).unlink()
    assert [found for found, _, _ in new_findings(run, LEVEL2, tmp_path)] == [check]


def test_a_cut_database_says_so(tmp_path: Path) -> None:
    run = copied(LEVEL0, tmp_path)
    whole = read_database(run)
    (path,) = (run / OUTPUT).glob("ascend_pytorch_profiler*.db")
    data = path.read_bytes()
    known = findings(whole)
    outcomes = set()
    for offset in [*random.Random(1).sample(range(len(data)), 25), len(data) - 1, len(data) - 4096, 0, 15, 100]:
        path.write_bytes(data[:offset])
        try:
            trace = read_database(run)
        except InputError:
            outcomes.add("refused")
            continue
        severe = {check for check, severity, _ in findings(trace) if severity == ERROR} - {check for check, _, _ in known}
        assert severe or equal_tables(whole, trace), offset
        outcomes.add("reported" if severe else "harmless")
    assert {"refused", "reported"} <= outcomes


def test_a_damaged_page_says_so(tmp_path: Path) -> None:
    """Pages of zeros: the database is refused, or says what it has lost, or has lost nothing."""
    run = copied(LEVEL0, tmp_path)
    whole = read_database(run)
    (path,) = (run / OUTPUT).glob("ascend_pytorch_profiler*.db")
    data = path.read_bytes()
    for page in random.Random(2).sample(range(len(data) // 4096), 15):
        path.write_bytes(data[: page * 4096] + bytes(4096) + data[(page + 1) * 4096 :])
        try:
            trace = read_database(run)
        except InputError:
            continue
        worse = set(findings(trace)) - set(findings(whole))
        assert worse or equal_tables(whole, trace), page
