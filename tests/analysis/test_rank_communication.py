"""What communication costs the ranks in a step: of which steps the mean is."""

from __future__ import annotations

import pytest

from steplens.analysis.cluster.rank_communication import rank_costs, rank_edges
from steplens.analysis.steps.summary import summarize_steps
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, build, kernel

MS = 1_000_000
STEPS = 10
#: in which everything takes much longer, and rank 0 hardly waits
OUTLIER = 6


def rank_trace(rank: int) -> Trace:
    """Ten steps of 100 ms with an all-reduce of 40 ms, to which rank 1 comes 30 ms late; of the outlier: 1 s, 500 ms, 1 ms."""
    steps, communication, kernels, begin = [], [], [], BASE_NS
    for step in range(1, STEPS + 1):
        whole, late, end = (1000, 1, 550) if step == OUTLIER else (100, 30, 90)
        start = 50 + late * rank
        steps.append({"id": step, "start_ns": begin, "end_ns": begin + whole * MS, "pid": 1, "tid": 1})
        kernels.append({**kernel("mm", 0, 1, core="CUDA"), "start_ns": begin, "end_ns": begin + 50 * MS, "step": step})
        communication.append({"name": "nccl:all_reduce", "kind": "collective", "operation": "allreduce", "group": "0", "ranks": 2,
                              "bytes": 1, "dtype": "float", "start_ns": begin + start * MS, "end_ns": begin + end * MS,
                              "step": step})  # fmt: skip
        begin += whole * MS
    return build(meta={"rank": rank, "world_size": 2}, steps=steps, kernels=kernels, communication=communication)


def test_the_mean_is_of_the_steps_that_the_parts_of_a_step_are_of() -> None:
    traces = [rank_trace(0), rank_trace(1)]
    summary = summarize_steps([traces[0]])
    assert summary.outliers == (OUTLIER,)
    usual = len(summary.usual_on_device)
    costs = {row["rank"]: row for row in rank_costs(traces).iter_rows(named=True)}
    assert [costs[rank]["steps"] for rank in (0, 1)] == [usual, usual]
    # in the outlier nearly all of the 500 ms were transfer
    assert costs[0]["wait_ns"] == pytest.approx(30 * MS) and costs[0]["transfer_ns"] == pytest.approx(10 * MS)
    assert costs[1]["wait_ns"] == pytest.approx(0) and costs[1]["transfer_ns"] == pytest.approx(10 * MS)
    assert [row["time_ns"] for row in rank_edges(traces).iter_rows(named=True)] == pytest.approx([30 * MS])
    (of_step,) = rank_costs(traces, OUTLIER).filter(rank=0).iter_rows(named=True)
    assert (of_step["wait_ns"], of_step["transfer_ns"], of_step["steps"]) == (1 * MS, 499 * MS, 1)
