"""Training stops while a checkpoint is written."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.trace.health import USER_MARKS
from steplens.trace.schema import CHECKPOINT_BYTES

_LEAST_SHARE = 0.02
#: what stays in the loop of a checkpoint that is written in the background: copying the tensors, at so many bytes per second
#: (one thread, with what the copy pushes out of the caches; measured on CPU), or this share where their size is not known
_COPY_RATE = 3e9
_REMAINING = 0.2


def judge(facts: Facts) -> Iterator[Finding]:
    """The time of saving, spread over the recorded steps; written in the background, only the copy of the tensors stays.

    Saving counts on the threads of the steps; what other threads write already is in the background.
    """
    marks = facts.saves
    if marks.is_empty() or not facts.step_ns:
        return
    within = pl.lit(False)
    steps = []
    for step, start, length in facts.steps.select("step", "start_ns", "duration_ns").iter_rows():
        inside = pl.col("start_ns").is_between(start, start + length, closed="left")
        if marks.filter(inside).height:
            steps.append(step)
        within = within | inside
    saves = marks.filter(within)
    total = float((saves["end_ns"] - saves["start_ns"]).sum()) / facts.steps.height
    if total < _LEAST_SHARE * facts.step_ns:
        return
    each = total * facts.steps.height / saves.height
    evidence = [
        Evidence("saving_checkpoints", total, "ns", tuple(steps), ("torch.save",)),
        Evidence("one_checkpoint", each, "ns", per_step=False),
    ]
    size, remaining = facts.trace.meta_values().get(CHECKPOINT_BYTES), _REMAINING
    if isinstance(size, int):
        evidence.append(Evidence("checkpoint_size", float(size), "bytes", per_step=False))
        remaining = min(size / _COPY_RATE * 1e9 / each, 1.0)
    yield Finding(
        rule=RULE.name,
        confidence=0.9,
        evidence=tuple(evidence),
        # copying to the host may be ten times as fast, and a third as fast
        saving=Saving(max(1 - 3 * remaining, 0.0) * total, (1 - remaining) * total, (1 - remaining / 10) * total),
        step_ns=facts.step_ns,
    )


RULE = Rule("checkpoint_stalls", judge, (USER_MARKS,))
