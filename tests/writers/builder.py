"""Hand-built traces: rows as dictionaries, missing columns null, types from the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from steplens.trace.schema import SCHEMA, SCOPE_USER
from steplens.trace.trace import Trace

BASE_NS = 7_889_238_000_000_000 * 215  # 2023-10-03
PID = 1000
MAIN = 1001
BACKWARD = 1002

Rows = Sequence[Mapping[str, Any]]


def table(name: str, rows: Rows) -> pl.DataFrame:
    """``rows`` as a table of the schema; times are given as they are."""
    frame = (
        pl.DataFrame([dict(row) for row in rows] or None, schema=SCHEMA[name], orient="row")
        if rows
        else pl.DataFrame(schema=SCHEMA[name])
    )
    return own_times(frame) if name == "kernels" else frame


def own_times(kernels: pl.DataFrame) -> pl.DataFrame:
    """Device tasks whose device time is their length, unless it is given."""
    return kernels.with_columns(self_ns=pl.coalesce("self_ns", pl.col("end_ns") - pl.col("start_ns")))


def build(source: Path | str = "hand-built", meta: Mapping[str, Any] | None = None, **tables: Rows) -> Trace:
    """A trace of the given rows; ids of ops and kernels are their row numbers unless given."""
    frames = {}
    for name, rows in tables.items():
        numbered = [{"id": number, **row} if name in ("ops", "kernels", "python") else row for number, row in enumerate(rows)]
        frames[name] = table(name, numbered)
    frames["meta"] = table("meta", [{"key": key, "value": json.dumps(value)} for key, value in (meta or {}).items()])
    return Trace(Path(source), frames)


def op(name: str, start_us: float, end_us: float, **values: Any) -> dict[str, Any]:
    """One operator call on the main thread; times in µs after BASE_NS."""
    start, end = BASE_NS + round(start_us * 1000), BASE_NS + round(end_us * 1000)
    defaults = {"pid": PID, "tid": MAIN, "parent": -1, "depth": 0, "self_ns": end - start, "scope": 0}
    return {"name": name, "start_ns": start, "end_ns": end, **defaults, "device_self_ns": 0, "device_total_ns": 0, **values}


def kernel(name: str, start_us: float, end_us: float, **values: Any) -> dict[str, Any]:
    """One device task of the CPU on the main thread; times in µs after BASE_NS."""
    start, end = BASE_NS + round(start_us * 1000), BASE_NS + round(end_us * 1000)
    task = {"name": name, "type": name, "kind": "compute", "core": "CPU", "device": 0, "stream": MAIN}
    return {**task, "start_ns": start, "end_ns": end, "wait_ns": 0, **values}


def memory(time_us: float, address: int, bytes_: int, **values: Any) -> dict[str, Any]:
    """One event of the CPU's allocator; time in µs after BASE_NS."""
    return {
        "time_ns": BASE_NS + round(time_us * 1000), "address": address, "bytes": bytes_, "device_type": "CPU", "device": 0,
        "pid": PID, "tid": MAIN, "component": "PTA", **values,
    }  # fmt: skip


def frame(name: str, start_us: float, end_us: float, **values: Any) -> dict[str, Any]:
    """One Python frame on the main thread; times in µs after BASE_NS."""
    times = {"start_ns": BASE_NS + round(start_us * 1000), "end_ns": BASE_NS + round(end_us * 1000)}
    return {"name": name, **times, "pid": PID, "tid": MAIN, **values}


def training_step() -> Trace:
    """One step of linear forward and backward: exact times, shapes, stacks, memory, a collective and a collection."""
    shapes = {"input_shapes": "32,16;16,8", "input_types": "float;float", "stack": "model.py(3): forward;train.py(9): <module>"}
    return build(
        meta={"rank": 0},
        ops=[
            op("ProfilerStep#7", 1, 100, scope=SCOPE_USER, self_ns=43_000, device_total_ns=27_501),
            op("aten::linear", 2, 30, parent=0, depth=1, sequence=5, self_ns=12_000, step=7, device_total_ns=16_001, **shapes),
            op("aten::mm", 4, 20.001, parent=1, depth=2, step=7, device_self_ns=16_001, device_total_ns=16_001, **shapes),
            op("aten::add", 80, 91.5, parent=0, depth=1, step=7, device_self_ns=11_500, device_total_ns=11_500),
            op("LinearBackward0", 40, 70, tid=BACKWARD, sequence=5, forward_tid=1, scope=1, self_ns=30_000, step=7),
        ],
        kernels=[
            kernel("aten::mm", 4, 20.001, op=2, step=7, input_shapes="32,16;16,8", input_types="float;float"),
            kernel("aten::add", 80, 91.5, op=3, step=7, wait_ns=59_999),
        ],
        memory=[
            memory(5, 64, 2048, allocated=2048, reserved=0, op=2),
            memory(19.5, 64, -2048, allocated=0, reserved=0, op=2),
            memory(81, 128, 512, allocated=512, reserved=0, op=3),
        ],
        steps=[{"id": 7, "start_ns": BASE_NS + 1_000, "end_ns": BASE_NS + 100_000, "pid": PID, "tid": MAIN}],
        gc=[{"start_ns": BASE_NS + 33_000, "end_ns": BASE_NS + 36_500, "pid": PID, "tid": MAIN, "generation": 2}],
        python=[
            frame("train.py(9): <module>", 0.5, 99, parent=None),
            frame("nn.Module: Linear_0", 1.5, 31, parent=0, module_id=0),
        ],
    )  # fmt: skip


def synthetic(ops: int = 550_000, kernels: int = 300_000, memory_events: int = 300_000, steps: int = 10) -> Trace:
    """A big CPU run for benchmarks: each parent call holds one leaf, which is a device task with an allocation."""
    index = np.arange(ops, dtype=np.int64)
    leaf = index % 2 == 1
    start = BASE_NS + 1_000_000 + (index // 2) * 20_000 + leaf * 2_000
    end = start + np.where(leaf, 9_123, 15_457)
    generator = np.random.default_rng(0)
    names = pl.Series([f"aten::operator_{number}" for number in range(300)])
    shapes = pl.Series([f"32,{number};{number},64;" for number in range(500)])
    stacks = pl.Series([";".join(f"model{number}.py({line}): forward" for line in range(10)) for number in range(200)])
    calls = _typed(
        "ops",
        {
            "id": index,
            "name": names.gather(generator.integers(0, 300, ops)),
            "start_ns": start,
            "end_ns": end,
            "pid": np.full(ops, PID),
            "tid": np.full(ops, MAIN),
            "parent": np.where(leaf, index - 1, -1),
            "depth": leaf.astype(int),
            "self_ns": np.where(leaf, 9_123, 6_334),
            "step": np.minimum(index * steps // ops, steps - 1),
            "scope": np.zeros(ops, int),
            "sequence": np.where(leaf, -1, index),
            "forward_tid": np.zeros(ops, int),
            "input_shapes": shapes.gather(generator.integers(0, 500, ops)),
            "stack": stacks.gather(generator.integers(0, 200, ops)),
            "device_self_ns": np.where(leaf, 9_123, 0),
            "device_total_ns": np.full(ops, 9_123),
        },
    )
    leaves = calls.filter(pl.Series(leaf)).head(kernels)
    tasks = leaves.select("name", "start_ns", "end_ns", "step", "input_shapes", type="name", stream="tid", op="id")
    tasks = tasks.with_columns(core=pl.lit("CPU"), device=0, id=pl.int_range(pl.len()))
    owner = leaves.head(memory_events // 2)
    number = np.arange(owner.height)
    allocations = pl.DataFrame({"time_ns": owner["start_ns"] + 100, "address": 64 * (1 + number % 1000), "op": owner["id"]})
    allocations = allocations.with_columns(bytes=pl.Series(1000 + number % 77))
    releases = allocations.with_columns(pl.col("time_ns") + 5_000, -pl.col("bytes"))
    events = pl.concat([allocations, releases]).sort("time_ns").with_columns(allocated=pl.col("bytes").cum_sum())
    events = events.with_columns(
        device_type=pl.lit("CPU"), device=0, pid=PID, tid=MAIN, component=pl.lit("PTA"), stream=0, reserved=0
    )
    edges = BASE_NS + 900_000 + np.linspace(0, int(end[-1] - start[0]) + 200_000, steps + 1).astype(np.int64)
    ranges = {"id": np.arange(steps), "start_ns": edges[:-1], "end_ns": edges[1:]}
    step_table = _typed("steps", {**ranges, "pid": np.full(steps, PID), "tid": np.full(steps, MAIN)})
    tables = {"ops": calls, "memory": _typed("memory", events.to_dict()), "steps": step_table}
    return Trace(Path("synthetic"), {**tables, "kernels": own_times(_typed("kernels", tasks.to_dict()))})


def _typed(name: str, columns: Mapping[str, Any]) -> pl.DataFrame:
    """``columns`` as a table of the schema; what they lack is null."""
    frame = pl.DataFrame(columns)
    present = (pl.col(column) if column in columns else pl.lit(None).alias(column) for column in SCHEMA[name])
    return frame.select(present).cast(dict(SCHEMA[name]))
