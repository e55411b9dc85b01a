"""Programs whose steps are made of calls, so that what changed between two versions is known to the nanosecond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from steplens.comparison.recordings import Recording, find_recordings
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, MAIN, PID, build, kernel, op

STEPS = 12
#: steps differ by so much, us
JITTER = (0.0, 0.4, -0.3, 0.2, -0.5, 0.1)


@dataclass(frozen=True)
class Call:
    """An operator call: its own time in front of what it calls, and the gap without an operator before it, in us."""

    name: str
    own_us: float = 10.0
    gap_us: float = 2.0
    shapes: str = "8,8;8,8"
    types: str = "float;float"
    inside: tuple[Call, ...] = ()
    scope: int = 0
    sequence: int = -1
    module: str | None = None
    device_us: float = 0.0


def called(name: str, own_us: float = 10.0, **values: Any) -> Call:
    """A call."""
    return Call(name, own_us, **values)


@dataclass
class _Clock:
    time_us: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, call: Call, parent: int, depth: int, step: int) -> None:
        """Put a call and what it calls behind what there is."""
        self.time_us += call.gap_us
        place = len(self.rows)
        begin = self.time_us
        self.rows.append({})
        self.time_us += call.own_us
        for inner in call.inside:
            self.add(inner, place, depth + 1, step)
        # autograd counts on and on
        sequence = call.sequence + 100 * step if call.sequence >= 0 else -1
        inner_us = sum(row["end_ns"] - row["start_ns"] for row in self.rows[place + 1 :] if row["parent"] == place) / 1000
        self.rows[place] = op(
            call.name, begin, self.time_us, parent=parent, depth=depth, step=step, scope=call.scope, sequence=sequence,
            input_shapes=call.shapes, input_types=call.types, module=call.module,
            self_ns=round((self.time_us - begin - inner_us) * 1000),
        )  # fmt: skip


def program(calls: Sequence[Call], pid: int = PID, steps: int = STEPS) -> Trace:
    """A trace of steps that make these calls each, on a CPU."""
    clock = _Clock()
    marks = []
    for step in range(steps):
        begin = clock.time_us
        clock.time_us += JITTER[step % len(JITTER)] + 1.0
        for call in calls:
            clock.add(call, -1, 0, step)
        clock.time_us += 3.0
        marks.append({"id": step, "start_ns": _ns(begin), "end_ns": _ns(clock.time_us), "pid": pid, "tid": MAIN})
    rows = [{**row, "pid": pid} for row in clock.rows]
    tasks = [
        {**kernel(row["name"], 0, 0, op=number, step=row["step"]), "start_ns": row["start_ns"], "end_ns": row["end_ns"]}
        for number, row in enumerate(rows)
        if row["scope"] in (0, 1)
    ]
    meta = {"rank": 0, "pid": pid, "whole_steps": True}
    return build(meta=meta, ops=rows, kernels=tasks, steps=marks)


def _ns(time_us: float) -> int:
    return BASE_NS + round(time_us * 1000)


def recorded(calls: Sequence[Call]) -> list[Recording]:
    """A program as the recordings of a side: two processes."""
    return find_recordings([program(calls, PID), program(calls, PID + 1)])
