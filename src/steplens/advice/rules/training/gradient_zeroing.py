"""Gradients are filled with zeros and added to, where they could be dropped and written: ``zero_grad(set_to_none=False)``."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.trace.health import OPERATOR_CALLS, OPERATOR_TIMES
from steplens.trace.schema import CORE_CPU

_RANGE = "Optimizer.zero_grad#"
_ZERO = r"^aten::(zero_|_foreach_zero_)$"
_ACCUMULATE = "torch::autograd::AccumulateGrad"
_LEAST_SHARE = 0.01
#: the most that is saved, in units of both: they also push out of the caches what the step needs next
_MOST = 1.5


def judge(facts: Facts) -> Iterator[Finding]:
    """Filling gradients with zeros, and adding to the zeros what backward gives.

    Where a gradient is None, backward hands its result over without touching it. With n additions per parameter and step
    (accumulation over n backward passes) the first of the n would go. On an accelerator these are device tasks.
    """
    ranges = facts.starting_with(_RANGE)
    # a form over many tensors fills them one by one on a CPU
    inside = facts.containing(_ZERO)
    outer = inside.filter(pl.col("parent").is_in(ranges["id"].implode()))
    inner = inside.filter(pl.col("parent").is_in(outer["id"].implode()) & (pl.col("name") == "aten::zero_"))
    if outer.is_empty() or not facts.step_ns:
        return
    cost = "duration_ns" if facts.device == CORE_CPU else "device_total_ns"
    additions = _additions(facts)
    parameters = inner.height or outer.filter(~pl.col("name").str.contains("_foreach_")).height
    passes = max(additions.height / parameters, 1.0) if parameters else 1.0
    zeroing = facts.typical_ns(ranges if cost == "duration_ns" else outer, cost)
    adding = facts.typical_ns(additions, cost) / passes
    total = zeroing + adding
    if total < _LEAST_SHARE * facts.step_ns:
        return
    steps = tuple(sorted(set(outer["step"].to_list())))
    yield Finding(
        rule=RULE.name,
        confidence=0.9,
        evidence=(
            Evidence("zeroing_gradients", zeroing, "ns", steps, (ranges["name"][0].removeprefix(_RANGE),)),
            Evidence("adding_to_zeros", adding, "ns", steps),
        ),
        saving=Saving(total / 2, total, _MOST * total),
        step_ns=facts.step_ns,
    )


def _additions(facts: Facts) -> pl.DataFrame:
    """Where backward adds to gradients that are there already, on any thread: duration_ns and device_total_ns."""
    ops = facts.trace.required("ops").filter(pl.col("step").is_in(list(facts.numbers)))
    name = pl.col("name")
    accumulating = ops.filter(name == _ACCUMULATE).select(parent="id")
    additions = ops.filter(name == "aten::add_").join(accumulating, on="parent", how="semi")
    return additions.select("step", "device_total_ns", duration_ns=pl.col("end_ns") - pl.col("start_ns")).collect()


RULE = Rule("gradient_zeroing", judge, (OPERATOR_CALLS, OPERATOR_TIMES))
