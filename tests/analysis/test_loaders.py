"""Figures of data loaders on hand-built batches, where every one of them is known."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from steplens.analysis.data_loading import data_pipeline, loaders
from steplens.readers.steplens_run import loaders as reader
from steplens.trace.building.build import build_trace
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace

from ..readers.loader_files import MS, START, Row, write

Change = Callable[[dict[str, Any]], dict[str, Any]]


def trace_of(folder: Path, got: Change | None = None, loader: dict[str, Any] | None = None, **options: Any) -> Trace:
    """A trace of the hand-built loader; ``got`` changes what the loop saw of a batch, ``loader`` what is known of the loader."""
    write(folder, **options)
    tables = reader.tables(folder, HealthLog())
    if got is not None:
        tables["pipeline_tasks"] = pl.DataFrame(
            [got(row) for row in tables["pipeline_tasks"].iter_rows(named=True)], schema=tables["pipeline_tasks"].schema
        )
    if loader is not None:
        tables["pipeline_loaders"] = tables["pipeline_loaders"].with_columns(**{name: pl.lit(v) for name, v in loader.items()})
    begins, ends = [START, START + 40 * MS], [START + 40 * MS, START + 90 * MS]
    tables["steps"] = pl.DataFrame({"id": [0, 1], "start_ns": begins, "end_ns": ends, "pid": [7, 7], "tid": [8, 8]})
    return build_trace(folder, tables, HealthLog())


def only(trace: Trace) -> loaders.LoaderVerdict:
    (verdict,) = loaders.verdicts(trace)
    return verdict


def test_stages(tmp_path: Path) -> None:
    table = loaders.stages(trace_of(tmp_path))
    assert table["stage"].to_list() == ["fetch", "transform", "collate", "transfer"]
    assert table["mean_ns"].to_list() == [4 * MS, 2 * MS, 3 * MS, 0.75 * MS]
    assert table["p90_ns"].to_list() == table["mean_ns"].to_list()
    assert table["total_ns"].to_list() == [24 * MS, 12 * MS, 18 * MS, 4.5 * MS]
    assert table["share"].sum() == pytest.approx(1)
    assert table["share"][0] == pytest.approx(4 / 9.75)
    assert table["batches"].to_list() == [6] * 4


def test_a_batch_that_failed_does_not_count(tmp_path: Path) -> None:
    def fails(row: Row) -> Row:
        return {**row, "failed": 1, "collate_ns": 0, "end_ns": row["end_ns"] + 50 * MS} if row["batch"] == 5 else row

    table = loaders.stages(trace_of(tmp_path, change=fails))
    assert table["batches"].to_list() == [5] * 4
    assert table["mean_ns"][0] == 4 * MS


def test_ninety_percent_lie_below(tmp_path: Path) -> None:
    def grows(row: Row) -> Row:
        return {**row, "collate_ns": row["start_ns"] + (2 + row["batch"]) * MS, "transform_ns": 0, "transforms": 0}

    table = loaders.stages(trace_of(tmp_path, change=grows))
    lengths = [2 + batch for batch in range(6)]
    assert table.filter(pl.col("stage") == "fetch")["p90_ns"].item() == pytest.approx(np.quantile(lengths, 0.9) * MS)


def test_workers(tmp_path: Path) -> None:
    table = loaders.workers(trace_of(tmp_path))
    assert table.select("worker", "pid", "batches").rows() == [(0, 500, 3), (1, 501, 3)]
    # 9 ms of work every 20 ms; of three batches the two pauses between them are seen
    assert table["busy_ns"].to_list() == [27 * MS] * 2
    assert table["wait_ns"].to_list() == [22 * MS] * 2
    assert table["busy_share"].to_list() == pytest.approx([27 / 49] * 2)
    assert table["cpu_share"].to_list() == pytest.approx([2 / 20] * 2)


def test_depths_first_batches_and_steps(tmp_path: Path) -> None:
    trace = trace_of(tmp_path)
    depths = loaders.queue_depths(trace)
    assert depths["ready"].to_list() == [0, 1, 2, 0, 1, 2]
    assert depths["usage"].to_list() == [0, 0.25, 0.5, 0, 0.25, 0.5]
    assert depths["time_ns"].is_sorted()
    first = loaders.first_batches(trace)
    assert first.select("epoch", "delay_ns", "workers_ns").rows() == [(0, 12 * MS, 5 * MS)]
    # the loop has batches at 13, 23, 33 ms, and at 43, 53, 63 ms
    assert loaders.step_waits(trace).select("step", "batches", "next_ns", "wait_ns").rows() == [
        (0, 3, 6 * MS, 3 * MS),
        (1, 3, 6 * MS, 3 * MS),
    ]


def test_the_longest_stage_of_workers_holds_up_a_loop_that_waits(tmp_path: Path) -> None:
    trace = trace_of(tmp_path)
    verdict = only(trace)
    assert (verdict.stage, verdict.stage_ns, verdict.made_ns) == ("fetch", 4 * MS, 9 * MS)
    assert verdict.batches == 5
    # from the second batch on: 42 ms, of which the loop waits 1 ms and receives 0.25 ms five times
    assert verdict.wait_share == pytest.approx(5 / 42)
    assert verdict.next_share == pytest.approx(10 / 42)
    assert verdict.receive_share == pytest.approx(1.25 / 42)
    assert verdict.usage == pytest.approx(1.2 / 4)
    assert verdict.busy_share == pytest.approx(27 / 49)
    assert verdict.cpu_share == pytest.approx(0.1)
    # the rule for queues says the same: the queue between workers and loop is nearly empty, so its source is slow
    table = data_pipeline.operations(trace)
    assert table["type"].to_list() == ["Iterator", "Collate"]
    assert data_pipeline.bottlenecks(table) == [3]


def test_a_loop_that_finds_its_batches_is_not_held_up(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, lambda row: {**row, "wait_ns": 0, "ready": 4})
    assert (only(trace).stage, only(trace).stage_ns) == (loaders.LOOP, 0)
    assert only(trace).usage == 1


def test_receiving_holds_up_a_loop_that_finds_its_batches(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, lambda row: {**row, "wait_ns": 0, "receive_end_ns": row["receive_start_ns"] + MS})
    assert only(trace).stage == "transfer"


def test_pickling_that_takes_longer_than_making(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, change=lambda row: {**row, "pickle_end_ns": row["pickle_start_ns"] + 12 * MS})
    assert only(trace).stage == "transfer"


def test_a_thread_that_pins_and_is_busier_than_the_workers(tmp_path: Path) -> None:
    pins = {"pin_memory": True}
    busy = trace_of(tmp_path, lambda row: {**row, "pin_end_ns": row["receive_end_ns"] + 8 * MS}, pins)
    assert only(busy).stage == "pin"
    assert loaders.stages(busy)["stage"].to_list()[-1] == "pin"
    rests = trace_of(tmp_path, lambda row: {**row, "pin_end_ns": row["receive_end_ns"] + MS // 10}, pins)
    assert only(rests).stage == "fetch"


def test_without_workers_the_longest_stage_holds_up_the_loop(tmp_path: Path) -> None:
    verdict = only(trace_of(tmp_path, workers=0))
    assert (verdict.stage, verdict.workers, verdict.usage, verdict.busy_share) == ("fetch", 0, None, None)
    assert verdict.wait_share == 0
    little = trace_of(tmp_path, lambda row: {**row, "next_start_ns": row["next_end_ns"] - MS // 10}, workers=0)
    assert only(little).stage == loaders.LOOP


def test_trees_of_several_loaders_are_judged_alone() -> None:
    table = pl.DataFrame(
        {
            "id": [0, 8, 3, 11],
            "parent": [None, None, 0, 8],
            "children": [[3], [11], [], []],
            "usage": [None, None, 0.9, 0.1],
        },
        schema={"id": pl.Int32, "parent": pl.Int32, "children": pl.List(pl.Int32), "usage": pl.Float64},
    )
    # the loop of the first is slow, and the workers of the second are
    assert data_pipeline.bottlenecks(table) == [0, 11]


def test_nothing_and_next_to_nothing(tmp_path: Path) -> None:
    empty = Trace(tmp_path, {})
    assert loaders.verdicts(empty) == []
    for function in (loaders.stages, loaders.workers, loaders.queue_depths, loaders.first_batches, loaders.step_waits):
        assert function(empty).height == 0
    assert loaders.verdicts(trace_of(tmp_path, batches=1)) == []


def test_damaged_rows_are_analysed_without_an_error(tmp_path: Path) -> None:
    numbers = random.Random(3)
    write(tmp_path)
    rows = tmp_path / "loaders.bin"
    whole = np.frombuffer(rows.read_bytes(), dtype="<i8")
    for _ in range(60):
        changed = whole.copy()
        for _ in range(numbers.randrange(1, 9)):
            changed[numbers.randrange(len(changed))] = numbers.choice([0, 1, START, (1 << 62) - 1, (1 << 63) - 1, 3])
        rows.write_bytes(changed.tobytes())
        tables = reader.tables(tmp_path, HealthLog())
        trace = build_trace(tmp_path, tables, HealthLog())
        for verdict in loaders.verdicts(trace):
            assert verdict.stage in (*loaders.STAGES, loaders.LOOP)
        for function in (loaders.stages, loaders.workers, loaders.queue_depths, loaders.first_batches, loaders.step_waits):
            function(trace)
