"""Section 8.6 of the acceptance list: device data of two ranks, three exported iterations each; values in us."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from steplens.analysis.cluster.arrivals import arrivals
from steplens.analysis.step_trace.step_trace import step_parts
from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.analysis.tools.overlap import merge_intervals
from steplens.run import Run

from .samples import opened, sample

#: rank, iteration -> iteration, forward and backward, refresh, computing, communication, free
EXPECTED = {
    (0, 1): (47587.81, 4236.10, 43345.58, 5914.58, 41534.30, 113.63),
    (0, 2): (15369.16, 4269.15, 11095.07, 5928.10, 9303.05, 114.64),
    (0, 3): (15304.02, 4271.86, 11026.37, 5946.60, 9213.81, 120.80),
    (1, 1): (57532.96, 4247.60, 53279.83, 5927.58, 51464.47, 115.11),
    (1, 2): (16792.73, 4277.57, 12510.13, 5922.86, 10727.54, 118.87),
    (1, 3): (15654.64, 4273.85, 11376.12, 5951.24, 9560.20, 122.02),
}
CORES = {"AI_CORE": 137, "AI_CPU": 2, "NOTIFY_WAIT": 140, "NOTIFY_RECORD": 140, "REDUCE_ASYNC_V2": 30, "MEMCPY_ASYNC": 29,
         "EVENT_RECORD": 4, "EVENT_WAIT": 4, "EVENT_RESET": 4}  # fmt: skip


def events(rank: int, kind: str, iteration: int) -> list[dict[str, Any]]:
    (path,) = sample("profiler").glob(f"PROF_*/device_{rank}/timeline/{kind}_{rank}_*_{iteration}.json")
    loaded: list[dict[str, Any]] = json.loads(path.read_text())
    return [event for event in loaded if event.get("ph") == "X"]


def union_us(found: list[dict[str, Any]]) -> float:
    spans = pl.DataFrame([(round(one["ts"] * 1000), round((one["ts"] + one["dur"]) * 1000)) for one in found], orient="row")
    return merge_intervals(spans[:, 0].to_numpy(), spans[:, 1].to_numpy()).length_ns / 1000


def rank_traces(run: Run) -> list[Any]:
    return [trace for trace in run.traces if trace.rank in (0, 1)]


@pytest.mark.parametrize(("rank", "iteration"), list(EXPECTED))
def test_lanes_of_overlap_are_unions(rank: int, iteration: int) -> None:
    """(P1) of the tasks that compute, and of the lane of collectives; nothing overlaps here."""
    row = ascend_step_times(opened("profiler").trace(rank)).row(by_predicate=pl.col("step") == iteration, named=True)
    lanes: dict[str, float] = {}
    for event in events(rank, "msprof", iteration):
        lanes[event["name"]] = lanes.get(event["name"], 0.0) + event["dur"]
    tasks = [one for one in events(rank, "task_time", iteration) if one["args"]["Task Type"] in ("AI_CORE", "AI_CPU")]
    assert row["computing_ns"] / 1000 == pytest.approx(lanes["Computing"], abs=0.01) == pytest.approx(union_us(tasks), abs=0.01)
    assert row["communication_ns"] / 1000 == pytest.approx(lanes["Communication"], abs=0.01)
    assert row["communication_not_overlapped_ns"] / 1000 == pytest.approx(lanes["Communication(Not Overlapped)"], abs=0.01)
    assert row["overlapped_ns"] == 0


@pytest.mark.parametrize(("rank", "iteration"), list(EXPECTED))
def test_parts_of_iterations(rank: int, iteration: int) -> None:
    """(P2)"""
    run = opened("profiler")
    row = ascend_step_times(run.trace(rank)).row(by_predicate=pl.col("step") == iteration, named=True)
    points = step_parts(run.trace(rank), iteration)
    found = [points[name] for name in ("total_ns", "forward_backward_ns", "tail_ns")]
    found += [row[name] for name in ("computing_ns", "communication_not_overlapped_ns", "free_ns")]
    assert [value / 1000 for value in found] == pytest.approx(EXPECTED[rank, iteration], abs=0.005)


def shift_us(run: Run) -> float:
    """What the clocks of rank 0 and rank 1 differ by after both were tied to Unix time with a resolution of 1 us."""
    offsets = [trace.meta_values()["monotonic_offset_ns"] for trace in rank_traces(run)]
    return float(offsets[0] - offsets[1]) / 1000


def test_the_rank_that_begins_late() -> None:
    """(P3) rank 0, although the step of rank 1, which waits for it, is the longer one."""
    run = opened("profiler")
    forward = [step_parts(trace, 1)["forward_ns"] for trace in rank_traces(run)]
    assert (forward[0] - forward[1]) / 1000 - shift_us(run) == pytest.approx(9942.17, abs=0.01)
    found = arrivals(rank_traces(run)).filter(step=1)
    assert found.filter(pl.col("hold_up_ns") > 0)["rank"].to_list() == [0]
    waits = dict(found.select("rank", "wait_ns").iter_rows())
    # the tasks of the collective begin some us beside the point that the step trace has for it
    assert waits[0] == 0 and waits[1] / 1000 - shift_us(run) == pytest.approx(9930.40, abs=3)


def test_arrivals_at_the_all_reduce() -> None:
    """(P4) rank 0 minus rank 1 in three iterations; the ends of the first tell that the clocks agree."""
    run = opened("profiler")
    points = [trace.required("step_collectives").filter(pl.col("step") <= 3).sort("step").collect() for trace in rank_traces(run)]
    late = [value / 1000 - shift_us(run) for value in points[0]["start_ns"] - points[1]["start_ns"]]
    assert late == pytest.approx([9930.40, 1364.57, 316.22], abs=0.01)
    assert abs((points[0]["end_ns"][0] - points[1]["end_ns"][0]) / 1000 - shift_us(run)) == pytest.approx(1.34, abs=0.01)
    found = arrivals(rank_traces(run)).filter((pl.col("step") <= 3) & (pl.col("hold_up_ns") > 0)).sort("step")
    assert found["rank"].to_list() == [0, 0, 0]
    assert [value / 1000 for value in found["hold_up_ns"]] == pytest.approx(late, abs=5)


@pytest.mark.parametrize(("rank", "iteration"), list(EXPECTED))
def test_tasks_of_iterations(rank: int, iteration: int) -> None:
    """(P5) the tasks of the device, and the collective they belong to"""
    trace = opened("profiler").trace(rank)
    mine = trace.required("kernels").filter(pl.col("step") == iteration).collect()
    counts = dict(mine.group_by(pl.col("core").cast(pl.String)).len().iter_rows())
    assert {core: counts[core] for core in CORES} == CORES
    collectives = trace.required("communication").filter(pl.col("step") == iteration).collect()
    assert collectives["name"].cast(pl.String).to_list() == ["Default/AllReduce-op534_0"]


def test_ranks_and_models() -> None:
    """(P6) rank 1 ran model 0 and rank 0 model 2; MindInsight's own test has stale lists."""
    metas = [trace.meta_values() for trace in rank_traces(opened("profiler"))]
    assert [meta["rank"] for meta in metas] == [0, 1]
    assert [meta["model_ids"] for meta in metas] == [[2], [0]]
