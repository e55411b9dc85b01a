"""Operators whose blocks do not divide evenly among the cores: in their last round some cores have nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import SHORT_NS, per_step, steps_of, top
from steplens.trace.building.devices import NPU
from steplens.trace.health import KERNEL_DETAILS, KERNEL_TIMES

_CUBE, _VECTOR, _MIXED = ("AI_CORE", "MIX_AIC"), ("AI_VECTOR_CORE",), "MIX_AIC"
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """With b blocks on c cores, equal blocks take ceil(b / c) rounds where b / c would do.

    So at most 1 - b / (c * ceil(b / c)) of a task goes. Tasks below 20 us are left out, since more blocks would not make
    them shorter; without the number of cores (``info.json``) nothing is said.
    """
    cube = facts.profile.cube_cores
    if cube is None:
        return
    cores = pl.when(pl.col("core").is_in(_VECTOR)).then(facts.profile.vector_cores or cube).otherwise(cube)
    tasks = facts.computing.filter(
        pl.col("core").is_in([*_CUBE, *_VECTOR]) & (pl.col("blocks") > 0) & (pl.col("duration_ns") >= SHORT_NS)
    ).with_columns(cores=cores.cast(pl.Int64))
    even = pl.col("blocks") % pl.col("cores") == 0
    if facts.profile.vector_cores:
        even |= (pl.col("core") == _MIXED) & (pl.col("mix_blocks").fill_null(1) % facts.profile.vector_cores == 0)
    rounds = (pl.col("blocks") + pl.col("cores") - 1) // pl.col("cores")
    uneven = tasks.filter(~even).with_columns(lost_ns=pl.col("duration_ns") * (1 - pl.col("blocks") / (pl.col("cores") * rounds)))
    lost = per_step(facts, uneven, "lost_ns")
    if lost < _LEAST_SHARE * facts.step_ns or not facts.step_ns:
        return
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=(
            Evidence("in_uneven_blocks", per_step(facts, uneven), "ns", steps_of(uneven), top(uneven, "type", "lost_ns")),
            Evidence("uneven_tasks", uneven.height / facts.steps.height, "count"),
        ),
        saving=Saving.up_to(lost),
        step_ns=facts.step_ns,
        part="computing_ns",
        values={"cores": cube, "vector_cores": facts.profile.vector_cores or cube},
    )


RULE = Rule("uneven_blocks", judge, (KERNEL_DETAILS, KERNEL_TIMES), devices=(NPU,))
