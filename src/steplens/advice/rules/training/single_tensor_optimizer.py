"""The optimizer updates one parameter after the other, in several operators each, where one operator could update them all."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.training.optimizers import updates
from steplens.trace.health import OPERATOR_CALLS, STEP_PHASES

_LEAST_SHARE = 0.03
_LEAST_CALLS = 40
#: PyTorch's optimizers that take ``fused``; a wrapper of others does not, and neither do those of other libraries
_WITH_FUSED = ("Adagrad", "Adam", "AdamW", "SGD")
#: operators that update many parameters at once
_MANY_AT_ONCE = r"_foreach_|_fused_|fused_adam|multi_tensor"
#: passes over a parameter and its state that a fused update still makes
_PASSES = 2.0
#: the most that was ever measured
_MOST_SAVED = 0.95


def judge(facts: Facts) -> Iterator[Finding]:
    """A fused update reads and writes a parameter's data about twice, whatever the number of operators it replaces.

    With k operators per parameter it takes 2 / k of the time: measured on CPUs, Adam (k = 12) saves 70 to 95 % and SGD with
    momentum (k = 3) 30 to 80 %. An optimizer with two operators per parameter or fewer gains nothing that is sure.
    """
    if not facts.step_ns or facts.named_calls.height < _LEAST_CALLS * facts.steps.height:
        return
    found = updates(facts, _WITH_FUSED)
    if found is None:
        return
    # without the forward and backward of a closure, and without what one slow step adds
    total = facts.median("optimizer_ns") * found.share
    if total < _LEAST_SHARE * facts.step_ns:
        return
    inside = found.calls
    if inside["name"].str.contains(_MANY_AT_ONCE).any():
        return
    calls = inside.height / facts.steps.height
    parameters = float(inside["name"].value_counts()["count"].median() or 0) / facts.steps.height  # type: ignore[arg-type]
    per_parameter = calls / parameters if parameters >= 1 else 0.0
    if calls < _LEAST_CALLS or per_parameter <= _PASSES:
        return
    likely = min(1 - _PASSES / per_parameter, _MOST_SAVED) * total
    yield Finding(
        rule=RULE.name,
        confidence=0.85,
        evidence=(
            Evidence("optimizer_time", total, "ns", facts.numbers, (f"{found.name}.step",)),
            Evidence("optimizer_calls", calls, "count", places=tuple(_most(inside))),
        ),
        saving=Saving(likely / 2, likely, _MOST_SAVED * total),
        step_ns=facts.step_ns,
        part="optimizer_ns",
        values={"optimizer": found.name, "parameters": round(parameters)},
    )


def _most(calls: pl.DataFrame) -> list[str]:
    """The names that most of the time goes to."""
    sums = calls.group_by("name").agg(pl.col("duration_ns").sum()).sort("duration_ns", "name", descending=[True, False])
    return sums["name"].head(3).to_list()


RULE = Rule("single_tensor_optimizer", judge, (OPERATOR_CALLS, STEP_PHASES))
