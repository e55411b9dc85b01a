"""The loop reads single numbers out of tensors: ``.item()``, ``float(loss)``, ``if tensor:``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.analysis.steps import computing_tasks
from steplens.trace.health import HOST_AGAINST_DEVICE, OPERATOR_CALLS, OPERATOR_TIMES

READS = ("aten::item", "aten::_local_scalar_dense")
_OPTIMIZER = "Optimizer."
_LEAST_SHARE = 0.01
#: reads of a loop that does little else are no further apart
_GAP_NS = 10_000


def judge(facts: Facts) -> Iterator[Finding]:
    """On a CPU a read costs itself and, between two reads in a row, the Python that leads to the next.

    On an accelerator the host waits until the device is done, and the device is then idle until the host has launched the
    next task: that gap is what a read costs, and not the host's waiting.
    """
    calls = facts.calls
    optimizer = calls.filter(pl.col("name").str.starts_with(_OPTIMIZER))["id"].implode()
    reads = calls.filter(pl.col("name").is_in(READS))
    # the outermost of nested ones, and not those by which an optimizer reads its own step count
    inner = pl.col("parent").is_in(reads["id"].implode()) | pl.col("parent").is_in(optimizer)
    reads = reads.filter(~inner.fill_null(False))
    if reads.is_empty() or not facts.step_ns:
        return
    on_device = facts.trace.has_accelerator
    total = (_idle_after(facts, reads) if on_device else _spent(reads)) / facts.steps.height
    if total < _LEAST_SHARE * facts.step_ns:
        return
    lines = reads.filter(pl.col("stack").is_not_null())["stack"].cast(pl.String).value_counts(sort=True)
    places = tuple(text.partition(";")[0] for text in lines["stack"].head(3).to_list()) or ("aten::item",)
    evidence = [
        Evidence(
            "idle_after_reads" if on_device else "reading", total, "ns", tuple(sorted(set(reads["step"].to_list()))), places
        ),
        Evidence("reads", reads.height / facts.steps.height, "count"),
    ]
    if on_device:
        evidence.append(Evidence("waiting_in_reads", float(reads["duration_ns"].sum()) / facts.steps.height, "ns"))
    yield Finding(
        rule=RULE.name,
        confidence=0.8 if on_device else 0.9,
        evidence=tuple(evidence),
        saving=Saving(total / 2, total, 1.2 * total),
        step_ns=facts.step_ns,
    )


def _spent(reads: pl.DataFrame) -> float:
    """How long the reads take, with the short gaps between one and the next."""
    ordered = reads.sort("pid", "tid", "start_ns")
    gaps = ordered["start_ns"].shift(-1) - ordered["end_ns"]
    return float(ordered["duration_ns"].sum() + gaps.filter(gaps.is_between(0, _GAP_NS)).sum())


def _idle_after(facts: Facts, reads: pl.DataFrame) -> float:
    """How long the device does nothing after the reads: from its last task before a read's end to its first after it."""
    tasks = computing_tasks(facts.trace).select("start_ns", "end_ns").sort("start_ns").collect()
    if tasks.is_empty():
        return 0.0
    starts, ends = tasks["start_ns"].to_numpy(), np.maximum.accumulate(tasks["end_ns"].to_numpy())
    read_ends = reads["end_ns"].unique().sort().to_numpy()
    after = np.unique(np.searchsorted(starts, read_ends, side="right"))
    after = after[(after > 0) & (after < len(starts))]
    return float(np.maximum(starts[after] - ends[after - 1], 0).sum())


RULE = Rule("scalar_reads", judge, (OPERATOR_CALLS, OPERATOR_TIMES, HOST_AGAINST_DEVICE))
