"""Faults that a job is given: how they are named on the command line, and what they do to which ranks.

``KIND`` or ``KIND:name=value,name=value``; what is not given is drawn from the seed.

| kind | arguments |
| --- | --- |
| none | |
| slow_rank | rank, factor, what: compute, forward, backward, host (ms: a sleep before the optimizer step), or an operator |
| slow_host | host, factor |
| slow_link | host, factor (all that leaves it); or a, b, factor (what two ranks exchange) |
| imbalanced_stage | stage, factor |
| clock_offset | host (or rank: its host), seconds |
| clock_drift | host (or rank), ppm |
| clock_step | host (or rank), seconds, step (it happens in the middle of that step) |
| missing_ranks | ranks (joined by +), or count |
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.operators import known_operators

COMPUTE, FORWARD, BACKWARD, HOST = "compute", "forward", "backward", "host"

_DEFAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "slow_rank": {"rank": None, "factor": 1.5, "what": COMPUTE, "ms": 20.0},
    "slow_host": {"host": None, "factor": 1.3},
    "slow_link": {"host": None, "a": None, "b": None, "factor": 8.0},
    "imbalanced_stage": {"stage": None, "factor": 1.4},
    "clock_offset": {"host": None, "rank": None, "seconds": None},
    "clock_drift": {"host": None, "rank": None, "ppm": None},
    "clock_step": {"host": None, "rank": None, "seconds": 0.02, "step": None},
    "missing_ranks": {"ranks": None, "count": 1},
}
KINDS = tuple(_DEFAULTS)
_CLOCKS = ("clock_offset", "clock_drift", "clock_step")


@dataclass(frozen=True)
class Fault:
    """A fault with all that was drawn.

    Attributes:
        kind: one of ``KINDS``.
        ranks: those that have it; of a slow link the ends, of a clock all ranks that read it.
        host, stage, link: where it is, as far as it is there.
        factor: by which durations are multiplied, or bandwidth is divided.
        what: of a slow rank what is slow.
        ms: sleep of a host in each step.
        seconds, ppm, step: of a clock.
    """

    kind: str
    ranks: tuple[int, ...] = ()
    host: int | None = None
    stage: int | None = None
    link: tuple[int, int] | None = None
    factor: float | None = None
    what: str | None = None
    ms: float | None = None
    seconds: float | None = None
    ppm: float | None = None
    step: int | None = None

    def as_record(self) -> dict[str, Any]:
        """For the record of the truth."""
        return {name: value for name, value in asdict(self).items() if value is not None and value != ()} | {
            "ranks": list(self.ranks)
        }


def parse_faults(texts: list[str], layout: Layout, steps: int, seed: int) -> list[Fault]:
    """The faults of a command line.

    Raises:
        ValueError: a kind, an argument or a value that there is not.
    """
    random = np.random.default_rng([seed, 77])
    return [fault for text in texts if (fault := _parse(text, layout, steps, random)).kind != "none"]


def _parse(text: str, layout: Layout, steps: int, random: np.random.Generator) -> Fault:
    kind, _, rest = text.partition(":")
    if kind not in _DEFAULTS:
        raise ValueError(f"there is no fault {kind!r}; there are {', '.join(KINDS)}")
    values = dict(_DEFAULTS[kind])
    for part in filter(None, rest.split(",")):
        name, _, value = part.partition("=")
        if name not in values:
            raise ValueError(f"{kind} has no {name!r}; it has {', '.join(values) or 'no arguments'}")
        values[name] = value if name in ("what", "ranks") else float(value) if name in _FRACTIONS else int(value)
    if kind == "none":
        return Fault(kind)
    if kind == "missing_ranks":
        return Fault(kind, ranks=_missing(values, layout, random))
    if kind == "imbalanced_stage":
        stage = _number(values["stage"], layout.pipeline, random)
        return Fault(kind, ranks=tuple(layout.ranks_of_stage(stage).tolist()), stage=stage, factor=values["factor"])
    if kind == "slow_rank":
        rank = _number(values["rank"], layout.ranks, random)
        host = values["what"] == HOST
        slow = (COMPUTE, FORWARD, BACKWARD, HOST, *sorted(known_operators()))
        if values["what"] not in slow:
            raise ValueError(f"nothing is called {values['what']!r} that could be slow; there are {', '.join(slow)}")
        amount: dict[str, Any] = {"ms": values["ms"]} if host else {"factor": values["factor"]}
        return Fault(kind, ranks=(rank,), stage=layout.stage_of(rank), what=values["what"], **amount)
    if kind == "slow_link" and values["a"] is not None:
        ends = (_number(values["a"], layout.ranks, random), _number(values["b"], layout.ranks, random))
        return Fault(kind, ranks=ends, link=ends, factor=values["factor"])
    host_number = layout.host_of(values["rank"]) if values.get("rank") is not None else values["host"]
    host_number = _number(host_number, layout.hosts, random)
    common: dict[str, Any] = {"ranks": tuple(layout.ranks_of_host(host_number)), "host": host_number}
    if kind == "clock_offset":
        seconds = values["seconds"] if values["seconds"] is not None else float(random.uniform(0.01, 1) * random.choice([-1, 1]))
        return Fault(kind, **common, seconds=seconds)
    if kind == "clock_drift":
        ppm = values["ppm"] if values["ppm"] is not None else float(random.uniform(10, 100) * random.choice([-1, 1]))
        return Fault(kind, **common, ppm=ppm)
    if kind == "clock_step":
        return Fault(kind, **common, seconds=values["seconds"], step=_number(values["step"], steps, random))
    return Fault(kind, **common, factor=values["factor"])


_FRACTIONS = ("factor", "ms", "seconds", "ppm")


def _number(given: int | None, count: int, random: np.random.Generator) -> int:
    number = int(random.integers(count)) if given is None else given
    if not 0 <= number < count:
        raise ValueError(f"there is no number {number}: they go from 0 to {count - 1}")
    return number


def _missing(values: dict[str, Any], layout: Layout, random: np.random.Generator) -> tuple[int, ...]:
    if values["ranks"] is not None:
        return tuple(sorted(_number(int(part), layout.ranks, random) for part in values["ranks"].split("+")))
    return tuple(sorted(random.choice(layout.ranks, size=min(values["count"], layout.ranks - 1), replace=False).tolist()))


def of_clocks(faults: list[Fault]) -> list[Fault]:
    """Those that change what time stamps say, and nothing of what happens."""
    return [fault for fault in faults if fault.kind in _CLOCKS]


def compute_factor(faults: list[Fault], ranks: np.typing.NDArray[np.int64], direction: str, operator: str) -> Any:
    """By how much a computation of each rank takes longer.

    Args:
        faults: of the job.
        ranks: which.
        direction: FORWARD, BACKWARD or another part of the step.
        operator: the operator that computes.
    """
    factor = np.ones(len(ranks))
    for fault in faults:
        slow = fault.kind in ("slow_host", "imbalanced_stage") or (
            fault.kind == "slow_rank" and fault.what in (COMPUTE, direction, operator)
        )
        if slow and fault.factor is not None:
            factor[np.isin(ranks, fault.ranks)] *= fault.factor
    return factor


def host_sleep_ns(faults: list[Fault], ranks: np.typing.NDArray[np.int64]) -> Any:
    """How long the host of each rank sleeps in a step."""
    sleep = np.zeros(len(ranks), dtype=np.int64)
    for fault in faults:
        if fault.kind == "slow_rank" and fault.ms is not None:
            sleep[np.isin(ranks, fault.ranks)] += round(fault.ms * 1e6)
    return sleep
