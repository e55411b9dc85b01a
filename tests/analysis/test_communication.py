"""What is made of the communication library's measurements, against golden values and a plain loop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.analysis.cluster.measured_communication import (
    bandwidth_totals,
    communication_bandwidth,
    communication_matrix,
    communication_times,
    elapsed_times,
    group_hash,
    operation_type,
    package_totals,
    time_totals,
)
from steplens.trace.trace import Trace

from ..writers.ascend import MATRIX, TIMES, ascend_run, bandwidth, link, ns, times
from ..writers.builder import BASE_NS, build


def measured(**tables: list[dict[str, object]]) -> Trace:
    return build(**tables)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hcom_allReduce__586_0_1", "allreduce"),
        ("hcom_reduceScatter__123_0_1", "reducescatter"),
        ("hcom_reduce__123_0_1", "reduce"),
        ("hcom_scatter__1_0_1", "scatter"),
        ("hcom_alltoallv__1_0_1", "alltoallv"),
        ("hcom_alltoallvc__1_0_1", "alltoallvc"),
        ("hcom_alltoall__1_0_1", "alltoall"),
        ("hcom_batchSendRecv__1_0_1", "batchsendrecv"),
        ("hcom_send__1_0_1", "send"),
        ("hcom_receive__1_0_1", "receive"),
        ("hcom_allGather__1_0_1", "allgather"),
        ("strange__1_0_1", "strange"),
        ("strange", "strange"),
    ],
)
def test_type_of_an_operation(name: str, expected: str) -> None:
    assert operation_type(name) == expected


def test_hash_of_a_group_is_the_librarys() -> None:
    assert group_hash("90.91.105.46%enp189s0f0_60000_0_1736414082311975") == 11978775601474615865
    assert group_hash("") == 0


def test_totals_of_the_golden_run() -> None:
    trace = ascend_run(without=["steps"], communication_times=[{**row, "step": None} for row in TIMES])
    rows = {row["kind"]: row for row in time_totals(communication_times(trace)).to_dicts()}
    collective = rows["collective"]
    assert [collective[f"{part}_ms"] for part in ("elapse", "transit", "wait", "synchronization", "idle")] == [
        3,
        1,
        0.25,
        0.25,
        0.2,
    ]
    assert (collective["wait_ratio"], collective["synchronization_ratio"]) == (0.2, 0.2)
    assert (rows["p2p"]["wait_ratio"], rows["p2p"]["synchronization_ratio"]) == (0.75, 0.0)


def test_matrix_of_the_golden_run() -> None:
    found = {
        (row["selection"], row["source"], row["destination"]): (row["bandwidth_gbps"], row["op_name"])
        for row in communication_matrix(ascend_run()).to_dicts()
        if row["type"] == "allreduce"
    }
    assert {key[0]: value for key, value in found.items() if key[1:] == (0, 1)} == {
        "top1": (16.0, "hcom_allReduce__123_1_1"),
        "middle": (8.0, "hcom_allReduce__123_0_1"),
        "bottom1": (8.0, "hcom_allReduce__123_0_1"),
        "bottom2": (16.0, "hcom_allReduce__123_1_1"),
        "total": (10.6667, None),
    }
    assert {key[0] for key in found if key[1:] == (1, 0)} == {"top1", "middle", "bottom1", "total"}


def test_matrix_of_four_operations_as_a_recorded_run_has_it() -> None:
    rows = [link("hcom_allReduce__1_0_1", "g", (0, 1), 1, 1, gbps) for gbps in (15.7259, 12.9574, 17.5452, 14.5906)]
    found = {
        row["selection"]: row["bandwidth_gbps"] for row in communication_matrix(measured(communication_matrix=rows)).to_dicts()
    }
    total = found.pop("total")
    assert found == {"top1": 17.5452, "middle": 14.5906, "bottom1": 12.9574, "bottom2": 14.5906, "bottom3": 15.7259}
    assert total == 1.0


_NAMES = st.sampled_from(["hcom_allReduce__1_0_1", "hcom_send__1_0_1", "hcom_reduceScatter__2_0_1"])
_LINKS = st.tuples(
    _NAMES, st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 1), st.floats(0.5, 99).map(lambda x: round(x, 3))
)


@settings(deadline=None)
@given(st.lists(_LINKS, max_size=25))
def test_matrix_against_a_loop(links: list[tuple[str, str, int, int, float]]) -> None:
    rows = [link(name, group, (source, to), 2.0, 0.5, gbps) for name, group, source, to, gbps in links]
    expected = set()
    keys = {(operation_type(name), group, source, to) for name, group, source, to, _ in links}
    for type_, group, source, to in keys:
        own = [(name, gbps) for name, *key, gbps in links if (operation_type(name), *key) == (type_, group, source, to)]
        own.sort(key=lambda pair: -pair[1])
        count = len(own)
        places = {"top1": 0, "middle": count // 2, "bottom1": count - 1, "bottom2": count - 2, "bottom3": count - 3}
        for selection, place in places.items():
            if place >= 0:
                expected.add((type_, group, source, to, selection, own[place][1], 2.0))
        expected.add((type_, group, source, to, "total", 4.0, 2.0 * count))
    columns = ("type", "group", "source", "destination", "selection", "bandwidth_gbps", "size_mb")
    found = communication_matrix(measured(communication_matrix=rows))
    assert set(found.select(columns).iter_rows()) == expected
    assert found.height == len(expected)
    if found.height:
        assert found.filter(found["op_name"].is_null())["selection"].unique().to_list() == ["total"]


def test_selected_rows_of_the_source_are_passed_on() -> None:
    rows = [
        link("allreduce", "11", (0, 1), 4, 0.5, 8, selection="top1", op_name="hcom_allReduce__123_0_1", step=50),
        link("allreduce", "11", (0, 1), 9, 1.5, 6, selection="total", step=50),
    ]
    found = communication_matrix(measured(communication_matrix=rows)).to_dicts()
    assert [(row["type"], row["selection"], row["op_name"], row["size_mb"], row["step"]) for row in found] == [
        ("allreduce", "top1", "hcom_allReduce__123_0_1", 4, 50),
        ("allreduce", "total", None, 9, 50),
    ]


def test_bandwidth_adds_each_transport_once_and_its_packets_apart() -> None:
    rows = bandwidth("hcom_allReduce__1_0_1", "g") + bandwidth("hcom_allReduce__1_1_1", "g")
    two_sizes = {**rows[1], "package_mb": 2.0, "count": 3, "duration_ms": 0.125}
    found = communication_bandwidth(measured(communication_bandwidth=[*rows, two_sizes]))
    totals = {row["transport"]: row for row in bandwidth_totals(found).to_dicts()}
    assert (totals["HCCS"]["size_mb"], totals["HCCS"]["transit_ms"], totals["HCCS"]["bandwidth_gbps"]) == (16.0, 1.0, 16.0)
    assert (totals["RDMA"]["size_mb"], totals["RDMA"]["bandwidth_gbps"]) == (0.0, 0.0)
    packets = [(row["package_mb"], row["count"], row["duration_ms"]) for row in package_totals(found).to_dicts()]
    assert packets == [(8.0, 2, 1.0), (2.0, 3, 0.125)]


STEPS = [
    {"id": 3, "start_ns": ns(10), "end_ns": ns(20), "pid": 1, "tid": 1},
    {"id": 4, "start_ns": ns(20.5), "end_ns": ns(30), "pid": 1, "tid": 1},
]


@pytest.mark.parametrize(
    ("steps", "row", "expected"),
    [
        ([], {"start": 15}, None),
        ([], {"start": 15, "step": 50}, 50),
        (STEPS[:1], {"start": 500}, 3),
        (STEPS, {"start": 10}, 3),
        (STEPS, {"start": 20}, 3),
        (STEPS, {"start": 20.2}, None),
        (STEPS, {"start": 30}, 4),
        (STEPS, {"start": 15, "step": 4}, 4),
        (STEPS, {"start": 15, "name": "known"}, 4),
        (STEPS, {"start": 9}, None),
    ],
)
def test_step_of_an_operation(steps: list[dict[str, object]], row: dict[str, object], expected: int | None) -> None:
    own = times(str(row.get("name", "op")), "g", float(str(row["start"])), 1, 0, 0, 0, 0, step=row.get("step"))  # type: ignore[arg-type]
    known = [{"name": "known", "kind": "collective", "start_ns": ns(25), "end_ns": ns(26), "step": 4}]
    trace = measured(
        communication_times=[own], communication_bandwidth=bandwidth(own["name"], "g", step=own["step"]), steps=steps,
        communication=known,
    )  # fmt: skip
    assert communication_times(trace)["step"].to_list() == [expected]
    assert communication_bandwidth(trace)["step"].unique().to_list() == [expected]


def test_matrix_rows_take_the_step_of_their_operation() -> None:
    rows = [times("hcom_allReduce__123_0_1", "11", 15, 1, 0, 0, 0, 0), times("hcom_allReduce__123_1_1", "11", 25, 1, 0, 0, 0, 0)]
    trace = measured(communication_times=rows, communication_matrix=MATRIX[:3], steps=STEPS)
    found = communication_matrix(trace)
    assert {(row["step"], row["op_name"]) for row in found.to_dicts() if row["selection"] == "top1"} == {
        (3, "hcom_allReduce__123_0_1"),
        (4, "hcom_allReduce__123_1_1"),
    }


def test_what_is_no_number_counts_as_nothing() -> None:
    rows = [times("hcom_send__1_0_1", "g", 1, float("nan"), float("inf"), 0.5, 0, 0, kind=None)]  # type: ignore[arg-type]
    found = communication_times(measured(communication_times=rows)).to_dicts()[0]
    assert (found["elapse_ms"], found["transit_ms"], found["wait_ratio"], found["kind"]) == (0.0, 0.0, 1.0, "p2p")


def test_elapsed_times_of_a_run_without_measurements() -> None:
    rows = [
        {"name": "gloo:all_reduce", "kind": "collective", "group": "dp", "start_ns": BASE_NS, "end_ns": BASE_NS + 1_500_000},
        {"name": "gloo:send", "kind": "send", "start_ns": BASE_NS + 5, "end_ns": BASE_NS + 6, "step": 2},
    ]
    found = elapsed_times(measured(communication=rows)).to_dicts()
    assert [(row["kind"], row["group"], row["elapse_ms"], row["step"]) for row in found] == [
        ("collective", str(group_hash("dp")), 1.5, None),
        ("p2p", "", 1e-6, 2),
    ]


def test_nothing_measured_gives_no_rows() -> None:
    for analysis in (communication_times, communication_bandwidth, communication_matrix, elapsed_times):
        assert analysis(build()).is_empty()
