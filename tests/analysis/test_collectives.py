"""Which collectives take far longer than their size explains: by hand, with all ranks there and with some missing."""

from __future__ import annotations

from typing import Any

import pytest

from steplens.analysis.cluster.collectives import collective_times, unexplained_by_step, unexplained_collectives
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, build, kernel

MS = 1_000_000
MIB = 1 << 20
#: begin and end within the step, ms, and MiB; the larger the faster, but for the first and the last
CALLS = ((10, 50, 16), (50, 52, 64), (52, 55, 128), (55, 65, 8))


def rank_trace(rank: int, *calls: tuple[float, float, float], size: int, **values: Any) -> Trace:
    """Two steps of 100 ms with these all-reduces; the device computes for 10 ms of the first one."""
    steps, communication, kernels = [], [], []
    for step in (1, 2):
        base = BASE_NS + step * 100 * MS
        steps.append({"id": step, "start_ns": base, "end_ns": base + 100 * MS, "pid": 1, "tid": 1})
        kernels.append({**kernel("mm", 0, 20_000, core="CUDA"), "start_ns": base, "end_ns": base + 20 * MS, "step": step})
        for begin, end, mib in calls:
            times = {"start_ns": base + round(begin * MS), "end_ns": base + round(end * MS), "step": step}
            communication.append({"name": "nccl:all_reduce", "kind": "collective", "operation": "allreduce", "group": "0",
                                  "ranks": size, "bytes": round(mib * MIB), "dtype": "float", **times, **values})  # fmt: skip
    return build(meta={"rank": rank, "world_size": size}, steps=steps, kernels=kernels, communication=communication)


def test_a_small_one_that_takes_longer_than_large_ones_is_long() -> None:
    found = collective_times([rank_trace(0, *CALLS, size=8)])
    assert found["duration_ns"].is_sorted(descending=True)
    columns = ("bytes", "in_step_ns", "duration_ns", "expected_ns", "beyond_ns", "exposed_ns", "long")
    # a transfer of 64 MiB takes 2 ms: less takes no more, and 128 MiB took 3 ms
    assert found.filter(step=2).select(columns).rows() == [
        (16 * MIB, 10 * MS, 40 * MS, 2 * MS, 38 * MS, 30 * MS, True),
        (8 * MIB, 55 * MS, 10 * MS, 2 * MS, 8 * MS, 10 * MS, True),
        (128 * MIB, 52 * MS, 3 * MS, 3 * MS, 0, 3 * MS, False),
        (64 * MIB, 50 * MS, 2 * MS, 2 * MS, 0, 2 * MS, False),
    ]
    assert found.filter(step=2)["rate_bytes_per_s"][0] == pytest.approx(16 * MIB / 40e-3)
    # nobody measured the transfer
    assert found["bus_bytes_per_s"].null_count() == 8
    # of the first 30 ms are exposed
    assert unexplained_by_step([rank_trace(0, *CALLS, size=8)]).rows() == [(0, 1, 2, 38 * MS), (0, 2, 2, 38 * MS)]


def test_waiting_that_arrivals_explain_is_not_unexplained() -> None:
    """Rank 1 comes 38 ms late to the first all-reduce and is there in time for the others."""
    late = ((48, 50, 16), *CALLS[1:])
    traces = [rank_trace(0, *CALLS, size=2), rank_trace(1, *late, size=2)]
    found = collective_times(traces).filter(step=1)
    first = found.filter(rank=0, bytes=16 * MIB).row(0, named=True)
    assert (first["wait_ns"], first["expected_ns"], first["beyond_ns"], first["long"]) == (38 * MS, 2 * MS, 0, True)
    # an all-reduce of two ranks moves every byte once each way
    assert first["bus_bytes_per_s"] == pytest.approx(16 * MIB / 2e-3)
    assert not found.filter(rank=1, bytes=16 * MIB)["long"][0]
    assert unexplained_collectives(traces).is_empty()
    assert set(unexplained_by_step(traces)["beyond_ns"]) == {0}


@pytest.mark.parametrize(
    "values", [{"bytes": None}, {"kind": "send", "operation": "send"}, {"step": None}], ids=["no sizes", "messages", "no steps"]
)
def test_what_nothing_is_expected_of_is_not_long(values: dict[str, Any]) -> None:
    traces = [rank_trace(0, *CALLS, size=8, **values)]
    assert unexplained_by_step(traces)["beyond_ns"].sum() == 0
    if values.get("step", 1) is not None:
        assert not collective_times(traces)["long"].any()


def test_nothing_recorded() -> None:
    assert collective_times([]).is_empty()
    assert unexplained_by_step([build(meta={"rank": 0})]).is_empty()
