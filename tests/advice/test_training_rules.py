"""The rules about the training program, on hand-built traces where cause and price are known exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.advice import Finding, advise
from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence
from steplens.advice.rules.device.copies import small_copies
from steplens.advice.rules.host import python_in_the_loop, recompilation
from steplens.advice.rules.memory import growth_over_windows, large_blocks, memory_growth
from steplens.advice.rules.next_steps import next_host_bound
from steplens.advice.rules.operators import changing_shapes, float32_matmul, tiny_operators
from steplens.advice.rules.optimizers import exposed_gradients, gradient_zeroing
from steplens.advice.rules.steps import first_steps, outlier_steps
from steplens.advice.rules.synchronization import scalar_reads, synchronising_calls
from steplens.advice.rules.tools.idle_places import idle_besides
from steplens.advice.rules.tools.tasks import counted_evidence, timed_evidence, with_top_values
from steplens.advice.words import Words
from steplens.analysis.device import idle
from steplens.run import Run, Source
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_USER
from steplens.trace.trace import Trace

from ..analysis.test_verdict import LOADER, cpu
from ..writers.builder import BASE_NS, MAIN, PID, build, frame, kernel, memory, op
from .test_rules import STEP_US, STEPS, US, only, training

MS = 1_000_000


def run_of(*traces: Trace) -> Run:
    return Run(Path("run"), [(Source(Path("run") / f"trace{number}"), trace) for number, trace in enumerate(traces)], [])


def values_of(finding: Finding) -> dict[str, float]:
    return {one.what: one.value for one in finding.evidence}


def of_lengths(lengths_ms: list[float], more: dict[int, list[dict[str, Any]]] | None = None, **tables: Any) -> Trace:
    """Steps of the given lengths, each with one operator over all of it; ``more``: further calls by step, us after its start."""
    ops, steps, begin = [], [], 0.0
    for step, length in enumerate(lengths_ms):
        end = begin + length * 1000
        ops.append(op(f"ProfilerStep#{step}", begin, end, step=step, scope=SCOPE_USER))
        ops.append(op("aten::mm", begin, end, step=step, parent=len(ops) - 1))
        for call in (more or {}).get(step, []):
            shift = round(begin * 1000)
            ops.append({**call, "start_ns": call["start_ns"] + shift, "end_ns": call["end_ns"] + shift, "step": step})
        steps.append({"id": step, "start_ns": BASE_NS + round(begin * 1000), "end_ns": BASE_NS + round(end * 1000)})
        begin = end
    return build(ops=ops, steps=[{**step, "pid": PID, "tid": MAIN} for step in steps], **tables)


# --- Python


def test_python_between_two_operators_counts_where_half_of_the_steps_have_it() -> None:
    calls = [op("aten::mm", 0, 4000), op("aten::add", 7000, 10_000)]
    finding = only(python_in_the_loop.judge(Facts(training([calls] * 4 + [[op("aten::mm", 0, 10_000)]] * 2))))
    assert finding.evidence[0].value == 3 * MS
    assert finding.evidence[0].steps == (0, 1, 2, 3)
    assert finding.evidence[0].places == ("aten::mm",)
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(0.95 * 3 * MS)
    few = training([calls] * 2 + [[op("aten::mm", 0, 10_000)]] * 4)
    assert list(python_in_the_loop.judge(Facts(few))) == []
    short = [op("aten::mm", 0, 4000), op("aten::add", 4990, 10_000)]
    assert list(python_in_the_loop.judge(Facts(training([short] * 6)))) == []


def test_python_lies_behind_the_operator_of_whatever_thread_that_ended_last() -> None:
    """Of 6 ms between two operators of the steps' thread autograd's thread ends one after 2.5, and the device waits."""
    begin = [op("aten::mm", 0, 2000), op("aten::ones_like", 2000, 3000), op("aten::add", 9000, 10_000)]
    node = op("autograd::engine::evaluate_function: MmBackward0", 5400, 5500, scope=SCOPE_BACKWARD, tid=MAIN + 1)
    finding = only(python_in_the_loop.judge(Facts(training([[*begin, node]] * 6))))
    (named, *_) = finding.evidence
    assert named.places == ("MmBackward0", "aten::ones_like")
    assert named.places_ns == pytest.approx((3.5 * MS, 2.4 * MS)) and sum(named.places_ns) == pytest.approx(named.value)
    assert Words("en").of(finding).title == "Python runs in the loop while nothing computes, the longest after MmBackward0"
    assert Words("zh").of(finding).title == "循环中运行 Python，期间没有计算，在 MmBackward0 之后最久"


def test_idle_time_is_told_whole_where_the_host_holds_a_step_up(tmp_path: Path) -> None:
    """Of 10 ms a CPU idles 5.2: 0.3 while data is waited for, which are not what the verdict is about."""
    trace = cpu(tmp_path, [(LOADER, 0, 300), ("aten::mm", 5200, 4800)])
    run = run_of(trace)
    assert next_host_bound.judge_run is not None
    finding = only(next_host_bound.judge_run(run, [Facts(trace)]))
    told = {one.what: one for one in finding.evidence}
    assert told["held_up"].value == pytest.approx(4.9 * MS) and told["besides_data"].value == pytest.approx(0.3 * MS)
    assert told["held_up"].value + told["besides_data"].value == pytest.approx(run.step_summary().device["idle_ns"])
    assert told["held_up"].of_mean and told["besides_data"].of_mean
    # what is next to nothing of a step is not told
    lengths = {idle.DEPENDENCY: 2.0 * MS, idle.BETWEEN_KERNELS: 3.0 * MS, idle.UNKNOWN: 0.005 * MS, idle.PYTHON: 1.0 * MS}
    assert [one.what for one in idle_besides(lengths, 10.0 * MS)] == ["besides_between_kernels", "besides_dependency"]


def test_python_is_named_by_its_frames() -> None:
    calls = [op("aten::mm", 0, 4000), op("aten::add", 7000, 10_000)]
    frames = []
    for step in STEPS:
        begin = step * STEP_US
        frames += [
            frame("train.py(7): log", begin + 4100, begin + 6900),
            frame("<built-in function print>", begin + 4200, begin + 6800),
        ]
    finding = only(python_in_the_loop.judge(Facts(training([calls] * 6, python=frames))))
    assert finding.evidence[0].places == ("train.py(7): log, <built-in function print>",)


@pytest.mark.parametrize("filler", ["loader", "backward", "collection", "exchange", "save", "optimizer"])
def test_what_other_rules_are_about_is_no_python_in_the_loop(filler: str) -> None:
    calls = [op("aten::mm", 0, 4000), op("aten::add", 7000, 10_000)]
    ranges = {
        "loader": op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 4000, 7000, scope=SCOPE_USER),
        "backward": op("MmBackward0", 4000, 7000, scope=SCOPE_BACKWARD, tid=MAIN + 1),
        "optimizer": op("Optimizer.step#SGD.step", 4000, 7000, scope=SCOPE_USER),
    }
    times = [
        {"start_ns": BASE_NS + (step * STEP_US + 4000) * US, "end_ns": BASE_NS + (step * STEP_US + 7000) * US} for step in STEPS
    ]
    tables: dict[str, Any] = {
        "collection": {"gc": [{**one, "pid": PID, "tid": MAIN} for one in times]},
        "exchange": {"communication": [{**one, "name": "gloo:all_reduce", "kind": "collective"} for one in times]},
        "save": {"marks": [{**one, "message": "save_checkpoint", "pid": PID, "tid": MAIN} for one in times]},
    }.get(filler, {})
    filled = training([[*calls, *([ranges[filler]] if filler in ranges else [])]] * 6, **tables)
    assert list(python_in_the_loop.judge(Facts(filled))) == []


def test_python_counts_where_the_device_is_idle() -> None:
    """Of 3 ms of Python the device works through 2."""
    calls = [op("aten::mm", 0, 4000), op("aten::add", 7000, 10_000)]
    kernels = []
    for step in STEPS:
        begin = step * STEP_US
        for first, last in ((50, 6000), (7100, 10_000)):
            times = {"step": step, "launch_ns": BASE_NS + (begin + max(first - 400, 0)) * US}
            kernels.append(kernel("matmul", begin + first, begin + last, core="CUDA", **times))
    trace = training([calls] * 6, kernels=kernels)
    finding = only(python_in_the_loop.judge(Facts(trace)))
    assert finding.evidence[0].value == 1 * MS
    # the device waits for the host just as long, and it is said once
    assert "device_waits_for_host" not in [one.rule for one in advise(run_of(trace)).findings]


# --- waiting for the device


def waits(caller: dict[str, Any] | None, api: str = "cudaStreamSynchronize") -> Trace:
    """In every step a wait of 3 ms, and 700 us during which the device is idle after it."""
    kernels, calls = [], []
    for step in STEPS:
        begin = step * STEP_US
        kernels.append(kernel("matmul", begin + 500, begin + 3990, core="CUDA", step=step))
        kernels.append(kernel("matmul", begin + 4690, begin + STEP_US + 450, core="CUDA", step=step))
        times = {"start_ns": BASE_NS + (begin + 1100) * US, "end_ns": BASE_NS + (begin + 4000) * US}
        calls.append({"name": api, **times, "pid": PID, "tid": MAIN})
    return training([[caller] if caller else []] * 6, kernels=kernels, api=calls)


@pytest.mark.parametrize(
    ("caller", "subject"),
    [
        (op("aten::nonzero", 1000, 4100, stack="train.py(3): mask;train.py(9): main"), "nonzero"),
        (op("aten::to", 1000, 4100, stack="train.py(3): mask"), "to"),
        (None, "synchronize"),
    ],
)
def test_a_wait_costs_what_the_device_is_idle_afterwards(caller: dict[str, Any] | None, subject: str) -> None:
    finding = only(synchronising_calls.judge(Facts(waits(caller))))
    assert finding.id == f"synchronising_calls:{subject}"
    assert values_of(finding) == {"idle_after_waits": 700 * US, "waits": 1, "waiting_for_device": 2900 * US}
    assert finding.evidence[0].places == (("train.py(3): mask",) if caller else ("synchronize",))
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(630 * US)


def test_waits_with_a_rule_of_their_own_and_launches_are_none() -> None:
    assert list(synchronising_calls.judge(Facts(waits(op("aten::item", 1000, 4100))))) == []
    assert len(list(scalar_reads.judge(Facts(waits(op("aten::item", 1000, 4100)))))) == 1
    assert list(synchronising_calls.judge(Facts(waits(None, "cudaLaunchKernel")))) == []


def test_an_optimizer_reads_its_own_counts() -> None:
    """However deep inside its step; what the closure of the program reads counts."""
    step = [op("Optimizer.step#Adam.step", 0, 5000, scope=SCOPE_USER), op("aten::_fused_adam_", 10, 4900, parent=1)]
    reads = [op("aten::item", 100 + 10 * number, 104 + 10 * number, parent=2) for number in range(300)]
    assert list(scalar_reads.judge(Facts(training([[*step, *reads]] * 6)))) == []
    closure = [
        op("Optimizer.step#LBFGS.step", 0, 5000, scope=SCOPE_USER),
        op("Optimizer.closure", 10, 4900, parent=1, scope=SCOPE_USER),
    ]
    assert only(scalar_reads.judge(Facts(training([[*closure, *reads]] * 6)))).evidence[1].value == 300


def copies(count: int, size: int) -> Trace:
    """Copies of 10 us, 20 us from start to start, at the beginning of each step; a task begins with the last one."""
    kernels = []
    for step in STEPS:
        begin = step * STEP_US
        for number in range(count):
            start = begin + 20 * number
            times = {"core": "CUDA", "step": step, "kind": "copy", "bytes": size}
            kernels.append(kernel("Memcpy HtoD (Pageable -> Device)", start, start + 10, **times))
        kernels.append(kernel("matmul", begin + 20 * (count - 1), begin + 9000, core="CUDA", step=step))
    return training([[]] * 6, kernels=kernels)


def test_many_small_copies() -> None:
    finding = only(small_copies.judge(Facts(copies(20, 4096))))
    # 19 copies and the gaps after them, before the task
    assert values_of(finding) == {"copying_alone": 380 * US, "copies": 20, "bytes_of_a_copy": 4096}
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(380 * US * (1 - 1 / 20))
    for few_or_large in (copies(15, 4096), copies(20, 1 << 20)):
        assert list(small_copies.judge(Facts(few_or_large))) == []


# --- shapes and compilers


def test_names_in_evidence_say_how_many_others_there_are() -> None:
    rows = pl.DataFrame({"line": ["a", "b", "c", "d", "e", "", None], "duration_ns": [5, 4, 3, 2, 1, 9, 9], "step": [0] * 7})
    named = with_top_values(Evidence("unfused_sequences", 1, "count"), rows, "line")
    assert (named.places, named.other_places) == (("a", "b", "c"), 2)
    few = with_top_values(Evidence("unfused_sequences", 1, "count"), rows[:2], "line")
    assert (few.places, few.other_places) == (("a", "b"), 0)


def test_names_stand_in_order_of_what_is_said_of_them() -> None:
    """Chosen by what they lose; each with how long it takes, or how often a step has it."""
    steps = [[op("aten::mm", 0, 10_000)]] * 6
    lengths = {"slow": 1, "long": 7, "longer": 9, "other": 1}
    rows = pl.DataFrame(
        [
            {"type": name, "step": step, "duration_ns": MS * length, "lost_ns": 100 if name == "slow" else length}
            for step in STEPS
            for name, length in lengths.items()
        ]
    )
    timed = timed_evidence(Facts(training(steps)), "in_few_blocks", rows, "type", weight="lost_ns", on_device=False)
    assert (timed.places, timed.places_ns) == (("longer", "long", "slow"), (9 * MS, 7 * MS, MS))
    twice = pl.concat([rows, rows.filter(pl.col("type") == "slow")])
    counted = counted_evidence("dynamic_tasks", twice, "type", len(STEPS), weight="lost_ns")
    assert (counted.places, counted.places_count) == (("slow", "longer", "long"), (2, 1, 1))
    by_time = counted_evidence("dynamic_tasks", twice, "type", len(STEPS))
    assert (by_time.places, by_time.places_count) == (("slow", "longer", "long"), (2, 1, 1))


def test_first_calls_of_a_shape_are_compared_with_later_ones() -> None:
    """Each step brings a new shape, which takes 500 us the first time and 100 us from then on; one does not come again."""

    def call(at: int, length: int, shape: int, name: str = "aten::conv") -> dict[str, Any]:
        return op(name, at, at + length, input_shapes=f"2,{shape};8,8", input_types="float;float")

    steps = [[call(100, 500, step), call(1000, 100, step), call(2000, 100, step)] for step in STEPS]
    steps[5] = steps[5][:1]
    finding = only(changing_shapes.judge(Facts(training(steps))))
    # of the first step nothing is known; the last has nothing to be compared with, but its operator takes five times as long
    assert finding.evidence[0].value == pytest.approx(400 * US)
    assert finding.evidence[0].steps == (1, 2, 3, 4, 5)
    assert finding.evidence[0].places == ("aten::conv",)
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(400 * US)
    # nothing to compare with at all: named without a price
    unknown = only(changing_shapes.judge(Facts(training([[call(100, 500, step)] for step in STEPS]))))
    assert (unknown.saving, unknown.level) == (None, "low")
    # few steps with new shapes, as the last batch of an epoch
    last = [[call(100, 500, int(step == 5))] for step in STEPS]
    assert list(changing_shapes.judge(Facts(training(last)))) == []


def test_new_shapes_on_an_accelerator_promise_at_most_the_time_of_the_host() -> None:
    def call(at: int, length: int, shape: int) -> dict[str, Any]:
        return op("aten::conv", at, at + length, input_shapes=f"2,{shape}", input_types="float")

    steps = [[call(100, 500, step), call(1000, 100, step)] for step in STEPS]
    kernels = [kernel("conv", step * STEP_US, step * STEP_US + 9000, core="CUDA", step=step) for step in STEPS]
    finding = only(changing_shapes.judge(Facts(training(steps, kernels=kernels))))
    assert finding.saving is not None
    assert (finding.saving.low_ns, finding.saving.high_ns) == (0, pytest.approx(400 * US))


def test_compiling_again_and_again() -> None:
    compiling = [op("dynamo", 1000, 4000), op("_compile.compile_inner (dynamo_timed)", 1100, 3900, parent=1, depth=2)]
    finding = only(recompilation.judge(Facts(training([compiling, compiling, [], compiling, [], []]))))
    # what the first step compiles is the warm-up
    assert finding.evidence[0].value == 2 * 3 * MS / 6
    assert finding.evidence[0].steps == (1, 3)
    assert list(recompilation.judge(Facts(training([compiling, [], [], compiling, [], []])))) == []
    # its operators are no loop of the program
    storm = [op("prims::mul", 1200 + 8 * number, 1204 + 8 * number) for number in range(300)]
    trace = training([[*compiling, *storm]] * 6)
    assert len(list(tiny_operators.judge(Facts(trace)))) == 1
    assert [one.rule for one in advise(run_of(trace)).findings] == ["recompilation"]


# --- gradients


def zeroing(passes: int) -> Trace:
    """Two parameters, filled with zeros in 100 us each, and added to in 200 us each, in every backward pass."""
    calls = [op("Optimizer.zero_grad#SGD.zero_grad", 0, 250, scope=SCOPE_USER)]
    calls += [op("aten::zero_", 10 + 110 * number, 110 + 110 * number, parent=1) for number in range(2)]
    for number in range(2 * passes):
        begin = 1000 + 300 * number
        calls.append(op("torch::autograd::AccumulateGrad", begin, begin + 250, scope=SCOPE_BACKWARD))
        calls.append(op("aten::add_", begin + 10, begin + 210, parent=len(calls)))
    return training([calls] * 6)


@pytest.mark.parametrize("passes", [1, 3])
def test_gradients_filled_with_zeros(passes: int) -> None:
    """However many passes are accumulated, only the first addition of each would go."""
    finding = only(gradient_zeroing.judge(Facts(zeroing(passes))))
    assert values_of(finding) == {"zeroing_gradients": 250 * US, "adding_to_zeros": pytest.approx(400 * US)}
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(650 * US)


def test_dropped_gradients_are_not_filled() -> None:
    calls = [op("Optimizer.zero_grad#SGD.zero_grad", 0, 250, scope=SCOPE_USER), op("aten::zero_", 5000, 6000)]
    assert list(gradient_zeroing.judge(Facts(training([calls] * 6)))) == []


def exchange(first_us: int, *, size: int = 16 << 20, late_ms: float = 0.0) -> list[Trace]:
    """Two ranks: backward from 2 to 6 ms with 16 parameters, then 3 ms of all-reduce from ``first_us`` on."""
    traces = []
    for rank in (0, 1):
        calls = [op("MmBackward0", 2000, 6000, scope=SCOPE_BACKWARD)]
        calls += [op("torch::autograd::AccumulateGrad", 2000 + n, 2001 + n, scope=SCOPE_BACKWARD, parent=1) for n in range(16)]
        rows, kernels = [], []
        for step in STEPS:
            begin = step * STEP_US
            start = begin + first_us - (1000 * late_ms if rank == 0 else 0)
            times = {"start_ns": BASE_NS + round(start * US), "end_ns": BASE_NS + (begin + first_us + 3000) * US}
            kind = {"name": "gloo:all_reduce", "kind": "collective", "operation": "allreduce", "group": "0"}
            rows.append({**kind, **times, "step": step, "bytes": size})
            kernels.append(kernel("aten::mm", begin + 2000, begin + 6000, step=step))
        traces.append(training([calls] * 6, kernels=kernels, communication=rows, rank=rank))
    return traces


def exposed(traces: list[Trace]) -> list[Finding]:
    run = run_of(*traces)
    return list(exposed_gradients.judge(run, [Facts(trace) for trace in traces]))


def test_gradients_exchanged_after_backward() -> None:
    for finding in exposed(exchange(6000)):
        assert values_of(finding) == {
            "exchange_alone": 3 * MS, "backward_beside": 4 * MS, "exchanged": 16 << 20, "exchanges": 1,
        }  # fmt: skip
        # one of eight buckets has nothing to run beside; nine tenths of the rest on a CPU
        assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(0.9 * 3 * MS * 7 / 8)
        assert finding.values["bucket"] == 2
    # beside backward, or too little to cut
    assert exposed(exchange(3000)) == []
    assert exposed(exchange(6000, size=1 << 20)) == []


def test_waiting_for_a_late_rank_is_no_exchange() -> None:
    """Rank 0 is in the collective 1 ms earlier than rank 1; both move data for 3 ms."""
    found = exposed(exchange(7000, late_ms=1.0))
    assert [values_of(finding)["exchange_alone"] for finding in found] == [3 * MS, 3 * MS]
    # alone, it cannot be told apart
    alone = exposed(exchange(7000, late_ms=1.0)[:1])
    assert values_of(alone[0])["exchange_alone"] == 4 * MS
    assert alone[0].confidence < found[0].confidence


# --- precision


def products(features: list[str], **values: Any) -> Trace:
    one = {"input_shapes": "256;256,512;512,256;;", "input_types": "float;float;float;Scalar;Scalar", **values}
    return training([[op("aten::addmm", 1000, 4000, **one)]] * 6, processor={"count": 2, "features": features})


def test_float32_products_on_a_cpu_that_has_bfloat16() -> None:
    finding = only(float32_matmul.judge(Facts(products(["avx512_bf16"]))))
    assert finding.evidence[0].value == 3 * MS
    assert finding.evidence[2].value == pytest.approx(2 * 256 * 512 * 256 / 3e6)
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(3 * MS * (1 - 1 / 2.3))
    assert finding.values["feature"] == "AVX512_BF16"
    assert only(float32_matmul.judge(Facts(products(["avx512_bf16", "amx_bf16"])))).values["feature"] == "AMX_BF16"


@pytest.mark.parametrize(
    ("features", "values"),
    [
        ([], {}),
        (["avx512_bf16"], {"input_types": "c10::BFloat16;c10::BFloat16;c10::BFloat16"}),
        (["avx512_bf16"], {"input_shapes": "8;8,512;512,256;;"}),
        (["avx512_bf16"], {"input_shapes": None, "input_types": None}),
    ],
)
def test_where_bfloat16_does_not_pay_nothing_is_said(features: list[str], values: dict[str, Any]) -> None:
    assert list(float32_matmul.judge(Facts(products(features, **values)))) == []


# --- steps unlike the others


def test_recording_that_began_too_early() -> None:
    finding = only(first_steps.judge(Facts(of_lengths([50, 30, 10, 11, 10, 9, 10, 10, 10]))))
    assert values_of(finding) == {"first_steps_take": 40 * MS, "other_steps_take": 10 * MS}
    assert (finding.evidence[0].steps, finding.values["count"], finding.level) == ((0, 1), 2, "medium")
    for lengths in ([10, 10, 50, 10, 10, 10], [14, 10, 10, 10, 10, 10], [50, 10, 10, 40, 10, 10], [50, 10, 10]):
        assert list(first_steps.judge(Facts(of_lengths(lengths)))) == []


def test_first_steps_that_a_busy_machine_slows_down_are_no_warm_up() -> None:
    """The same calls in all steps: the program that had the processor besides has ended, or begins again after the recording."""
    for lengths in ([26, 10, 10, 11, 10, 9, 10, 10, 10], [39, 30, 24, 10, 10, 10, 10, 10, 10], [70, *[10, 30] * 4]):
        assert list(first_steps.judge(Facts(of_lengths(lengths)))) == []


def test_a_warm_up_is_known_by_the_work_that_later_steps_lack() -> None:
    lengths: list[float] = [26, 10, 10, 11, 10, 9, 10, 10, 10]

    def judged(more: dict[int, list[dict[str, Any]]], **tables: Any) -> list[Finding]:
        return list(first_steps.judge(Facts(of_lengths(lengths, more, **tables))))

    prepares = [op("aten::zeros_like", 100, 110)]
    finding = only(iter(judged({0: prepares})))
    assert (finding.level, finding.confidence, finding.values) == ("medium", 0.9, {"count": 1, "percent": 18})
    work = finding.evidence[2]
    assert (work.what, work.value, work.steps, work.places) == ("grew_work", 1.0, (0,), ("aten::zeros_like",))
    # a single call among many explains the excess if it takes that long; a message to the log does not
    usual = [op("aten::add", 10 * number, 10 * number + 5) for number in range(60)]
    every = dict.fromkeys(range(9), usual)
    assert judged(every) == []
    assert judged({**every, 0: [*usual, op("aten::item", 1000, 1010)]}) == []
    assert only(iter(judged({**every, 0: [*usual, op("Compile", 1000, 16_000)]}))).evidence[2].places == ("Compile",)
    # other steps do it, too, or it is a range with a name per step
    assert judged({0: prepares, 5: prepares}) == []
    assert judged({step: [op(f"batch {step}", 0, 8000, scope=SCOPE_USER)] for step in range(9)}) == []
    # of an accelerator's runtime
    api = [{"name": "cudaMalloc", "start_ns": BASE_NS + 1000 * US, "end_ns": BASE_NS + 9000 * US, "pid": PID, "tid": MAIN}]
    assert only(iter(judged(every, api=api))).evidence[2].places == ("cudaMalloc",)
    # of an accelerator of which only the tasks were recorded: a graph that prepares
    begins = [sum(lengths[:step]) for step in range(9)]
    tasks = [kernel("MatMul", 1000 * begin, 1000 * begin + 900, core="NPU", step=step) for step, begin in enumerate(begins)]
    assert judged({}, kernels=tasks) == []
    initialises = kernel("AssignVariables", 3000, 23_000, core="NPU", step=0)
    assert only(iter(judged({}, kernels=[*tasks, initialises]))).evidence[2].places == ("AssignVariables",)
    # counts of what was not recorded whole prove nothing
    lost = {"check": "dropped_events", "severity": "error", "count": 5, "message": "", "unsafe": "operator calls"}
    assert judged({0: prepares}, health=[lost]) == []


def test_outliers_that_do_more_work() -> None:
    evaluation = [op("aten::conv2d", 1000 + 10 * number, 1005 + 10 * number) for number in range(20)]
    trace = of_lengths([10, 10, 30, 10, 10, 10, 30, 10, 10, 10, 10, 10], {2: evaluation, 6: evaluation})
    finding = only(outlier_steps.judge(Facts(trace)))
    assert finding.evidence[0].value == pytest.approx(40 * MS / 12)
    assert (finding.evidence[0].steps, finding.evidence[1].what) == ((2, 6), "grew_work")
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(0.9 * 40 * MS / 12)
    assert finding.values == {"count": 2, "of": 12, "times": 3.0}


def test_outliers_that_the_machine_makes_promise_nothing() -> None:
    finding = only(outlier_steps.judge(Facts(of_lengths([10, 10, 30, 10, 10, 10, 30, 10, 10, 10, 10, 10]))))
    assert (finding.evidence[1].what, finding.saving, finding.level) == ("grew_same_work", None, "low")
    # no outliers; too many; warm-up; too few steps
    for lengths in ([10, 11] * 6, [10, 30] * 6, [40, 40, *[10] * 10], [10, 30, 10, 10, 10]):
        assert list(outlier_steps.judge(Facts(of_lengths(lengths)))) == []


def test_outliers_with_a_collection_are_left_to_its_rule() -> None:
    gc = [{"start_ns": BASE_NS + 21 * MS, "end_ns": BASE_NS + 39 * MS, "pid": PID, "tid": MAIN}]
    finding = only(outlier_steps.judge(Facts(of_lengths([10, 10, 30, 10, 10, 10, 10, 10, 10, 10], gc=gc))))
    assert (finding.evidence[1].what, finding.evidence[1].value, finding.saving) == ("grew_collections", 18 * MS, None)


# --- memory


def test_large_blocks_in_every_step() -> None:
    big = 40 << 20
    events = []
    for step in STEPS:
        events.append(memory(step * STEP_US + 100, 4096, big, allocated=big, op=2 * step + 1))
        events.append(memory(step * STEP_US + 9000, 4096, -big, allocated=0))
    calls = [op("aten::mul", 50, 4050)]
    finding = only(large_blocks.judge(Facts(training([calls] * 6, memory=events))))
    assert values_of(finding) == {"large_blocks": 1, "bytes_of_large_blocks": big, "operators_of_large_blocks": 4 * MS}
    assert (finding.saving, finding.level, finding.evidence[0].places) == (None, "medium", ("aten::mul",))
    # told to keep them; with another allocator; kept by the program; smaller
    for allocator in ({"mmap_threshold": "4294967296"}, {"preloaded": "jemalloc"}):
        assert list(large_blocks.judge(Facts(training([calls] * 6, memory=events, allocator=allocator)))) == []
    assert list(large_blocks.judge(Facts(training([calls] * 6, memory=events[:1])))) == []
    small = [{**event, "bytes": event["bytes"] // 2} for event in events]
    assert list(large_blocks.judge(Facts(training([calls] * 6, memory=small)))) == []


def window(level: int, *, rank: int = 0, begin_s: int = 0, step_growth: int = 0, kind: str = "GPU") -> Trace:
    """Six steps at whose ends ``level`` bytes are allocated, and more for a while in between."""
    events = []
    for step in STEPS:
        at = step * STEP_US + begin_s * 1_000_000
        events.append(
            memory(at + 10, 64 * (step + 1), 1 << 22, allocated=level + (1 << 22) + step * step_growth, device_type=kind)
        )
        events.append(memory(at + 5000, 64 * (step + 1), -(1 << 22), allocated=level + step * step_growth, device_type=kind))
    trace = training([[]] * 6, memory=events, rank=rank)
    shift = begin_s * 1000 * MS
    moved = {}
    for name in ("steps", "ops"):
        rows = trace.table(name)
        assert rows is not None
        moved[name] = rows.with_columns(start_ns=rows["start_ns"] + shift, end_ns=rows["end_ns"] + shift)
    return Trace(trace.source, {"memory": trace.table("memory"), "meta": trace.table("meta"), **moved})  # type: ignore[dict-item]


def grown(*traces: Trace) -> list[Finding]:
    return list(growth_over_windows.judge(run_of(*traces), [Facts(trace) for trace in traces]))


def test_memory_that_grows_from_window_to_window() -> None:
    mib = 1 << 20
    # given in another order than that of time
    finding = only(grown(*(window(level * mib, begin_s=at) for level, at in ((14, 2), (10, 0), (12, 1)))))
    assert values_of(finding) == {"window_growth": 2 * mib, "allocated_at_the_end": 14 * mib}
    assert (finding.id, finding.values["windows"], finding.saving) == ("growth_over_windows:rank0:gpu0", 3, None)
    assert grown(*(window(level * mib, begin_s=at) for level, at in ((10, 0), (12, 1)))) == []
    assert grown(*(window(level * mib, begin_s=at) for level, at in ((10, 0), (14, 1), (13, 2)))) == []
    # the count of a CPU's allocator misses what is freed between windows
    assert grown(*(window(level * mib, begin_s=at, kind="CPU") for level, at in ((10, 0), (12, 1), (14, 2)))) == []
    # two ranks with two levels have no growth
    assert grown(*(window(level * mib, rank=rank) for rank, level in enumerate((10, 12, 14)))) == []


def test_growth_in_every_step_is_said_once() -> None:
    traces = [window((10 + at) << 20, begin_s=at, step_growth=1 << 20) for at in range(3)]
    assert len(list(memory_growth.judge(Facts(traces[0])))) == 1
    assert grown(*traces) == []
