"""Environment variables of Ascend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import rule
from steplens.trace.building.devices import NPU

_LONGEST = 200
_CACHED_OPERATORS = 10_000


@dataclass(frozen=True)
class _Check:
    """One variable.

    Attributes:
        harms: whether a value (empty where it is not set) is worth changing.
        change: the remedy as a line of a shell script.
        urgency: how much it matters.
    """

    harms: Callable[[str], bool]
    change: str
    urgency: str = LOW


def _is_below(limit: int) -> Callable[[str], bool]:
    return lambda value: not value.isdecimal() or int(value[:20]) < limit


_CHECKS: dict[str, _Check] = {
    "ASCEND_LAUNCH_BLOCKING": _Check(lambda value: value == "1", "+export ASCEND_LAUNCH_BLOCKING=0", HIGH),
    # 3 are errors, the default; 4 is nothing at all
    "ASCEND_GLOBAL_LOG_LEVEL": _Check(lambda value: value in ("0", "1", "2"), "+export ASCEND_GLOBAL_LOG_LEVEL=3", MEDIUM),
    "ACLNN_CACHE_LIMIT": _Check(_is_below(_CACHED_OPERATORS), "+export ACLNN_CACHE_LIMIT=100000"),
    "HOST_CACHE_CAPACITY": _Check(_is_below(1), "+export HOST_CACHE_CAPACITY=20"),
    "PYTORCH_NPU_ALLOC_CONF": _Check(
        lambda value: "expandable_segments:true" not in value.lower().replace(" ", ""),
        "+export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True",
    ),
    "HCCL_RDMA_TC": _Check(bool, "+unset HCCL_RDMA_TC"),
    "HCCL_RDMA_SL": _Check(bool, "+unset HCCL_RDMA_SL"),
    "HCCL_ALGO": _Check(bool, "+unset HCCL_ALGO"),
}


@rule(devices=(NPU,))
def environment_variables(facts: Facts) -> Iterator[Finding]:
    """Environment variables of Ascend that slow a run down, or without which it is slower than it could be.

    One finding per variable; what was not recorded is not judged. What a variable costs, nothing tells.
    """
    variables = facts.trace.meta_value("ENV_VARIABLES")
    recorded = variables if isinstance(variables, dict) else {}
    for name, check in _CHECKS.items():
        value = recorded.get(name)
        if not isinstance(value, str) or not check.harms(value.strip()):
            continue
        assignment = f"{name}={value.strip()[:_LONGEST]}"
        values = {"variable": name, "change": check.change}
        yield facts.make_finding(
            environment_variables.name,
            [Evidence(f"variable_{name.lower()}", 0, "", places=(assignment,), per_step=False)],
            confidence=0.9,
            subject=name,
            values=values,
            urgency=check.urgency,
        )
