"""Operators that could be fewer: sequences with a fused operator, and such that only move memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, rule
from steplens.advice.rules.device import operator_patterns as patterns
from steplens.advice.rules.optimizers import costliest_optimizer
from steplens.advice.rules.tools.task_rows import Rows, row_findings, rows_within_graphs
from steplens.advice.rules.tools.tasks import is_significant, steps_of, with_innermost_line, with_top_values
from steplens.analysis.device.task_sequences import Sequence
from steplens.analysis.tools.groups import are_among
from steplens.analysis.tools.names import looked_up
from steplens.analysis.tools.order import in_order
from steplens.analysis.tools.overlap import Int64Array
from steplens.trace.building.devices import NPU
from steplens.trace.health import KERNEL_CALLS, KERNEL_TIMES, OPERATOR_CALLS, OPERATOR_DEVICE_TIMES
from steplens.trace.schema import CORE_CPU, SCOPE_FUNCTION

#: calls of many tensors at once, that a fused optimizer replaces, and the passes over the data that it still makes
_FOREACH, _FUSED = "_foreach_", r"_fused_|npu_apply|NpuFused|multi_tensor"
_PASSES = 2.0
_BREAK = "\n"
_CODES = {name: ord(letter) for name, letter in patterns.LETTER_OF.items()}


@rule(rests_on=(OPERATOR_CALLS,))
def unfused_operators(facts: Facts) -> Iterator[Finding]:
    """Sequences of operators that one fused operator of the framework replaces: attention, normalization, gates, optimizers ...

    One finding per pattern of ``operator_patterns``, and one for an optimizer that could be fused.

    The price is the device's time of the matched calls (on a CPU their own) without what the fused operator still does; of an
    optimizer that the device waits for, the host's.
    Where health calls device times per operator unsafe, or nothing tells the price, Ascend's patterns are named without.
    """
    yield from _find_unfused_optimizer(facts)
    possible = {patterns.LETTER_OF.get(name, patterns.OTHER) for name in facts.names.to_list()}
    if not any(pattern.fused_on(facts.device) and set(pattern.needs) <= possible for pattern in patterns.PATTERNS.values()):
        return
    calls = _outermost_calls(facts)
    if calls.is_empty():
        return
    # a letter per call, and a line break before the first call of a thread's step; places tells which letter is which call
    letter = pl.col("name").replace_strict(_CODES, default=ord(patterns.OTHER), return_dtype=pl.UInt8)
    letters = looked_up(calls["name"], letter, ord(patterns.OTHER))
    lane = calls.select(pl.struct("pid", "tid", "step").rle_id()).to_series().to_numpy()
    places = np.arange(calls.height) + lane
    text = np.full(int(places[-1]) + 1, ord(_BREAK), dtype=np.uint8)
    text[places] = letters
    call_at = np.full(len(text), -1, dtype=np.int64)
    call_at[places] = np.arange(calls.height)
    left = text.copy()
    present = set(np.unique(letters).tobytes().decode("ascii"))
    for name, pattern in patterns.PATTERNS.items():
        if not pattern.fused_on(facts.device) or not set(pattern.needs) <= present:
            continue
        spans = [match.span() for match in pattern.expression.finditer(left.tobytes().decode("ascii"))]
        for begin, end in spans:
            left[begin:end] = ord(patterns.OTHER)
        if spans:
            members = [call_at[begin:end] for begin, end in spans]
            yield from _sequence_finding(facts, name, pattern, calls, members, letters)


def _sequence_finding(
    facts: Facts,
    name: str,
    pattern: patterns.Pattern,
    calls: pl.DataFrame,
    members: list[Int64Array],
    letters: npt.NDArray[np.uint8],
) -> Iterator[Finding]:
    rows = calls[np.concatenate(members)]
    has_times = facts.device == CORE_CPU or facts.trusts(OPERATOR_DEVICE_TIMES)
    length = rows["duration_ns" if facts.device == CORE_CPU else "device_total_ns"].fill_null(0).to_numpy()
    code = letters[np.concatenate(members)]
    if pattern.keeps:
        replaced = length * ~np.isin(code, list(pattern.keeps.encode()))
    else:
        sizes = np.array(list(map(len, members)))
        replaced = length * np.repeat(1 - 1 / np.maximum(sizes, 2), sizes)
    saved = facts.typical_ns(rows.select("step", replaced=pl.Series(replaced)), "replaced")
    steps = max(facts.steps.height, 1)
    priced = has_times and is_significant(facts, saved)
    if not priced and facts.device != NPU:
        return
    sequences = Evidence("unfused_sequences", len(members) / steps, "count", steps_of(rows))
    evidence = [with_top_values(sequences, with_innermost_line(rows), "line")]
    if has_times:
        spent = facts.typical_ns(rows.select("step", length=pl.Series(length)), "length")
        evidence.append(Evidence("in_unfused_sequences", spent, "ns"))
    example = " > ".join(
        patterns.LETTERS[letter].split()[0]
        for letter in code[: len(members[0])].tobytes().decode("ascii")
        if letter in patterns.LETTERS
    )
    saving = Saving.up_to(saved) if priced else None
    values = {"sequence": example, "fused": pattern.fused_on(facts.device)}
    yield facts.make_finding(
        unfused_operators.name, evidence, saving, confidence=0.7, subject=name, part="computing_ns", values=values
    )


def _find_unfused_optimizer(facts: Facts) -> Iterator[Finding]:
    """With k calls over all parameters, a fused update takes about 2 / k of the time: it makes two passes over the data.

    Of the device's time, or of the host's as far as the device idles meanwhile, whichever is more: a device that waits for the
    optimizer to launch its calls gains what the host does not launch any more.
    """
    update = (
        None
        if facts.device == CORE_CPU
        else costliest_optimizer(facts, patterns.FUSED_OPTIMIZERS.get(facts.device, patterns.FUSED_ELSEWHERE))
    )
    if update is None:
        return
    name, ranges, calls = update.name, update.ranges, update.calls
    many = int(calls["name"].str.contains(_FOREACH, literal=True).sum())
    if calls["name"].str.contains(_FUSED).any():
        return
    if not many and facts.device != NPU:
        # one parameter after the other: single_tensor_optimizer says that
        return
    has_times = facts.trusts(OPERATOR_DEVICE_TIMES)
    steps = max(facts.steps.height, 1)
    length = max(facts.typical_ns(ranges, "device_total_ns") - facts.typical_ns(update.closures, "device_total_ns"), 0.0)
    left_out = 1 - _PASSES / max(many / ranges.height, _PASSES)
    host_ns = facts.at_most_part(max(facts.typical_ns(ranges) - facts.typical_ns(update.closures), 0.0), "optimizer_ns")
    idle_ns = min(max(facts.idle_during(ranges) - facts.idle_during(update.closures), 0.0), host_ns)
    by_host = idle_ns > length
    saved = left_out * max(length, idle_ns)
    priced = has_times and is_significant(facts, saved)
    if not priced and facts.device != NPU:
        return
    evidence = [Evidence("unfused_sequences", ranges.height / steps, "count", facts.numbers, (f"{name}.step",))]
    if has_times:
        evidence.append(Evidence("in_unfused_sequences", length, "ns"))
    if by_host:
        evidence += [Evidence("optimizer_time", host_ns, "ns"), Evidence("idle_while_updating", idle_ns, "ns")]
    fused = f"torch_npu.optim.NpuFused{name}" if facts.device == NPU else f"torch.optim.{name}(..., fused=True)"
    saving = Saving.up_to(saved) if priced else None
    values = {"sequence": f"{name}.step", "fused": fused}
    part = "optimizer_ns" if by_host else "computing_ns"
    yield facts.make_finding(
        unfused_operators.name, evidence, saving, confidence=0.8, subject="optimizer", part=part, values=values
    )


def _outermost_calls(facts: Facts) -> pl.DataFrame:
    """The calls of operators that the program makes itself, in order of thread and time."""
    functions = facts.named_calls.filter(pl.col("scope") == SCOPE_FUNCTION)
    within = are_among(functions["parent"], functions["id"])
    outermost = functions.filter(pl.Series(~within) & ~pl.col("name").is_in(list(patterns.TRANSPARENT)))
    columns = ["name", "step", "pid", "tid", "start_ns", "duration_ns", "device_total_ns", "stack"]
    return in_order(outermost.select(columns), "pid", "tid", "start_ns")


@rule(rests_on=(KERNEL_CALLS, KERNEL_TIMES), devices=EVERY_ACCELERATOR)
def memory_bound_sequences(facts: Facts) -> Iterator[Finding]:
    """Rows of operators that recur and do little but read and write: fused, they would touch memory once.

    The five of ``task_rows`` that are bound by memory and would save most.

    n operators that pass their data on read and write it n times, one reads and writes it once: at most 1 - 1 / n of their
    time goes. Whether they do pass it on, no trace tells. Tasks that gradients' hooks and optimizers launch end a row: what runs
    beside them neither feeds them nor reads from them.
    """
    yield from row_findings(
        facts,
        memory_bound_sequences.name,
        "moving_sequences",
        0.5,
        _saving_by_fusion,
        lambda row: row.busy_ns,
        "computing_ns",
        rows_within_graphs,
    )


def _saving_by_fusion(rows: Rows, row: Sequence) -> float:
    """What fusing it saves at most, ns; nothing where memory does not bind it."""
    return row.busy_ns * (1 - 1 / row.length) if row.weight > rows.least_weight else 0.0
