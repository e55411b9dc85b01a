"""Matrix products that take longer while the GPU communicates: the collectives' kernels hold multiprocessors and bandwidth."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import per_step, steps_of, top
from steplens.analysis.tools.overlap import length_inside, merged
from steplens.trace.health import COMMUNICATION_TIMES, KERNEL_TIMES
from steplens.trace.schema import CORE_CUDA, CORE_ROCM

_CATEGORIES = ("matmul", "convolution", "attention")
#: of a kernel's time that must lie beside communication
_BESIDE = 0.5
#: kernels of one name and shape that must be seen either way, and by how much they must differ
_LEAST_KERNELS = 5
_SLOWER = 1.1
_LEAST_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding]:
    """Kernels of the same name, launched for the same shapes: the median beside communication against the median without.

    The price is their difference times the kernels beside communication.
    """
    own = pl.col("step").is_in(list(facts.numbers))
    operations = facts.trace.required("communication").filter(own).select("start_ns", "end_ns").drop_nulls().collect()
    products = facts.computing.filter(pl.col("category").is_in(_CATEGORIES))
    if operations.is_empty() or products.is_empty():
        return
    shapes = facts.trace.required("ops").select("input_shapes").collect().to_series()
    known = pl.when(pl.col("op").is_between(0, shapes.len() - 1)).then(pl.col("op"))
    products = products.with_columns(shapes=shapes.gather(products.select(known).to_series()))
    communicating = merged(operations)
    shared = length_inside(communicating, products["start_ns"].to_numpy(), products["end_ns"].to_numpy())
    products = products.with_columns(beside=pl.Series(shared) >= _BESIDE * pl.col("duration_ns"), alone=pl.Series(shared) == 0)
    key = ["name", "shapes"]
    usual = products.filter("alone").group_by(key).agg(usual_ns=pl.col("duration_ns").median(), seen=pl.len())
    late = products.filter("beside").group_by(key).agg(slow_ns=pl.col("duration_ns").median(), slow=pl.len())
    both = usual.join(late, on=key, nulls_equal=True).filter(
        (pl.col("seen") >= _LEAST_KERNELS)
        & (pl.col("slow") >= _LEAST_KERNELS)
        & (pl.col("slow_ns") >= _SLOWER * pl.col("usual_ns"))
    )
    both = both.with_columns(lost_ns=(pl.col("slow_ns") - pl.col("usual_ns")) * pl.col("slow"))
    slower = products.filter("beside").join(both, on=key, nulls_equal=True)
    lost = per_step(facts, slower.with_columns(lost=pl.col("slow_ns") - pl.col("usual_ns")), "lost")
    if both.is_empty() or lost < _LEAST_SHARE * facts.step_ns:
        return
    times = float((both["slow_ns"] * both["slow"]).sum()) / float((both["usual_ns"] * both["slow"]).sum())
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=(
            Evidence(
                "slowed_kernels", slower.height / facts.steps.height, "count", steps_of(slower), top(both, "name", "lost_ns")
            ),
            Evidence("longer_beside_communication", 100 * (times - 1), "%", per_step=False),
        ),
        saving=Saving.up_to(lost),
        step_ns=facts.step_ns,
        part="computing_ns",
    )


RULE = Rule("contended_matmuls", judge, (COMMUNICATION_TIMES, KERNEL_TIMES), devices=(CORE_CUDA, CORE_ROCM))
