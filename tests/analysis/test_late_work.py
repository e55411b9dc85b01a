"""Why a rank is late: on jobs built by hand in which the answer is known, and in a real job whose data is late on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.advice import advise
from steplens.analysis.cluster.arrivals import waits_of_rank
from steplens.analysis.cluster.late_work import late_calls, late_parts
from steplens.analysis.verdict_words import RANK
from steplens.trace.schema import SCOPE_USER
from steplens.trace.trace import Trace

from ..warm_python import run_warm_ranks
from ..writers.builder import BASE_NS, MAIN, PID, build, frame, kernel, op

MS = 1_000_000
STEPS = range(1, 11)
STEP_MS = 50.0
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

#: what ranks usually take for each part of a step in front of the first message, and behind it, ms
USUAL = {"python": 0.0, "data": 4.0, "mm": 2.0, "relu": 1.0, "backward": 3.0, "step": 1.0}


def cpu_rank(rank: int, ranks: int, mine: Mapping[str, float], slowest: float, clock_ns: int = 0) -> Trace:
    """A rank that loads data, multiplies, sends buffers around within its forward pass, goes on, sums gradients, and steps.

    Args:
        rank: which.
        ranks: of how many.
        mine: what it takes for each part, ms.
        slowest: when the last rank comes to the buffers, ms from the beginning of a step.
        clock_ns: how far its clock is ahead.
    """
    ops: list[dict[str, Any]] = []
    python: list[dict[str, Any]] = []
    communication: list[dict[str, Any]] = []
    steps = []

    def call(name: str, begin_ms: float, end_ms: float, **values: Any) -> int:
        ops.append(op(name, 1000 * begin_ms, 1000 * end_ms, **values))
        return len(ops) - 1

    def message(name: str, begin_ms: float, end_ms: float, step: int) -> None:
        times = {"start_ns": BASE_NS + round(begin_ms * MS), "end_ns": BASE_NS + round(end_ms * MS)}
        named = {"name": f"gloo:{name}", "operation": name, "kind": "collective", "group": "0", "ranks": ranks}
        communication.append({**named, **times, "step": step})

    for step in STEPS:
        base = step * STEP_MS
        steps.append({"id": step, "start_ns": BASE_NS + round(base * MS), "end_ns": BASE_NS + round((base + STEP_MS) * MS),
                      "pid": PID, "tid": MAIN})  # fmt: skip
        begun = base + mine["python"]
        loaded = begun + mine["data"]
        call(LOADER, begun, loaded, scope=SCOPE_USER, step=step)
        python.append(frame("photos.py(7): __getitem__", 1000 * begun, 1000 * loaded, parent=None))
        arrived = loaded + mine["mm"]
        met = base + slowest + 0.5
        begin = call("DistributedDataParallel.forward", loaded, met + mine["relu"], scope=SCOPE_USER)
        call("aten::mm", loaded, arrived, parent=begin, depth=1, step=step, sequence=1)
        # the function that sends around is open while it waits
        around = call("SendAround", arrived, met, parent=begin, depth=1, step=step)
        call("c10d::broadcast_", arrived, arrived + 0.01, parent=around, depth=2, step=step)
        message("broadcast", arrived, met, step)
        call("aten::relu", met, met + mine["relu"], parent=begin, depth=1, step=step, sequence=2)
        forward = met + mine["relu"]
        backward = forward + mine["backward"]
        call("ReluBackward0", forward, backward, scope=1, sequence=2, forward_tid=MAIN, step=step)
        summed = base + slowest + 0.5 + USUAL["relu"] + USUAL["backward"] + 1
        message("allreduce", backward, summed, step)
        call("torch.distributed.ddp.reducer::copy_bucket_to_grad", summed, summed + 0.1, step=step)
        call("Optimizer.step#SGD.step", summed + 0.2, summed + 0.2 + mine["step"], scope=SCOPE_USER, step=step)
    for rows in (ops, python, communication, steps):
        for row in rows:
            row["start_ns"] += clock_ns
            row["end_ns"] += clock_ns
    tables = {"ops": ops, "python": python, "communication": communication, "steps": steps}
    return build(meta={"rank": rank, "world_size": ranks}, kernels=[kernel("aten::mm", 0, 1, step=1)], **tables)


def cpu_job(ranks: int, late: int, clock_ns: int = 0, **more_ms: float) -> list[Trace]:
    """A job in which one rank takes longer for some parts; with ``clock_ns`` its clock is ahead as well."""
    slow = {**USUAL, **{part: USUAL[part] + ms for part, ms in more_ms.items()}}
    slowest = slow["python"] + slow["data"] + slow["mm"]
    return [
        cpu_rank(rank, ranks, slow if rank == late else USUAL, slowest, clock_ns if rank == late else 0) for rank in range(ranks)
    ]


def parts(traces: list[Trace], rank: int) -> dict[str, tuple[float, float]]:
    """Part -> what the rank and the others have of it, ms; of what differs by more than 10 us."""
    rows = late_parts(traces, rank).filter(pl.col("more_ns") > 10_000)
    return {part: (round(own_ns / MS, 3), round(other_ns / MS, 3)) for part, own_ns, other_ns, _ in rows.iter_rows()}


@pytest.mark.parametrize("clock_ns", [0, 3600 * 1000 * MS])
@pytest.mark.parametrize("ranks", [2, 4])
def test_data_that_is_late_on_one_rank_while_the_others_wait_in_forward(ranks: int, clock_ns: int) -> None:
    traces = cpu_job(ranks, 1, clock_ns, data=30)
    assert parts(traces, 1) == {"data_wait_ns": (34, 4)}
    # they wait until it comes, on their own clocks
    assert waits_of_rank(traces, 0).length_ns == pytest.approx(len(STEPS) * 30 * MS, rel=0.01)
    assert waits_of_rank(traces, 1).length_ns == 0
    functions = late_calls(traces, 1, "data_wait_ns")
    assert functions.select("kind", "name").rows() == [("function", "photos.py(7): __getitem__")]
    assert functions["more_ns"][0] == 30 * MS
    # nothing takes the others longer but their waits
    assert parts(traces, 0) == {}


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_is_slow_in_the_phase_in_which_the_others_wait(ranks: int) -> None:
    """Both are in their forward passes equally long: one multiplies, the others wait for it within an open operator."""
    traces = cpu_job(ranks, 0, mm=20)
    assert parts(traces, 0) == {"forward_ns": (23.5, 3.5)}
    (name,) = late_calls(traces, 0, "forward_ns").filter(pl.col("more_ns") > MS)["name"]
    assert name == "aten::mm"


def test_the_larger_of_several_reasons_comes_first() -> None:
    assert list(parts(cpu_job(2, 1, mm=8, data=12), 1).items()) == [("data_wait_ns", (16, 4)), ("forward_ns", (11.5, 3.5))]


def test_one_rank_alone_and_a_rank_that_is_not_there() -> None:
    traces = cpu_job(2, 1, data=30)
    assert late_parts(traces[:1], 0).is_empty() and late_parts(traces, 7).is_empty()
    assert late_calls(traces[:1], 0, "data_wait_ns").is_empty()


def device_rank(rank: int, computes_ms: float, begins_ms: float, met_ms: float) -> Trace:
    """A rank whose device idles while the loader is waited for, computes, and sums gradients."""
    tasks, communication, steps, ops = [], [], [], []
    for step in STEPS:
        base = step * STEP_MS
        times = {"start": 0, "begin": begins_ms, "arrive": begins_ms + computes_ms, "met": met_ms, "end": STEP_MS}
        at = {name: BASE_NS + round((base + ms) * MS) for name, ms in times.items()}
        steps.append({"id": step, "start_ns": at["start"], "end_ns": at["end"], "pid": PID, "tid": MAIN})
        device = {"core": "CUDA", "device": 0, "step": step}
        tasks.append({"name": "gemm", "type": "gemm", "kind": "compute", "stream": 1, "op": 2 * step - 1,
                      "launch_ns": at["begin"] - 1000, "start_ns": at["begin"], "end_ns": at["arrive"], **device})  # fmt: skip
        named = {"name": "ncclAllReduce", "operation": "allreduce", "kind": "collective", "group": "0", "ranks": 2}
        communication.append({**named, "start_ns": at["arrive"], "end_ns": at["met"], "step": step})
        ops.append(op(LOADER, 1000 * base, 1000 * (base + begins_ms) - 10, scope=SCOPE_USER, step=step))
        took = {"device_self_ns": at["arrive"] - at["begin"], "device_total_ns": at["arrive"] - at["begin"], "step": step}
        ops.append(op("aten::mm", 1000 * (base + begins_ms) - 8, 1000 * (base + begins_ms), **{**took, "depth": 0}))
    return build(meta={"rank": rank, "world_size": 2}, kernels=tasks, communication=communication, steps=steps, ops=ops)


def test_what_an_accelerator_does_longer() -> None:
    computing = [device_rank(0, 10, 2, 41), device_rank(1, 38, 2, 41)]
    assert parts(computing, 1) == {"computing_ns": (38, 10)}
    (row,) = late_calls(computing, 1, "computing_ns").iter_rows(named=True)
    assert (row["name"], row["more_ns"]) == ("aten::mm", 28 * MS)
    loading = [device_rank(0, 10, 2, 41), device_rank(1, 10, 30, 41)]
    (more,) = parts(loading, 1).items()
    assert more[0] == "data_wait_ns" and more[1][0] - more[1][1] == pytest.approx(28, rel=0.01)


LATE_DATA = """
import os, sys, time
import torch, torch.distributed as dist
import steplens

dist.init_process_group("gloo")
torch.manual_seed(0)
late = dist.get_rank() == 1

class Photos(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        time.sleep(0.02 if late else 0.001)
        return torch.randn(3, 16, 16)

net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 4))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with steplens.profile(
    schedule=steplens.schedule(wait=1, warmup=1, active=12, repeat=1),
    on_trace_ready=steplens.tensorboard_trace_handler("out", analyse_flag=False),
) as prof:
    for batch in torch.utils.data.DataLoader(Photos(), batch_size=4):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        prof.step()
dist.barrier()
dist.destroy_process_group()
# torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
os._exit(0)
"""


@pytest.mark.slow
def test_a_real_job_whose_data_is_late_on_one_rank(tmp_path: Path) -> None:
    """Rank 1 sleeps 80 ms for a batch, rank 0 4 ms, which then waits where the buffers of its forward pass are sent around."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(LATE_DATA)
    done = run_warm_ranks(2, tmp_path / "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    run = steplens.open(tmp_path / "out")
    part, own_ns, other_ns, more_ns = late_parts(run.traces, 1).row(0)
    assert part == "data_wait_ns" and own_ns > 80 * MS and more_ns == pytest.approx(own_ns - other_ns)
    assert more_ns > 0.8 * 76 * MS
    advice = advise(run)
    assert advice.silenced == () and run.verdict().kind == RANK, (advice.silenced, run.verdict().sentence(), run.health().rows())
    # where a slow fetch explains what rank 0 loads, rank 1 alone has the finding of its loader, which may then save more
    late, loading = sorted(advice.findings[:2], key=lambda finding: finding.rule != "slow_rank")
    assert (late.id, late.values["case"], late.lies_in) == ("slow_rank:rank1", "late_data", ("data_wait_ns",))
    assert [item.places for item in late.evidence if item.what == "slower_fetch"] == [("rank 1", "DataLoader(Photos)")]
    assert loading.rule == "loader_without_workers" and loading.id in late.overlaps
    assert [item.places for item in late.evidence if item.what == "same_cause"] == [(loading.id,)]
    assert [item.places for item in loading.evidence if item.what == "makes_rank_late"] == [(late.id,)]
