"""No finding about a recorded capture promises more than its part of the chosen steps takes, or more than the step."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.advice import Evidence, Finding, Saving, advise
from steplens.advice.judging.order import attacks_verdict
from steplens.advice.rule import Rule
from steplens.analysis.verdict import NOTHING, UNKNOWN
from steplens.trace.schema import SCOPE_USER
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import BASE_NS, MAIN, PID, build, op
from . import bounds
from .test_advice import run_of

CAPTURES = (
    *(f"ascend_pytorch/{name}" for name in ("db_level0", "db_level2", "text_level0", "text_level1")),
    *(
        f"kineto/{name}.json.gz"
        for name in (
            "cpu_only_rank34",
            "cuda_alexnet",
            "cuda_nccl_distributed",
            "cuda_ns_resolution_rank0",
            "cuda_rank_missing",
            "cuda_sampled_rank0",
            "cuda_sampled_rank1",
            "rocm_mi250_minitoy",
        )
    ),
    *(
        f"mindspore/{name}"
        for name in (
            *("JOB1", "JOB2", "JOB4", "JOB_AICPU", "ERROR_JOB", "cluster_propose", "minddata_pipeline", "parallel_strategy"),
            *("profiler", "run_2", "run_3", "run_4"),
        )
    ),
    *(f"tracelens/{name}" for name in ("h100", "mi300", "mi300_resnet_act_checkpoint.json.gz", "vllm_graph_capture.json.gz")),
    "tracelens/vllm_graph_execution.json.gz",
)


@pytest.mark.parametrize("name", CAPTURES)
def test_of_recorded_captures(tmp_path: Path, name: str) -> None:
    source = shared(*name.split("/"))
    path = tmp_path / source.name
    if source.is_dir():
        shutil.copytree(source, path, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(source, path)
    run = steplens.open(path)
    advice = advise(run)
    for finding in advice.findings:
        bounds.check_finding(finding, run.traces)
        bounds.check_shown(finding, run)
    bounds.check_together(advice)
    if run.verdict().kind not in (NOTHING, UNKNOWN):
        assert any(attacks_verdict(finding, run.verdict()) for finding in advice.findings), run.verdict().sentence()


def steps_of(lengths_us: Sequence[float]) -> list[dict[str, Any]]:
    """Steps on the main thread, one behind the other."""
    ends = [BASE_NS + round(1000 * end) for end in accumulate(lengths_us)]
    begins = [BASE_NS, *ends[:-1]]
    times = zip(begins, ends, strict=True)
    return [{"id": step, "start_ns": begin, "end_ns": end, "pid": PID, "tid": MAIN} for step, (begin, end) in enumerate(times)]


def of_adam(*optimizer_us: float) -> Trace:
    """Steps of a product of 400 ms and one Adam that takes these times, in twelve operators for each of ten parameters."""
    ops: list[dict[str, Any]] = []
    at = 0.0
    names = [f"aten::{name}" for name in ("mul_", "add_", "lerp_", "sqrt", "div", "addcmul_")]
    for step, length in enumerate(optimizer_us):
        ops.append(op("aten::mm", at, at + 400_000, step=step))
        at += 400_000
        parent, each = len(ops), length / 120
        ops.append(op("Optimizer.step#Adam.step", at, at + length, scope=SCOPE_USER, step=step))
        ops += [op(names[call % 6], at + call * each, at + (call + 0.9) * each, parent=parent, step=step) for call in range(120)]
        at += length
    return build(ops=ops, steps=steps_of([400_000 + length for length in optimizer_us]))


@pytest.mark.parametrize("slow", range(4))
def test_one_slow_step_promises_nothing(slow: int) -> None:
    """Where three of four updates take some 8 ms of 409 ms, the one of 663 ms adds nothing: 2 % of a step and not 28 %."""
    lengths = [7_500, 9_600, 8_400]
    lengths.insert(slow, 663_000)
    findings = {one.rule: one for one in bounds.check([of_adam(*lengths)]).findings}
    # what takes less than 3 % of a step is not worth a word
    assert "single_tensor_optimizer" not in findings
    usual = {one.rule: one for one in bounds.check([of_adam(*[4 * length for length in lengths])]).findings}
    saving = usual["single_tensor_optimizer"].saving
    assert saving is not None and 0.5 * 33_600_000 < saving.likely_ns < saving.high_ns <= 36_000_000


@pytest.mark.parametrize(("part", "most_ns"), [("", 100_000), ("optimizer_ns", 20_000), ("gradient_sync_ns", None)])
def test_a_promise_is_cut_to_its_part(part: str, most_ns: int | None) -> None:
    """To what the part takes of a step, and nothing is said of a part that no step has."""
    ops = []
    for step in range(3):
        begin = 100 * step
        ops.append(op("aten::mm", begin, begin + 70, step=step))
        ops.append(op("Optimizer.step#SGD.step", begin + 75, begin + 95, scope=SCOPE_USER, step=step))
    trace = build(ops=ops, steps=steps_of([100] * 3))
    saving = Saving(500_000, 600_000, 700_000)
    found = Finding("a", 0.5, (Evidence("reads", 1, "count"),), saving, step_ns=100_000, part=part)
    findings = advise(run_of(trace), [Rule("a", lambda facts: [found])]).findings
    assert [one.saving for one in findings] == ([] if most_ns is None else [Saving(most_ns, most_ns, most_ns)])
