"""A hand-made run on one GPU: every launch, task, wait and step where it should be."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl

from steplens.trace.building.build import build_trace
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace

START_NS = 1_790_000_000_123_456_789
PID, TID = 4000, 4001
STEP_NS = 10_000_000


def raw_tables(steps: int = 4, kernels_per_step: int = 30, *, rank: int | None = 0, seed: int = 0) -> dict[str, pl.DataFrame]:
    """Raw tables of a run in which every step launches kernels one after the other and waits for the device at its end."""
    random_numbers = random.Random(seed)
    ops: list[dict[str, Any]] = []
    api: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    flows: list[dict[str, Any]] = []
    lane = {"pid": PID, "tid": TID}
    for step in range(steps):
        begin = START_NS + step * STEP_NS
        ops.append({"name": f"ProfilerStep#{step + 10}", "start_ns": begin, "end_ns": begin + STEP_NS - 317, "scope": 7, **lane})
        host, device = begin + 10_007, begin
        for _ in range(kernels_per_step):
            number = len(kernels) + 1
            length = random_numbers.randint(2_000, 90_000)
            launch = host + 1_501
            device = max(device, launch + random_numbers.randint(6_000, 9_000)) + 700
            ops.append({"name": "aten::mm", "start_ns": host, "end_ns": host + 20_003, "scope": 0, "external_id": number, **lane})
            called = {"name": "cudaLaunchKernel", "layer": "cuda_runtime", "correlation": number, "external_id": number}
            api.append({**called, "start_ns": launch, "end_ns": launch + 5_009, **lane})
            task = {"name": "gemm", "type": "kernel", "core": "CUDA", "device": 0, "stream": 7, "correlation": number}
            kernels.append({**task, "start_ns": device, "end_ns": device + length})
            arrow = {"kind": "ac2g", "flow_id": number, "from_ns": launch, "to_ns": device}
            flows.append({**arrow, "from_pid": PID, "from_tid": TID, "to_pid": 0, "to_tid": 7})
            device += length
            host += 24_011 + random_numbers.randint(0, 99)
        called = {"name": "cudaDeviceSynchronize", "layer": "cuda_runtime", "correlation": 10_000_000 + step}
        api.append({**called, "start_ns": host, "end_ns": max(device, host) + 4_003, **lane})
    meta = {"distributedInfo": '{"backend": "nccl"}', "source_format": '"made"'} if rank is not None else {}
    if rank is not None:
        meta |= {"rank": str(rank), "world_size": "2"}
    return {
        "ops": pl.DataFrame(ops, infer_schema_length=None),
        "api": pl.DataFrame(api, infer_schema_length=None),
        "kernels": pl.DataFrame(kernels),
        "flows": pl.DataFrame(flows),
        "meta": pl.DataFrame({"key": list(meta), "value": list(meta.values())}, schema={"key": pl.String, "value": pl.String}),
    }


def trace_of(tables: dict[str, pl.DataFrame]) -> Trace:
    """The linked trace."""
    return build_trace(Path("hand-made"), tables, HealthLog())


def certificate(tables: dict[str, pl.DataFrame]) -> list[tuple[str, str, int]]:
    """Check, severity and count of every finding."""
    return findings_of(trace_of(tables))


def findings_of(trace: Trace) -> list[tuple[str, str, int]]:
    """Check, severity and count of every finding of a trace."""
    return [] if trace.health is None else trace.health.select("check", "severity", "count").rows()
