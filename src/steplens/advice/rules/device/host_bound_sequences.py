"""Rows of operators that recur and run for less than half of the time from their first to their last."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.advice.rules.tools.task_rows import Rows, findings
from steplens.analysis.device.task_sequences import Sequence
from steplens.trace.health import KERNEL_CALLS, KERNEL_TIMES

_MOST_BUSY = 0.4


def judge(facts: Facts) -> Iterator[Finding]:
    """The five of ``task_rows`` with the most time between their tasks, of those that run for less than 40 % of theirs.

    As one operator they are launched once. Other streams may work in these gaps, so that the device is not idle in all of
    them.
    """
    yield from findings(facts, RULE.name, "between_tasks_of_sequences", 0.6, _worth, lambda row: row.gaps_ns, "idle_ns")


def _worth(_: Rows, row: Sequence) -> float:
    """The time between its tasks, ns; nothing where they run most of the time."""
    return float(row.gaps_ns) if row.busy_ns < _MOST_BUSY * row.total_ns else 0.0


RULE = Rule(
    "host_bound_sequences",
    judge,
    (KERNEL_CALLS, KERNEL_TIMES),
    devices=EVERY_ACCELERATOR,
    explains=("device_waits_for_host",),
)
