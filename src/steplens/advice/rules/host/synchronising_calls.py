"""The host waits for the device inside the step, other than to read a number: ``.cpu()``, ``nonzero``, ``synchronize()``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.advice.rules.host.scalar_reads import READS
from steplens.analysis.device.idle import idle_after
from steplens.analysis.steps.host_calls import SYNCHRONIZATION_NAME
from steplens.analysis.tools.names import containing, of_runtime, with_prefix
from steplens.trace.health import HOST_AGAINST_DEVICE, KERNEL_TIMES, OPERATOR_CALLS, RUNTIME_CALLS
from steplens.trace.schema import DATALOADER_PREFIX, SCOPE_FUNCTION

_LEAST_SHARE = 0.01
#: a wait that no operator asked for
_EXPLICIT = "synchronize"


def judge(facts: Facts) -> Iterator[Finding]:
    """One finding per operator that waits: what the device idles after its waits, until the host has launched again.

    The waiting itself costs nothing, since the device works then. A gap after several waits counts for the first.
    """
    waits = _waits(facts)
    if waits.is_empty() or not facts.step_ns:
        return
    waits = waits.with_columns(idle_ns=pl.Series(idle_after(facts.trace, waits["end_ns"].to_numpy())))
    by_caller = waits.filter(~pl.col("caller").is_in(READS)).partition_by("caller", as_dict=True)
    for (caller,), rows in sorted(by_caller.items()):
        idle = facts.typical_ns(rows, "idle_ns", on_device=True)
        if idle < _LEAST_SHARE * facts.step_ns:
            continue
        lines = rows["stack"].drop_nulls().str.split(";").list.first().value_counts(sort=True)
        waiting = facts.typical_ns(rows.with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns")))
        steps = tuple(sorted(set(rows["step"].to_list())))
        yield Finding(
            rule=RULE.name,
            subject=caller.removeprefix("aten::"),
            confidence=0.8,
            evidence=(
                Evidence("idle_after_waits", idle, "ns", steps, tuple(lines["stack"].head(3).to_list()) or (caller,)),
                Evidence("waits", rows.height / facts.steps.height, "count"),
                Evidence("waiting_for_device", waiting, "ns"),
            ),
            saving=Saving(idle / 2, 0.9 * idle, idle),
            step_ns=facts.step_ns,
            part="idle_ns",
            values={"call": caller},
        )


def _waits(facts: Facts) -> pl.DataFrame:
    """Runtime calls of the step's threads that wait for the device, by their end, with the outermost operator around each."""
    steps = facts.steps.select("step", first="start_ns", last=pl.col("start_ns") + pl.col("duration_ns")).sort("first")
    waiting = containing(of_runtime(facts.trace), SYNCHRONIZATION_NAME)
    waits = facts.on_threads(facts.trace.required("api").filter(pl.col("name").is_in(waiting)))
    waits = waits.select("start_ns", "end_ns").drop_nulls().sort("start_ns")
    inside = waits.join_asof(steps.lazy(), left_on="start_ns", right_on="first", strategy="backward")
    found = inside.filter(pl.col("start_ns") < pl.col("last")).select("start_ns", "end_ns", "step").collect()
    if found.is_empty():
        return found.with_columns(caller=pl.lit(None, dtype=pl.String), stack=pl.lit(None, dtype=pl.String))
    data = with_prefix(facts.names, DATALOADER_PREFIX)
    calls = facts.named_calls.select("id", "parent", "name", "stack", "scope", "start_ns", "end_ns")
    calls = calls.filter((pl.col("scope") == SCOPE_FUNCTION) | pl.col("name").is_in(data))
    outermost = calls.filter(~pl.col("parent").is_in(calls["id"].implode()).fill_null(False)).sort("start_ns")
    starts, ends = outermost["start_ns"].to_numpy(), outermost["end_ns"].to_numpy()
    at = np.searchsorted(starts, found["start_ns"].to_numpy(), side="right") - 1
    around = (at >= 0) & (found["end_ns"].to_numpy() <= ends[np.maximum(at, 0)]) if len(ends) else np.zeros(len(at), dtype=bool)
    index = pl.Series(np.where(around, at, 0)).set(pl.Series(~around), None)
    caller, stack = (outermost[column].gather(index).cast(pl.String) for column in ("name", "stack"))
    return found.with_columns(caller=caller.fill_null(_EXPLICIT), stack=stack).sort("end_ns")


RULE = Rule(
    "synchronising_calls",
    judge,
    (OPERATOR_CALLS, HOST_AGAINST_DEVICE, KERNEL_TIMES, RUNTIME_CALLS),
    devices=EVERY_ACCELERATOR,
    explains=("device_waits_for_host",),
)
