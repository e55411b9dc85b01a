"""The rules about GPUs, and those about rows of device tasks, where cause and price are known exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from steplens.advice import advise
from steplens.advice.rules.device.copies import exposed_copies, pageable_copies
from steplens.advice.rules.device.cores import low_occupancy
from steplens.advice.rules.device.fusion import memory_bound_sequences
from steplens.advice.rules.device.launches import host_bound_sequences, launch_bound
from steplens.advice.rules.device.matrix_products import contended_matmuls, outside_matrix_units
from steplens.advice.rules.host import device_waits_for_host
from steplens.advice.rules.tools.tasks import short_name
from steplens.advice.words import Words
from steplens.analysis.device.task_sequences import costliest_sequences, sequences
from steplens.analysis.steps.times import chosen_step_times
from steplens.trace.schema import NAME

from .device_steps import STEPS, US, accelerated, call, cuda, evidence, facts, only, operation, saving, task
from .test_advice import run_of

A100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "numSms": 108}]}
V100 = {"deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "numSms": 80}]}
P100 = {"deviceProperties": [{"id": 0, "name": "Tesla P100-SXM2-16GB", "computeMajor": 6, "numSms": 56}]}


def grid(blocks: float, occupancy: float) -> dict[str, float]:
    return {"blocks per SM": blocks, "est. achieved occupancy %": occupancy}


def test_kernels_that_leave_the_gpu_empty() -> None:
    """1 ms on a quarter of the multiprocessors: three quarters of it at most."""
    tasks = [cuda("small", 0, 1000, metrics=grid(0.25, 10)), cuda("large", 1000, 9000, metrics=grid(4, 10))]
    finding = only(low_occupancy.judge(facts(tasks)))
    assert saving(finding).high_ns == 750 * US
    assert evidence(finding) == {"in_few_blocks": 1000 * US, "kernels_of_few_blocks": 1, "occupancy": 10}
    assert finding.evidence[0].places == ("small",)
    for other in (
        cuda("small", 0, 1000, metrics=grid(0.25, 20)),
        cuda("small", 0, 9, metrics=grid(0.25, 10)),
        cuda("small", 0, 1000),
    ):
        assert list(low_occupancy.judge(facts([other, tasks[1]]))) == []


PAGEABLE, PINNED = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"


def copy(name: str, start: float, end: float, **values: Any) -> dict[str, Any]:
    return cuda(name, start, end, kind="copy", **values)


def test_copies_from_pageable_memory() -> None:
    """A copy of 2 ms, half of it beside a kernel."""
    tasks = [copy(PAGEABLE, 0, 2000, bytes=8_000_000), copy(PINNED, 5000, 5100, bytes=2_400_000), cuda("kernel", 1000, 4000)]
    finding = only(pageable_copies.judge(facts(tasks)))
    assert saving(finding).high_ns == 1000 * US
    figures = {"pageable_copies": 2000 * US, "copied_bytes": 8_000_000, "pageable_bandwidth": 4, "pinned_bandwidth": 24}
    assert evidence(finding) == figures
    assert list(pageable_copies.judge(facts([copy(PAGEABLE, 0, 99, bytes=4096), cuda("kernel", 1000, 4000)]))) == []
    assert list(pageable_copies.judge(facts([copy(PINNED, 0, 2000, bytes=4096), cuda("kernel", 1000, 4000)]))) == []


def test_batches_that_the_device_waits_for() -> None:
    """A copy of 2 ms from pinned memory, half of it beside a kernel; computing hides 1.5 ms at most."""
    batch = copy(PINNED, 0, 2000, bytes=24_000_000)
    finding = only(exposed_copies.judge(facts([batch, cuda("kernel", 1000, 2500)])))
    assert (saving(finding).likely_ns, saving(finding).high_ns) == (800 * US, 1000 * US)
    assert evidence(finding) == {"copying_input_alone": 1000 * US, "copied_input": 24_000_000, "input_bandwidth": 12}
    # no more can be hidden than there is computing
    assert saving(only(exposed_copies.judge(facts([batch, cuda("kernel", 2000, 2500)])))).high_ns == 500 * US
    for other in (
        copy(PAGEABLE, 0, 2000, bytes=24_000_000),
        copy(PINNED, 0, 2000, bytes=4096),
        copy("Memcpy DtoH (Device -> Pinned)", 0, 2000, bytes=24_000_000),
        copy(PINNED, 0, 299, bytes=24_000_000),
        copy(PINNED, 3000, 5000, bytes=24_000_000),
    ):
        assert list(exposed_copies.judge(facts([other, cuda("kernel", 3000, 5000)]))) == [], other


def matmul(name: str, start: float, end: float, category: str = "matmul") -> dict[str, Any]:
    return cuda(name, start, end, category=category)


def test_products_outside_matrix_units() -> None:
    tasks = [matmul("ampere_sgemm_128x64_nn", 0, 2000), matmul("elementwise_kernel", 2000, 5000, "elementwise")]
    finding = only(outside_matrix_units.judge(facts(tasks, meta=A100)))
    # TF32 makes eight times as many operations
    assert saving(finding).high_ns == pytest.approx(2000 * US * (1 - 19.5 / 156))
    # the least is a speed-up of 1.4, and the ends say so
    assert saving(finding).low_ns == pytest.approx(2000 * US * (1 - 1 / 1.4))
    assert [finding.values[name] for name in ("least_times", "times", "most_times")] == ["1.4", "2", "8"]
    assert "set_float32_matmul_precision" in str(finding.values["change"])
    # what a replayed CUDA graph runs is launched by nothing but the step, which is the call before the first one of these
    operators = [{"name": "aten::add", "start": 10, "end": 20}]
    replayed = only(outside_matrix_units.judge(facts([{**tasks[0], "op": -1}], operators=operators, meta=A100)))
    assert finding.values["operators"] == replayed.values["operators"] == "matmul"
    older = only(outside_matrix_units.judge(facts([matmul("volta_sgemm_64x64_nt", 0, 2000)], meta=V100)))
    assert older.values["type"] == "float16"
    # of float16 the whole loop, of bfloat16 no scaler
    change = str(older.values["change"])
    scaled = ("with torch.autocast", "GradScaler(", "scaler.scale(loss).backward()", "scaler.step(optimizer)", "scaler.update()")
    assert all(call in change for call in scaled)
    assert "bfloat16" in str(finding.values["change"]) and "scaler." not in str(finding.values["change"])
    kernels = next(item for item in older.evidence if item.what == "float32_kernels")
    assert (kernels.places, kernels.places_ns) == (("volta_sgemm_64x64_nt",), (pytest.approx(2000 * US),))
    # the names of kernels tell the architecture where nothing else does
    assert only(outside_matrix_units.judge(facts(tasks))).values["type"] == "TF32"


@pytest.mark.parametrize(
    "tasks",
    [
        [matmul("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", 0, 2000)],
        [matmul("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(Params)", 0, 2000)],
        [matmul("nvjet_hsh_128x256_64x4", 0, 2000)],
        # the switch is on: cuBLAS chose otherwise for this shape
        [matmul("ampere_sgemm_128x64_nn", 0, 2000), matmul("cutlass_80_tensorop_s1688gemm_64x64", 2000, 3000)],
        [matmul("ampere_sgemm_128x64_nn", 0, 299)],
        [matmul("mystery_sgemm", 0, 2000)],
    ],
)
def test_products_that_are_fine(tasks: Any) -> None:
    assert list(outside_matrix_units.judge(facts(tasks))) == []


def test_a_gpu_without_matrix_units() -> None:
    assert list(outside_matrix_units.judge(facts([matmul("maxwell_sgemm_128x64_nn", 0, 2000)], meta=P100))) == []


def starved(count: int, gap: int = 16, *, apart: int = 20) -> list[dict[str, Any]]:
    """Kernels of 4 us, each launched when the one before has ended."""
    return [
        cuda("elementwise", apart * number, apart * number + apart - gap, launch=apart * number - gap + 2)
        for number in range(1, count + 1)
    ]


def test_stretches_that_launching_limits() -> None:
    """A hundred kernels, 16 us of nothing before each but the first; a graph leaves 1 us of it."""
    finding = only(launch_bound.judge(facts(starved(100))))
    # the gap before the first kernel of a step is no part of a stretch
    assert saving(finding).high_ns == 99 * 15 * US
    assert evidence(finding)["launch_bound_stretches"] == 1
    assert evidence(finding)["task_length"] == 4 * US
    assert finding.confidence == 0.8


def test_stretches_that_a_graph_cannot_hold() -> None:
    # a wait every 10 kernels, too few, launched early, gaps of another kind
    waits = [call("cudaStreamSynchronize", 200 * number + 5, 200 * number + 6) for number in range(11)]
    assert list(launch_bound.judge(facts(starved(100), waits))) == []
    assert list(launch_bound.judge(facts(starved(20)))) == []
    early = [{**row, "launch": 0} for row in starved(100)]
    assert list(launch_bound.judge(facts(early))) == []
    assert list(launch_bound.judge(facts(starved(80, 110, apart=120)))) == []
    # every step launches something else
    different = [{**row, "name": f"kernel{step}", "only": (step,)} for step in STEPS for row in starved(100)]
    assert list(launch_bound.judge(facts(different))) == []


def test_launching_is_not_promised_twice() -> None:
    trace = accelerated(starved(300))
    advice = advise(run_of(trace), [device_waits_for_host, launch_bound])
    found = {finding.rule: saving(finding).likely_ns for finding in advice.findings}
    assert found["launch_bound"] == pytest.approx(0.8 * 299 * 15 * US)
    # the device idles for the rest of the step as well, and nothing of it twice
    idle_ns = chosen_step_times(trace)["idle_ns"].median()
    assert sum(found.values()) <= idle_ns


def row(start: float, length: int, gap: int, *names: str, **values: Any) -> list[dict[str, Any]]:
    """Tasks of one length, one behind the other."""
    return [
        cuda(name, start + at * (length + gap), start + at * (length + gap) + length, **values) for at, name in enumerate(names)
    ]


def test_sequences_bound_by_memory() -> None:
    """Three times per step mul, add, relu of 100 us each, touching one another: fused a third of it."""
    tasks = [one for start in (0, 2000, 4000) for one in row(start, 100, 0, "mul", "add", "relu", category="elementwise")]
    finding = only(memory_bound_sequences.judge(facts(tasks)))
    assert saving(finding).high_ns == pytest.approx(3 * 300 * US * 2 / 3)
    assert finding.evidence[0].places == ("3 x mul > add > relu",)
    assert Words("en").of(finding).title.endswith("(1 sequence)")
    assert evidence(finding)["sequence_tasks"] == 9
    assert list(host_bound_sequences.judge(facts(tasks))) == []
    # products compute; five occurrences are too few
    products = [{**one, "category": "matmul"} for one in tasks]
    assert list(memory_bound_sequences.judge(facts(products))) == []
    few = [one for start in (0, 2000) for one in row(start, 100, 0, "mul", "add", "relu", category="elementwise", only=(0, 1))]
    assert list(memory_bound_sequences.judge(facts([*few, task("x", 5000, 5001)]))) == []


def test_sequences_by_performance_counters() -> None:
    metrics = {"aiv_mte2_ratio": 0.5, "aiv_mte3_ratio": 0.4, "aiv_vec_ratio": 0.1}
    tasks = [
        {**one, "core": "AI_VECTOR_CORE", "metrics": metrics}
        for start in (0, 2000, 4000)
        for one in row(start, 100, 0, "Mul", "Add")
    ]
    assert saving(only(memory_bound_sequences.judge(facts(tasks)))).high_ns == pytest.approx(3 * 200 * US / 2)
    computing = [{**one, "metrics": {**metrics, "aiv_mte2_ratio": 0.3}} for one in tasks]
    assert list(memory_bound_sequences.judge(facts(computing))) == []


def test_sequences_that_launching_stretches() -> None:
    """Tasks of 20 us with 80 us between two of them: 40 of 120 us are work, where less than 40 % counts."""
    tasks = [one for start in (0, 2000, 4000) for one in row(start, 20, 80, "mul", "add", category="matmul")]
    finding = only(host_bound_sequences.judge(facts(tasks)))
    assert saving(finding).high_ns == 3 * 80 * US
    busier = [one for start in (0, 2000, 4000) for one in row(start, 30, 70, "mul", "add", category="matmul")]
    assert list(host_bound_sequences.judge(facts(busier))) == []
    # a gap of more than 100 us has other reasons
    wide = [one for start in (0, 2000, 4000) for one in row(start, 20, 101, "mul", "add", category="matmul")]
    assert list(host_bound_sequences.judge(facts(wide))) == []


def test_a_row_within_a_row_is_said_once() -> None:
    """The whole row of six saves more than its halves, and its parts lie within it."""
    names = ("mul", "add", "relu", "sub", "neg", "exp")
    tasks = [one for start in (0, 2000) for one in row(start, 100, 0, *names, category="elementwise")]
    finding = only(memory_bound_sequences.judge(facts(tasks)))
    assert finding.evidence[0].places == ("2 x mul > add > relu > ... > exp",)


def test_what_ends_a_sequence() -> None:
    between = row(0, 100, 0, "mul", "add")
    alone = [{**between[0]}, cuda("nccl", 100, 110, kind="communication"), {**between[1], "start": 110, "end": 210}]
    repeated = [
        {**one, "start": one["start"] + 1000 * at, "end": one["end"] + 1000 * at, "category": "elementwise"}
        for at in range(3)
        for one in alone
    ]
    assert list(memory_bound_sequences.judge(facts(repeated))) == []


def test_sequences_against_brute_force() -> None:
    """Counts and times of random rows of three names, against a walk over all rows."""
    generator = np.random.default_rng(3)
    names = generator.choice(["a", "b", "c"], 400, p=[0.5, 0.3, 0.2]).tolist()
    tasks = pl.DataFrame({"name": names}, schema={"name": NAME}).with_columns(
        pl.lit(None, dtype=NAME).alias("input_shapes"),
        pl.lit(None, dtype=NAME).alias("output_shapes"),
        device=0,
        stream=pl.int_range(pl.len()) // 100,
        step=0,
        start_ns=pl.int_range(pl.len()) * 10,
        end_ns=pl.int_range(pl.len()) * 10 + 7,
        duration_ns=7,
    )
    none = pl.Series([False] * 400)
    found = sequences(tasks, none, pl.Series([1.0] * 400), 0)
    assert len(found) > 50
    chosen = costliest_sequences(found, lambda one: one.total_ns, 5)
    assert len(chosen) == 5 and chosen[0].total_ns == max(one.total_ns for one in found)
    for one in found:
        length = one.length
        words = one.names(tasks)
        for first in one.first:
            assert names[first : first + length] == words
            assert first // 100 == (first + length - 1) // 100
        assert all(later - earlier >= length for earlier, later in zip(one.first, one.first[1:], strict=False))
        assert (one.total_ns, one.busy_ns) == (one.count * (10 * length - 3), one.count * 7 * length)
        # no more occurrences than a walk from the front finds
        walked, at = 0, 0
        while at + length <= 400:
            if names[at : at + length] == words and at // 100 == (at + length - 1) // 100:
                walked, at = walked + 1, at + length
            else:
                at += 1
        assert 5 < one.count <= walked


@pytest.mark.parametrize("seed", range(6))
def test_every_row_that_recurs_is_found(seed: int) -> None:
    """Which rows occur more than five times, against counting all of them; few names, so that most recur, or many."""
    generator = np.random.default_rng(seed)
    count, known = 120, int(generator.choice([2, 3, 6]))
    pattern = generator.integers(0, known, 7)
    codes = np.where(generator.random(count) < 0.2, generator.integers(0, known, count), np.resize(pattern, count)).tolist()
    step, stop = (np.arange(count) // int(generator.integers(20, 60))).tolist(), (generator.random(count) < 0.05).tolist()
    tasks = pl.DataFrame({"name": [f"k{code}" for code in codes]}, schema={"name": NAME}).with_columns(
        pl.lit(None, dtype=NAME).alias("input_shapes"),
        pl.lit(None, dtype=NAME).alias("output_shapes"),
        pl.Series("step", step),
        device=0,
        stream=7,
        start_ns=pl.int_range(pl.len()) * 10,
        end_ns=pl.int_range(pl.len()) * 10 + 7,
        duration_ns=7,
    )
    found = sequences(tasks, pl.Series(stop), pl.Series([1.0] * count), 0)
    assert len({(one.length, tuple(one.names(tasks))) for one in found}) == len(found)
    expected = {}
    for length in range(2, 11):
        rows: dict[tuple[int, ...], list[int]] = {}
        for first in range(count - length + 1):
            if len(set(step[first : first + length])) == 1 and not any(stop[first : first + length]):
                rows.setdefault(tuple(codes[first : first + length]), []).append(first)
        for row, starts in rows.items():
            # of a run of overlapping ones those a multiple of the length apart
            apart, begin = [], -length
            for before, first in zip([-length, *starts], starts, strict=False):
                begin = first if first - before >= length else begin
                apart += [first] if (first - begin) % length == 0 else []
            if len(apart) > 5:
                expected[length, tuple(f"k{code}" for code in row)] = apart
    assert {(one.length, tuple(one.names(tasks))): one.first.tolist() for one in found} == expected


def test_products_beside_communication() -> None:
    """Six products of 200 us alone and six of 300 us beside an all-reduce per step."""
    alone = [matmul("ampere_sgemm", 300 * number, 300 * number + 200) for number in range(6)]
    beside = [matmul("ampere_sgemm", 5000 + 300 * number, 5000 + 300 * number + 300) for number in range(6)]
    reduced = [operation("ncclAllReduce", 4900, 7000, step) for step in STEPS]
    finding = only(contended_matmuls.judge(facts([*alone, *beside], communication=reduced)))
    assert saving(finding).high_ns == 6 * 100 * US
    assert evidence(finding) == {"slowed_kernels": 6, "longer_beside_communication": pytest.approx(50)}
    near = [{**one, "end": one["start"] + 210} for one in beside]
    assert list(contended_matmuls.judge(facts([*alone, *near], communication=reduced))) == []
    assert list(contended_matmuls.judge(facts([*alone, *beside]))) == []


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
            "vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("void cutlass::Kernel<cutlass_80_tensorop>(Params)", "Kernel"),
        ("", ""),
        ("<<<", "<<<"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
