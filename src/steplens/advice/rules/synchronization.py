"""Operators that make the host wait for the device: reads of single numbers, and other calls that wait."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, rule
from steplens.advice.rules.tools.tasks import timed_evidence
from steplens.analysis.device.idle import idle_after
from steplens.analysis.steps.host_calls import SYNCHRONIZATION_NAME
from steplens.analysis.tools.names import containing, of_runtime, with_prefix
from steplens.analysis.tools.overlap import Intervals, length_inside, merged, subtract
from steplens.trace import health
from steplens.trace.schema import DATALOADER_PREFIX, OPTIMIZER_CLOSURE, SCOPE_FUNCTION

READS = ("aten::item", "aten::_local_scalar_dense")
_OPTIMIZER = "Optimizer."
#: reads of a loop that does little else are no further apart
_GAP_NS = 10_000
#: but where it is interrupted, most often by recording itself, which takes new memory for every few hundred calls: once
#: among so many reads on either side, and for no longer than this
_AMONG = 8
_INTERRUPTED_NS = 1_000_000


# of an accelerator that was not recorded nobody knows whether it was idle after a read
@rule(
    rests_on=(health.OPERATOR_CALLS, health.OPERATOR_TIMES, health.HOST_AGAINST_DEVICE, health.STEP_DEVICE_TIMES),
    explains=("device_waits_for_host", "synchronising_calls"),
)
def scalar_reads(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """The loop reads single numbers out of tensors: ``.item()``, ``float(loss)``, ``if tensor:``.

    On a CPU a read costs itself and, between two reads in a row, the Python that leads to the next.

    On an accelerator the host waits until the device is done, and the device is then idle until the host has launched the
    next task: that gap is what a read costs, and not the host's waiting.
    """
    reads = facts.called(READS)
    if reads.is_empty():
        return
    # the outermost of nested ones, and not those by which an optimizer reads its own step counts
    reads = reads.filter(~pl.col("parent").is_in(reads["id"].implode()).fill_null(False))
    start = reads["start_ns"].to_numpy()
    reads = reads.filter(pl.Series(length_inside(_optimizer_intervals(facts), start, start + 1) == 0))
    if reads.is_empty() or not facts.step_ns:
        return
    on_device = facts.trace.has_accelerator
    ordered = reads.sort("end_ns")
    idle = pl.Series(idle_after(facts.trace, ordered["end_ns"].to_numpy())) if on_device else None
    spent = _add_spent_time(reads, facts.named_calls) if idle is None else ordered.with_columns(spent_ns=idle)
    total = facts.typical_ns(spent, "spent_ns", on_device=on_device)
    if total < least_share * facts.step_ns:
        return
    line = pl.col("stack").cast(pl.String).str.split(";").list.first()
    by_line = spent.with_columns(line=line.fill_null("aten::item"))
    kind = "idle_after_reads" if on_device else "reading"
    evidence = [
        timed_evidence(facts, kind, by_line, "line", column="spent_ns", on_device=on_device),
        Evidence("reads", reads.height / facts.steps.height, "count"),
    ]
    if on_device:
        evidence.append(Evidence("waiting_in_reads", facts.typical_ns(reads), "ns"))
    saving = Saving(total / 2, total, 1.2 * total)
    yield facts.make_finding(
        scalar_reads.name, evidence, saving, confidence=0.8 if on_device else 0.9, part="idle_ns" if on_device else ""
    )


def _optimizer_intervals(facts: Facts) -> Intervals:
    """When an optimizer ran, but for the closure of the program that it calls back."""
    calls = facts.starting_with(_OPTIMIZER)
    ranges = [
        merged(rows)
        for rows in (calls.filter(pl.col("name") != OPTIMIZER_CLOSURE), calls.filter(pl.col("name") == OPTIMIZER_CLOSURE))
    ]
    return subtract(*ranges)


def _add_spent_time(reads: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
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
    calls_between = np.searchsorted(starts, start[candidates + 1]) - np.searchsorted(starts, end[candidates])
    interrupted[candidates] = calls_between == 0
    between = np.r_[np.zeros(1, dtype=np.int64), np.where(close | interrupted, gaps, 0)]
    return ordered.with_columns(spent_ns=pl.col("duration_ns") + pl.Series(between))


#: a wait that no operator asked for
_EXPLICIT = "synchronize"


@rule(
    rests_on=(health.OPERATOR_CALLS, health.HOST_AGAINST_DEVICE, health.KERNEL_TIMES, health.RUNTIME_CALLS),
    devices=EVERY_ACCELERATOR,
    explains=("device_waits_for_host",),
)
def synchronising_calls(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """The host waits for the device inside the step, other than to read a number: ``.cpu()``, ``nonzero``, ``synchronize()``.

    One finding per operator that waits: what the device idles after its waits, until the host has launched again.

    The waiting itself costs nothing, since the device works then. A gap after several waits counts for the first.
    """
    waits = _device_waits(facts)
    if waits.is_empty() or not facts.step_ns:
        return
    waits = waits.with_columns(idle_ns=pl.Series(idle_after(facts.trace, waits["end_ns"].to_numpy())))
    by_caller = waits.filter(~pl.col("caller").is_in(READS)).partition_by("caller", as_dict=True)
    for (caller,), rows in sorted(by_caller.items()):
        idle = facts.typical_ns(rows, "idle_ns", on_device=True)
        if idle < least_share * facts.step_ns:
            continue
        line = pl.col("stack").cast(pl.String).str.split(";").list.first()
        by_line = rows.with_columns(line=line.fill_null(str(caller)))
        waiting = facts.typical_ns(rows.with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns")))
        evidence = [
            timed_evidence(facts, "idle_after_waits", by_line, "line", column="idle_ns"),
            Evidence("waits", rows.height / facts.steps.height, "count"),
            Evidence("waiting_for_device", waiting, "ns"),
        ]
        saving = Saving(idle / 2, 0.9 * idle, idle)
        subject = caller.removeprefix("aten::")
        yield facts.make_finding(
            synchronising_calls.name, evidence, saving, confidence=0.8, subject=subject, part="idle_ns", values={"call": caller}
        )


def _device_waits(facts: Facts) -> pl.DataFrame:
    """Runtime calls of the step's threads that wait for the device, by their end, with the outermost operator around each."""
    steps = facts.steps.select("step", first="start_ns", last=pl.col("start_ns") + pl.col("duration_ns")).sort("first")
    waiting = containing(of_runtime(facts.trace), SYNCHRONIZATION_NAME)
    waits = facts.on_threads(facts.trace.required("api").filter(pl.col("name").is_in(waiting)))
    waits = waits.select("start_ns", "end_ns").drop_nulls().sort("start_ns")
    waits_of_steps = waits.join_asof(steps.lazy(), left_on="start_ns", right_on="first", strategy="backward")
    within = waits_of_steps.filter(pl.col("start_ns") < pl.col("last")).select("start_ns", "end_ns", "step").collect()
    if within.is_empty():
        return within.with_columns(caller=pl.lit(None, dtype=pl.String), stack=pl.lit(None, dtype=pl.String))
    data = with_prefix(facts.names, DATALOADER_PREFIX)
    calls = facts.named_calls.select("id", "parent", "name", "stack", "scope", "start_ns", "end_ns")
    calls = calls.filter((pl.col("scope") == SCOPE_FUNCTION) | pl.col("name").is_in(data))
    outermost = calls.filter(~pl.col("parent").is_in(calls["id"].implode()).fill_null(False)).sort("start_ns")
    starts, ends = outermost["start_ns"].to_numpy(), outermost["end_ns"].to_numpy()
    at = np.searchsorted(starts, within["start_ns"].to_numpy(), side="right") - 1
    around = (at >= 0) & (within["end_ns"].to_numpy() <= ends[np.maximum(at, 0)]) if len(ends) else np.zeros(len(at), dtype=bool)
    index = pl.Series(np.where(around, at, 0)).set(pl.Series(~around), None)
    caller, stack = (outermost[column].gather(index).cast(pl.String) for column in ("name", "stack"))
    return within.with_columns(caller=caller.fill_null(_EXPLICIT), stack=stack).sort("end_ns")
