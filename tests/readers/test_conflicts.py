"""Result files beside the data that was read: equal ones are passed over, others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from steplens.readers.ascend import conflicts
from steplens.trace.trace import Trace

from ..writers.builder import build, kernel, op

STEP = {"id": 3, "start_ns": 0, "end_ns": 100, "pid": 1, "tid": 1}


def trace() -> Trace:
    return build(
        ops=[op("ProfilerStep#3", 0, 90), op("aten::mm", 1, 20), op("aten::add", 30, 40)],
        kernels=[kernel("a", 2, 12.5), kernel("b", 31, 33), kernel("wait", 50, 60, kind="other")],
        steps=[STEP],
    )


def results(folder: Path, durations: tuple[str, ...], operators: int, steps: tuple[int, ...]) -> Path:
    rows = "".join(f"{number},k,{duration}\r\n" for number, duration in enumerate(durations))
    (folder / "kernel_details.csv").write_text(f"Task ID,Name,Duration(us)\r\n{rows}")
    (folder / "operator_details.csv").write_text("Name,Input Shapes\r\n" + 'o,"1;\r\n2"\r\n' * operators)
    (folder / "step_trace_time.csv").write_text("Step,Free\r\n" + "".join(f"{step},0\r\n" for step in steps))
    return folder


def messages(found: Trace) -> list[str]:
    return found.required("health").collect()["message"].to_list()


def test_equal_results_are_no_finding(tmp_path: Path) -> None:
    same = trace()
    assert conflicts.with_findings(same, results(tmp_path, ("10.500", "2.0"), 2, (3,))) is same


@pytest.mark.parametrize(
    ("durations", "operators", "steps", "expected"),
    [
        (("10.5",), 2, (3,), "lists 1 kernels, the data that was read holds 2"),
        (("10.5", "2.5"), 2, (3,), "adds up to 13.000 us, the data that was read to 12.500 us"),
        (("10.5", "2.0"), 1, (3,), "lists 1 operators, the data that was read holds 2"),
        (("10.5", "2.0"), 2, (3, 4), "steps [4] that the data that was read lacks"),
    ],
)
def test_contradictions_are_named(
    tmp_path: Path, durations: tuple[str, ...], operators: int, steps: tuple[int, ...], expected: str
) -> None:
    (message,) = messages(conflicts.with_findings(trace(), results(tmp_path, durations, operators, steps)))
    assert expected in message


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"Name\n1,2,3\n", b'"open'])
def test_damaged_results_contradict_nothing(tmp_path: Path, content: bytes) -> None:
    for name in ("kernel_details.csv", "operator_details.csv", "step_trace_time.csv"):
        (tmp_path / name).write_bytes(content)
    assert messages(conflicts.with_findings(trace(), tmp_path)) == []


def test_earlier_findings_are_kept(tmp_path: Path) -> None:
    finding = {"check": "truncated_file", "severity": "error", "count": 1, "message": "cut", "unsafe": ""}
    first = build(ops=[op("aten::mm", 1, 20)], health=[finding])
    found = conflicts.with_findings(first, results(tmp_path, (), 4, ()))
    assert messages(found)[0] == "cut"
    assert len(messages(found)) == 2
