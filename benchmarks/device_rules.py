"""How long the rules about devices take on a trace of a million operator calls and 400 thousand device tasks.

Usage: ``python benchmarks/device_rules.py``

The traces are made, not recorded: an Ascend one with twelve performance counters per task (4.8 million values), and a CUDA one.
What all rules share (steps, calls) is timed apart; the machine may be busy, so the best of three rounds counts.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.writers.builder import BASE_NS, MAIN, PID  # noqa: E402

from steplens.advice.facts import Facts  # noqa: E402
from steplens.advice.registry import built_in_rules  # noqa: E402
from steplens.trace.schema import SCHEMA  # noqa: E402
from steplens.trace.trace import Trace  # noqa: E402

CALLS, TASKS, STEPS, ROUNDS = 1_000_000, 400_000, 20, 3
NAMES = [
    "mm",
    "add",
    "mul",
    "softmax",
    "silu",
    "layer_norm",
    "linear",
    "gelu",
    "view",
    "transpose",
    "copy_",
    "div",
    "dropout",
    "cat",
    "neg",
    "slice",
]
COUNTERS = {
    "NPU": [
        "aic_mac",
        "aic_mte1",
        "aic_mte2",
        "aic_scalar",
        "aic_fixpipe",
        "aiv_vec",
        "aiv_scalar",
        "aiv_mte2",
        "aiv_mte3",
        "aic_icache",
        "aiv_icache",
        "hit",
    ],
    "CUDA": [],
}
DEVICE = {"ai_core_num": 24, "aiv_num": 48, "aic_frequency": 1800}


def table(name: str, /, **columns: object) -> pl.DataFrame:
    """A table of the schema; what is not given is null."""
    frame = pl.DataFrame(columns)
    known = (pl.col(column) if column in columns else pl.lit(None).alias(column) for column in SCHEMA[name])
    return frame.select(known).cast(dict(SCHEMA[name]))


def trace_of(device: str) -> Trace:
    """The trace of one kind of device; the steps repeat the same work."""
    dice = np.random.default_rng(0)
    call, task = np.arange(CALLS), np.arange(TASKS)
    leaf, step = call % 2 == 1, np.minimum(call // (CALLS // STEPS), STEPS - 1)
    begin = BASE_NS + call * 10_000
    names = np.array([f"aten::{name}" for name in NAMES])[call // 2 % (CALLS // STEPS) % len(NAMES)]
    place = task % (TASKS // STEPS)
    at = BASE_NS + task * (CALLS * 10_000 // TASKS)
    kind = np.array([f"Type{number}" for number in range(200)])[place % 200]
    shapes = np.array([f"{number},4096;4096,128" for number in range(1000)])[place % 1000]
    core = np.where(task % 5 == 0, "AI_CORE", "AI_VECTOR_CORE") if device == "NPU" else np.full(TASKS, device)
    wait, launch = ("aclrtSynchronizeStream", "launch") if device == "NPU" else ("cudaStreamSynchronize", "cudaLaunchKernel")
    edges = BASE_NS + np.arange(STEPS + 1) * (CALLS // STEPS) * 10_000
    metrics = [
        table("kernel_metrics", kernel=task, name=np.full(TASKS, f"{name}_ratio"), value=dice.random(TASKS))
        for name in COUNTERS[device]
    ]
    return Trace(
        Path("synthetic"),
        {
            "ops": table(
                "ops",
                id=call,
                name=names,
                start_ns=begin,
                end_ns=begin + np.where(leaf, 5_000, 19_000),
                pid=np.full(CALLS, PID),
                tid=np.full(CALLS, MAIN),
                parent=np.where(leaf, call - 1, -1),
                step=step,
                scope=np.zeros(CALLS, int),
                device_total_ns=np.full(CALLS, 9_000),
                self_ns=np.full(CALLS, 5_000),
                depth=leaf.astype(int),
            ),
            "kernels": table(
                "kernels",
                id=task,
                name=kind,
                type=kind,
                kind=np.full(TASKS, "compute"),
                core=core,
                device=np.zeros(TASKS, int),
                category=np.where(task % 3 == 0, "matmul", "elementwise"),
                stream=np.full(TASKS, 2),
                start_ns=at,
                end_ns=at + 14_000,
                launch_ns=at - 3_000,
                op=np.minimum(task * 2 + 1, CALLS - 1),
                step=task // (TASKS // STEPS),
                blocks=np.full(TASKS, 30),
                input_shapes=shapes,
                output_shapes=shapes,
                input_types=np.full(TASKS, "FLOAT;FLOAT"),
                state=np.full(TASKS, "dynamic"),
            ),
            "api": table(
                "api",
                name=np.where(task % 7 == 0, wait, launch),
                start_ns=at - 3_000,
                end_ns=at - 1_000,
                pid=np.full(TASKS, PID),
                tid=np.full(TASKS, MAIN),
            ),
            "kernel_metrics": pl.concat(metrics) if metrics else table("kernel_metrics", kernel=[], name=[], value=[]),
            "steps": table(
                "steps",
                id=np.arange(STEPS),
                start_ns=edges[:-1],
                end_ns=edges[1:],
                pid=np.full(STEPS, PID),
                tid=np.full(STEPS, MAIN),
            ),
            "meta": table("meta", key=["device_info"], value=[json.dumps([DEVICE])]),
        },
    )


def main() -> None:
    """Print, per device, what the rules take together and which take longest."""
    family = [rule for rule in built_in_rules() if rule.judge_run is None and ".rules.device" in rule.judge.__module__]
    for device in COUNTERS:
        trace = trace_of(device)
        best: dict[str, float] = {}
        totals, shared = [], []
        for _ in range(ROUNDS):
            facts = Facts(trace)
            begin = time.perf_counter()
            assert facts.steps.height
            assert facts.calls.height
            shared.append(time.perf_counter() - begin)
            total = 0.0
            for rule in family:
                if not rule.devices or facts.device in rule.devices:
                    begin = time.perf_counter()
                    list(rule.judge(facts))
                    taken = time.perf_counter() - begin
                    best[rule.name] = min(best.get(rule.name, taken), taken)
                    total += taken
            totals.append(total)
        longest = sorted(best.items(), key=lambda pair: -pair[1])[:5]
        print(f"{device}: rules {min(totals):.2f} s, steps and calls {min(shared):.2f} s; longest", end=" ")
        print(", ".join(f"{name} {taken:.2f} s" for name, taken in longest))


if __name__ == "__main__":
    main()
