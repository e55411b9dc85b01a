"""Batches are copied to a GPU from memory that is not pinned: the copy is slower, and the loop waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.loaders.loader_facts import feeding, name_of
from steplens.trace.health import DATA_LOADING, KERNEL_TIMES
from steplens.trace.schema import CORE_CUDA, KIND_COPY

#: how CUPTI names a copy from memory that the driver has to pin piece by piece
_PAGEABLE = "Memcpy HtoD (Pageable"
_LEAST_SHARE = 0.01
#: an assumption: what pinned memory leaves of a copy differs between machines
_REMAINING = 0.5


def judge(facts: Facts) -> Iterator[Finding]:
    """Pageable copies to the device in a step, of which pinned memory is taken to leave half, or none beside computing."""
    loaders = facts.trace.required("pipeline_loaders").filter(~pl.col("pin_memory").fill_null(True)).collect()
    unpinned = [verdict for verdict in feeding(facts) if verdict.loader in loaders["loader"].to_list()]
    if not unpinned or not facts.step_ns:
        return
    copies = facts.tasks.filter((pl.col("kind") == KIND_COPY) & pl.col("name").cast(pl.String).str.starts_with(_PAGEABLE))
    spent = facts.typical_ns(copies, on_device=True)
    if spent < _LEAST_SHARE * facts.step_ns:
        return
    yield Finding(
        rule=RULE.name,
        confidence=0.6,
        evidence=(
            Evidence("pageable_copies", spent, "ns", facts.numbers, tuple(map(name_of, unpinned))),
            Evidence("pageable_bytes", float(copies["bytes"].sum()) / facts.steps.height, "bytes"),
        ),
        saving=Saving(0.0, (1 - _REMAINING) * spent, spent),
        step_ns=facts.step_ns,
        part="exposed_copy_ns",
    )


RULE = Rule("loader_without_pinning", judge, (DATA_LOADING, KERNEL_TIMES), devices=(CORE_CUDA,))
