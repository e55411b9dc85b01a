"""The shapes of the inputs change from step to step, and what the library prepares per shape is prepared again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.analysis.tools.groups import Float64Array, first_rows, medians, numbered
from steplens.analysis.tools.names import containing, distinct
from steplens.analysis.tools.overlap import Int64Array
from steplens.trace.health import OPERATOR_SELF_TIMES
from steplens.trace.schema import CORE_CPU

_LEAST_STEPS = 5
#: share of the steps that bring shapes which no step before them had
_NEW_STEPS = 1 / 3
_LEAST_SHARE = 0.02
#: shapes with a first and a later call, which tell by how much an operator's first call is slower
_LEAST_PAIRS = 3
_SHAPE = ["name", "input_shapes", "input_types"]


def judge(facts: Facts) -> Iterator[Finding]:
    """By how much calls with new shapes are slower than calls of the same operator with shapes seen before.

    The first call of a shape is compared with the median of the later ones. Where a shape does not come again, what it would
    take is the first call divided by how many times slower first calls of this operator are than later ones, over the shapes
    that do come again (at least three); operators without such shapes are left out. Of the first recorded step, in which
    everything is new, nothing is known: the cost per step is that of the others. Self times: what an operator calls is
    compared on its own.
    """
    if facts.steps.height < _LEAST_STEPS or not facts.step_ns:
        return
    calls = facts.named_calls.select(*_SHAPE, "start_ns", "step", "self_ns").drop_nulls("input_shapes")
    if not calls["start_ns"].is_sorted():
        calls = calls.sort("start_ns", maintain_order=True)
    shape, count = numbered(calls, _SHAPE)
    row = first_rows(shape, count)
    row = np.sort(row[row >= 0])
    first = calls.select("input_shapes", "step")[row]
    sizes = containing(distinct(first["input_shapes"]), r"\d")
    behind = pl.col("step") != facts.steps.sort("start_ns")["step"][0]
    row = row[first.select(pl.col("input_shapes").is_in(sizes) & behind).to_series().to_numpy()]
    new = calls.select("name", "step", first_ns="self_ns")[row]
    steps = tuple(sorted(new["step"].unique().to_list()))
    if len(steps) < _NEW_STEPS * facts.steps.height:
        return
    later_ns = _later(shape, row, calls["self_ns"], count)
    new = new.with_columns(later_ns=pl.Series(later_ns, nan_to_null=True))
    pair = pl.col("later_ns").is_not_null()
    slower = new.group_by("name").agg(
        times=pl.col("first_ns").filter(pair).sum() / pl.col("later_ns").filter(pair).sum(), pairs=pair.sum()
    )
    slower = slower.filter((pl.col("pairs") >= _LEAST_PAIRS) & (pl.col("times") > 1) & pl.col("times").is_finite())
    usual = pl.coalesce("later_ns", pl.col("first_ns") / pl.col("times"))
    extra = new.join(slower, on="name").with_columns(extra_ns=pl.col("first_ns") - usual)
    by_name = extra.group_by("name").agg(pl.col("extra_ns").sum()).filter(pl.col("extra_ns") > 0)
    by_name = by_name.with_columns(pl.col("name").cast(pl.String)).sort("extra_ns", "name", descending=[True, False])
    judged = facts.steps.height - 1
    total = float(by_name["extra_ns"].sum()) / judged
    known = total >= _LEAST_SHARE * facts.step_ns
    shapes = new.group_by("name").len().with_columns(pl.col("name").cast(pl.String))
    shapes = shapes.sort("len", "name", descending=[True, False])
    places = (by_name if known else shapes)["name"].head(3).to_list()
    # on an accelerator the host may be ahead of the device by more than it loses
    on_cpu = facts.device == CORE_CPU
    saving = Saving(total / 2, total, 1.2 * total) if on_cpu else Saving.up_to(total)
    yield Finding(
        rule=RULE.name,
        confidence=0.7 if known else 0.5,
        evidence=(
            Evidence("new_shapes_cost", total, "ns", steps, tuple(places)),
            Evidence("new_shapes", new.height / judged, "count"),
        ),
        saving=saving if known else None,
        step_ns=facts.step_ns,
        values={"steps": len(steps), "of": facts.steps.height},
        urgency=LOW,
    )


def _later(shape: Int64Array, first: Int64Array, self_ns: pl.Series, count: int) -> Float64Array:
    """Median self time of the later calls of the shapes of some first calls, ns; nan of those without. Shape of ``first``."""
    wanted = np.zeros(count, dtype=bool)
    wanted[shape[first]] = True
    again = wanted[shape] & self_ns.is_not_null().to_numpy()
    again[first] = False
    return medians(shape[again], self_ns.fill_null(0).to_numpy()[again], count)[shape[first]]


RULE = Rule("changing_shapes", judge, (OPERATOR_SELF_TIMES,), explains=("device_waits_for_host", "outlier_steps"))
