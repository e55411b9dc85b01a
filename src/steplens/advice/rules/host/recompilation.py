"""torch.compile compiles inside the recorded steps, again and again."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.analysis.tools.names import containing, of_calls
from steplens.analysis.tools.overlap import length_inside, merged
from steplens.trace.health import OPERATOR_TIMES

#: what TorchDynamo calls its ranges
_COMPILING = r"^dynamo$|\(dynamo_timed\)$"
_LEAST_STEPS = 2
_LEAST_SHARE = 0.02


def judge(facts: Facts) -> Iterator[Finding]:
    """The whole of compiling goes when nothing that guards a compiled function changes from step to step.

    A program that compiles in its first step alone is not meant.
    """
    compilers = containing(of_calls(facts.trace), _COMPILING)
    ranges = facts.trace.required("ops").filter(pl.col("name").is_in(compilers)).select("start_ns", "end_ns").collect()
    if ranges.is_empty() or not facts.step_ns:
        return
    steps = facts.steps.sort("start_ns")
    start = steps["start_ns"].to_numpy()
    compiling = merged(ranges)
    each = length_inside(compiling, start, start + steps["duration_ns"].to_numpy())
    each[:1] = 0
    total = float(each.sum()) / steps.height
    if (each > 0).sum() < _LEAST_STEPS or total < _LEAST_SHARE * facts.step_ns:
        return
    compiled = facts.starting_with("Torch-Compiled Region:")["name"].value_counts(sort=True)
    yield Finding(
        rule=RULE.name,
        confidence=0.95,
        evidence=(
            Evidence("compiling", total, "ns", tuple(steps["step"].filter(pl.Series(each > 0)).to_list())),
            Evidence("compiled_versions", compiled.height, "count", places=tuple(compiled["name"].head(3)), per_step=False),
        ),
        saving=Saving(0.8 * total, total, total),
        step_ns=facts.step_ns,
    )


RULE = Rule(
    "recompilation",
    judge,
    (OPERATOR_TIMES,),
    explains=("changing_shapes", "device_waits_for_host", "outlier_steps", "tiny_operators", "python_in_the_loop"),
)
