"""What one rank does more than the others: by hand."""

from __future__ import annotations

from typing import Any

from steplens.analysis.cluster.rank_differences import rank_differences
from steplens.trace.schema import SCOPE_FUNCTION
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, MAIN, PID, build

MS = 1_000_000
AUGMENT, FORWARD = "train.py(7): augment", "train.py(16): <module>"


def rank_trace(rank: int, *calls: tuple[str, str | None, float]) -> Trace:
    """Two steps of 50 ms with these calls: name, line and ms."""
    steps: list[dict[str, Any]] = []
    ops: list[dict[str, Any]] = []
    for step in (1, 2):
        base = BASE_NS + step * 50 * MS
        steps.append({"id": step, "start_ns": base, "end_ns": base + 50 * MS, "pid": PID, "tid": MAIN})
        for name, line, length in calls:
            last = ops[-1]["end_ns"] if ops and ops[-1]["step"] == step else base
            times = {"start_ns": last, "end_ns": last + round(length * MS), "self_ns": round(length * MS)}
            of_call = {"counted_as": len(ops), "device_self_ns": 0, "device_total_ns": 0, "scope": SCOPE_FUNCTION}
            ops.append({"id": len(ops), "name": name, "stack": line, "pid": PID, "tid": MAIN, "step": step, **of_call, **times})
    wait = {"name": "gloo:all_reduce", "kind": "collective", "operation": "allreduce", "group": "0"}
    times = {"start_ns": BASE_NS + 60 * MS, "end_ns": BASE_NS + 70 * MS, "step": 1}
    return build(meta={"rank": rank}, steps=steps, ops=ops, communication=[{**wait, **times}])


def job() -> list[Trace]:
    """Rank 1 multiplies in another line as well; its forward takes 1 ms more than the median of the others."""
    forward = ("aten::mm", FORWARD, 5.0)
    return [
        rank_trace(0, forward, ("gloo:all_reduce", None, 20)),
        rank_trace(1, ("aten::mm", AUGMENT, 12), ("aten::mul", AUGMENT, 3), ("aten::mm", FORWARD, 6)),
        rank_trace(2, forward, ("aten::add", FORWARD, 1)),
        rank_trace(3, forward, ("aten::mm", AUGMENT, 2)),
    ]


def test_by_hand() -> None:
    found = rank_differences(job(), 1).select("name", "line", "calls", "other_calls", "self_ns", "other_self_ns", "more_ns")
    assert found.rows() == [
        ("aten::mm", AUGMENT, 1, 0, 12 * MS, 0, 12 * MS),
        ("aten::mul", AUGMENT, 1, 0, 3 * MS, 0, 3 * MS),
        ("aten::mm", FORWARD, 1, 1, 6 * MS, 5 * MS, MS),
    ]
    lines = rank_differences(job(), 1, by_line=True).select("name", "line", "calls", "self_ns", "other_self_ns")
    assert lines.rows() == [(None, AUGMENT, 2, 15 * MS, 0), (None, FORWARD, 1, 6 * MS, 5 * MS)]


def test_what_only_waits_is_no_difference() -> None:
    assert rank_differences(job(), 0)["name"].to_list() == []


def test_nobody_to_compare_with() -> None:
    assert rank_differences(job()[:1], 0).is_empty()
    assert rank_differences(job(), 9).is_empty()
    assert rank_differences([], 0).is_empty()
