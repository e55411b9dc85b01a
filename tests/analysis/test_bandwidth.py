"""Algorithm and bus bandwidth: by hand for every operation and source, and in a generated job against what happened in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchmarks.jobs.__main__ import main
from benchmarks.jobs.truth import MESSAGES

import steplens
from steplens.analysis.cluster.collectives import collective_times
from steplens.analysis.cluster.groups.bandwidth import bus_bandwidth
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import BASE_NS, build

MS = 1_000_000
MB = 1_000_000


def ranks_of_job(
    ranks: int, operation: str, *, size: int | None, name: str = "", hosts: bool = False, of: int | None = None
) -> list[Trace]:
    """Ranks that come to ten operations of 2 ms one 0.5 ms behind the other."""
    traces = []
    for rank in range(ranks):
        rows: list[dict[str, Any]] = []
        for number in range(10):
            begin = BASE_NS + number * 10 * MS
            arrival = begin + rank * MS // 2
            end = begin + (ranks - 1) * MS // 2 + 2 * MS
            rows.append(
                {"name": name or operation, "kind": "collective", "operation": operation, "group": "0", "ranks": of or ranks,
                 "bytes": size, "step": 1, "start_ns": arrival, "end_ns": end}
            )  # fmt: skip
        steps = [{"id": 1, "start_ns": BASE_NS, "end_ns": BASE_NS + 200 * MS, "pid": 1, "tid": 1}]
        traces.append(build(meta={"rank": rank, "host_name": f"host{rank if hosts else 0}"}, steps=steps, communication=rows))
    return traces


@pytest.mark.parametrize(
    ("operation", "name", "message", "factor"),
    [
        # what nccl-tests counts of a rank's own MB, and its factor, for four ranks
        ("allreduce", "nccl:all_reduce", 1, 1.5),
        ("_allgather_base", "nccl:_all_gather_base", 4, 0.75),
        ("reducescatter", "nccl:reduce_scatter", 1, 0.75),
        ("alltoall", "nccl:all_to_all", 1, 0.75),
        ("gather", "nccl:gather", 4, 0.75),
        ("broadcast", "nccl:broadcast", 1, 1.0),
        ("reduce", "nccl:reduce", 1, 1.0),
        # HCCL counts the part of one rank
        ("allreduce", "hcom_allReduce__1_0_1", 1, 1.5),
        ("allgather", "hcom_allGather__1_0_1", 4, 0.75),
        ("reducescatter", "hcom_reduceScatter__1_0_1", 4, 0.75),
        ("alltoall", "hcom_alltoall__1_0_1", 4, 0.75),
        ("alltoallv", "hcom_alltoallv__1_0_1", None, 0.75),
        ("alltoallv", "nccl:all_to_all", 1, 0.75),
    ],
)
def test_sizes_and_factors_are_those_of_nccl_tests(operation: str, name: str, message: int | None, factor: float) -> None:
    traces = ranks_of_job(4, operation, size=MB, name=name)
    (row,) = bus_bandwidth(traces).rows(named=True)
    # clocks of one host agree to 1 us
    assert (row["messages"], row["transfer_ns"], row["measured_by"]) == (10, 2 * MS, "arrival")
    if message is None:
        assert row["message_bytes"] is row["bus_bytes_per_s"] is None
        return
    assert (row["message_bytes"], row["ranks"], row["measured"]) == (message * MB, 4, 10)
    assert row["algorithm_bytes_per_s"] == pytest.approx(message * MB / 2e-3)
    assert row["bus_bytes_per_s"] == pytest.approx(message * MB / 2e-3 * factor)
    # the table of single collectives says the same
    assert collective_times(traces)["bus_bytes_per_s"].to_list() == pytest.approx([row["bus_bytes_per_s"]] * 40)


def test_without_comparable_clocks_only_a_lower_bound_is_known() -> None:
    """A broadcast whose root is not named bounds no clocks of two hosts; its transfer was no longer than the whole."""
    rows = bus_bandwidth(ranks_of_job(2, "broadcast", size=MB, hosts=True), "message")
    assert (rows.height, rows["transfer_ns"].null_count(), rows["bus_bytes_per_s"].null_count()) == (10, 10, 10)
    # one rank is in it for 2.5 ms, the other one for 2 ms
    assert rows["bus_low_bytes_per_s"].to_list() == pytest.approx([MB / 2.25e-3] * 10)
    assert rows["bus_high_bytes_per_s"].null_count() == 10


def test_a_root_that_has_left_says_nothing_of_the_transfer() -> None:
    """Its second rank comes to a broadcast when the first one, the root, has left: the data take 2 ms from then on."""
    traces = []
    for rank in range(2):
        arrival, leave = (3 * MS, 5 * MS) if rank else (0, MS)
        rows = [
            {"name": "nccl:broadcast", "kind": "collective", "operation": "broadcast", "group": "0", "ranks": 2, "bytes": MB,
             "step": 1, "start_ns": BASE_NS + begin + arrival, "end_ns": BASE_NS + begin + leave}
            for begin in range(0, 100 * MS, 10 * MS)
        ]  # fmt: skip
        steps = [{"id": 1, "start_ns": BASE_NS, "end_ns": BASE_NS + 200 * MS, "pid": 1, "tid": 1}]
        traces.append(build(meta={"rank": rank, "host_name": "host"}, steps=steps, communication=rows))
    (row,) = bus_bandwidth(traces).rows(named=True)
    assert (row["measured"], row["transfer_ns"]) == (10, 2 * MS)
    assert row["bus_bytes_per_s"] == pytest.approx(MB / 2e-3)


def test_of_a_rank_alone_only_a_lower_bound_is_known() -> None:
    (row,) = bus_bandwidth(ranks_of_job(1, "allreduce", size=MB, of=4)).rows(named=True)
    assert (row["messages"], row["measured"], row["bus_bytes_per_s"], row["transfer_ns"]) == (10, 0, None, None)
    assert row["bus_at_least_bytes_per_s"] == pytest.approx(MB / 2e-3 * 1.5)
    assert bus_bandwidth(ranks_of_job(1, "allreduce", size=None, of=4))["bus_at_least_bytes_per_s"].to_list() == [None]


@pytest.mark.parametrize("seconds", [0.0, 0.04], ids=["one clock", "clocks of two hosts apart"])
def test_a_generated_job_is_as_fast_as_it_was(tmp_path: Path, seconds: float) -> None:
    small = ["--layers", "1", "--operators-per-layer", "3", "--batches", "2", "--steps", "2", "--seed", "5", "--shard"]
    fault = f"clock_offset:host=1,seconds={seconds}"
    main([str(tmp_path), *small, "--layout", "2x2x2", "--ranks-per-host", "4", "--fault", fault])
    found = bus_bandwidth(steplens.open(tmp_path).traces, "message")
    true = pl.read_parquet(tmp_path / MESSAGES).filter(pl.col("peer").is_null())
    operation = pl.col("operation").str.replace("_base", "").str.replace_all("_", "")
    true = true.with_columns(operation=operation, group=pl.col("group").cast(pl.String))
    # in nccl-tests' count, from what each rank puts in
    is_gather = pl.col("operation").first() == "allgather"
    true = true.group_by("step", "group", "operation", "number").agg(
        transfer=pl.col("transfer_ns").mean(),
        bytes=pl.when(is_gather).then(pl.col("bytes").sum()).otherwise(pl.col("bytes").max()),
        members=pl.len(),
    )
    both = found.join(true, on=["step", "group", "operation", "number"])
    assert both.height == true.height == found.filter(pl.col("operation") != "send/receive").height
    assert set(both["operation"]) == {"allreduce", "allgather", "reducescatter"}
    assert both["message_bytes"].to_list() == both["bytes"].to_list()
    for row in both.iter_rows(named=True):
        assert row["transfer_low_ns"] - 1 <= row["transfer"] <= row["transfer_high_ns"] + 1
        # a mean of whole ns is rounded
        assert seconds or abs(row["transfer_ns"] - row["transfer"]) <= 0.5
        count = row["members"]
        factor = {"allreduce": 2 * (count - 1) / count}.get(row["operation"], (count - 1) / count)
        if row["transfer_ns"] is not None:
            assert row["bus_bytes_per_s"] == pytest.approx(row["bytes"] / row["transfer_ns"] * 1e9 * factor)
    assert both["transfer_ns"].null_count() <= (2 if seconds else 0)


def test_what_the_library_measured_of_an_ascend_capture() -> None:
    """Two of eight ranks: the transit of the library, on average over them; how many ranks there are is not recorded."""
    traces = steplens.open(shared("ascend_pytorch", "text_level1")).traces
    rows = bus_bandwidth(traces)
    assert set(rows["measured_by"]) == {"library"}
    largest = rows.row(0, named=True)
    times = [trace.required("communication_times").collect() for trace in traces]
    transits = [rows.filter(pl.col("name").cast(pl.String).str.contains("_2_1"))["transit_ms"][0] for rows in times]
    assert largest["message_bytes"] == 151_011_328
    assert largest["algorithm_bytes_per_s"] == pytest.approx(151_011_328 / (sum(transits) / 2 / 1e3), rel=1e-5)
    assert largest["bus_bytes_per_s"] is None
