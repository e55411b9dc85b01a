"""The verdict: every kind of it on built traces whose shares are known, how sure it is, and its words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.advice.texts import CATALOGUES, LANGUAGES
from steplens.advice.words import Words
from steplens.analysis import verdict as verdicts
from steplens.analysis.device.idle import CALLS, HOST_CAUSES, NOT_RECORDED, PYTHON
from steplens.analysis.device.idle_activity import longest_name
from steplens.analysis.verdict import verdict
from steplens.analysis.verdict_words import (
    CLOSE,
    COMMUNICATION,
    COMPUTE,
    COPY,
    ENGLISH,
    FEW,
    GUESS,
    HOST,
    IDLE,
    INPUT,
    KINDS,
    LIKELY,
    NOTHING,
    PIPELINE,
    RANK,
    RANKS,
    SLOW_HOST,
    SLOW_LINK,
    SLOW_STAGE,
    SPREAD,
    SURE,
    SYNCHRONIZING,
    UNKNOWN,
    Verdict,
    collective_name,
)
from steplens.readers.kineto import kineto
from steplens.trace.building.classify import CATEGORIES
from steplens.trace.health import STEP_TIMES, WARNING, finding, frame_of
from steplens.trace.trace import Trace

from ..writers.builder import build

BASE_NS = 1_711_964_646_000_000_000
STEP_US = 10_000.0
GEMM, REDUCE, COPIED = (
    "ampere_sgemm_128x64_nn",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
    "Memcpy HtoD (Pinned -> Device)",
)
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

#: what a step has: name, start and length in us of the step
Part = tuple[str, float, float]


def event(category: str, name: str, start: float, length: float, tid: int = 11, pid: int = 11, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": 1e6 + start, "dur": length, "args": args}


def read(folder: Path, events: Sequence[dict[str, Any]], rank: int | None = None) -> Trace:
    header: dict[str, Any] = {"baseTimeNanoseconds": BASE_NS}
    if rank is not None:
        header["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    path = folder / f"trace{rank or 0}.json"
    path.write_text(json.dumps({**header, "traceEvents": list(events)}))
    return kineto.read(path)


def gpu(
    folder: Path, tasks: Sequence[Part], host: Sequence[Part] = (), *, steps: int = 6, rank: int | None = None, late: float = 0.0
) -> Trace:
    """Steps of 10 ms on a GPU; each task is launched 10 us before it starts, so that the gap in front of it is the host's.

    Args:
        folder: where the file goes.
        tasks: what the device does in a step; the first one 100 us behind its beginning.
        host: what else the training thread does: runtime calls (``cuda...``) and ranges.
        steps: how many.
        rank: of two.
        late: us by which collectives begin later than said, and are as much shorter.
    """
    events = []
    for step in range(steps):
        begin = step * STEP_US
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, STEP_US))
        for name, start, length in host:
            category = "cuda_runtime" if name.startswith("cuda") else "user_annotation"
            more = {"correlation": 500_000 + len(events)} if category == "cuda_runtime" else {}
            events.append(event(category, name, begin + start, length, **more))
        for name, start, length in tasks:
            correlation = len(events) + 1
            kind = "gpu_memcpy" if name == COPIED else "kernel"
            stream = {GEMM: 7, REDUCE: 20, COPIED: 24}[name]
            shift = late if name == REDUCE else 0.0
            events.append(event("cpu_op", "aten::mm", begin + start - 12, 8, **{"External id": correlation}))
            events.append(event("cuda_runtime", "cudaLaunchKernel", begin + start - 10, 4, correlation=correlation))
            place = {"correlation": correlation, "device": 0, "stream": stream}
            events.append(event(kind, name, begin + start + shift, length - shift, stream, 0, **place))
    return read(folder, events, rank)


def cpu(folder: Path, parts: Sequence[Part], *, steps: int = 6) -> Trace:
    """Steps of 10 ms on a CPU; a collective runs on a thread of its own."""
    events = []
    for step in range(steps):
        begin = step * STEP_US
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, STEP_US))
        for name, start, length in parts:
            category = "cpu_op" if name.startswith("aten::") else "user_annotation"
            tid = 12 if name.startswith("gloo:") else 11
            events.append(
                event(category, name, begin + start, length, tid, **({"External id": len(events)} if tid == 11 else {}))
            )
    return read(folder, events)


def told(found: Verdict) -> tuple[str, float, str]:
    return found.kind, round(found.share, 2), found.confidence


#: kind -> tasks and calls of a step, its share, and its sentence
ON_GPU: dict[str, tuple[list[Part], list[Part], float, str]] = {
    COMPUTE: (
        [(GEMM, 100, 9500)],
        [],
        0.95,
        "Compute bound: the GPU computes 95 % of the step; 100 % of the computing is matmul (9.5 ms a step).",
    ),
    COMMUNICATION: (
        [(GEMM, 100, 3000), (REDUCE, 2100, 7000)],
        [],
        0.6,
        "Communication bound: 60 % of the step is exposed all-reduce.",
    ),
    COPY: (
        [(GEMM, 100, 4000), (COPIED, 4100, 5000)],
        [],
        0.5,
        "Copy bound: 50 % of the step the GPU copies and does nothing else.",
    ),
    INPUT: (
        [(GEMM, 100, 4000), (GEMM, 9100, 1000)],
        [(LOADER, 4100, 4900)],
        0.49,
        "Input bound: the GPU idles 49 % of the step while the loop loads its data itself, without loader workers.",
    ),
    SYNCHRONIZING: (
        [(GEMM, 100, 4000), (GEMM, 8100, 2000)],
        [("cudaStreamSynchronize", 1000, 7080)],
        0.4,
        "Host bound: the GPU idles 40 % of the step because the host waits for it before it launches more.",
    ),
    HOST: (
        [(GEMM, 100, 4000), (GEMM, 8100, 2000)],
        [],
        0.4,
        "Host bound: the GPU idles 40 % of the step waiting for the host, mostly while Python runs between its launches",
    ),
    NOTHING: (
        [(GEMM, 100, 5000), (REDUCE, 5100, 1200), (COPIED, 6300, 1300), (GEMM, 9000, 700)],
        [(LOADER, 7600, 1380)],
        0.14,
        "Nothing stands out: no cause takes 15 % of the step.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ON_GPU)
def test_what_holds_a_gpu_up(kind: str, tmp_path: Path) -> None:
    tasks, host, share, sentence = ON_GPU[kind]
    found = verdict([gpu(tmp_path, tasks, host)])
    assert found.kind == kind and found.of_device and found.device == "GPU"
    # the last step's period ends with its last work, which moves shares a little
    assert found.share == pytest.approx(share, abs=0.025)
    expected = sentence.replace(f"{share:.0%}".replace("%", " %"), f"{found.share:.0%}".replace("%", " %"))
    assert found.sentence().startswith(expected)
    computing = sum(length for name, _, length in tasks if name == GEMM) / STEP_US
    assert found.busy == pytest.approx(computing, abs=0.03)
    assert found.table in ("kernels", "communication", "pipeline", "idle", "steps")


ON_CPU: dict[str, tuple[list[Part], float, str]] = {
    COMPUTE: (
        [("aten::mm", 100, 9200)],
        0.92,
        "Compute bound: the CPU computes 92 % of the step; 100 % of the computing is matmul (9.2 ms a step).",
    ),
    INPUT: (
        [(LOADER, 0, 5000), ("aten::mm", 5000, 4900)],
        0.5,
        "Input bound: 50 % of the step the loop loads its data itself, without loader workers.",
    ),
    HOST: (
        [("aten::mm", 100, 5000)],
        0.5,
        "Host bound: Python runs and no operator does for 50 % of the step; "
        "100 % of that time passes after aten::mm, until the next operator.",
    ),
    COMMUNICATION: (
        [("aten::mm", 100, 4000), ("gloo:all_reduce", 4000, 5500)],
        0.54,
        "Communication bound: 54 % of the step is exposed all-reduce.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ON_CPU)
def test_what_holds_a_cpu_up(kind: str, tmp_path: Path) -> None:
    parts, share, sentence = ON_CPU[kind]
    found = verdict([cpu(tmp_path, parts)])
    assert (found.kind, found.of_device, found.device) == (kind, False, "CPU")
    assert found.share == pytest.approx(share, abs=0.02)
    assert found.sentence().startswith(sentence.replace(f"{100 * share:.0f} %", f"{100 * found.share:.0f} %"))


def test_the_time_of_what_leads_the_computing_is_said_where_no_tasks_overlap(tmp_path: Path) -> None:
    found = verdict([gpu(tmp_path, [(GEMM, 100, 9500), (GEMM, 200, 9000)])])
    assert (found.kind, found.leading_ns) == (COMPUTE, 0.0)
    assert "; 100 % of the computing is matmul." in found.sentence()


def test_who_loads_is_said(tmp_path: Path) -> None:
    """Without workers the loop loads: its operators are computing. With workers it waits."""
    inside = [(LOADER, 0, 5000), ("aten::avg_pool2d", 100, 4000), ("aten::mm", 5000, 4900)]
    judged = verdict([cpu(tmp_path, inside)])
    assert (judged.kind, judged.loads_itself, judged.operators_share) == (INPUT, True, pytest.approx(0.8))
    assert judged.sentence().startswith(
        "Input bound: 50 % of the step the loop loads its data itself, without loader workers; "
        "operators run in 80 % of that, which the CPU's bar shows as computing."
    )
    loader = LOADER.replace("SingleProcess", "MultiProcessing")
    judged = verdict([cpu(tmp_path, [(loader, 0, 5000), ("aten::mm", 5000, 4900)])])
    assert not judged.loads_itself
    assert judged.sentence().startswith("Input bound: 50 % of the step the loop waits for the data loader.")


def test_waiting_for_a_collective_is_not_the_hosts_doing(tmp_path: Path) -> None:
    """A rank that only communicates has no operators: Python runs all of the step, and what takes it is the collective."""
    found = verdict([cpu(tmp_path, [("aten::mm", 0, 100), ("gloo:all_reduce", 500, 8500)])])
    assert (found.kind, round(found.share, 2)) == (COMMUNICATION, 0.85)
    assert "exposed all-reduce" in found.sentence()


def ranks(folder: Path, late: float) -> list[Trace]:
    """Two ranks whose all-reduce ends at once; rank 1 comes to it later."""
    tasks = [(GEMM, 100.0, 4000.0), (REDUCE, 4100.0, 5000.0)]
    traces = [gpu(folder, tasks, rank=0), gpu(folder, [(GEMM, 100.0, 4000.0 + late), *tasks[1:]], rank=1, late=late)]
    for trace in traces:
        trace.companions = tuple(traces)
    return traces


def test_a_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    found = verdict(ranks(tmp_path, 4000))
    assert (found.kind, found.rank, found.table) == (RANK, 1, "waits")
    assert found.share == pytest.approx(0.4, abs=0.01)
    assert found.sentence().startswith("Waiting for rank 1: it holds the others up by 40 % of a step.")
    # less than a tenth of a step is no reason
    assert verdict(ranks(tmp_path, 500)).kind == COMMUNICATION


def test_nothing_of_the_work_was_recorded(tmp_path: Path) -> None:
    marks = [event("user_annotation", f"ProfilerStep#{step}", step * STEP_US, STEP_US) for step in range(5)]
    only_marks = build(steps=[{"id": step, "start_ns": step * 1000, "end_ns": (step + 1) * 1000} for step in range(5)])
    nothing_else = "neither operators nor device work of steps were recorded."
    for traces, why in (([], "the run has no steps."), ([build()], "the run has no steps."), ([only_marks], nothing_else)):
        found = verdict(traces)
        assert (found.kind, found.share, found.busy, found.rank) == (UNKNOWN, 0.0, None, None)
        assert found.sentence() == f"No verdict: {why}"
    assert verdict([read(tmp_path, marks)]).busy in (None, 0.0)


def test_few_steps_are_said(tmp_path: Path) -> None:
    tasks = ON_GPU[COMPUTE][0]
    found = verdict([gpu(tmp_path, tasks, steps=2)])
    assert found.confidence == LIKELY and found.sentence().endswith(" Less certain: only 2 complete steps were recorded.")
    assert verdict([gpu(tmp_path, tasks, steps=1)]).sentence().endswith(" Less certain: only one complete step was recorded.")
    assert verdict([gpu(tmp_path, tasks, steps=3)]).confidence == SURE


def test_a_cause_that_is_nearly_as_large_is_said(tmp_path: Path) -> None:
    near = verdict([gpu(tmp_path, [(GEMM, 100, 3400), (REDUCE, 3500, 3400), (COPIED, 6900, 3100)])])
    assert (near.kind, near.confidence) == (COMMUNICATION, LIKELY)
    assert near.doubts == (CLOSE,) and [cause.kind for cause in near.close] == [COPY]
    assert near.sentence().endswith(" Less certain: copying (31 %) takes nearly as much.")
    far = verdict([gpu(tmp_path, [(GEMM, 100, 4400), (REDUCE, 4500, 3400), (COPIED, 7900, 2000)])])
    assert (far.kind, far.confidence) == (COMMUNICATION, SURE) and "Less certain" not in far.sentence()


def test_every_cause_that_is_nearly_as_large_is_said(tmp_path: Path) -> None:
    """In steps of 10 ms 3.1 of communication, 3 of copying, and 2.9 in which a launched task waits on the device."""
    tasks = [(GEMM, 100, 900), (REDUCE, 1000, 3100), (COPIED, 4100, 3000)]
    trace = gpu(tmp_path, tasks)
    events = json.loads((tmp_path / "trace0.json").read_text())["traceEvents"]
    for step in range(6):
        begin, correlation = step * STEP_US, 700_000 + step
        events.append(event("cuda_runtime", "cudaLaunchKernel", begin + 300, 4, correlation=correlation))
        events.append(event("kernel", GEMM, begin + 9900, 190, 7, 0, correlation=correlation, device=0, stream=7))
    assert trace.has_accelerator
    found = verdict([read(tmp_path, events)])
    assert (found.kind, [cause.kind for cause in found.close]) == (COMMUNICATION, [COPY, IDLE])
    assert found.close[1].cause == "dependency"
    shares = [100 * cause.share for cause in found.close]
    assert shares == pytest.approx([30, 28], abs=0.5)
    assert found.sentence().endswith(
        f" Less certain: copying ({shares[0]:.0f} %) and dependency, launched tasks waiting on the device "
        f"({shares[1]:.0f} %) take nearly as much each."
    )
    assert (
        Words("zh")
        .verdict(found)
        .endswith(f"拷贝（{shares[0]:.0f} %）和依赖等待，即已启动的任务在设备上等待（{shares[1]:.0f} %）各自的占比相近。")
    )


def test_doubtful_data_makes_it_a_guess(tmp_path: Path) -> None:
    trace = gpu(tmp_path, ON_GPU[COMPUTE][0])
    doubt = frame_of([finding("lost_calls", WARNING, 3, "calls were lost", STEP_TIMES)])
    doubtful = Trace(
        trace.source, {**{name: frame for name in trace if (frame := trace.table(name)) is not None}, "health": doubt}
    )
    found = verdict([doubtful])
    assert told(found) == (COMPUTE, round(verdict([trace]).share, 2), GUESS)
    assert found.sentence().endswith(" A guess: the data is doubtful, see its health.")


@pytest.mark.parametrize(("stalls", "kind"), [(1, COMPUTE), (4, INPUT)])
def test_one_stall_is_not_what_a_step_usually_is(stalls: int, kind: str, tmp_path: Path) -> None:
    """Ten steps of 10 ms, of which some wait 90 ms for data: one is an accident, four of ten are how the training runs."""
    events, begin = [], 0.0
    for step in range(10):
        wait = 90_000 if step % 2 and step < 2 * stalls else 100
        events += [
            event("user_annotation", f"ProfilerStep#{step}", begin, wait + 9900),
            event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, wait),
            event("cpu_op", "aten::mm", begin + wait, 9800, **{"External id": 10 + step}),
        ]
        begin += wait + 9900
    trace = read(tmp_path, events)
    found = verdicts.verdict([trace])
    assert found.kind == kind
    assert sum(found.summary.host.values()) == pytest.approx(found.summary.host_mean_ns)
    if stalls == 1:
        assert found.summary.host["data_wait_ns"] == pytest.approx(100_000)


def queued(folder: Path, gaps: Sequence[tuple[float, int]], host: Sequence[Part] = ()) -> Trace:
    """Six steps of 10 ms whose kernels are all launched at the beginning of the step, with these gaps and streams behind them.

    Args:
        folder: where the file goes.
        gaps: us to the next kernel, and the stream of that one.
        host: more operators of the training thread.
    """
    events = []
    length = (9800 - sum(gap for gap, _ in gaps)) / (len(gaps) + 1)
    for step in range(6):
        begin, time = step * STEP_US, 200.0
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, STEP_US))
        for number, (gap, stream) in enumerate([(0.0, 7), *gaps]):
            correlation = len(events) + 1
            time += gap
            events.append(event("cpu_op", "aten::mm", begin + 0.2 * number, 0.1, **{"External id": correlation}))
            events.append(event("cuda_runtime", "cudaLaunchKernel", begin + 0.2 * number, 0.1, correlation=correlation))
            place = {"correlation": correlation, "device": 0, "stream": stream}
            events.append(event("kernel", GEMM, begin + time, length - 0.2, stream, 0, **place))
            time += length
        for name, start, taken in host:
            events.append(event("cpu_op", name, begin + start, taken, **{"External id": 900_000 + len(events)}))
    return read(folder, events)


def test_waiting_on_the_device_is_not_the_hosts_doing(tmp_path: Path) -> None:
    """The device idles 40 % of a step although its kernels were launched, while the host is in the optimizer all the time."""
    found = verdict([queued(tmp_path, [(2000, 9), (2000, 7)], [("Optimizer.step#SGD.step", 300, 9000)])])
    assert (found.kind, found.cause, found.table) == (IDLE, "dependency", "idle")
    assert found.share == pytest.approx(0.4, abs=0.03)
    assert "although its next task was launched in time; mostly it waits for another stream" in found.sentence()
    plain = verdict([queued(tmp_path, [(25, 7)] * 120)])
    assert (plain.kind, plain.cause) == (IDLE, "between kernels")
    assert "mostly between two kernels of one stream" in plain.sentence()


def late(folder: Path, parts: Sequence[Part]) -> Trace:
    """Six steps of 10 ms: a kernel of 4 ms, then the host does ``parts`` until it launches the next one at 8 ms."""
    return gpu(folder, [(GEMM, 100, 4000), (GEMM, 8100, 1900)], parts)


def test_the_phase_in_which_the_host_is_late_is_named(tmp_path: Path) -> None:
    """The kernel ends at 4.1 ms, and the next is launched at 8.09: 3.5 of these 4 ms are the optimizer's."""
    found = verdict([late(tmp_path, [("Optimizer.step#SGD.step", 4300, 3500)])])
    assert (found.kind, found.cause, found.phase) == (HOST, PYTHON, "optimizer_ns")
    assert found.phase_share == pytest.approx(3500 / 3990, abs=0.03)
    assert found.sentence().startswith(
        f"Host bound: the GPU idles {100 * found.share:.0f} % of the step waiting for the host, "
        "mostly while Python runs between its launches; "
        f"{100 * found.phase_share:.0f} % of that is in the optimizer; "
    )


def test_the_operator_in_which_the_host_is_late_is_named(tmp_path: Path) -> None:
    trace = gpu(tmp_path, [(GEMM, 100, 4000), (GEMM, 8100, 1900)])
    begins = [step * STEP_US + 4200 for step in range(6)]
    calls = [event("cpu_op", "aten::_foreach_mul_", begin, 3000, **{"External id": int(begin) + 9}) for begin in begins]
    path = tmp_path / "trace0.json"
    events = json.loads(path.read_text())["traceEvents"]
    found = verdict([read(tmp_path, [*events, *calls])])
    assert trace.has_accelerator
    assert (found.kind, found.cause, found.name) == (HOST, CALLS, "aten::_foreach_mul_")
    assert found.name_share == pytest.approx(3000 / 3990, abs=0.03)
    assert f"; {100 * found.name_share:.0f} % of that in aten::_foreach_mul_." in found.sentence()


def test_where_python_runs_that_was_not_recorded_the_operator_before_it_is_named(tmp_path: Path) -> None:
    """Of the 4 ms without a launch 1 ms passes behind an operator of autograd's thread, and 2.7 ms behind the next one."""
    gpu(tmp_path, [(GEMM, 100, 4000), (GEMM, 8100, 1900)])
    nodes = []
    for step in range(6):
        for name, begin, length in (("MulBackward0", 4200, 100), ("TanhBackward0", 5300, 90)):
            for layer in ("autograd::engine::evaluate_function: ", ""):
                ids = {"External id": 9000 + len(nodes), "Fwd thread id": 1, "Sequence number": 7}
                nodes.append(event("cpu_op", layer + name, step * STEP_US + begin, length, 23, **ids))
    path = tmp_path / "trace0.json"
    found = verdict([read(tmp_path, [*json.loads(path.read_text())["traceEvents"], *nodes])])
    assert (found.kind, found.cause, found.is_behind, found.name) == (HOST, PYTHON, True, "TanhBackward0")
    assert found.name_share == pytest.approx(2700 / 3990, abs=0.03)
    percent = f"{100 * found.name_share:.0f} %"
    assert found.sentence().endswith(f"; {percent} of that time passes after TanhBackward0, until the next operator.")
    assert Words("zh").verdict(found).endswith(f"；这段时间的 {percent} 在 TanhBackward0 之后、下一个算子之前。")


def test_a_function_of_python_is_named_where_calls_were_recorded(tmp_path: Path) -> None:
    gpu(tmp_path, [(GEMM, 100, 4000), (GEMM, 8100, 1900)])
    frames = []
    for step in range(6):
        begin = step * STEP_US
        for number, (name, start, taken) in enumerate([("train.py(3): main", 0, 10_000), ("train.py(9): augment", 4200, 3000)]):
            ids = {"Python id": 2 * step + number + 1, "Python parent id": 2 * step + 1 if number else None}
            frames.append(event("python_function", name, begin + start, taken, **ids))
    path = tmp_path / "trace0.json"
    events = json.loads(path.read_text())["traceEvents"]
    found = verdict([read(tmp_path, [*events, *frames])])
    assert (found.kind, found.name) == (HOST, "train.py(9): augment")
    assert found.name_share == pytest.approx(3000 / 3990, abs=0.03)


def test_what_was_not_recorded_of_the_host_is_said(tmp_path: Path) -> None:
    """Operators on another thread than the steps, and of MindSpore: nobody knows what the training thread did."""
    events = []
    for step in range(6):
        begin = step * STEP_US
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, STEP_US))
        events.append(event("user_annotation", LOADER, begin, 300))
        events.append(event("cpu_op", "Default/MatMul-op0", begin + 1000, 5500, 12, **{"External id": step + 1}))
    folder = tmp_path / "rank_0_ascend_ms"
    folder.mkdir()
    trace = read(folder, events)
    found = verdict([trace])
    assert (found.kind, found.cause, found.confidence) == (HOST, NOT_RECORDED, LIKELY)
    assert found.share == pytest.approx(0.42, abs=0.01)
    assert found.sentence() == "Host bound: no operator runs for 42 % of the step; what the host does meanwhile was not recorded."
    assert set(found.summary.host) == {"data_wait_ns"} and not found.summary.host_complete
    assert found.summary.host["data_wait_ns"] == pytest.approx(300_000)


def test_missing_ranks_and_unlike_steps_are_said(tmp_path: Path) -> None:
    one_of_two = verdict([gpu(tmp_path, ON_GPU[COMMUNICATION][0], rank=0)])
    assert (one_of_two.confidence, one_of_two.told_apart) == (LIKELY, False)
    assert "is exposed all-reduce; waiting or transfer is not known: 1 of 2 ranks recorded." in one_of_two.sentence()
    both = verdict(ranks(tmp_path, 500))
    assert both.told_apart and RANKS not in both.doubts
    events, begin = [], 0.0
    for step, length in enumerate([6000, 9000, 12_000, 15_000, 30_000]):
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, length))
        events.append(event("cpu_op", "aten::mm", begin, length - 10, **{"External id": step + 1}))
        begin += length
    found = verdict([read(tmp_path, events)])
    assert (found.confidence, found.doubts) == (LIKELY, (SPREAD,))
    assert found.sentence().endswith(" Less certain: steps differ in length, their quartiles by 50 % of the median.")
    (long_step,) = found.summary.long_steps
    assert (long_step.step, long_step.step_time_ns, long_step.factor) == (4, 30_000_000, 2.5)
    assert FEW not in found.doubts


def test_every_kind_is_tested_and_has_a_table() -> None:
    of_jobs = {SLOW_HOST, SLOW_STAGE, SLOW_LINK, PIPELINE}  # tests/benchmarks/test_verdicts.py has those
    assert {*ON_GPU, IDLE, RANK, UNKNOWN, *of_jobs} == set(KINDS) == set(verdicts._TABLES)


def test_every_language_says_the_same() -> None:
    """The parts of a sentence are the same in every language, with the same figures; every cause of the host has words."""
    for language in LANGUAGES:
        words = {**ENGLISH, **CATALOGUES[language].verdict}
        assert {key for key in words if not key.startswith("category_")} == set(ENGLISH)
        for key, text in ENGLISH.items():
            assert set(re.findall(r"\{\w+\}", words[key])) == set(re.findall(r"\{\w+\}", text)), (language, key)
    assert {f"category_{category}" for category in CATEGORIES} <= set(CATALOGUES["zh"].verdict)
    assert {f"doing_{cause}" for cause in HOST_CAUSES if cause != NOT_RECORDED} <= set(ENGLISH)


@pytest.mark.parametrize(
    ("operation", "name"),
    [("allReduce", "all-reduce"), ("all_reduce", "all-reduce"), ("ALLGATHER", "all-gather"), ("reduce_scatter", "reduce-scatter"),
     ("reduce", "reduce"), ("AlltoAllV", "all-to-all"), ("recv", "receive"), ("coalesced", "coalesced")],
)  # fmt: skip
def test_names_of_collectives(operation: str, name: str) -> None:
    assert collective_name(operation) == name


def test_a_built_in_function_is_named_without_the_address_of_its_object() -> None:
    names = [
        "<built-in method run_backward of torch._C._EngineBase object at 0x7f80>",
        "<built-in function linear>",
        "a.py(3): f",
    ]
    more = [names[0].replace("0x7f80", "0x7f99"), *names[1:]]
    frames = [pl.DataFrame({"name": texts, "self_ns": [5, 7, 2]}) for texts in (names, more)]
    # 10 of one method of two objects, 14 of the function
    assert longest_name(frames) == ("linear (built-in)", 14)
    assert longest_name([frames[0].head(1), frames[1].head(1)]) == ("run_backward (built-in)", 10)
