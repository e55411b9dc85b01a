"""The loop reads single numbers out of tensors: ``.item()``, ``float(loss)``, ``if tensor:``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.analysis.device.idle import idle_after
from steplens.analysis.tools.overlap import Intervals, length_inside, merged, subtract
from steplens.trace.health import HOST_AGAINST_DEVICE, OPERATOR_CALLS, OPERATOR_TIMES, STEP_DEVICE_TIMES
from steplens.trace.schema import OPTIMIZER_CLOSURE

READS = ("aten::item", "aten::_local_scalar_dense")
_OPTIMIZER = "Optimizer."
_LEAST_SHARE = 0.01
#: reads of a loop that does little else are no further apart
_GAP_NS = 10_000
#: but where it is interrupted, most often by recording itself, which takes new memory for every few hundred calls: once
#: among so many reads on either side, and for no longer than this
_AMONG = 8
_INTERRUPTED_NS = 1_000_000


def judge(facts: Facts) -> Iterator[Finding]:
    """On a CPU a read costs itself and, between two reads in a row, the Python that leads to the next.

    On an accelerator the host waits until the device is done, and the device is then idle until the host has launched the
    next task: that gap is what a read costs, and not the host's waiting.
    """
    reads = facts.called(READS)
    if reads.is_empty():
        return
    # the outermost of nested ones, and not those by which an optimizer reads its own step counts
    reads = reads.filter(~pl.col("parent").is_in(reads["id"].implode()).fill_null(False))
    start = reads["start_ns"].to_numpy()
    reads = reads.filter(pl.Series(length_inside(_optimizer(facts), start, start + 1) == 0))
    if reads.is_empty() or not facts.step_ns:
        return
    on_device = facts.trace.has_accelerator
    ordered = reads.sort("end_ns")
    idle = pl.Series(idle_after(facts.trace, ordered["end_ns"].to_numpy())) if on_device else None
    spent = _spent(reads, facts.named_calls) if idle is None else ordered.with_columns(spent_ns=idle)
    total = facts.typical_ns(spent, "spent_ns", on_device=on_device)
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
        evidence.append(Evidence("waiting_in_reads", facts.typical_ns(reads), "ns"))
    yield Finding(
        rule=RULE.name,
        confidence=0.8 if on_device else 0.9,
        evidence=tuple(evidence),
        saving=Saving(total / 2, total, 1.2 * total),
        step_ns=facts.step_ns,
        part="idle_ns" if on_device else "",
    )


def _optimizer(facts: Facts) -> Intervals:
    """When an optimizer ran, but for the closure of the program that it calls back."""
    calls = facts.starting_with(_OPTIMIZER)
    found = [
        merged(rows)
        for rows in (
            calls.filter(pl.col("name") != OPTIMIZER_CLOSURE),
            calls.filter(pl.col("name") == OPTIMIZER_CLOSURE),
        )
    ]
    return subtract(*found)


def _spent(reads: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The reads with ``spent_ns``: how long each takes, with what lies before it and behind the one before, of a loop that does
    little else.

    Args:
        reads: the reads.
        calls: all calls, of which none may lie in an interruption that counts.
    """
    ordered = reads.sort("pid", "tid", "start_ns")
    start, end = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    gaps = start[1:] - end[:-1]
    close = (gaps >= 0) & (gaps <= _GAP_NS)
    # how many gaps up to each one are short, with none before the first and none after the last
    short = np.cumsum(np.r_[np.zeros(_AMONG + 1, dtype=np.int64), close, np.zeros(_AMONG, dtype=np.int64)])
    at = np.arange(len(gaps))
    among = (short[at + _AMONG] - short[at] == _AMONG) & (short[at + 2 * _AMONG + 1] - short[at + _AMONG + 1] == _AMONG)
    interrupted = among & (gaps > _GAP_NS) & (gaps <= _INTERRUPTED_NS)
    (candidates,) = np.nonzero(interrupted)
    starts = np.sort(calls["start_ns"].to_numpy())
    others = np.searchsorted(starts, start[candidates + 1]) - np.searchsorted(starts, end[candidates])
    interrupted[candidates] = others == 0
    between = np.r_[np.zeros(1, dtype=np.int64), np.where(close | interrupted, gaps, 0)]
    return ordered.with_columns(spent_ns=pl.col("duration_ns") + pl.Series(between))


RULE = Rule(
    "scalar_reads",
    judge,
    # of an accelerator that was not recorded nobody knows whether it was idle after a read
    (OPERATOR_CALLS, OPERATOR_TIMES, HOST_AGAINST_DEVICE, STEP_DEVICE_TIMES),
    explains=("device_waits_for_host", "synchronising_calls"),
)
