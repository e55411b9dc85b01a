"""Hints about optimizers: of PyTorch's own classes alone, by the name that the program wrote, and by their update alone."""

from __future__ import annotations

from typing import Any

import pytest

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rules.optimizers import single_tensor_optimizer
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_USER
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, MAIN, PID, build, frame, op

STEP_US = 10_000
Rows = list[dict[str, Any]]


def update(begin: float, parent: int) -> Rows:
    """Twelve operators for each of ten parameters, 30 us each."""
    names = [f"aten::{name}" for name in ("mul_", "add_", "lerp_", "sqrt", "div", "addcmul_")]
    return [op(names[at % 6], begin + 32 * at, begin + 32 * at + 30, parent=parent) for at in range(120)]


def steps(calls: Any, frames: Any = None) -> Trace:
    """Four steps of 10 ms with the calls and frames that functions of the step's begin and its first call's number give."""
    ops: Rows = []
    python: Rows = []
    for step in range(4):
        ops += [{**row, "step": step} for row in calls(step * STEP_US, len(ops))]
        python += frames(step * STEP_US) if frames is not None else []
    times = [BASE_NS + step * STEP_US * 1000 for step in range(5)]
    marks = [{"id": step, "start_ns": times[step], "end_ns": times[step + 1], "pid": PID, "tid": MAIN} for step in range(4)]
    return build(ops=ops, steps=marks, **({"python": python} if python else {}))


def said(trace: Trace) -> list[Finding]:
    return list(single_tensor_optimizer.judge(Facts(trace)))


def wrapped(*names: str) -> Any:
    """Ranges of optimizers within one another, around the update."""

    def calls(begin: float, first: int) -> Rows:
        ranges = [
            op(f"Optimizer.step#{name}.step", begin + 4000 + at, begin + 8500 - at, scope=SCOPE_USER, parent=first + at)
            for at, name in enumerate(names)
        ]
        return [op("aten::mm", begin + 10, begin + 3500), *ranges, *update(begin + 4100, first + len(names))]

    return calls


@pytest.mark.parametrize(
    ("names", "optimizer"),
    [
        (["Adam"], "Adam"),
        (["AcceleratedOptimizer", "AdamW"], "AdamW"),
        (["LightningOptimizer", "Wrapper", "SGD"], "SGD"),
        (["AcceleratedOptimizer"], None),
        (["CombinedOptimizer"], None),
        (["Lion"], None),
        # what is wrapped does the work
        (["Adam", "Lion"], None),
    ],
)
def test_a_wrapper_takes_no_hint(names: list[str], optimizer: str | None) -> None:
    assert [one.values["optimizer"] for one in said(steps(wrapped(*names)))] == ([optimizer] if optimizer else [])


@pytest.mark.parametrize(
    ("name", "frames", "optimizer"),
    [
        ("MyAdam", ["torch/optim/optimizer.py(70): _use_grad", "torch/optim/adam.py(160): step"], "Adam"),
        ("AdamW", ["torch/optim/adam.py(160): step"], "AdamW"),
        ("AcceleratedOptimizer", ["accelerate/optimizer.py(150): step", "torch/optim/sgd.py(70): step"], "SGD"),
        ("MyAdam", ["train.py(12): step", "torch/optim/optimizer.py(70): _use_grad"], None),
        ("Adam", ["torch/optim/adam.py(160): step"], "Adam"),
    ],
)
def test_frames_tell_which_class_steps(name: str, frames: list[str], optimizer: str | None) -> None:
    def stack(begin: float) -> Rows:
        return [frame(text, begin + 4000 + at, begin + 8500 - at) for at, text in enumerate(frames, 1)]

    found = said(steps(wrapped(name), stack))
    assert [one.values["optimizer"] for one in found] == ([optimizer] if optimizer else [])


def test_a_closure_is_no_update() -> None:
    """Forward and backward inside the optimizer's range, as Lightning has them: neither calls nor time of the update."""

    def calls(begin: float, first: int) -> Rows:
        whole = op("Optimizer.step#Adam.step", begin + 100, begin + 9900, scope=SCOPE_USER)
        forward = [op(f"aten::op{at % 5}", begin + 300 + 15 * at, begin + 310 + 15 * at, parent=first) for at in range(200)]
        backward = op(
            "autograd::engine::evaluate_function: MmBackward0", begin + 3500, begin + 8900, scope=SCOPE_BACKWARD, parent=first
        )
        few = [op("aten::add_", begin + 9100 + 15 * at, begin + 9110 + 15 * at, parent=first) for at in range(40)]
        return [whole, *forward, backward, *few]

    trace = steps(calls)
    # one operator per parameter is what a fused update does, however much the closure calls
    assert said(trace) == []
    assert Facts(trace).median("optimizer_ns") <= 0.12 * STEP_US * 1000
