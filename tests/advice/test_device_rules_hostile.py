"""Tables with any values in them: a rule says something or nothing, and never fails."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import polars as pl
import pytest

from steplens.advice import advise
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

from ..writers.builder import build
from .device_steps import DEVICE_RULES, STEPS, ns
from .test_advice import run_of

TABLES = (
    "ops", "kernels", "kernel_metrics", "api", "communication", "communication_times", "communication_bandwidth",
    "counters", "gc",
)  # fmt: skip
WORDS = {
    "core": ["AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "AI_CPU", "CUDA", "?"],
    "kind": ["compute", "copy", "communication", "other", "collective"],
    "category": ["matmul", "elementwise", "attention"],
    "state": ["static", "dynamic", "DYNAMIC", ""],
    "transport": ["SDMA", "RDMA", "HCCS", "LOCAL"],
    "type": ["FlashAttentionScore", "MatMulV2", "Add", "SyncBatchNorm"],
    "group": ["AI Core Freq", "g"],
    "name": [
        "aic_mac_ratio", "aiv_vec_ratio", "blocks per SM", "est. achieved occupancy %", "launch", "cudaLaunchKernel",
        "cudaMalloc",
        "cudaStreamSynchronize", "aclopCompileAndExecute", "Memcpy HtoD (Pageable -> Device)", "volta_sgemm<", "aten::matmul",
        "aten::softmax", "SyncBatchNorm", "Optimizer.step#Adam.step", "enumerate(DataLoader)#x", "x" * 5000, "",
    ],
    "input_shapes": ["4096,4096;4096,4096", "2,16,4000,128", ";;,,", "9" * 40 + ",9", "-1,x", ""],
}  # fmt: skip


def value(column: str, dtype: Any, dice: random.Random) -> Any:
    if dice.random() < 0.2:
        return None
    if column in ("step", "rank"):
        return dice.choice([*STEPS, 99])
    if column.endswith("_ns"):
        return ns(dice.choice(STEPS), dice.uniform(-500, 12_000))
    if dtype == pl.Float64:
        return dice.choice([0.0, 0.5, 1.0, 900.0, -1.0, math.inf, math.nan, 1e300])
    if dtype.is_integer():
        return dice.choice([0, 1, 2, 7, 30]) if dice.random() < 0.8 or dtype == pl.UInt8 else dice.choice([-1, 30_000])
    return dice.choice(WORDS.get(column, ["FLOAT", "a;b", ""]))


@pytest.mark.parametrize("seed", range(40))
def test_any_values(seed: int) -> None:
    dice = random.Random(seed)
    cores = ["CUDA"] if seed % 3 == 0 else WORDS["core"][:4] if seed % 3 == 1 else WORDS["core"]
    tables: dict[str, list[dict[str, Any]]] = {}
    for name in TABLES:
        rows = [
            {column: value(column, dtype, dice) for column, dtype in SCHEMA[name].items()} for _ in range(dice.choice([0, 3, 60]))
        ]
        # readers number rows, and leave out what has no time
        timed = "end_ns" in SCHEMA[name]
        known = [row for row in rows if not timed or (row["start_ns"] is not None and row["end_ns"] is not None)]
        rows = [{**row, "id": number} for number, row in enumerate(known)] if "id" in SCHEMA[name] else known
        if name == "kernels":
            rows = [{**row, "core": dice.choice(cores)} for row in rows]
        tables[name] = rows
    borders = [{"id": step, "start_ns": ns(step, 0), "end_ns": ns(step + 1, 0), "pid": 1, "tid": 1} for step in STEPS]
    records = [
        {
            "kernel": str(number),
            "taskType": "Memcpy",
            "transportType": "SDMA",
            "linkType": "HCCS",
            "size": dice.choice(["513", "x", None, "1" * 30]),
        }
        for number in range(5)
    ]
    listed = [
        {"table": "COMMUNICATION_TASK_INFO", "row": number, "record": json.dumps(record)} for number, record in enumerate(records)
    ]
    meta = {
        "ENV_VARIABLES": {
            "HCCL_ALGO": "x" * 10_000,
            "ACLNN_CACHE_LIMIT": "-5",
            "HOST_CACHE_CAPACITY": "\u00b2",
            "ASCEND_LAUNCH_BLOCKING": 1,
        },
        "device_info": [{"ai_core_num": 24, "aiv_num": 48}],
        "rank": 0,
    }
    trace = build(meta=meta, steps=borders, source_tables=listed, **tables)
    assert isinstance(trace, Trace)
    for finding in advise(run_of(trace), DEVICE_RULES).findings:
        assert finding.saving is None or 0 <= finding.saving.low_ns <= finding.saving.likely_ns <= finding.saving.high_ns
        assert not any(math.isnan(one.value) for one in finding.evidence), finding
