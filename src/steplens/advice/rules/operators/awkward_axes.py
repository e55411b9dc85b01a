"""What rules say of tasks that are slow, or whose shapes have an axis that does not fit the units of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding
from steplens.advice.rules.operators import units
from steplens.advice.rules.tools.common import matters, per_step, steps_of, top

#: from this share of a step on it matters although nothing tells what it costs
_MUCH = 0.1


def findings(
    facts: Facts, rule: str, tasks: pl.DataFrame, slow: pl.DataFrame, is_awkward: Callable[[str], bool]
) -> Iterator[Finding]:
    """The slow tasks with their price; where they cost next to nothing, the awkward ones without.

    Args:
        facts: the trace.
        rule: name of the rule.
        tasks: those that it judges.
        slow: those of them that no unit limits, from ``units.unexplained``.
        is_awkward: whether the shapes of a task's inputs, ``2,3;4``, have an axis that does not fit.
    """
    distinct = tasks.select("input_shapes").unique()
    flags = [is_awkward(shapes or "") for shapes in distinct["input_shapes"].cast(pl.String)]
    flagged = distinct.with_columns(awkward=pl.Series(flags, dtype=pl.Boolean))
    awkward = tasks.join(flagged, on="input_shapes", nulls_equal=True).filter("awkward")
    length = per_step(facts, awkward) if awkward.height else 0.0
    evidence = [Evidence("awkward_axes", length, "ns", steps_of(awkward), top(awkward, "input_shapes"))] if length else []
    found = units.finding(facts, rule, tasks, slow, *evidence)
    if found is not None:
        yield found
    elif matters(facts, length):
        yield Finding(
            rule=rule,
            confidence=0.5,
            evidence=tuple(evidence),
            step_ns=facts.step_ns,
            values={"operators": ", ".join(top(awkward, "type"))},
            urgency=MEDIUM if length >= _MUCH * facts.step_ns else LOW,
        )
