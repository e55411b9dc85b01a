"""What communication is called for the clients where its library gives operations and groups no names of their own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from steplens.trace.trace import Trace
from steplens.writers.common.communication_names import client_type, named_communication, own_links
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.tables import communication

from .ascend import ascend_run
from .builder import BASE_NS, build, kernel, op

#: the number of group "0", by hand: "0" is byte 48, and the hash of one byte is that byte in both halves
GROUP_0 = (48 << 32) + 48

GROUPS = {
    "0": {"group_name": "default_group", "group_rank": 1, "global_ranks": [0, 1]},
    "1": {"group_name": "dp", "group_rank": 0, "global_ranks": [1, 3]},
    "2": {"group_name": "dp", "group_rank": 0, "global_ranks": [1, 3]},
}


def call(name: str, operation: str, start: int, step: int | None = None, **values: Any) -> dict[str, Any]:
    kind = {"send": "send", "receive": "receive"}.get(operation, "collective")
    times = {"start_ns": BASE_NS + start, "end_ns": BASE_NS + start + 1_000_000}
    return {"name": name, "operation": operation, "kind": kind, "group": "default_group", "step": step, **times, **values}


def gloo_run(*calls: dict[str, Any], **meta: Any) -> Trace:
    steps = [{"id": number, "start_ns": BASE_NS + number * 10**9, "end_ns": BASE_NS + (number + 1) * 10**9} for number in (2, 3)]
    values = {"rank": 1, "parallel_group_info": GROUPS, **meta}
    return build(meta=values, ops=[op("a", 1, 9)], kernels=[kernel("k", 2, 3)], steps=steps, communication=list(calls))


def names(trace: Trace) -> list[tuple[str, str, str]]:
    return named_communication(Output(trace, BASE_NS)).select("client_name", "group_id", "group_number").rows()


def test_operations_are_numbered_per_step_type_and_group_in_order_of_start() -> None:
    trace = gloo_run(
        call("gloo:all_reduce", "allreduce", 300, 2),
        call("gloo:all_reduce", "allreduce", 100, 2),
        call("gloo:broadcast", "broadcast", 200, 2),
        call("gloo:all_reduce", "allreduce", 400, 3),
        call("gloo:all_reduce", "allreduce", 150, 2, group="other"),
        call("gloo:send", "send", 500),
    )
    found = [name for name, _, _ in names(trace)]
    other = found[4]
    assert found == [
        "hcom_allReduce__256_2_1", "hcom_allReduce__256_2_0", "hcom_broadcast__256_2_0", "hcom_allReduce__256_3_0",
        other, "hcom_send__256_4294967295_0",
    ]  # fmt: skip
    assert re.fullmatch(r"hcom_allReduce__\d{3}_2_0", other)
    assert other != found[1]
    assert {group for name, *group in names(trace) if name != other for group in [tuple(group)]} == {("0", str(GROUP_0))}


def test_a_name_that_two_groups_share_identifies_neither() -> None:
    trace = gloo_run(call("gloo:all_reduce", "allreduce", 1, 2, group="dp"), call("x", "allreduce", 2, 2, group="1"))
    assert [group for _, group, _ in names(trace)] == ["dp", "1"]


@pytest.mark.parametrize("groups", [None, [], "text", {"0": 7, "1": {"group_name": 8}}])
def test_damaged_groups_describe_nothing(groups: Any) -> None:
    trace = gloo_run(call("gloo:all_reduce", "allreduce", 1, 2), parallel_group_info=groups)
    assert [group for _, group, _ in names(trace)] == ["default_group"]
    assert own_links(Output(trace, BASE_NS))["rank"].to_list() == [1]


def test_the_names_of_an_npus_library_stay() -> None:
    trace = ascend_run()
    given = trace.required("communication").collect()["name"].cast(str).to_list()
    assert [name for name, _, _ in names(trace)] == given


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("allreduce", "allReduce"),
        ("gloo:all_reduce", "allReduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduceScatter"),
        ("_allgather_base", "allGather"),
        ("recv", "receive"),
        ("SendRecv", "batchSendRecv"),
        ("all_to_allv", "alltoallv"),
        ("reduce", "reduce"),
        ("broadcast", "broadcast"),
        ("mpi:unheard_of", "mpiunheardof"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_types(operation: str | None, expected: str) -> None:
    assert client_type(operation) == expected


def test_the_rank_of_a_group_is_that_of_its_description(tmp_path: Path) -> None:
    trace = gloo_run(call("x", "allreduce", 1, 2, group="1"), call("y", "allreduce", 2, 2), call("y", "allreduce", 3, 2))
    communication.write_matrix(Output(trace, BASE_NS), tmp_path / "matrix.json")
    found = json.loads((tmp_path / "matrix.json").read_bytes())
    group_1 = (49 << 32) + 49
    local = {"Transport Type": "LOCAL"}
    assert found["step2"]["collective"] == {
        f"allreduce-total@{group_1}": {"0-0": local},
        f"allreduce-total@{GROUP_0}": {"1-1": local},
    }
    assert found["step3"] == {"p2p": {}, "collective": {}}


def test_without_a_rank_there_is_no_matrix(tmp_path: Path) -> None:
    trace = gloo_run(call("x", "allreduce", 1, 2), rank=-1, parallel_group_info={})
    with pytest.raises(NothingToWriteError):
        communication.write_matrix(Output(trace, BASE_NS), tmp_path / "matrix.json")


def test_a_step_with_sends_alone_has_a_total_of_its_collectives(tmp_path: Path) -> None:
    communication.write_times(Output(gloo_run(call("gloo:send", "send", 1, 2)), BASE_NS), tmp_path / "times.json")
    found = json.loads((tmp_path / "times.json").read_bytes())
    nothing = {"Communication Time Info": {"Elapse Time(ms)": 0}, "Communication Bandwidth Info": {}}
    assert found["step2"]["collective"] == found["step3"]["collective"] == {"Total Op Info": nothing}
    assert set(found["step2"]["p2p"]) == {f"hcom_send__256_2_0@{GROUP_0}", "Total Op Info"}
