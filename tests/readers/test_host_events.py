"""What is recorded beside Kineto: whole, damaged and hostile."""

import json
import random

import numpy as np
import polars as pl
import pytest

from steplens.readers.steplens_run import host_events, run_files
from steplens.trace.health import CONCLUSIONS, HealthLog
from steplens.trace.schema import SCHEMA

START = 1_795_283_000_000_000_000

TEXTS = [["default", "step 1"], ["mine", 'a "quoted" text\n'], ["default", ""]]
ROWS = [
    (0, 2, START, START + 5, 11, -1),
    (1, 0, START + 1, START + 1, 12, -1),
    (1, 2, START + 2, START + 9, 12, 7),
    (2, 1, START + 3, START + 4, 11, 0),
]


def write_marks(folder, rows=tuple(ROWS), texts=None, pid=99, extra=b""):
    np.array(rows, dtype="<i8").tofile(folder / "marks.bin")
    with (folder / "marks.bin").open("ab") as file:
        file.write(extra)
    described = {"pid": pid, "columns": host_events._COLUMNS, "texts": TEXTS if texts is None else texts}
    (folder / "marks.json").write_text(json.dumps(described))


def read(folder, host=None, pid=7):
    health = HealthLog()
    tables = host_events.tables(folder, host or {}, pid, health)
    for name, frame in tables.items():
        assert frame.height
        assert set(frame.columns) <= set(SCHEMA[name])
    for finding in health.findings:
        assert set(finding.conclusions()) <= {*CONCLUSIONS, "what only this file records"}
    return tables, [(item.check, item.count) for item in health.findings]


def test_nothing_recorded(tmp_path):
    assert read(tmp_path) == ({}, [])
    assert run_files.host_files(tmp_path) == []


def test_marks(tmp_path):
    write_marks(tmp_path)
    tables, findings = read(tmp_path)
    marks = tables["marks"]
    assert findings == []
    assert marks["domain"].to_list() == ["default", "mine", "mine", "default"]
    assert marks["message"].to_list() == ["step 1", 'a "quoted" text\n', 'a "quoted" text\n', ""]
    assert marks["start_ns"].to_list() == [row[2] for row in ROWS]
    assert marks["end_ns"].to_list() == [row[3] for row in ROWS]
    assert marks["tid"].to_list() == [11, 12, 12, 11]
    assert marks["stream"].to_list() == [None, None, 7, 0]
    assert marks["pid"].to_list() == [99] * 4
    assert marks["kind"].to_list() == [["marker", "push/pop", "start/end"][row[1]] for row in ROWS]
    assert [path.name for path in run_files.host_files(tmp_path)] == ["marks.bin", "marks.json"]


@pytest.mark.parametrize(
    ("change", "kept", "lost"),
    [
        ({"extra": b"12345"}, 4, 1),
        ({"extra": bytes(48)}, 4, 1),  # a time of 0
        ({"rows": [*ROWS, (3, 0, START, START, 1, -1)]}, 4, 1),  # no such text
        ({"rows": [*ROWS, (-1, 0, START, START, 1, -1)]}, 4, 1),
        ({"rows": [*ROWS, (0, 0, START, START - 1, 1, -1)]}, 4, 1),  # ends before it begins
        ({"rows": [*ROWS, (0, 0, START, (1 << 63) - 1, 1, -1)]}, 4, 1),
        ({"texts": TEXTS[:1]}, 1, 3),
        ({"texts": "no list"}, 0, 4),
        ({"texts": {}}, 0, 4),
    ],
)
def test_damaged_marks(change, kept, lost, tmp_path):
    write_marks(tmp_path, **change)
    tables, findings = read(tmp_path)
    assert (tables["marks"].height if "marks" in tables else 0) == kept
    assert findings == [("damaged_side_file", lost)]


@pytest.mark.parametrize(("size", "kept"), [(1234, ["1234"]), (0, []), (-1, []), ("12", []), (1 << 70, []), (True, [])])
def test_the_size_of_checkpoints(size, kept, tmp_path):
    write_marks(tmp_path)
    path = tmp_path / "marks.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "checkpoint_bytes": size}))
    tables, findings = read(tmp_path)
    assert findings == []
    meta = tables["meta"].rows() if "meta" in tables else []
    assert meta == [("checkpoint_bytes", value) for value in kept]


def test_damaged_texts_are_empty_and_a_wrong_process_is_that_of_the_run(tmp_path):
    write_marks(tmp_path, texts=[["d", 1], None, ["only one"]], pid="x")
    marks = read(tmp_path)[0]["marks"]
    assert set(marks["message"].to_list()) == {""}
    assert set(marks["pid"].to_list()) == {7}


def test_texts_without_a_file(tmp_path):
    write_marks(tmp_path)
    (tmp_path / "marks.json").unlink()
    assert read(tmp_path) == ({}, [("damaged_side_file", 4)])


def test_oversized_files_are_not_read(tmp_path, monkeypatch):
    write_marks(tmp_path)
    (tmp_path / "system_calls.txt").write_text("x" * 200)
    monkeypatch.setattr(host_events, "_MARKS_LIMIT", 100)
    monkeypatch.setattr(host_events, "_CALLS_LIMIT", 100)
    assert read(tmp_path) == ({}, [("damaged_side_file", 1)] * 2)


SAMPLES = {
    "series": [
        {"group": "CPU Usage", "name": "CPU Usage", "unit": "%", "time_ns": [START, START + 20], "value": [50, 12.5]},
        {"group": "Disk Usage", "name": "Disk/Read", "unit": "KB/s", "time_ns": [START], "value": [0.0]},
    ],
    "problems": {},
    "dropped": 0,
    "late_ns": 3_000_000,
    "cost": {"samples": 2, "process_ns": 5},
}


def write_samples(folder, **changes):
    (folder / "host_samples.json").write_text(json.dumps({**SAMPLES, **changes}))


def test_samples(tmp_path):
    write_samples(tmp_path)
    tables, findings = read(tmp_path, {"collection": {"host_sampler_ns": 8}})
    assert findings == []
    assert tables["counters"].select("group", "name", "unit", "time_ns", "value").rows() == [
        ("CPU Usage", "CPU Usage", "%", START, 50.0),
        ("CPU Usage", "CPU Usage", "%", START + 20, 12.5),
        ("Disk Usage", "Disk/Read", "KB/s", START, 0.0),
    ]
    (row,) = tables["meta"].rows()
    assert row[0] == "host_sampler_cost" and json.loads(row[1]) == {"samples": 2, "process_ns": 5, "training_ns": 8}


def test_late_and_lost_samples(tmp_path):
    write_samples(tmp_path, late_ns=150_000_000, dropped=9)
    assert read(tmp_path)[1] == [("samples_dropped", 9), ("samples_late", 1)]


GOOD = SAMPLES["series"][0]


@pytest.mark.parametrize(
    "series",
    [
        None,
        [],
        {},
        {**GOOD, "time_ns": [START]},
        {**GOOD, "value": ["50", 1]},
        {**GOOD, "value": [True, 1]},
        {**GOOD, "value": [10**400, 1]},
        {**GOOD, "time_ns": [START, 1 << 70]},
        {**GOOD, "time_ns": [START, 1.5]},
        {**GOOD, "time_ns": [START, -1]},
        {**GOOD, "group": None},
        {**GOOD, "unit": 5},
    ],
)
def test_damaged_series(series, tmp_path):
    write_samples(tmp_path, series=[series, SAMPLES["series"][1]])
    tables, findings = read(tmp_path)
    assert tables["counters"].height == 1
    assert findings == [("damaged_side_file", 1)]


@pytest.mark.parametrize(
    "changes", [{"series": 5}, {"cost": 5, "series": []}, {"dropped": "x", "late_ns": None}, {"dropped": 1 << 80}]
)
def test_odd_values_beside_the_series(changes, tmp_path):
    write_samples(tmp_path, **changes)
    assert read(tmp_path)[1] == []


CALLS = """\
11 1795283000.000000100 getpid() = 0xb <0.000000050>
11 1795283000.000001000 read(0x3, 0x7ffe, 0x40) = 0x40 <0.000002000>
12 1795283000.000000500 futex(0x7fba, 0x189, 0, 0 <unfinished ...>
11 1795283000.000004000 write(0x1, 0x55, 0x1) = ? EINTR (<x>) <0.000000001>
12 1795283000.500000500 <... futex resumed>) = 0 <0.499999900>
13 1795283000.700000000 restart_syscall( <unfinished ...>
13 1795283000.800000000 +++ exited with 0 +++
11 1795283000.900000000 --- SIGCHLD {si_signo=SIGCHLD} ---
11 1795283001.000000000 exit_group(0) = ?
14 1795283001.000000000 write(0x2, 0x5, 0x56 <detached ...>
"""


def test_system_calls(tmp_path):
    (tmp_path / "system_calls.txt").write_text(CALLS)
    tables, findings = read(tmp_path)
    assert findings == []
    calls = tables["api"]
    assert set(calls["layer"]) == {"os_runtime"} and set(calls["pid"]) == {7}
    assert calls.select("name", pl.col("start_ns") - START, pl.col("end_ns") - START, "tid").rows() == [
        ("getpid", 100, 150, 11),
        ("futex", 600, 500_000_500, 12),
        ("read", 1000, 3000, 11),
        ("write", 4000, 4001, 11),
    ]


def test_strange_lines_of_system_calls(tmp_path):
    too_late, too_long = "1 9999999999.000000000 read(0) = 0 <0.000000001>", "2 5.000000000 read(0) = 0 <6.000000000>"
    too_many = "999999999999999999999 1.000000000 read(0) = 0 <0.000000001>"
    lines = CALLS + "\n".join([too_late, too_long, too_many, "nonsense", "", "\x00\xff <0.0>", ""])
    (tmp_path / "system_calls.txt").write_bytes(lines.encode("latin-1"))
    tables, findings = read(tmp_path)
    assert tables["api"].height == 4
    assert findings == [("damaged_side_file", 6)]


def test_random_damage_raises_nothing(tmp_path):
    """Bytes changed, cut and doubled at random: every file is read or found damaged, and what is read fits the tables."""
    write_marks(tmp_path)
    write_samples(tmp_path)
    (tmp_path / "system_calls.txt").write_text(CALLS)
    whole = {path.name: path.read_bytes() for path in run_files.host_files(tmp_path)}
    assert len(whole) == 4
    chance = random.Random(5)
    found = 0
    for _ in range(80):
        for name, data in whole.items():
            damaged = bytearray(data)
            for _ in range(chance.randrange(4)):
                at = chance.randrange(len(damaged))
                damaged[at : at + chance.choice((0, 1, 9))] = chance.randbytes(chance.choice((0, 1, 5)))
            (tmp_path / name).write_bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged) + 1)))])
        tables, findings = read(tmp_path)
        found += bool(findings)
        marks = tables.get("marks")
        assert marks is None or (marks["start_ns"] <= marks["end_ns"]).all()
    assert found > 50
