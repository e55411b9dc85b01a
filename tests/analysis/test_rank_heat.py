"""Ranks by one figure at a time."""

from __future__ import annotations

from steplens.analysis.cluster.rank_heat import BUSY, COMMUNICATION, rank_heat

from ..writers.builder import BASE_NS, MAIN, PID, build, kernel


def test_work_that_runs_on_into_the_next_step_counts_in_the_step_it_fills() -> None:
    def step(number: int, start_us: int, end_us: int) -> dict[str, int]:
        span = {"start_ns": BASE_NS + 1000 * start_us, "end_ns": BASE_NS + 1000 * end_us}
        return {"id": number, **span, "pid": PID, "tid": MAIN}

    # computing until 190, of which 100 to 190 lies in the second step; communication from 150 to 200 beside it
    tasks = [kernel("mm", 10, 190), kernel("add", 5, 30)]
    sent = {"name": "allreduce", "kind": "collective", "start_ns": BASE_NS + 150_000, "end_ns": BASE_NS + 200_000}
    trace = build(meta={"rank": 0}, steps=[step(0, 0, 100), step(1, 100, 250)], kernels=tasks, communication=[sent])
    heat = {row["metric"]: row for row in rank_heat([trace]).to_dicts()}
    assert heat[BUSY]["share"] == (95 + 100) / 250
    assert heat[COMMUNICATION]["share"] == 10 / 250
