"""Hand-built steps of an accelerator: four of 10 ms, each with the same device tasks, calls and measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from steplens.advice import Finding, Saving
from steplens.advice.facts import Facts
from steplens.advice.registry import built_in_rules
from steplens.advice.texts import CATALOGUES
from steplens.trace.schema import SCOPE_USER
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, MAIN, PID, build, kernel, op

#: the rules that docs/advice_devices.md describes
DEVICE_RULES = [rule for rule in built_in_rules() if CATALOGUES["en"].rules[rule.name].documentation == "docs/advice_devices.md"]

STEPS = range(4)
STEP_US = 10_000
STEP_NS = STEP_US * 1000
US = 1000

Row = dict[str, Any]


def ns(step: int, us: float) -> int:
    """Unix ns of a time (us) in a step."""
    return BASE_NS + round((step * STEP_US + us) * US)


def task(name: str, start: float, end: float, **values: Any) -> Row:
    """A task of an AI core; times in us after the beginning of a step. ``metrics`` are its performance counters."""
    return {"name": name, "type": name, "start": start, "end": end, "core": "AI_CORE", "stream": 2, **values}


def cuda(name: str, start: float, end: float, **values: Any) -> Row:
    """A kernel of a GPU."""
    return task(name, start, end, core="CUDA", type="kernel", **values)


def call(name: str, start: float, end: float, **values: Any) -> Row:
    """A runtime call on the main thread."""
    return {"name": name, "start": start, "end": end, "layer": "runtime", "pid": PID, "tid": MAIN, **values}


def accelerated(
    tasks: Iterable[Row] = (),
    calls: Iterable[Row] = (),
    operators: Iterable[Row] = (),
    *,
    meta: Mapping[str, Any] | None = None,
    steps: Iterable[int] = STEPS,
    **tables: Any,
) -> Trace:
    """The same ``tasks``, runtime ``calls`` and ``operators`` (with start and end in us) in every step.

    ``only`` of a row names the steps that it is in; ``op`` of a task counts the operators of its step.
    """
    kernels: list[Row] = []
    metrics: list[Row] = []
    api: list[Row] = []
    ops: list[Row] = []
    borders = []
    tasks, calls, operators, steps = list(tasks), list(calls), list(operators), list(steps)
    for step in steps:
        begin = step * STEP_US
        ops.append(op(f"ProfilerStep#{step}", begin, begin + STEP_US, step=step, scope=SCOPE_USER))
        first = len(ops)
        for row in operators:
            if step in row.get("only", steps):
                values = {key: value for key, value in row.items() if key not in ("name", "start", "end", "only")}
                if "parent" in values:
                    values["parent"] += first
                values.setdefault("parent", first - 1)
                ops.append(op(row["name"], begin + row["start"], begin + row["end"], step=step, **values))
        for row in tasks:
            if step not in row.get("only", steps):
                continue
            values = {
                key: value for key, value in row.items() if key not in ("name", "start", "end", "only", "metrics", "launch")
            }
            if "launch" in row:
                values["launch_ns"] = ns(step, row["launch"])
            if "op" in values:
                values["op"] += first
            kernels.append(kernel(row["name"], begin + row["start"], begin + row["end"], step=step, **values))
            found = row.get("metrics", {})
            metrics += [{"kernel": len(kernels) - 1, "name": name, "value": value} for name, value in found.items()]
        for row in calls:
            if step in row.get("only", steps):
                values = {key: value for key, value in row.items() if key not in ("start", "end", "only")}
                api.append({**values, "start_ns": ns(step, row["start"]), "end_ns": ns(step, row["end"])})
        borders.append({"id": step, "start_ns": ns(step, 0), "end_ns": ns(step + 1, 0), "pid": PID, "tid": MAIN})
    every = {"kernels": kernels, "kernel_metrics": metrics, "api": api, "ops": ops, "steps": borders, **tables}
    return build(meta=meta, **{name: rows for name, rows in every.items() if rows})


def operation(name: str, start: float, end: float, step: int, **values: Any) -> Row:
    """One communication operation of one step."""
    times = {"start_ns": ns(step, start), "end_ns": ns(step, end), "step": step}
    return {"name": name, "kind": "collective", "operation": "allreduce", "group": "g", "device": 0, **times, **values}


def facts(*args: Any, **values: Any) -> Facts:
    """``accelerated`` as the rules see it."""
    return Facts(accelerated(*args, **values))


def only(found: Iterable[Finding]) -> Finding:
    """The finding of a rule that must have one."""
    (finding,) = found
    return finding


def saving(finding: Finding) -> Saving:
    """Its saving, that must be there."""
    assert finding.saving is not None
    return finding.saving


def evidence(finding: Finding) -> dict[str, float]:
    """Its figures."""
    return {one.what: one.value for one in finding.evidence}
