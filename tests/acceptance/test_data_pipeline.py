"""Section 8.3 of the acceptance list: queues, operations and processors of the data pipeline."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from steplens.analysis.data_loading.data_pipeline import QueueSummary, bottlenecks, host_queue, operations, queue_summary
from steplens.analysis.data_loading.pipeline_cpu import cpu_means, cpu_samples
from steplens.analysis.data_loading.pipeline_queues import pipeline_operation
from steplens.run import Run

from .samples import opened, pipeline_of_csv


def batches(run: Run, kind: str) -> pl.DataFrame:
    rows = run.trace().required("pipeline_batches").collect()
    return rows.filter(pl.col("kind").cast(pl.String) == kind)


def test_queues_of_run_2() -> None:
    """(M1) the warning itself is G2's."""
    trace = opened("run_2").trace()
    assert host_queue(trace) == QueueSummary("send", batches=1, empty=1, full=0)
    assert queue_summary(trace, "receive") == QueueSummary("receive", batches=3, empty=0, full=None)


def test_what_the_device_took() -> None:
    """(M2) ms to get each batch, and the queue before it."""
    taken = batches(opened("run_2"), "receive")
    waits = taken["wait_ns"] / 1e6
    assert waits.to_list() == [0.001, 0, 0.001]
    assert waits.mean() == pytest.approx(0.000666666, abs=1e-8)
    assert taken["queue_size"].to_list() == [3, 2, 1]


def test_what_was_sent() -> None:
    """(M3) ms"""
    sent = batches(opened("run_2"), "send").select(pl.col("total_ns", "push_ns", "get_ns") / 1e6)
    assert sent.rows() == [(4, 4, 0)]
    assert sent["total_ns"].mean() == 4


def test_operations_by_mean_size(tmp_path: Path) -> None:
    """(M4)"""
    table = operations(pipeline_of_csv(tmp_path).trace()).sort("mean_size", descending=True, nulls_last=True, maintain_order=True)
    columns = ["id", "type", "mean_size", "queue_capacity", "usage", "parent", "children"]
    assert table.select(columns).rows() == [
        (1, "Shuffle", 20.0, 64, 0.3125, 0, [2, 3]),
        (2, "TFReader", 20.0, 64, 0.3125, 1, []),
        (3, "TFReader", 20.0, 64, 0.3125, 1, []),
        (0, "Batch", None, None, None, None, [1]),
    ]


def test_one_queue(tmp_path: Path) -> None:
    """(M5)"""
    trace = pipeline_of_csv(tmp_path).trace()
    found = pipeline_operation(trace, 1)
    assert (found.sizes, found.interval_ms, found.parent) == ((10, 20, 30), 10, (0, "Batch", 4))
    assert (found.capacity, found.children) == (64, (2, 3))
    with pytest.raises(ValueError, match="no operation 5; it has 0, 1, 2, 3"):
        pipeline_operation(trace, 5)


@pytest.mark.parametrize("low", [0.2, 0.6])
@pytest.mark.parametrize(("rank", "expected"), [(0, [4]), (1, [1]), (2, [0]), (3, [2, 3])])
def test_rules_of_queues(rank: int, low: float, expected: list[int]) -> None:
    """(M7, M8, M9, M10) by the three rules of the documents. For the first table and thresholds 0.8 and 0.6 MindInsight adds the
    sources 2 and 3, although the queue right of them is full: with usages of 0.31 they are slow, but nobody waits for them.
    """
    table = operations(opened("minddata_pipeline").trace(rank))
    assert bottlenecks(table, high=0.8, low=low) == expected


def test_queues_that_are_neither_full_nor_empty(tmp_path: Path) -> None:
    """(M11)"""
    assert bottlenecks(operations(pipeline_of_csv(tmp_path).trace()), high=0.8, low=0.2) == []


def test_processors_of_the_steps() -> None:
    """(M12) samples of the time from 10 to 20 and from 20 to 30 ms; what was sampled at 30 ms has no end."""
    trace = opened("run_2").trace()
    cropped = cpu_samples(trace, first=1, last=1)
    host = cropped.filter(pl.col("scope") == "host")
    assert host.filter(name="user_utilization").select("value", "batch").rows() == [(10, 1), (20, 1)]
    means = dict(cpu_means(host).select("name", "mean").iter_rows())
    assert [means[f"{part}_utilization"] for part in ("user", "sys", "io", "idle")] == [15, 15, 10, 10]
    assert pipeline_operation(trace, 1).workers == 8
    assert cpu_samples(trace, first=2).is_empty()
