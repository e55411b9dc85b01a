"""Calls that ask the driver for device memory, or give it back, inside the steps."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.device.common import matching, per_step, steps_of, top
from steplens.trace.devices import ACCELERATORS, NPU
from steplens.trace.health import HOST_AGAINST_DEVICE, RUNTIME_CALLS
from steplens.trace.schema import CORE_CUDA, CORE_ROCM

_CALLS = (
    r"(?i)^(AscendCL@)?aclMallocMemInner|^(AscendCL@)?aclrt(free|malloc|map|unmap|reserve)(physical|mem|$)"
    r"|^(cuda|hip)(malloc|free)(managed|pitch|host|async)?$|^cumem(alloc|free|create|release|map|unmap|setaccess)"
)
_SETTING = {NPU: "PYTORCH_NPU_ALLOC_CONF", CORE_CUDA: "PYTORCH_CUDA_ALLOC_CONF", CORE_ROCM: "PYTORCH_HIP_ALLOC_CONF"}
_LEAST_NS = 10_000_000
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """Where one such call takes 10 ms in the recorded steps together, or 1 % of them.

    The price is the device's idle time meanwhile.
    """
    calls = matching(facts.runtime, _CALLS)
    by_name = calls.group_by("name").agg(pl.col("duration_ns").sum())
    if calls.is_empty() or not facts.step_ns:
        return
    most = int(by_name["duration_ns"].max())  # type: ignore[arg-type]
    if most < min(_LEAST_NS, _LEAST_SHARE * facts.step_ns * facts.steps.height):
        return
    idle = facts.idle_during(calls)
    priced = idle >= _LEAST_SHARE * facts.step_ns
    yield Finding(
        rule=RULE.name,
        confidence=0.8,
        evidence=(
            Evidence("in_allocation_calls", per_step(facts, calls), "ns", steps_of(calls), top(calls, "name")),
            Evidence("allocation_calls", calls.height / facts.steps.height, "count"),
            Evidence("idle_while_allocating", idle, "ns"),
        ),
        saving=Saving(idle / 2, idle, idle) if priced else None,
        step_ns=facts.step_ns,
        values={"change": f"+{_SETTING[facts.device]}=expandable_segments:True python train.py"},
        urgency=LOW,
    )


RULE = Rule(
    "allocation_calls",
    judge,
    (RUNTIME_CALLS, HOST_AGAINST_DEVICE),
    devices=ACCELERATORS,
    explains=("allocation_stalls", "device_waits_for_host"),
)
