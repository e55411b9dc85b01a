"""Series of shapes, processors by batch, and one operation of a pipeline, from tables that no MindSpore wrote."""

from __future__ import annotations

import polars as pl
import pytest

from steplens.analysis.data_loading.data_wait import WaitingSteps, data_wait, tell_waiting_apart
from steplens.analysis.data_loading.pipeline_cpu import cpu_means, cpu_samples, host_idle, operation_load
from steplens.analysis.data_loading.pipeline_queues import pipeline_operation
from steplens.analysis.operators.dynamic_shape import KERNEL, runs, series, sums, types_of
from steplens.analysis.operators.operator_tables import core_operators, core_types, count_executions
from steplens.analysis.operators.rank_flops import operator_totals, operator_work, work

from ..writers.builder import build, kernel, op, training_step

MS = 1_000_000


def test_series_of_a_pytorch_run() -> None:
    calls = [
        op("aten::mm", 0, 10, step=1, input_shapes="2,3;3,4"), op("aten::mm", 20, 40, step=1, input_shapes="2,3;3,8"),
        op("aten::add", 50, 51, step=1, input_shapes="2"), op("aten::mm", 60, 66, step=2, input_shapes="2,3;3,8"),
        op("aten::add", 70, 71, step=3, input_shapes="2"), op("forward", 0, 9, step=1, scope=7), op("aten::mm", 80, 81),
    ]  # fmt: skip
    trace = build(ops=calls, kernels=[kernel("gemm", 0, 5, step=1), kernel("gemm", 7, 8, step=1)])
    found = sums(trace)
    assert types_of(found) == ["aten::mm", "aten::add"]
    known, other = series(found, ["aten::mm", "aten::other"])
    assert other["count"].to_list() == [0, 0, 0]
    assert known.rows() == [(1, 15_000, 2, 2), (2, 6_000, 1, 1), (3, 0, 0, None)]
    assert runs(trace, types=["aten::add"]).height == 2
    assert sums(trace, KERNEL).rows() == [(1, "gemm", 6_000, 2, 3_000, None)]
    assert sums(build()).is_empty()


def test_samples_belong_to_the_batch_before_their_end() -> None:
    samples = [
        {"scope": scope, "op": number, "name": name, "unit": "%", "sample": sample, "time_ns": sample * 10 * MS, "value": value}
        for scope, number, name, value in (("host", None, "idle_utilization", 30.0), ("op", 1, "user_utilization", 80.0))
        for sample in range(5)
    ]
    batches = [{"kind": "send", "batch": batch, "time_ns": time * MS} for batch, time in ((1, 15), (2, 30), (3, 31))]
    pipeline = [{"id": 1, "type": "Map", "workers": 2}]
    trace = build(pipeline_samples=samples, pipeline_batches=batches, pipeline_ops=pipeline)
    host = cpu_samples(trace).filter(scope="host")
    # the first ends at 10 ms, before any batch; the last has no end
    assert host.select("sample", "batch").rows() == [(1, 1), (2, 2), (3, 3)]
    assert cpu_samples(trace, first=2, last=2).filter(scope="host")["sample"].to_list() == [2]
    assert host_idle(cpu_means(cpu_samples(trace))) == pytest.approx(30)
    assert operation_load(trace).rows() == [(1, 2, 40)]
    untimed = build(pipeline_samples=[{**row, "time_ns": None} for row in samples], pipeline_batches=batches)
    assert cpu_means(cpu_samples(untimed)).select("mean", "samples").rows() == [(30, 5), (80, 5)]
    assert host_idle(cpu_means(cpu_samples(build()))) is None


def test_one_operation_without_neighbours() -> None:
    trace = build(pipeline_ops=[{"id": 0, "type": "Generator", "workers": 1, "queue_capacity": None}])
    found = pipeline_operation(trace, 0)
    assert (found.sizes, found.parent, found.children, found.interval_ms) == ((), None, (), None)
    with pytest.raises(ValueError, match="no operation 3; it has none"):
        pipeline_operation(build(), 3)


def test_tables_of_runs_without_a_device() -> None:
    trace = training_step()
    assert core_types(trace).is_empty() and core_operators(trace).is_empty() and operator_work(trace).is_empty()
    assert operator_totals(trace) is None
    found = count_executions(trace)
    assert (found.operators, found.executions, found.streams, found.total_ns) == (2, 2, 1, 16_001 + 11_500)
    assert count_executions(build()).executions == 0
    assert data_wait(trace) is None


def test_work_that_follows_from_shapes() -> None:
    """One matrix product of 32 x 16 by 16 x 8 in a step of 99 us."""
    (row,) = work([training_step()]).iter_rows(named=True)
    assert (row["flops"], row["source"], row["normalized"]) == (2 * 32 * 16 * 8, "operator shapes", 1)
    assert row["flops_per_s"] == pytest.approx(2 * 32 * 16 * 8 / 99e-6)
    assert work([build(meta={"rank": 0})]).is_empty()


def test_steps_that_wait_are_told_from_those_whose_batch_was_ready() -> None:
    def apart(*waits_ms: int | None) -> WaitingSteps | None:
        waits = pl.Series("data_wait_ns", waits_ms, pl.Int64) * 1_000_000
        return tell_waiting_apart(
            pl.DataFrame({"step": range(1, len(waits) + 1), "duration_ns": 100_000_000, "data_wait_ns": waits})
        )

    # a queue that was filled before feeds the first ones
    assert apart(1, 40, 60, 50) == WaitingSteps((2, 3, 4), 4, 50e6, 1e6, 2)
    # in turn, and too few in a row
    assert apart(40, 1, 60, 50) == WaitingSteps((1, 3, 4), 4, 50e6, 1e6, None)
    assert apart(1, 3, 40, 60) == WaitingSteps((3, 4), 4, 50e6, 2e6, None)
    # a step that a full queue feeds is short: fetching its batch is much of it, and no wait like those of the others
    short = pl.DataFrame(
        {"step": range(5), "duration_ns": [1_000_000, *[40_000_000] * 4], "data_wait_ns": [107_000, *[36_000_000] * 4]}
    )
    assert tell_waiting_apart(short) == WaitingSteps((1, 2, 3, 4), 5, 36e6, 107e3, 1)
    # all alike, and nothing recorded
    assert [apart(40, 60), apart(1, 1), apart(None, None)] == [None, None, None]
