"""What is said of any device that works beside the host is said of MTIA, XPU, HPU and backends of one's own, too."""

from __future__ import annotations

import pytest

from steplens.advice import Finding, advise
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.advice.rules.device.host_work import allocation_calls
from steplens.advice.rules.host import device_waits_for_host
from steplens.advice.rules.tools.tasks import torch_module
from steplens.advice.texts import TEXTS
from steplens.advice.words import Words
from steplens.trace.building.devices import ACCELERATOR, device_kind

from . import bounds
from .device_steps import accelerated, call, task
from .test_advice import run_of


def said_on(kind: str) -> dict[str, Finding]:
    """Four small tasks in 10 ms, launched late, and memory that is asked for in every step."""
    tasks = [task("k", 2000 * at + 500, 2000 * at + 900, core=kind, type="kernel", launch=2000 * at + 490) for at in range(4)]
    operators = [{"name": "aten::mm", "start": 2000 * at + 300, "end": 2000 * at + 495} for at in range(4)]
    asking = [call("cudaMalloc", 3000, 4400), call("launchKernel", 480, 490)]
    trace = accelerated(tasks, asking, operators, meta={ACCELERATOR: kind})
    assert device_kind(trace) == kind
    bounds.check([trace])
    # one explains the time of the other
    every = [advise(run_of(trace), [rule]).findings for rule in (device_waits_for_host, allocation_calls)]
    return {one.rule: one for findings in every for one in findings}


@pytest.mark.parametrize("kind", ["MTIA", "XPU", "HPU", "PRIVATEUSEONE"])
def test_the_same_is_said(kind: str) -> None:
    on_gpu, here = said_on("CUDA"), said_on(kind)
    for name in ("device_waits_for_host", "allocation_calls"):
        assert on_gpu[name].saving is not None
        assert here[name].saving == on_gpu[name].saving
    # a setting of CUDA's allocator is none of another one
    text = Words("en", TEXTS).of(here["allocation_calls"])
    assert "CUDA" not in " ".join((text.title, text.cause, text.remedy, text.patch))
    assert "{" not in text.patch
    assert torch_module(kind) == kind.lower()


def test_what_every_accelerator_is() -> None:
    rule = Rule("a", devices=EVERY_ACCELERATOR)
    assert [rule.is_about(kind) for kind in ("CPU", "CUDA", "NPU", "MTIA", "anything")] == [False, True, True, True, True]
    assert [Rule("a", devices=("NPU",)).is_about(kind) for kind in ("CPU", "NPU")] == [False, True]
    assert Rule("a").is_about("CPU")
