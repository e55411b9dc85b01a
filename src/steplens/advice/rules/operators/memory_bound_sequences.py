"""Rows of operators that recur and do little but read and write: fused, they would touch memory once."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.advice.rules.tools.task_rows import Rows, findings
from steplens.analysis.device.task_sequences import Sequence
from steplens.trace.health import KERNEL_CALLS, KERNEL_TIMES


def judge(facts: Facts) -> Iterator[Finding]:
    """The five of ``task_rows`` that are bound by memory and would save most.

    n operators that pass their data on read and write it n times, one reads and writes it once: at most 1 - 1 / n of their
    time goes. Whether they do pass it on, no trace tells.
    """
    yield from findings(facts, RULE.name, "moving_sequences", 0.5, _worth, lambda row: row.busy_ns, "computing_ns")


def _worth(rows: Rows, row: Sequence) -> float:
    """What fusing it saves at most, ns; nothing where memory does not bind it."""
    return row.busy_ns * (1 - 1 / row.length) if row.weight > rows.least_weight else 0.0


RULE = Rule("memory_bound_sequences", judge, (KERNEL_CALLS, KERNEL_TIMES), devices=EVERY_ACCELERATOR)
