"""Parts of the steps of many ranks against counting every microsecond, and layouts of jobs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import polars as pl
import pytest

from steplens.analysis.cluster.cluster_steps import cluster_steps, rank_means
from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.times import step_times
from steplens.analysis.tools.parallel import DATA_PARALLEL, MODEL_PARALLEL, PIPELINE_PARALLEL, communication_rates, layout
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, MAIN, PID, build

US = 1000
STEP_US = 400
STEPS = 4


def random_rank(rng: random.Random, rank: int, size: int = 4, **meta: Any) -> Trace:
    """Steps of 400 us full of tasks that overlap at will; none runs on into the next step."""
    kernels, communication, steps = [], [], []
    for step in range(STEPS):
        base = BASE_NS + step * STEP_US * US
        steps.append({"id": step, "start_ns": base, "end_ns": base + STEP_US * US, "pid": PID, "tid": MAIN})
        for _ in range(rng.randint(1, 12)):
            begin = rng.randrange(STEP_US - 1)
            end = rng.randrange(begin + 1, STEP_US)
            times = {"start_ns": base + begin * US, "end_ns": base + end * US, "step": step}
            kind = rng.choice(["compute", "compute", "collective", "receive", "send"])
            if kind == "compute":
                kernels.append(
                    {"name": "k", "type": "k", "kind": "compute", "core": "AI_CORE", "device": 0, "stream": 1, **times}
                )
            else:
                communication.append({"name": kind, "operation": kind, "kind": kind, "group": "g", **times})
    return build(meta={"rank": rank, "world_size": size, **meta}, steps=steps, kernels=kernels, communication=communication)


def covered(trace: Trace, table: str, step: int, *kinds: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which microseconds of a step some task of these kinds covers."""
    line = np.zeros(STEP_US, dtype=bool)
    rows = trace.required(table).filter((pl.col("step") == step) & pl.col("kind").cast(pl.String).is_in(list(kinds))).collect()
    base = BASE_NS + step * STEP_US * US
    for start, end in rows.select("start_ns", "end_ns").iter_rows():
        line[(start - base) // US : (end - base) // US] = True
    return line


@pytest.mark.parametrize("seed", range(8))
def test_parts_are_what_counting_gives(seed: int) -> None:
    trace = random_rank(random.Random(seed), 0)
    table = cluster_steps([trace])
    complete = step_times(trace).filter("complete")["step"].to_list()
    for step in range(STEPS):
        computing = covered(trace, "kernels", step, "compute")
        receive = covered(trace, "communication", step, "receive")
        other = covered(trace, "communication", step, "collective", "send")
        parts = table.filter(step=step).row(0, named=True)
        if step not in complete or not computing.any():
            assert parts["computation_ns"] is None
            continue
        assert parts["communication_alone_ns"] == ((receive | other) & ~computing).sum() * US
        assert parts["receive_alone_ns"] == (receive & ~computing & ~other).sum() * US
        assert parts["collective_alone_ns"] == (other & ~computing).sum() * US
        assert parts["computation_ns"] == STEP_US * US - parts["communication_alone_ns"]
        assert parts["stage_ns"] == STEP_US * US - parts["receive_alone_ns"]
        assert parts["total_ns"] == STEP_US * US


def test_shares_are_sums_over_ranks() -> None:
    rng = random.Random(3)
    traces = [random_rank(rng, rank, stage_num=2, parallel_mode="pipeline-parallel") for rank in range(4)]
    means = rank_means(traces)
    found = communication_rates(means)
    rows = means.drop_nulls("computation_ns").to_dicts()
    whole = sum(row["computation_ns"] + row["communication_alone_ns"] for row in rows)
    assert found.communication == pytest.approx(sum(row["communication_alone_ns"] for row in rows) / whole)
    assert found.between_stages == pytest.approx(sum(row["receive_alone_ns"] for row in rows) / whole)
    second = [row for row in rows if row["rank"] >= 2]
    share = sum(row["collective_alone_ns"] for row in second)
    assert found.within_stages[2] == pytest.approx(
        share / sum(row["computation_ns"] + row["communication_alone_ns"] for row in second)
    )
    assert means["stage"].to_list() == [1, 1, 2, 2]


def test_means_leave_the_warm_up_out() -> None:
    trace = random_rank(random.Random(1), 0)
    every = cluster_steps([trace])
    means = rank_means([trace])
    chosen = chosen_steps(trace).steps
    assert means["total_ns"][0] == every.filter(pl.col("step").is_in(chosen))["total_ns"].mean()
    assert means["steps"].to_list() == [len(chosen)] and len(chosen) < STEPS
    assert rank_means([trace], step=2)["communication_alone_ns"][0] == every.filter(step=2)["communication_alone_ns"][0]
    assert rank_means([trace], step=99).is_empty()
    assert rank_means([]).is_empty()


@pytest.mark.parametrize(
    ("meta", "operations", "mode", "stages"),
    [
        ({"parallel_mode": "data-parallel"}, ["allgather"], DATA_PARALLEL, 1),
        ({"parallel_mode": "semi_auto_parallel"}, [], MODEL_PARALLEL, 1),
        ({"parallel_mode": "auto_parallel", "stage_num": 2}, [], PIPELINE_PARALLEL, 2),
        ({"parallel_mode": "stand_alone"}, ["allreduce", "broadcast"], DATA_PARALLEL, 1),
        ({}, ["c10d::allreduce_", "all_reduce"], DATA_PARALLEL, 1),
        ({}, ["allreduce", "reduce_scatter"], MODEL_PARALLEL, 1),
        ({}, ["allreduce", "receive"], PIPELINE_PARALLEL, 1),
        ({}, [None], "", 1),
        ({}, [], "", 1),
        ({"stage_num": 99}, [], "", 1),
    ],
)
def test_kinds_of_parallelism(meta: dict[str, Any], operations: list[str], mode: str, stages: int) -> None:
    rows = [
        {"name": "x", "operation": name, "kind": "receive" if name == "receive" else "collective", "start_ns": 1, "end_ns": 2}
        for name in operations
    ]
    found = layout([build(meta={"rank": rank, "world_size": 4, **meta}, communication=rows) for rank in (0, 3)])
    assert (found.mode, found.stages, found.ranks, found.missing) == (mode, stages, (0, 3), (1, 2))
    assert found.stage_of(3) == stages
