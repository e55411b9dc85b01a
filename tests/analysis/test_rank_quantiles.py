"""Quantiles of kernels and operators over ranks: against plain loops, in a job with a slow rank, and how small they are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmarks.jobs.__main__ import main

import steplens
from steplens.analysis.cluster.clocks.messages import communication_rows
from steplens.analysis.cluster.over_ranks.rank_durations import kernel_durations, operator_durations
from steplens.analysis.cluster.over_ranks.rank_gaps import rank_gaps
from steplens.analysis.cluster.over_ranks.rank_quantiles import rank_quantiles
from steplens.trace.cache.answer_values import encode_answer
from steplens.trace.cache.kept_answers import pack_answers
from steplens.trace.schema import SCOPE_USER

from ..shared_data import shared
from ..writers.builder import BASE_NS, build, op

MS = 1_000_000
_OF_RANK = (kernel_durations, operator_durations, rank_gaps, communication_rows)
#: what the coordinator of a job gets of a rank and step at most
MOST_BYTES = 4096


def test_against_loops(tmp_path: Path) -> None:
    """A rank that computes 1.5 times as long."""
    small = ["--layers", "1", "--operators-per-layer", "3", "--batches", "2", "--steps", "3", "--seed", "5"]
    main([str(tmp_path), *small, "--layout", "4x1x1", "--fault", "slow_rank:rank=2,factor=1.5"])
    run = steplens.open(tmp_path)
    found = run.rank_quantiles()
    assert found.height >= 8 and set(found["ranks"]) == {4}
    assert set(found["slowest_rank"]) == {2}
    for row in found.head(5).iter_rows(named=True):
        of_ranks, singles, calls = [], [], []
        for trace in run.traces:
            tasks = trace.required("kernels").filter(pl.col("name").cast(pl.String) == row["name"]).collect()
            lengths = (tasks["end_ns"] - tasks["start_ns"]).to_numpy()
            of_ranks.append(lengths.sum() / 3)
            singles.append(np.median(lengths))
            calls.append(len(lengths) / 3)
        for figure, values in (("step", of_ranks), ("single", singles)):
            points = [row[f"{figure}_{point}_ns"] for point in ("min", "p25", "median", "p75", "max")]
            assert points == pytest.approx(np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
        assert row["calls"] == np.median(calls)
        assert row["times_median"] == pytest.approx(max(of_ranks) / np.median(of_ranks))
        # the others differ by some percent, and the median of four lies between two of them
        assert row["times_median"] == pytest.approx(1.5, rel=0.05)
    assert found["step_median_ns"].is_sorted(descending=True)


def test_operators_by_shape_of_what_some_ranks_do() -> None:
    """Three ranks, of which the last one has another shape; ranges that somebody marked are no operators."""
    traces = []
    for rank in range(3):
        shape = "8,8" if rank < 2 else "9,9"
        length = 1000 * (rank + 1)
        ops = [op("aten::mm", start, start + length, input_shapes=shape, step=1) for start in (0, 10_000)]
        ops.append(op("mine", 30_000, 50_000, scope=SCOPE_USER, step=1))
        step = {"id": 1, "start_ns": BASE_NS, "end_ns": BASE_NS + 100 * MS, "pid": 1000, "tid": 1001}
        traces.append(build(meta={"rank": rank, "world_size": 3}, ops=ops, steps=[step]))
    rows = rank_quantiles(traces, "operator").sort("input_shapes").rows(named=True)
    assert [(row["name"], row["input_shapes"], row["ranks"], row["slowest_rank"]) for row in rows] == [
        ("aten::mm", "8,8", 2, 1), ("aten::mm", "9,9", 1, 2)
    ]  # fmt: skip
    first = rows[0]
    assert (first["step_min_ns"], first["step_median_ns"], first["step_max_ns"]) == (2 * MS, 3 * MS, 4 * MS)
    assert (first["single_min_ns"], first["single_p25_ns"], first["single_max_ns"]) == (MS, 1.25 * MS, 2 * MS)
    assert (first["calls"], first["times_median"]) == (2, pytest.approx(4 / 3))
    # alone a rank has no others
    assert rank_quantiles(traces[:1], "operator").is_empty()


@pytest.mark.parametrize(
    "name", [("ascend_pytorch", "text_level1"), ("kineto", "cuda_nccl_distributed.json.gz"), ("kineto", "cuda_alexnet.json.gz")]
)
def test_what_is_kept_of_a_rank_and_step_is_small(name: tuple[str, str]) -> None:
    """As it is kept and sent: durations, gaps and messages together."""
    for trace in steplens.open(shared(*name)).traces:
        answers = {make.__name__: encode_answer(make(trace)) for make in _OF_RANK}
        packed = pack_answers({key: answer for key, answer in answers.items() if answer is not None})
        assert len(packed) / max(trace.required("steps").collect().height, 1) < MOST_BYTES
        assert None not in answers.values()
