"""Allocations paired with their releases, against a dictionary of open allocations; peaks."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.memory.memory import memory_summary, operator_memory
from steplens.trace.schema import SCOPE_MODULE

from ..writers.builder import BASE_NS, build, memory, op

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 6),  # time: many simultaneous events
        st.integers(1, 3),  # address
        st.sampled_from([8, 16, -8, -16]),
        st.sampled_from([1, 2]),  # pid
        st.sampled_from(["CPU", "CUDA"]),
        st.sampled_from([0, 1]),  # device
    ),
    max_size=40,
)


def naive(rows: list[dict[str, Any]]) -> list[tuple[int, int, int | None]]:
    """(time, bytes, release time) of every allocation, in order of time."""
    found: list[list[Any]] = []
    open_: dict[tuple[Any, ...], list[Any]] = {}
    for row in sorted(rows, key=lambda row: row["time_ns"]):
        key = tuple(row[name] for name in ("pid", "device_type", "device", "address"))
        if row["bytes"] > 0:
            open_[key] = [row["time_ns"], row["bytes"], None]
            found.append(open_[key])
        elif key in open_:
            open_.pop(key)[2] = row["time_ns"]
    return [tuple(row) for row in found]


@given(EVENTS)
def test_pairs_like_a_dictionary_of_open_allocations(events: list[tuple[int, int, int, int, str, int]]) -> None:
    rows = [
        memory(time, address, size, pid=pid, device_type=kind, device=device) for time, address, size, pid, kind, device in events
    ]
    found = operator_memory(build(memory=rows)).select("allocation_ns", "bytes", "release_ns").rows()
    assert found == naive(rows)


KINDS = st.lists(
    st.tuples(
        st.integers(0, 6),  # time
        st.integers(1, 3),  # address
        st.sampled_from([("allocate", 8), ("allocate", 16), ("free", -8), ("block_free", -8), (None, 8), (None, -8)]),
        st.sampled_from([1, 2]),  # pid
    ),
    max_size=40,
)


def naive_with_blocks(rows: list[dict[str, Any]]) -> list[tuple[int, int | None, int | None, int | None]]:
    """(time, release, block's release, allocated total at the release) of every allocation, in order of time."""
    found: list[list[Any]] = []
    open_: dict[tuple[Any, ...], tuple[list[Any], set[str]]] = {}
    for row in sorted(rows, key=lambda row: row["time_ns"]):
        key = row["pid"], row["address"]
        event = row["event"] or ("allocate" if row["bytes"] > 0 else "free")
        if event == "allocate":
            open_[key] = ([row["time_ns"], None, None, None], set())
            found.append(open_[key][0])
        elif key in open_:
            entry, seen = open_[key]
            if event in seen:
                del open_[key]
                continue
            if event == "free":
                entry[1], entry[3] = row["time_ns"], row["allocated"]
            else:
                entry[2] = row["time_ns"]
                entry[3] = row["allocated"] if entry[1] is None else entry[3]
            seen.add(event)
    return [tuple(entry) for entry in found]


@given(KINDS)
def test_pairs_releases_and_block_releases(events: list[tuple[int, int, tuple[str | None, int], int]]) -> None:
    rows = [
        memory(time, address, size, pid=pid, event=event, allocated=number, device_type="NPU")
        for number, (time, address, (event, size), pid) in enumerate(events)
    ]
    columns = ["allocation_ns", "release_ns", "active_release_ns", "release_allocated"]
    assert operator_memory(build(memory=rows)).select(columns).rows() == naive_with_blocks(rows)


def test_the_owner_of_a_queued_allocation_is_the_operator_around_the_enqueue() -> None:
    ops = [
        op("aten::linear", 0, 50),
        op("aclnnMatmul", 1, 40, parent=0, depth=1),
        op("workspace", 60, 70),
        op("npu::fusion", 80, 90),
    ]
    queue = [{"pid": 1000, "dequeue_tid": 7, "enqueue_tid": 1001, "correlation": 1}]
    rows = [
        memory(3, 1, 8, op=1, tid=7),
        memory(4, 2, 8, op=1),
        memory(61, 3, 8, op=2, tid=7),
        memory(81, 4, 8, op=3, tid=7),
        memory(95, 5, 8, tid=7),
    ]
    found = operator_memory(build(ops=ops, memory=rows, task_queue=queue))
    assert found["name"].cast(pl.String).to_list() == ["aten::linear", "aclnnMatmul", "workspace", "npu::fusion", None]


def test_allocations_that_the_source_paired_win_for_their_component() -> None:
    rows = [memory(2, 1, 8, component="PTA"), memory(1, 2, 16, component="GE"), memory(3, 3, 32)]
    recorded = [{"name": "GeOp", "bytes": 64, "allocation_ns": BASE_NS + 1500, "component": "GE", "device_type": "NPU"}]
    found = operator_memory(build(memory=rows, allocations=recorded))
    assert found["bytes"].to_list() == [64, 8, 32]
    assert operator_memory(build(memory=rows, allocations=recorded), ["CPU"])["bytes"].to_list() == [16, 8, 32]
    assert operator_memory(build(memory=rows, allocations=[{**recorded[0], "component": None}]))["bytes"].to_list() == [64]


def test_totals_are_those_of_both_ends() -> None:
    rows = [
        memory(1, 64, 100, allocated=100, reserved=200, active=1),
        memory(2, 128, 50, allocated=150, reserved=200, active=2),
        memory(3, 64, -100, allocated=50, reserved=300, active=3),
    ]
    totals = [f"{end}_{total}" for end in ("allocation", "release") for total in ("allocated", "reserved", "active")]
    assert operator_memory(build(memory=rows)).select(totals).rows() == [
        (100, 200, 1, 50, 300, 3),
        (150, 200, 2, None, None, None),
    ]


def test_the_owner_is_the_nearest_call_that_can_own_memory() -> None:
    ops = [
        op("aten::linear", 0, 50),
        op("nn.Module: Linear_0", 1, 40, parent=0, scope=SCOPE_MODULE),
        op("empty_tensor", 2, 30, parent=1),
        op("nn.Module: Root_0", 60, 70, scope=SCOPE_MODULE),
    ]
    rows = [memory(3, 1, 8, op=2), memory(4, 2, 8, op=0), memory(61, 3, 8, op=3), memory(80, 4, 8), memory(81, 5, 8, op=99)]
    found = operator_memory(build(ops=ops, memory=rows)).select("op", pl.col("name").cast(pl.String)).rows()
    assert found == [(0, "aten::linear"), (0, "aten::linear"), (None, None), (None, None), (None, None)]


def test_only_the_wanted_devices() -> None:
    rows = [memory(1, 1, 8), memory(2, 1, 16, device_type="CUDA")]
    assert operator_memory(build(memory=rows), ["CUDA"])["bytes"].to_list() == [16]
    assert operator_memory(build()).is_empty()


def test_summary_of_every_device() -> None:
    rows = [
        memory(1, 1, 8, allocated=8, reserved=100),
        memory(2, 2, 8, allocated=16, reserved=100),
        memory(3, 1, -8, allocated=8, reserved=100),
        memory(4, 3, 8, allocated=16, reserved=80),
        memory(2, 1, 32, allocated=32, device_type="CUDA", device=1),
    ]
    columns = ["device_type", "device", "peak_allocated", "peak_allocated_ns", "peak_reserved", "allocations", "open_bytes"]
    assert memory_summary(build(memory=rows)).select(columns).rows() == [
        ("CPU", 0, 16, BASE_NS + 2000, 100, 3, 16),
        ("CUDA", 1, 32, BASE_NS + 2000, None, 1, 32),
    ]
    assert memory_summary(build()).is_empty()


def test_summary_where_the_totals_are_unknown() -> None:
    row = memory_summary(build(memory=[memory(1, 1, 8)])).row(0, named=True)
    assert row["peak_allocated"] is None
    assert row["peak_allocated_ns"] is None
    assert row["allocated_bytes"] == 8
