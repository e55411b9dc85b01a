"""Waiting, transfer, bandwidth and overlap of every operation: by hand, and in real gloo jobs with an injected delay."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.analysis.cluster import communication_operations as operations
from steplens.analysis.cluster.communication_operations import ARRIVAL, LIBRARY, communication, communication_operations
from steplens.analysis.cluster.communication_pairs import pairs, waits
from steplens.analysis.cluster.ranks import PARTS, ranks
from steplens.trace.trace import Trace

from ..warm_python import run_warm_ranks
from ..writers.builder import BASE_NS, MAIN, PID, build, kernel

MS = 1_000_000
#: that the real jobs record
STEPS = 16


def collective(start_us: float, end_us: float, **values: Any) -> dict[str, Any]:
    times = {"start_ns": BASE_NS + round(start_us * 1000), "end_ns": BASE_NS + round(end_us * 1000)}
    return {"name": "nccl:all_reduce", "kind": "collective", "operation": "allreduce", "group": "0", "bytes": 4000, "step": 1,
            **times, **values}  # fmt: skip


def pair() -> list[Trace]:
    """Rank 1 comes 30 us late to the first collective and rank 0 10 us late to the second; rank 0 computes beside the first."""
    first = [collective(0, 50), collective(100, 120), collective(200, 210, step=None)]
    second = [collective(30, 50), collective(90, 120, bytes=4000)]
    return [
        build(
            meta={"rank": 0}, communication=first, kernels=[kernel("mm", 10, 35, core="CUDA"), kernel("mm", 30, 40, core="CUDA")]
        ),
        build(meta={"rank": 1}, communication=second),
    ]


def test_the_same_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = pair()
    whole = communication_operations(traces)
    monkeypatch.setattr(operations, "_PORTION", 1)
    found = list(operations.operations_in_portions(traces))
    assert [list(some) for some, _ in found] == [[trace] for trace in traces]
    assert pl.concat(rows for _, rows in found).select(whole.columns).equals(whole)


def test_by_hand() -> None:
    found = communication_operations(pair())
    columns = ["rank", "number", "duration_ns", "wait_ns", "transfer_ns", "last_rank", "overlapped_ns", "exposed_ns"]
    assert found.select(columns).rows() == [
        (0, 0, 50_000, 30_000, 20_000, 1, 30_000, 20_000),
        (0, 1, 20_000, 0, 20_000, 0, 0, 20_000),
        (0, None, 10_000, None, None, None, 0, 10_000),
        (1, 0, 20_000, 0, 20_000, 1, 0, 20_000),
        (1, 1, 30_000, 10_000, 20_000, 0, 0, 30_000),
    ]
    assert found["bytes_per_second"].to_list() == [2e8, 2e8, None, 2e8, 2e8]
    assert found["measured_by"].to_list() == [ARRIVAL, ARRIVAL, None, ARRIVAL, ARRIVAL]
    row = communication(pair()).row(0, named=True)
    assert (row["operation"], row["operations"], row["bytes"], row["duration_ns"]) == ("allreduce", 5, 20_000, 130_000)
    assert (row["wait_ns"], row["transfer_ns"], row["wait_percent"]) == (40_000, 80_000, pytest.approx(4000 / 120))
    # the send, of which nobody knows
    assert row["unexplained_ns"] == 10_000 == row["duration_ns"] - row["wait_ns"] - row["transfer_ns"]
    assert (row["overlapped_ns"], row["exposed_ns"], row["exposed_percent"]) == (30_000, 100_000, pytest.approx(10_000 / 130))
    assert row["bytes_per_second"] == 2e8
    assert communication(pair(), "rank").select("rank", "operations", "wait_ns").rows() == [(0, 3, 30_000), (1, 2, 10_000)]
    assert communication(pair(), "size").select("operation", "bytes_each", "operations").rows() == [("allreduce", 4000, 5)]
    assert communication(pair(), "step")["step"].to_list() == [None, 1]
    assert communication(pair(), "group")["group"].to_list() == ["0"]
    assert waits(pair()).rows() == [(0, 1, 1, 30_000, 100.0), (1, 0, 1, 10_000, 100.0)]


def test_one_rank_alone_knows_no_wait() -> None:
    found = communication_operations(pair()[:1])
    assert found["wait_ns"].null_count() == found["transfer_ns"].null_count() == found["bytes_per_second"].null_count() == 3
    row = communication(pair()[:1]).row(0, named=True)
    assert (row["wait_ns"], row["transfer_ns"], row["wait_percent"], row["bytes_per_second"]) == (None, None, None, None)
    assert (row["duration_ns"], row["exposed_ns"]) == (80_000, 50_000)
    assert waits(pair()[:1]).is_empty()


def test_what_the_library_measured_stands_in_for_arrivals() -> None:
    """Of 50 us it calls 30 waiting and 8 transit; in the rest it is idle, and nothing moves."""
    measured = {"elapse_ms": 0.05, "wait_ms": 0.03, "transit_ms": 0.008, "idle_ms": 0.012}
    times = {"name": "hcom_allReduce__1_0_1", "group": "1", "kind": "collective", "step": 1, **measured}
    row = collective(0, 50, name="hcom_allReduce__1_0_1")
    found = communication_operations([build(meta={"rank": 0}, communication=[row], communication_times=[times])])
    columns = ["wait_ns", "transfer_ns", "measured_by", "last_rank", "bytes_per_second"]
    assert found.select(columns).row(0) == (30_000, 8_000, LIBRARY, None, 5e8)


def test_point_to_point_by_pairs_of_ranks() -> None:
    def end(kind: str, peer: int | None, start: float, stop: float) -> dict[str, Any]:
        return collective(start, stop, kind=kind, operation=kind, peer=peer)

    traces = [
        build(meta={"rank": 0}, communication=[end("send", 1, 0, 10), end("send", 1, 20, 30), end("send", None, 40, 50)]),
        build(meta={"rank": 1}, communication=[end("receive", 0, 0, 12), end("receive", 0, 15, 31), end("receive", 2, 50, 60)]),
    ]
    assert pairs(traces).rows() == [
        (0, 1, 2, 2, 8000, 20_000, 28_000, 4e8),
        (2, 1, None, 1, 4000, None, 10_000, 4e8),
    ]  # fmt: skip


def test_ranks_beside_each_other() -> None:
    def of(rank: int, *lengths_us: int) -> Trace:
        edges = [0]
        for length in lengths_us:
            edges.append(edges[-1] + length)
        steps = [
            {"id": number, "start_ns": BASE_NS + 1000 * edges[number], "end_ns": BASE_NS + 1000 * edges[number + 1], "pid": PID,
             "tid": MAIN} for number in range(len(lengths_us))
        ]  # fmt: skip
        # every step calls an operator for 10 us, and Python runs for the rest of it
        calls = [
            {"name": "aten::mm", "start_ns": step["start_ns"], "end_ns": step["start_ns"] + 10_000, "pid": PID, "tid": MAIN,
             "scope": 0, "depth": 0, "parent": -1, "step": step["id"]} for step in steps
        ]  # fmt: skip
        return build(meta={"rank": rank}, steps=steps, ops=calls)

    found = ranks([of(1, 100, 120), of(0, 100, 100), of(2, 150, 150)])
    assert found["rank"].to_list() == [0, 1, 2]
    assert found["duration_ns"].to_list() == found["step_time_ns"].to_list() == [100_000, 110_000, 150_000]
    assert found["python_ns"].to_list() == [90_000, 100_000, 140_000]
    assert found["slower_percent"].to_list() == pytest.approx([-100 / 11, 0, 400 / 11])
    assert found.row(2, named=True)["differs_most"] == "python_ns"
    assert found.row(2, named=True)["differs_ns"] == 40_000
    alone = ranks([of(0, 100)]).row(0, named=True)
    assert (alone["slower_percent"], alone["differs_most"]) == (None, None)
    # two windows of one rank are one row, with the median of all their steps
    both = ranks([of(0, 100, 100), of(0, 160)]).row(0, named=True)
    assert (both["windows"], both["steps"], both["duration_ns"]) == (2, 3, 100_000)


def test_nothing_recorded() -> None:
    for traces in ([], [build()]):
        for found in (communication_operations(traces), communication(traces), waits(traces), pairs(traces), ranks(traces)):
            assert found.is_empty()
            assert found.width > 3
    with pytest.raises(ValueError, match="must be one of"):
        communication([], "colour")


TRAIN = """
import json, os, sys, time, torch, torch.distributed as dist, steplens

def without_processor():
    # for how long threads of this process were ready to run so far and did not, ns
    total = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            total += int(open(f"/proc/self/task/{thread}/schedstat").read().split()[1])
        except (OSError, IndexError):  # it ended meanwhile, or this system does not count
            pass
    return total

slow, out = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo")
torch.set_num_threads(1)
network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
model = torch.nn.parallel.DistributedDataParallel(network)
small, large = torch.ones(1000), torch.ones(2, 50_000, dtype=torch.float64)
called, delayed = [], [0]
with steplens.profile(
    record_shapes=True,
    schedule=steplens.schedule(wait=1, warmup=1, active=16, repeat=1),
    on_trace_ready=steplens.tensorboard_trace_handler(out, analyse_flag=False),
) as prof:
    for _ in range(19):
        model(torch.ones(8, 64)).sum().backward()
        dist.all_reduce(small)
        if dist.get_rank() == slow:
            time.sleep(0.02)
        called.append(time.time_ns())
        dist.all_reduce(large)
        dist.barrier()
        prof.step()
        delayed.append(without_processor())
with open(f"called{dist.get_rank()}.json", "w") as file:
    json.dump([called, [after - before for before, after in zip(delayed, delayed[1:])]], file)
dist.destroy_process_group()
# torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
os._exit(0)
"""


# jobs of more ranks than a small machine has processors are long
@pytest.mark.slow
@pytest.mark.parametrize(("ranks_", "slow"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.long)])
def test_a_delay_of_20_ms_in_a_real_job(tmp_path: Path, ranks_: int, slow: int) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = run_warm_ranks(ranks_, script, str(slow), "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    run = steplens.open(tmp_path / "out")
    large = run.communication_operations().filter((pl.col("operation") == "allreduce") & (pl.col("bytes") == 800_000))
    # when every rank called it by its own clock: on a busy machine one that does not sleep may be late as well
    recorded = [json.loads((tmp_path / f"called{rank}.json").read_text()) for rank in range(ranks_)]
    own = [called for called, _ in recorded]
    # for how long ranks were kept from a processor in a step: so much may lie between their clocks and their calls
    delayed = [sum(step) for step in zip(*(delays for _, delays in recorded), strict=True)]
    told = large.select("step", "rank", "wait_ns", "last_rank").rows()
    assert len(told) == STEPS * ranks_
    latest = {step: max(own[rank][step] for rank in range(ranks_)) for step, *_ in told}
    waits = [latest[step] - own[rank][step] for step, rank, *_ in told]
    for which in (True, False):
        apart = [abs(row[2] - wait) - delayed[row[0]] for row, wait in zip(told, waits, strict=True) if (row[1] == slow) == which]
        # some us lie between the clock and the call
        assert statistics.quantiles(apart, n=4)[0] < MS
    # who comes within 1 ms of the last may be it; one that is taken for it by chance is it in every second step at most
    right = [own[last][step] > latest[step] - MS - delayed[step] for step, rank, _, last in told if rank != slow]
    assert sum(right) > 0.8 * len(right)
    # bytes are those of the tensors, and each operation is there for every rank; 17680 are the gradients of the model
    sizes = run.communication_operations().filter(pl.col("operation") == "allreduce").group_by("bytes").len()
    assert sorted(sizes.rows()) == [(size, STEPS * ranks_) for size in (4000, 17_680, 800_000)]
    assert (large["wait_ns"] + large["transfer_ns"] == large["duration_ns"]).all()
    assert (large["overlapped_ns"] + large["exposed_ns"] == large["duration_ns"]).all()
    moved = large.filter(pl.col("transfer_ns") > 0)
    assert moved["bytes_per_second"].to_list() == pytest.approx((moved["bytes"] * 1e9 / moved["transfer_ns"]).to_list())
    # the matrix is the sum of all collectives, and each rank waited for the slow one as long as its own clock says, or longer
    matrix = {(row["rank"], row["last_rank"]): row["wait_ns"] for row in run.waits().iter_rows(named=True)}
    summed: Counter[tuple[int, int]] = Counter()
    for row in run.communication_operations().iter_rows(named=True):
        if row["rank"] != row["last_rank"]:
            summed[row["rank"], row["last_rank"]] += row["wait_ns"]
    assert matrix == summed
    for rank in set(range(ranks_)) - {slow}:
        waited = [
            wait - delayed[step]
            for (step, who, *_), wait in zip(told, waits, strict=True)
            if who == rank and own[slow][step] == latest[step]
        ]
        assert matrix[rank, slow] > 0.8 * sum(waited)
    table = run.ranks()
    assert table["rank"].to_list() == list(range(ranks_))
    # the steps are chosen for the job: one that a single rank would leave out as its warm-up is left out of all
    chosen = run.steps().filter("chosen")
    for rank in range(ranks_):
        own = table.filter(pl.col("rank") == rank).row(0, named=True)
        times = chosen.filter(pl.col("rank") == rank)
        assert own["steps"] == times.height
        for part in PARTS:
            assert own[part] == pytest.approx(times[part].median())
    # one rank alone
    single = steplens.open(next((tmp_path / "out").glob("*_ascend_pt")))
    assert single.communication_operations()["wait_ns"].null_count() == single.communication_operations().height > 0
    assert single.waits().is_empty()
