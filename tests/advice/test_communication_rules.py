"""The rules of the device family about communication and single calls, where cause and price are known exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from steplens.advice import advise
from steplens.advice.facts import Facts
from steplens.advice.rules.device import collectives
from steplens.advice.rules.device.collectives import byte_alignment, small_packets, synchronized_batchnorm
from steplens.advice.rules.device.host_work import slow_fetches
from steplens.advice.rules.device.links import bandwidth_contention, retransmission, slow_group
from steplens.trace.schema import SCOPE_USER

from .device_steps import STEPS, US, accelerated, cuda, evidence, facts, ns, only, operation, saving, task
from .test_advice import run_of

CHIP = {"chip": "Ascend910B", "device_ids": [0]}


def transfers(*sizes: tuple[int, float], link: str = "HCCS", kind: str = "Memcpy") -> dict[str, Any]:
    """A collective per step, made of one transfer per (bytes, us), one behind the other."""
    tasks, starts = [], 0.0
    for _, length in sizes:
        tasks.append(task("SDMA", 1000 + starts, 1000 + starts + length, kind="other", core="SDMA"))
        starts += length
    records = []
    for step in STEPS:
        for number, (size, _) in enumerate(sizes):
            row = {
                "kernel": str(step * len(sizes) + number),
                "taskType": kind,
                "transportType": "SDMA",
                "linkType": link,
                "size": str(size),
            }
            records.append({"table": "COMMUNICATION_TASK_INFO", "row": len(records), "record": json.dumps(row)})
    operations = [operation("hcom_allReduce__1_0_1", 1000, 1000 + starts, step) for step in STEPS]
    return {"tasks": tasks, "source_tables": records, "communication": operations}


def test_transfers_of_odd_sizes() -> None:
    """1 MB in 100 us aligned; the odd one takes 100 us for half of that, and would have taken 50 us."""
    finding = only(byte_alignment.judge(facts(**transfers((1_024_000, 100), (512_001, 100)))))
    figures = evidence(finding)
    assert figures["odd_transfers"] == 100 * US
    assert figures["operations_with_odd_transfers"] == 4
    assert (figures["odd_bandwidth"], figures["even_bandwidth"]) == (pytest.approx(5.12001), 10.24)
    # 50 us are half a percent of a step: no price, and half of the transfers' time are much
    assert (finding.saving, finding.urgency) == (None, "medium")
    long = only(byte_alignment.judge(facts(**transfers((1_024_000, 1000), (512_001, 1000)))))
    assert saving(long).likely_ns == pytest.approx(500 * US, rel=1e-5)


def test_transfers_that_are_no_slower() -> None:
    finding = only(byte_alignment.judge(facts(**transfers((1_024_000, 100), (2_048_001, 100)))))
    assert (finding.saving, finding.urgency) == (None, "low")


@pytest.mark.parametrize(
    "values",
    [
        transfers((1_024_000, 100), (512_000, 100)),
        transfers((1_024_000, 100), (511, 100)),
        transfers((1_024_001, 100), link="ON_CHIP"),
        transfers((1_024_001, 100), kind="Notify_Wait"),
        {"source_tables": [{"table": "COMMUNICATION_TASK_INFO", "row": 0, "record": '{"size": "9"}'}]},
        {
            "source_tables": [
                {"table": "COMMUNICATION_TASK_INFO", "row": 0, "record": json.dumps(dict.fromkeys(collectives._COLUMNS))}
            ]
        },
    ],
)
def test_transfers_that_are_aligned(values: Any) -> None:
    assert list(byte_alignment.judge(facts(**values))) == []


def measured(*rows: tuple[str, float, float], transport: str = "SDMA") -> dict[str, Any]:
    """Measurements of one operation each, per step: name, MB, ms of transfer."""
    bandwidth, times = [], []
    for step in STEPS:
        for name, size, length in rows:
            known = {"name": name, "group": "g", "kind": "collective", "step": step}
            rate = {"size_mb": size, "transit_ms": length, "bandwidth_gbps": size / length}
            bandwidth.append({**known, "transport": transport, **rate})
            times.append({**known, "elapse_ms": 2 * length, "transit_ms": length, "start_ns": ns(step, 0)})
    return {"communication_bandwidth": bandwidth, "communication_times": times}


def test_operations_that_move_little() -> None:
    """Two of three operations move 1 MB in 1 ms, where the large one moves 16 MB in 1 ms: 15 / 16 of 2 ms."""
    finding = only(small_packets.judge(facts([task("Add", 0, 1)], **measured(("a", 1, 1), ("b", 1, 1), ("c", 16, 1)))))
    assert finding.id == "small_packets:SDMA"
    assert saving(finding).high_ns == pytest.approx(2000 * US * 15 / 16)
    figures = evidence(finding)
    assert (figures["small_operations"], figures["small_bandwidth"], figures["large_bandwidth"]) == (
        pytest.approx(200 / 3),
        1,
        16,
    )
    # where all are small, the peak of the link takes the large ones' place; where that is unknown there is no price
    alone = measured(("a", 1, 1))
    assert only(small_packets.judge(facts([task("Add", 0, 1)], **alone))).saving is None
    assert saving(only(small_packets.judge(facts([task("Add", 0, 1)], meta=CHIP, **alone)))).high_ns == pytest.approx(
        1000 * US * 17 / 18
    )


def test_operations_that_move_enough() -> None:
    one_of_five = measured(("a", 15.9, 1), *((name, 16.0, 1.0) for name in "bcde"))
    assert list(small_packets.judge(facts([task("Add", 0, 1)], **one_of_five))) == []
    rdma = measured(("a", 1.0, 1), transport="RDMA")
    assert list(small_packets.judge(facts([task("Add", 0, 1)], **rdma))) == []
    assert (
        only(small_packets.judge(facts([task("Add", 0, 1)], **measured(("a", 0.9, 1), transport="RDMA")))).id
        == "small_packets:RDMA"
    )


def collectives(count: int, size: int) -> list[dict[str, Any]]:
    return [operation("nccl", 500 * at, 500 * at + 100, step, bytes=size) for step in STEPS for at in range(count)]


def test_small_collectives_of_a_gpu() -> None:
    finding = only(small_packets.judge(facts([cuda("gemm", 0, 9000)], communication=collectives(5, (1 << 20) - 1))))
    assert (finding.saving, evidence(finding)["in_small_operations"]) == (None, 500 * US)
    assert list(small_packets.judge(facts([cuda("gemm", 0, 9000)], communication=collectives(5, 1 << 20)))) == []
    assert list(small_packets.judge(facts([cuda("gemm", 0, 9000)], communication=collectives(4, 1000)))) == []


def rdma(elapse: float, transit: float) -> Facts:
    known = {"name": "hcom_allReduce__1_0_1", "group": "g", "kind": "collective", "step": 1}
    bandwidth = {**known, "transport": "RDMA", "transit_ms": transit, "size_mb": 1.0, "bandwidth_gbps": 1.0}
    times = {**known, "elapse_ms": elapse, "transit_ms": transit}
    return facts([task("Add", 0, 1)], communication_bandwidth=[bandwidth], communication_times=[times])


def test_data_that_was_sent_again() -> None:
    """One operation of 5 s in four steps: at least a time-out of 4 s, a second per step."""
    both = [rdma(5000, 4500), rdma(4100, 10)]
    finding = only(retransmission.judge(run_of(*(part.trace for part in both)), both))
    assert (saving(finding).low_ns, saving(finding).high_ns) == (1e9, 4500e6 / 4)
    assert finding.evidence[0].steps == (1,)
    # a rank for which it was short, or transfers that are short: waiting for a late rank
    for near in ([rdma(5000, 4500), rdma(3999, 10)], [rdma(5000, 4000)], []):
        assert list(retransmission.judge(run_of(), near)) == []


def disturbed(beside: float, alone: float, count: int = 3, meta: Any = None) -> Facts:
    """Operations of 10 MB: one beside a product, others alone, with their bandwidths in GB/s."""
    rows = [("p", 10.0, 10 / beside), *((f"q{at}", 10.0, 10 / alone) for at in range(count))]
    operations = []
    for step in STEPS:
        operations += [operation(name, 1000 * at, 1000 * at + 900, step) for at, (name, _, _) in enumerate(rows)]
    product = task("MatMulV3", 100, 800, category="matmul")
    return facts([product, task("Add", 1000, 9000)], communication=operations, meta=meta, **measured(*rows))


def test_transfers_beside_products() -> None:
    finding = only(bandwidth_contention.judge(disturbed(10, 20)))
    # 1 ms at half of the bandwidth
    assert saving(finding).high_ns == pytest.approx(500 * US)
    assert evidence(finding) == {"slowed_operations": 1, "slowed_bandwidth": 10, "undisturbed_bandwidth": 20}
    assert list(bandwidth_contention.judge(disturbed(16, 20))) == []
    # nothing to compare with, and the peak of the link unknown or known (18 GB/s)
    assert list(bandwidth_contention.judge(disturbed(10, 20, 0))) == []
    assert saving(only(bandwidth_contention.judge(disturbed(10, 20, 0, CHIP)))).high_ns == pytest.approx(1000 * US * 8 / 18)


def ranks(slow: float, groups: int = 5, *, skip: int = -1) -> list[Any]:
    """Pairs of ranks, each with an all-reduce of 1 MB per step: 1 ms, but the last pair's takes ``slow`` ms."""
    traces = []
    for rank in range(2 * groups):
        length = 1000 * (slow if rank // 2 == groups - 1 else 1.0)
        late = 100 * (rank % 2)
        operations = [
            operation("nccl", 1000 + late, 1100 + length, step, group=f"g{rank // 2}", bytes=1_000_000) for step in STEPS
        ]
        traces.append(accelerated([cuda("gemm", 0, 900)], communication=operations, meta={"rank": rank}))
    return traces


def test_a_group_of_ranks_that_is_slow() -> None:
    """2 ms where the others take 1 ms: half of it. The first rank's 100 us of waiting do not count."""
    traces = ranks(2.0)
    finding = only(slow_group.judge(run_of(*traces), [Facts(trace) for trace in traces]))
    assert finding.id == "slow_group:8, 9"
    assert saving(finding).likely_ns == pytest.approx(1000 * US)
    assert (evidence(finding)["group_bandwidth"], evidence(finding)["median_bandwidth"]) == (0.5, 1)
    near = ranks(1.24)
    assert list(slow_group.judge(run_of(*near), [Facts(trace) for trace in near])) == []
    few = ranks(2.0, 3)
    assert list(slow_group.judge(run_of(*few), [Facts(trace) for trace in few])) == []


def test_batch_normalization_over_all_ranks() -> None:
    """Five layers in each of four steps, 100 us of collectives in each."""
    layers = [{"name": "SyncBatchNorm", "start": 1000 * at, "end": 1000 * at + 500} for at in range(5)]
    inner = [{"name": "SyncBatchNorm", "start": 1000 * at + 1, "end": 1000 * at + 499, "parent": at} for at in range(5)]
    reduced = [
        operation("nccl", 1000 * at + 600, 1000 * at + 700, step, launch_ns=ns(step, 1000 * at + 100))
        for step in STEPS
        for at in range(5)
    ]
    other = [operation("nccl", 9000, 9900, step, launch_ns=ns(step, 8900)) for step in STEPS]
    finding = only(synchronized_batchnorm.judge(facts([], operators=[*layers, *inner], communication=[*reduced, *other])))
    assert evidence(finding) == {"batchnorm_calls": 5, "batchnorm_collectives": 500 * US}
    assert saving(finding).high_ns == 500 * US
    assert list(synchronized_batchnorm.judge(facts([], operators=layers[:4], communication=reduced))) == []


def test_batches_that_are_late_now_and_then() -> None:
    fetch = {"name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "start": 0, "scope": SCOPE_USER}
    usual = [{**fetch, "start": at, "end": at + 100, "only": (0, 1, 2, 3)} for at in (0, 15_000)]

    def judged(length: float, steps: tuple[int, ...] = (2, 3)) -> list[Any]:
        late = {**fetch, "start": 1_000, "end": 1_000 + length, "only": steps}
        return list(slow_fetches.judge(Facts(accelerated(operators=[*usual, late]))))

    finding = only(judged(10_000))
    assert saving(finding).likely_ns == 2 * (10_000 - 100) * US / 4
    assert (evidence(finding)["slow_fetches"], finding.evidence[0].steps) == (2, (2, 3))
    assert judged(9_999) == []
    # one is an accident
    assert judged(10_000, (3,)) == []
    # so is the first one, which waits for workers to start
    first = accelerated(operators=[{**fetch, "end": 10_000, "only": (0,)}, {**fetch, "end": 100, "only": (1, 2, 3)}])
    assert list(slow_fetches.judge(Facts(first))) == []
    # slow all the time is another matter
    steps = accelerated(operators=[{**fetch, "end": 10_000}])
    assert list(slow_fetches.judge(Facts(steps))) == []


def test_rules_of_other_devices_are_not_said_to_be_silent() -> None:
    advice = advise(run_of(accelerated()))
    assert advice.silenced == ()
