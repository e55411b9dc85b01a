"""communication.json and communication_matrix.json, as results and as CANN's analysis have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steplens.readers.ascend.ascend_communication import read_communication, read_communication_matrix
from steplens.trace.health import HealthLog

UNUSED = {"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0, "Large Packet Ratio": 0, "Size Distribution": {}}
USED = {
    "Transit Size(MB)": 8, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 16, "Large Packet Ratio": 1.0,
    "Size Distribution": {"2.064384": [12, 1.578891625], "8.0": [1, 0.5]},
}  # fmt: skip


def operation(start: Any = 1736408883732241.5, elapse: float = 2.0) -> dict[str, Any]:
    times = {
        "Start Timestamp(us)": start, "Elapse Time(ms)": elapse, "Transit Time(ms)": 0.5, "Wait Time(ms)": 0.25,
        "Synchronization Time(ms)": 0.125, "Idle Time(ms)": 0.1, "Wait Time Ratio": 0.5, "Synchronization Time Ratio": 0.1,
    }  # fmt: skip
    return {"Communication Time Info": times, "Communication Bandwidth Info": {"RDMA": UNUSED, "HCCS": USED}}


TOTAL = {"Communication Time Info": {"Elapse Time(ms)": 9}, "Communication Bandwidth Info": {"HCCS": USED}}
REDUCE, RECEIVE = "hcom_allReduce__586_0_1@17522688603477080586", "hcom_receive__586_1_1@g1"
LINK = {"Transport Type": "HCCS", "Transit Size(MB)": 4.5, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 9.0}


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("form", ["result", "result without steps", "CANN"])
def test_times_and_bandwidth(tmp_path: Path, form: str) -> None:
    collective, p2p = {REDUCE: operation(), "Total Op Info": TOTAL}, {RECEIVE: operation(elapse=1.0)}
    key = "step50" if form == "result" else "step"
    value = {**collective, **p2p} if form == "CANN" else {key: {"p2p": p2p, "collective": collective}}
    health = HealthLog()
    tables = read_communication(write(tmp_path / "communication.json", value), health)
    step = 50 if form == "result" else None
    numbers = (1736408883732241500, 2.0, 0.5, 0.25, 0.125, 0.1)
    assert sorted(tables["communication_times"].rows()) == [
        ("hcom_allReduce__586_0_1", "17522688603477080586", "collective", step, *numbers),
        ("hcom_receive__586_1_1", "g1", "p2p", step, numbers[0], 1.0, *numbers[2:]),
    ]
    bandwidth = tables["communication_bandwidth"]
    head = ("hcom_allReduce__586_0_1", "17522688603477080586", "collective", step)
    assert [row for row in bandwidth.rows() if row[0] == head[0]] == [
        (*head, "RDMA", 0.0, 0.0, 0.0, 0.0, None, None, None),
        (*head, "HCCS", 8.0, 0.5, 16.0, 1.0, 2.064384, 12, 1.578891625),
        (*head, "HCCS", 8.0, 0.5, 16.0, 1.0, 8.0, 1, 0.5),
    ]
    assert bandwidth.height == 6
    assert health.findings == []


def test_starts_are_exact_and_count_from_a_base(tmp_path: Path) -> None:
    base = 7_889_238_000_000_000 * 220
    path = tmp_path / "communication.json"
    path.write_text(
        json.dumps({"step": {"collective": {"a@g": operation("@"), "b@g": operation(12.25)}}}).replace(
            '"@"', "1736408883732241.563"
        )
    )
    times = read_communication(path, HealthLog(), base_ns=base)["communication_times"]
    assert times["start_ns"].to_list() == [1736408883732241563, base + 12_250]


def test_the_matrix_of_a_result(tmp_path: Path) -> None:
    top = {"0-0": {**LINK, "Transport Type": "LOCAL", "Op Name": "hcom_allReduce__586_2_1"}, "0-7": LINK}
    value = {"step50": {"p2p": {}, "collective": {"allreduce-top1@g": top, "allreduce-total@g": {"0-7": LINK}}}}
    matrix = read_communication_matrix(write(tmp_path / "communication_matrix.json", value), HealthLog())
    assert matrix.rows() == [
        ("allreduce", "top1", "hcom_allReduce__586_2_1", "g", "collective", 50, 0, 0, "LOCAL", 4.5, 0.5, 9.0),
        ("allreduce", "top1", None, "g", "collective", 50, 0, 7, "HCCS", 4.5, 0.5, 9.0),
        ("allreduce", "total", None, "g", "collective", 50, 0, 7, "HCCS", 4.5, 0.5, 9.0),
    ]


def test_the_matrix_of_cann(tmp_path: Path) -> None:
    value = {REDUCE: {"0-1": LINK, "10-11": LINK}, RECEIVE: {"1-0": LINK}, "Total Op Info": {"0-1": LINK}}
    matrix = read_communication_matrix(write(tmp_path / "communication_matrix.json", value), HealthLog())
    assert matrix.select("name", "selection", "group", "kind", "step", "source", "destination").rows() == [
        ("hcom_allReduce__586_0_1", None, "17522688603477080586", "collective", None, 0, 1),
        ("hcom_allReduce__586_0_1", None, "17522688603477080586", "collective", None, 10, 11),
        ("hcom_receive__586_1_1", None, "g1", "p2p", None, 1, 0),
    ]


@pytest.mark.parametrize("text", ["abc", "1,234.5", "5 ms", True, [1], {"a": 1}, "nan", "inf"])
def test_values_that_are_no_numbers_are_told_by_their_members(tmp_path: Path, text: object) -> None:
    odd = operation(start=text)
    changed = {"Elapse Time(ms)": text, "Wait Time(ms)": "N/A", "Idle Time(ms)": None, "Transit Time(ms)": "2"}
    odd["Communication Time Info"] |= changed
    packets = {"4.0": [text, 1.0], "8.0": [1, text], "16.0": text}
    link = {**USED, "Bandwidth(GB/s)": text, "Size Distribution": packets}
    odd["Communication Bandwidth Info"]["HCCS"] = link
    health = HealthLog()
    tables = read_communication(write(tmp_path / "communication.json", {REDUCE: odd, RECEIVE: operation()}), health)
    times = {row["name"][:8]: row for row in tables["communication_times"].iter_rows(named=True)}
    assert (times["hcom_all"]["start_ns"], times["hcom_all"]["elapse_ms"], times["hcom_all"]["transit_ms"]) == (None, None, 2.0)
    assert times["hcom_rec"]["elapse_ms"] == 2.0
    sentence = "values of communication.json are no numbers and count as missing"
    assert [(found.check, found.count, found.message, found.unsafe) for found in health.findings] == [
        ("damaged_values", 2, f"{sentence} (Start Timestamp(us), Elapse Time(ms))", "communication times"),
        ("damaged_values", 4, f"{sentence} (Size Distribution, Bandwidth(GB/s))", "communication volume"),
    ]
    health = HealthLog()
    value = {REDUCE: {"0-1": {**LINK, "Transit Size(MB)": text}}}
    links = read_communication_matrix(write(tmp_path / "communication_matrix.json", value), health)
    assert links.height == 1
    assert [(found.check, found.count) for found in health.findings] == [("damaged_values", 1)]
    assert "communication_matrix.json" in health.findings[0].message and "Transit Size(MB)" in health.findings[0].message


def test_odd_parts_are_left_out_and_told(tmp_path: Path) -> None:
    odd = operation("soon", "x")  # type: ignore[arg-type]
    odd["Communication Bandwidth Info"] = {
        "HCCS": 5,
        "SDMA": {**USED, "Size Distribution": {"x": [1e30, []], "1": "y", "2": [1]}},
    }
    health = HealthLog()
    value = {"step3": {"collective": {"a@g": odd, "b": 3, "c": {}}, "p2p": []}, "step": 7, "x": 8, "d@g": {"k": {}}}
    tables = read_communication(write(tmp_path / "communication.json", value), health)
    assert tables["communication_times"].rows() == [("a", "g", "collective", 3, None, None, 0.5, 0.25, 0.125, 0.1)]
    assert tables["communication_bandwidth"]["count"].to_list() == [None, None]
    assert {finding.check for finding in health.findings} == {"unknown_layout", "damaged_values"}
    matrix_health = HealthLog()
    links = {"0-1": 5, "a-b": LINK, "1-2": {"Transit Size(MB)": "x"}, "99999999999-1": LINK}
    matrix = read_communication_matrix(write(tmp_path / "matrix.json", {"a@g": links}), matrix_health)
    assert matrix.select("source", "destination", "size_mb").rows() == [(1, 2, None)]
    assert [finding.count for finding in matrix_health.findings] == [3, 1]


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b'{"a":' * 3000, b"NaN", b'"x"', b"null"], ids=range(8))
def test_what_is_no_such_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "communication.json"
    path.write_bytes(content)
    health = HealthLog()
    assert read_communication(path, health) == {}
    assert read_communication_matrix(path, health).is_empty()
    assert [finding.check for finding in health.findings] == ["unreadable_file"] * 2
    assert read_communication(tmp_path / "none.json", health) == {}
