"""Training stops while a checkpoint is written."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.trace.health import USER_MARKS

#: message of the mark around ``torch.save``
SAVE = "save_checkpoint"
_LEAST_SHARE = 0.02
#: what stays in the loop of a checkpoint that is written in the background: copying the tensors to the host
_REMAINING = 0.2


def judge(facts: Facts) -> Iterator[Finding]:
    """The time of saving, spread over the recorded steps; written in the background, only the copy of the tensors stays."""
    marks = facts.trace.required("marks").filter(pl.col("message").cast(pl.String) == SAVE).select("start_ns", "end_ns").collect()
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
    each = float((saves["end_ns"] - saves["start_ns"]).mean() or 0)
    yield Finding(
        rule=RULE.name,
        confidence=0.9,
        evidence=(
            Evidence("saving_checkpoints", total, "ns", tuple(steps), ("torch.save",)),
            Evidence("one_checkpoint", each, "ns", per_step=False),
        ),
        saving=Saving(total / 2, (1 - _REMAINING) * total, total),
        step_ns=facts.step_ns,
    )


RULE = Rule("checkpoint_stalls", judge, (USER_MARKS,))
