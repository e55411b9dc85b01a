"""Addresses about several ranks: the contract's values on the samples, and a recorded job of four ranks against loops."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import polars as pl
import pytest

import steplens
from steplens.analysis.cluster.joined_operators import bands, joined_operators, loads, rank_steps
from steplens.analysis.cluster.strategy import collapse_scopes, stage_operators, stages, transfers
from steplens.analysis.steps.summary import usual_device_steps
from steplens.analysis.steps.times import chosen_step_times
from steplens.run import Run
from steplens.trace.schema import KIND_COMPUTE
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, build, kernel
from .conftest import Client, Start, sample

RECORDED, PROPOSE, RUN_2, RUN_3, RUN_4, STRATEGY, DEVICE, ASCEND = range(8)
RANKS = 4


@pytest.fixture(scope="module")
def client(serve: Start, job: Path) -> Client:
    names = ("cluster_propose", "run_2", "run_3", "run_4", "parallel_strategy", "profiler")
    return serve([job, *(sample("mindspore", name) for name in names), sample("ascend_pytorch", "text_level1")])


@pytest.fixture(scope="module")
def recorded(job: Path) -> Run:
    return steplens.open(job)


def ms(rows: list[dict[str, Any]], *names: str) -> list[list[float]]:
    return [[round(row[f"{name}_ns"] / 1e6, 4) for name in names] for row in rows]


@pytest.mark.parametrize(
    ("run", "mode", "expected"),
    [
        (RUN_2, "data", {"interval_ns": 0.0, "forward_backward_ns": 23.6681, "tail_ns": 0.041, "total_ns": 23.7091}),
        (RUN_3, "model", {"interval_ns": 0.0, "computation_ns": 651.9051, "communication_alone_ns": 1293.1231}),
        (
            RUN_4,
            "pipeline",
            {"interval_ns": 0.0, "computation_ns": 651.9051, "communication_alone_ns": 1293.1231, "stage_ns": 1577.1234,
             "receive_alone_ns": 368.7766, "collective_alone_ns": 227.1234},
        ),
    ],
)  # fmt: skip
def test_parts_by_the_kind_of_parallelism(client: Client, run: int, mode: str, expected: dict[str, float]) -> None:
    found = client.get(f"/api/runs/{run}/cluster/steps", step=1)
    assert (found["job"]["mode"], found["steps"], found["matching"]) == (mode, [1], 1)
    assert set(expected) <= set(found["parts"])
    (row,) = found["rows"]
    assert {name: round(row[name] / 1e6, 4) for name in expected} == expected
    assert row["rank"] == 1 and row["trace"] == 0


def test_the_means_of_a_pipeline_and_its_rates(client: Client) -> None:
    found = client.get(f"/api/runs/{PROPOSE}/cluster/steps")
    assert [row["rank"] for row in found["rows"]] == [0, 1, 2, 3]
    assert [row["stage"] for row in found["rows"]] == [1, 1, 2, 2]
    assert ms(found["rows"], "interval") == [[1.5722], [1.5588], [2.4318], [2.3954]]
    assert found["between_stages_rate"] == pytest.approx(0.25819082, abs=1e-8)
    assert found["within_stage_rates"] == pytest.approx({"1": 0.6029851045963494, "2": 0.23437938457647858}, rel=1e-12)
    slowest = client.get(f"/api/runs/{PROPOSE}/cluster/steps", sort="interval_ns", descending=True, limit=1)
    assert (slowest["rows"][0]["rank"], slowest["matching"]) == (2, 4)
    second = client.get(f"/api/runs/{PROPOSE}/cluster/steps", stage=2, offset=1)
    assert [row["rank"] for row in second["rows"]] == [3] and second["matching"] == 2
    assert "cannot be sorted" in client.get(f"/api/runs/{PROPOSE}/cluster/steps", 422, sort="color")["problem"]


def test_heat_of_arithmetic(client: Client) -> None:
    heat = {one["metric"]: one for one in client.get(f"/api/runs/{PROPOSE}/cluster/heat")}
    flops = heat["flops"]
    assert [round(one["share"], 8) for one in flops["ranks"]] == [0.32506897, 0.32506372, 0.99998777, 1]
    assert [round(one["value"] / 1e6, 3) for one in flops["ranks"]] == [107146.763, 107145.034, 329608.369, 329612.4]
    assert [round(one["value"] / 1e9, 3) for one in heat["flops_rate"]["ranks"]] == [5385.552, 5386.261, 4859.39, 4897.642]
    assert (flops["unit"], flops["of"], heat["flops_rate"]["unit"]) == ("FLOP", "largest rank", "FLOP/s")


def test_heat_of_a_recorded_job(client: Client, recorded: Run) -> None:
    heat = {one["metric"]: one for one in client.get(f"/api/runs/{RECORDED}/cluster/heat")}
    assert set(heat) == {"memory_peak", "flops", "flops_rate", "device_busy", "step_time", "communication_share"}
    for trace in recorded.traces:
        steps = chosen_step_times(trace).to_dicts()
        place = trace.rank
        peak = trace.required("memory").select(pl.col("allocated").max()).collect().item()
        assert heat["memory_peak"]["ranks"][place]["value"] == peak
        assert heat["step_time"]["ranks"][place]["value"] == pytest.approx(median(step["step_time_ns"] for step in steps))
        # every microsecond of the device periods: is a device computing or communicating in it?
        periods = [(step["device_start_ns"], step["device_period_ns"]) for step in steps if step["device_period_ns"] is not None]
        at = np.concatenate([np.arange(start, start + length, 1000) for start, length in periods])
        computing, communicating = (np.zeros(len(at), dtype=bool) for _ in range(2))
        computes = trace.required("kernels").filter(pl.col("kind") == KIND_COMPUTE)
        for rows, found in ((computes, computing), (trace.required("communication"), communicating)):
            for start, end in rows.select("start_ns", "end_ns").collect().iter_rows():
                found[np.searchsorted(at, start) : np.searchsorted(at, end)] = True
        assert heat["device_busy"]["ranks"][place]["share"] == pytest.approx((computing | communicating).mean(), abs=5e-3)
        exposed = heat["communication_share"]["ranks"][place]["share"]
        assert exposed == pytest.approx((communicating & ~computing).mean(), abs=5e-3)
    for one in heat.values():
        assert all(0 <= rank["share"] <= 1 for rank in one["ranks"])
        assert [recorded.traces[rank["trace"]].rank for rank in one["ranks"]] == [rank["rank"] for rank in one["ranks"]]


def test_the_first_page_has_the_operators_of_the_rank_that_is_late(client: Client, recorded: Run) -> None:
    """60 products on one rank and one on the others are 15.75 a step on none of them."""
    found = client.get(f"/api/runs/{RECORDED}/overview")
    late = found["verdict"]["rank"]
    assert recorded.traces[found["work_trace"]].rank == late == RANKS - 1
    steps = chosen_step_times(recorded.traces[found["work_trace"]])["step"].to_list()
    calls = recorded.traces[found["work_trace"]].required("ops").select(pl.col("name").cast(pl.String), "step").collect()
    for row in found["work"]:
        by_step = [calls.filter(name=row["name"], step=step).height for step in steps]
        assert (row["calls_least"], row["calls_most"]) == (min(by_step), max(by_step)), row
    assert {row["name"]: row["calls_least"] for row in found["work"]}["aten::mm"] >= 60


def test_memory_is_a_share_of_the_capacity_where_it_is_known() -> None:
    from steplens.analysis.cluster.rank_heat import rank_heat

    def of(rank: int, capacity: int | None) -> Trace:
        properties = [{"id": 0, "name": "a GPU", "totalGlobalMem": capacity}] if capacity else []
        event = {"time_ns": BASE_NS, "bytes": 10, "allocated": 10 * (rank + 1), "device_type": "CUDA", "device": 0, "address": 1}
        return build(meta={"rank": rank, "deviceProperties": properties}, memory=[event])

    known = rank_heat([of(0, 80), of(1, 80)]).filter(metric="memory_peak")
    assert (known["share"].to_list(), known["of"].unique().to_list()) == ([0.125, 0.25], ["capacity"])
    partly = rank_heat([of(0, 80), of(1, None)]).filter(metric="memory_peak")
    assert (partly["share"].to_list(), partly["of"].unique().to_list()) == ([0.5, 1.0], ["largest rank"])


def test_costs_of_ranks_step_by_step(client: Client) -> None:
    address = f"/api/runs/{PROPOSE}/communication/costs"
    first = client.get(address, step=1)
    assert first["steps"] == [1, 2, 3, 4, 5, 6]
    assert [[round(row[f"{name}_ns"] / 1e6, 5) for name in ("transfer", "wait")] for row in first["rows"]] == [
        [2.60018, 270.25056], [2.61475, 333.77764], [7.93334, 2000.81932], [7.94937, 2215.23546],
    ]  # fmt: skip
    mean = client.get(address)["rows"]
    assert [round(row["transfer_ns"] / 1e6, 7) for row in mean] == [2.268855, 2.2812567, 4.778965, 4.78749]
    assert [row["steps"] for row in mean] == [6, 6, 2, 2]
    for row in mean:
        assert row["communication_share"] == pytest.approx(row["transfer_ns"] / (row["transfer_ns"] + row["wait_ns"]))
    for step in (3, 4, 5, 6):
        found = client.get(address, step=step)
        assert ([row["rank"] for row in found["rows"]], found["no_data"]) == ([0, 1], [2, 3])
    assert [row["rank"] for row in client.get(address, stage=2)["rows"]] == [2, 3]


def test_bandwidth_of_links_is_bytes_by_time(client: Client) -> None:
    address = f"/api/runs/{PROPOSE}/communication/links"
    found = client.get(address)
    assert (found["kind"], found["matching"], found["transports"]) == ("link", 8, ["SDMA"])
    by_ends = {(row["source"], row["destination"]): row for row in found["rows"]}
    expected = {(1, 0): 20_934_047, (0, 1): 5_055_173, (3, 2): 17_367_619, (2, 3): 19_375_526}
    assert {ends: round(by_ends[ends]["bytes_per_s"] / 1e3) for ends in expected} == expected
    times = {(1, 0): (2.2006933, 46069.4187), (0, 0): (0.0681617, 554.9653), (0, 1): (0.2195633, 1109.9307)}
    for ends, (time, size) in times.items():
        assert by_ends[ends]["time_ns"] / 1e6 == pytest.approx(time, abs=1e-7)
        assert by_ends[ends]["bytes"] / 1e3 == pytest.approx(size, abs=1e-4)
    step = client.get(address, step=1, source=1, destination=0)["rows"]
    assert [round(row["bytes_per_s"] / 1e3) for row in step] == [20_907_853]
    assert client.get(address, transport="RDMA")["rows"] == []
    assert {row["source_stage"] for row in client.get(address, stage=2)["rows"]} == {2}
    fastest = client.get(address, sort="bytes_per_s", descending=True, limit=2)["rows"]
    assert [row["bytes_per_s"] for row in fastest] == sorted((row["bytes_per_s"] for row in found["rows"]), reverse=True)[:2]
    assert client.get(address, 422, sort="nothing")["where"] == "sort"


def test_operations_add_up_to_their_rank_and_links_to_their_operation(client: Client) -> None:
    base = f"/api/runs/{PROPOSE}/communication"
    costs = {row["rank"]: row for row in client.get(f"{base}/costs", step=1)["rows"]}
    for rank in range(4):
        found = client.get(f"{base}/operations", rank=rank, step=1, limit=1000)
        assert found["matching"] == len(found["rows"]) == (97 if rank < 2 else 349)
        for name in ("transfer_ns", "wait_ns"):
            assert math.fsum(row[name] for row in found["rows"]) == pytest.approx(costs[rank][name])
        links = client.get(f"{base}/operation_links", rank=rank, step=1)
        named = client.get(f"{base}/operation_links", rank=rank, step=1, operation=links[0]["operation"])
        assert named == [row for row in links if row["operation"] == links[0]["operation"]]
    assert client.get(f"{base}/operations", 404, rank=9)["where"] == "rank"


def covered(ranges: list[tuple[int, int]]) -> int:
    """How much some ranges cover, what several cover once."""
    length, reached = 0, 0
    for begin, end in sorted(ranges):
        length += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return length


def test_two_of_eight_ranks_say_who_of_them_comes_last_and_times_add_up(client: Client) -> None:
    found = client.get(f"/api/runs/{ASCEND}/communication")
    assert (found["recorded_ranks"], found["job_ranks"], found["waits"]) == (2, 8, [])
    traces = steplens.open(sample("ascend_pytorch", "text_level1")).traces
    first = {}
    for trace in traces:
        calls = trace.required("communication").sort("start_ns").collect().rows(named=True)
        first[trace.rank] = {str(row["name"]): row["start_ns"] for row in calls}
    late = {name: first[1][name] - first[0][name] for name in first[0]}
    order = found["recorded_order"]
    assert (order["rank"], order["ranks"], order["late"], order["of_steps"]) == (1, [0, 1], True, 1)
    assert order["hold_up_ns"] == sum(behind for behind in late.values() if behind > 0) > 5e6
    for row in found["collectives"]:
        behind = late[row["name"]] if row["rank"] == 1 else -late[row["name"]]
        assert row["behind_ns"] == max(behind, 0)
        assert 0 < row["wait_ns"] + row["transfer_ns"] <= row["duration_ns"]


def test_waiting_of_a_recorded_job(client: Client, recorded: Run) -> None:
    """Without a library that measures, arrival tells who waited for whom; each part by a loop over the arrivals."""
    arrived = recorded.arrivals()
    last = {key: max(group.iter_rows(named=True), key=lambda row: row["place"])["rank"]
            for key, group in arrived.group_by("step", "group", "operation", "number")}  # fmt: skip
    usual = {(trace.rank, step) for trace in recorded.traces for step in usual_device_steps(trace)["step"]}
    waits: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    flights: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for row in arrived.iter_rows(named=True):
        behind = last[row["step"], row["group"], row["operation"], row["number"]]
        if (row["rank"], row["step"]) in usual:
            flights[row["rank"], row["step"]].append((row["start_ns"], row["end_ns"]))
            waits[row["rank"], row["step"], behind].append((row["start_ns"], row["start_ns"] + row["wait_ns"]))
    costs = client.get(f"/api/runs/{RECORDED}/communication/costs")
    assert set(costs["steps"]) >= set(arrived["step"])
    links = client.get(f"/api/runs/{RECORDED}/communication/links")
    assert links["kind"] == "wait"
    edges = {(row["source"], row["destination"]): row["time_ns"] for row in links["rows"]}
    for row in costs["rows"]:
        rank = row["rank"]
        assert row["measured_by"] == "arrival"
        parts = row["wait_ns"] + row["transfer_ns"] + row["unexplained_ns"]
        assert parts == pytest.approx(row["communication_ns"]) == pytest.approx(row["exposed_ns"] + row["overlapped_ns"])
        flown = fmean(covered(ranges) for (of, _), ranges in flights.items() if of == rank)
        every = {step: [span for (of, at, _), spans in waits.items() if (of, at) == (rank, step) for span in spans]
                 for of, step in flights if of == rank}  # fmt: skip
        waited = fmean(covered(spans) for spans in every.values())
        assert row["unexplained_ns"] == pytest.approx(0, abs=1)
        assert row["steps"] == len(every)
        assert row["wait_ns"] / row["communication_ns"] == pytest.approx(waited / flown)
        for other in range(RANKS):
            towards = sum(covered(spans) for (of, _, behind), spans in waits.items() if (of, behind) == (rank, other)) / len(
                every
            )
            expected = towards * row["communication_ns"] / flown
            assert edges.get((rank, other), 0) == pytest.approx(expected if other != rank else 0, abs=1)
        step = next(at for of, at in flights if of == rank)
        of_step = client.get(f"/api/runs/{RECORDED}/communication/costs", step=step)["rows"]
        exact = next(one for one in of_step if one["rank"] == rank)
        assert (exact["wait_ns"], exact["communication_ns"]) == (covered(every[step]), covered(flights[rank, step]))
    slow = client.get(f"/api/runs/{RECORDED}/communication")["slow_rank"]
    assert slow is not None and slow["rank"] == RANKS - 1
    more = client.get(f"/api/runs/{RECORDED}/cluster/differences", rank=RANKS - 1, limit=3)
    assert len(more["rows"]) == min(more["matching"], 3) and all(row["more_ns"] > 0 for row in more["rows"])
    assert client.get(f"/api/runs/{RECORDED}/cluster/differences", 404, rank=99)["where"] == "rank"


def test_real_devices_of_one_clock_lie_as_the_contract_says(client: Client) -> None:
    """P4: rank 0 comes later to the all-reduce of the first three iterations; rank 10 is on a clock of its own."""
    for step, late_us in ((1, 9930.40), (2, 1364.57), (3, 316.22)):
        found = client.get(f"/api/runs/{DEVICE}/marey/operators", step=step, limit=2000)
        (one,) = (line for line in found["operators"] if line["name"] == "allreduce" and 0 in line["ranks"])
        start = dict(zip(one["ranks"], one["start_ns"], strict=True))
        # the contract's figure is of the step trace's points, which lie some us before the operation itself
        assert (start[0] - start[1]) / 1e3 == pytest.approx(late_us, abs=2)
    assert {rank["rank"]: rank["aligned_by"] for rank in found["ranks"]} == {0: "clock", 1: "clock", 10: "step start"}


def test_operators_of_a_recorded_step_are_those_of_the_tables(client: Client, recorded: Run) -> None:
    step = recorded.steps().filter("complete")["step"].to_list()[2]
    found = client.get(f"/api/runs/{RECORDED}/marey/operators", step=step, limit=2000, buckets=20)
    assert found["matching"] == len(found["operators"])
    steps = {
        trace.rank: trace.required("steps").filter(pl.col("id") == step).collect().row(0, named=True) for trace in recorded.traces
    }
    aligned = {rank["rank"]: rank for rank in found["ranks"]}
    assert {rank["aligned_by"] for rank in aligned.values()} == {"collectives"}
    expected: dict[tuple[str, int], dict[int, tuple[int, int]]] = defaultdict(dict)
    for trace in recorded.traces:
        own = steps[trace.rank]
        shift = own["start_ns"] - aligned[trace.rank]["start_ns"]
        tasks, reach = [], dict[int, int]()
        # of calls within calls the outermost
        for row in trace.required("kernels").collect().sort("start_ns", -pl.col("end_ns")).iter_rows(named=True):
            if row["end_ns"] > reach.get(row["stream"], 0):
                tasks.append(row)
                reach[row["stream"]] = row["end_ns"]
        sent = [{**row, "name": row["operation"]} for row in trace.required("communication").collect().iter_rows(named=True)]
        inside = sorted(
            (row["start_ns"], row["end_ns"], row["name"])
            for row in tasks + sent
            if own["start_ns"] <= row["start_ns"] < own["end_ns"]
        )
        count: dict[str, int] = defaultdict(int)
        for start, end, name in inside:
            expected[name, count[name]][trace.rank] = (start - shift, end - shift)
            count[name] += 1
    told = {
        (one["name"], one["number"]): dict(zip(one["ranks"], zip(one["start_ns"], one["end_ns"], strict=True), strict=True))
        for one in found["operators"]
    }
    assert told == {key: dict(ranks) for key, ranks in expected.items()}
    for band in found["bands"]:
        starts = [start for start, _ in expected[band["name"], band["number"]].values()]
        assert (band["start_min_ns"], band["start_max_ns"], band["ranks"]) == (min(starts), max(starts), len(starts))
        assert band["start_mean_ns"] == pytest.approx(fmean(starts))
    few = client.get(f"/api/runs/{RECORDED}/marey/operators", step=step, limit=5)
    lengths = sorted((max(end - start for start, end in ranks.values()) for ranks in expected.values()), reverse=True)
    assert (
        sorted(
            (max(e - s for s, e in zip(one["start_ns"], one["end_ns"], strict=True)) for one in few["operators"]), reverse=True
        )
        == lengths[:5]
    )
    window = client.get(f"/api/runs/{RECORDED}/marey/operators", step=step, limit=2000, from_ns=0, to_ns=found["end_ns"] // 3)
    overlapping = sum(
        any(start <= found["end_ns"] // 3 and end >= 0 for start, end in ranks.values()) for ranks in expected.values()
    )
    assert window["matching"] == overlapping < found["matching"]


def test_loads_of_a_recorded_step(client: Client, recorded: Run) -> None:
    step = recorded.steps().filter("complete")["step"].to_list()[2]
    found = client.get(f"/api/runs/{RECORDED}/marey/operators", step=step, buckets=20)
    width = max(-(-found["end_ns"] // 20), 1)
    aligned = {rank["rank"]: rank for rank in found["ranks"]}
    total = defaultdict(int)
    for row in found["loads"]:
        total[row["rank"]] += row["flops"] or 0
    per_step = recorded.flops("step").filter(step=step)
    assert dict(total) == dict(per_step.select("rank", "flops").iter_rows())
    for trace in recorded.traces:
        own = trace.required("steps").filter(pl.col("id") == step).collect().row(0, named=True)
        shift = own["start_ns"] - aligned[trace.rank]["start_ns"]
        events = trace.required("memory").select("time_ns", "allocated").collect().sort("time_ns", maintain_order=True).rows()
        times = [(time - shift, allocated) for time, allocated in events if time < own["end_ns"]]
        most: dict[int, int] = {}
        for bucket in range((own["start_ns"] - shift) // width, (own["end_ns"] - 1 - shift) // width + 1):
            start, end = max(bucket * width, own["start_ns"] - shift), (bucket + 1) * width
            at_start = [allocated for time, allocated in times if time < start][-1:]
            most[bucket] = max([*at_start, *(allocated for time, allocated in times if start <= time < end)])
        told = {row["bucket"]: row["allocated_bytes"] for row in found["loads"] if row["rank"] == trace.rank}
        assert told == most


def test_clocks_are_set_by_all_collectives() -> None:
    """A rank whose clock is off by 3 s, and late at every collective: what is left apart is the lateness, not the clock."""
    off = 3 * 10**9
    late = 200_000

    def of(rank: int) -> Trace:
        shift = off * rank
        steps, sent, tasks = [], [], []
        for step in range(4):
            base = BASE_NS + step * 50_000_000 + shift
            steps.append({"id": step, "start_ns": base, "end_ns": base + 40_000_000, "pid": 1, "tid": 1})
            for number in range(5):
                begin = base + number * 5_000_000 + late * rank
                sent.append({"name": "allreduce", "operation": "allreduce", "kind": "collective", "group": "g", "step": step,
                             "start_ns": begin, "end_ns": base + number * 5_000_000 + 1_000_000})  # fmt: skip
            tasks.append(kernel("work", 0, 1, step=step) | {"start_ns": base, "end_ns": base + 1000})
        return build(meta={"rank": rank, "hostname": f"host{rank}"}, steps=steps, communication=sent, kernels=tasks)

    traces = [of(0), of(1)]
    steps = rank_steps(traces)
    assert steps["aligned_by"].unique().to_list() == ["collectives"]
    assert steps.filter(rank=1)["start_ns"].to_list() == steps.filter(rank=0)["start_ns"].to_list()
    found = bands(joined_operators(traces, 2, steps)).filter(name="allreduce")
    assert (found["start_max_ns"] - found["start_min_ns"]).to_list() == [late] * 5
    assert loads(traces, 2, 10, steps).is_empty()
    assert joined_operators(traces, 99, steps).is_empty() and rank_steps([]).is_empty()


def test_the_strategy_of_the_sample(client: Client) -> None:
    base = f"/api/runs/{STRATEGY}/strategy"
    found = client.get(base)
    assert found["parallel_type"] == "auto_parallel"
    assert [(one["stage"], one["ranks"], one["recorded"], one["operators"]) for one in found["stages"]] == [(1, [0, 1], 2, 2)]
    closed = client.get(f"{base}/graph")
    assert [(one["id"], one["kind"], one["operators"]) for one in closed["nodes"]] == [("Default", "scope", 2)]
    opened = client.get(f"{base}/graph?expanded=Default&expanded=Default/conv1-Conv2d")
    assert [(one["id"], one["type"]) for one in opened["nodes"]] == [("#1", "GetNext"), ("#2", "Conv2D")]
    assert opened["edges"] == [{"source": "#1", "destination": "#2", "count": 1}]
    one = client.get(f"{base}/operator", node="2")
    assert one["strategy"] == [[2, 1, 1, 1], [1, 1, 1, 1]]
    assert (one["ranks"], one["groups"], one["name"]) == ([0, 1], ["0", "1"], "Default/conv1-Conv2d/Conv2D-op2")
    assert [end["node"] for end in one["inputs"]] == ["1"]
    assert json.loads(one["attributes"]["pad_list"]) == [2, 3, 2, 3]
    assert [hit["node"] for hit in client.get(f"{base}/find", text="conv")["hits"]] == ["2"]
    assert client.get(f"{base}/operator", 404, node="77")["where"] == "node"
    assert client.get(f"/api/runs/{PROPOSE}/strategy") == {"parallel_type": "", "stages": [], "transfers": []}


def strategy_trace(rank: int, stage: int, nodes: list[dict[str, str]]) -> Trace:
    empty = dict.fromkeys(("output_shape", "output_type", "strategy", "group", "group_ranks", "role"), "")
    records = [json.dumps({**empty, "inputs": "[]", "attributes": "{}", **node}) for node in nodes]
    rows = [{"table": "parallel_strategy", "row": number, "record": record} for number, record in enumerate(records)]
    job = {"parallel_type": "auto_parallel", "stage": stage, "stage_devices": {"0": [0, 1], "1": [2, 3]}}
    return build(meta={"rank": rank, "parallel_strategy": job, "stage_num": 2, "rank_size": 4}, source_tables=rows)


def test_scopes_open_and_close_and_stages_send() -> None:
    tag = '{"sr_tag": "7"}'
    first = [
        {"node": "1", "name": "A/x/Mul-op1", "type": "Mul", "scope": "A/x", "group": "g0"},
        {"node": "2", "name": "A/x/AllReduce-op2", "type": "AllReduce", "scope": "A/x",
         "role": "redistribution", "inputs": '["1", "99"]'},
        {"node": "3", "name": "A/y/Add-op3", "type": "Add", "scope": "A/y", "inputs": '["1", "2"]', "strategy": "[[1, 2]]"},
        {"node": "4", "name": "Send-op4", "type": "Send", "scope": "", "inputs": '["3"]', "attributes": tag, "group": "pp"},
    ]  # fmt: skip
    second = [
        {"node": "1", "name": "Receive-op1", "type": "Receive", "scope": "", "attributes": tag, "group": "pp"},
        {"node": "2", "name": "B/Mean-op2", "type": "AllReduce", "scope": "B", "role": "gradient_aggregation", "inputs": '["1"]'},
    ]
    other = [{**first[0], "group": "g1"}, *first[1:]]
    traces = [
        strategy_trace(0, 0, first),
        strategy_trace(1, 0, other),
        strategy_trace(2, 1, second),
        strategy_trace(3, 1, second),
    ]
    operators = stage_operators(traces, 1)
    assert operators["node"].to_list() == ["1", "2", "3", "4"]
    assert operators["groups"].to_list()[0] == ["g0", "g1"] and operators["ranks"].to_list()[0] == [0, 1]
    assert operators["inputs"].to_list() == [[], ["1"], ["1", "2"], ["3"]]

    def ids(*expanded: str) -> tuple[list[str], set[tuple[str, str, int]]]:
        found = collapse_scopes(operators, expanded)
        return found.nodes["id"].to_list(), set(found.edges.iter_rows())

    assert ids() == (["A", "#4"], {("A", "#4", 1)})
    assert ids("A") == (["A/x", "A/y", "#4"], {("A/x", "A/y", 2), ("A/y", "#4", 1)})
    assert ids("A/x") == ids(), "a scope inside a closed one stays hidden"
    everything = {("#1", "#2", 1), ("#1", "#3", 1), ("#2", "#3", 1), ("#3", "#4", 1)}
    assert ids("A", "A/x", "A/y") == (["#1", "#2", "#3", "#4"], everything)
    scope = collapse_scopes(operators, ["A"]).nodes.row(0, named=True)
    assert (scope["operators"], scope["redistributions"], scope["name"], scope["scope"]) == (2, 1, "x", "A")
    cut = collapse_scopes(operators, ["A", "A/x", "A/y"], most=2)
    assert (cut.nodes.height, cut.left_out, cut.edges.rows()) == (2, 2, [("#1", "#2", 1)])
    counts = stages(traces).select(
        "stage", "operators", "redistributions", "gradient_aggregations", "sends", "receives", "recorded"
    )
    assert counts.rows() == [(1, 4, 1, 0, 1, 0, 2), (2, 2, 0, 1, 0, 1, 2)]
    assert transfers(traces).rows() == [(1, 2, "7", "Send-op4", "Receive-op1")]
