"""Large matrix products in float32 on a CPU that multiplies bfloat16 natively."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.trace.health import OPERATOR_TIMES
from steplens.trace.schema import CORE_CPU

#: how many times faster bfloat16 products are: at least, probably, at most. With AVX512_BF16 measured, conversion included: 1.8
#: times on a Zen 4 and 3.3 times on a later EPYC; probably is what saves the mean of both. With AMX as its makers and users say
_FASTER = {"amx_bf16": (1.5, 3.0, 8.0), "avx512_bf16": (1.3, 2.3, 3.5)}
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
#: smaller products (m n k) gain less than the conversions cost
_LEAST_PRODUCT = 1 << 24
_LEAST_SHARE = 0.05


def judge(facts: Facts) -> Iterator[Finding]:
    """The time of float32 products of 2^24 multiplications or more, less what bfloat16 products take on this CPU.

    Needs recorded shapes and a recorded list of the CPU's instructions. Whether the training bears the lower precision is
    for its author to judge.
    """
    processor = facts.trace.meta_values().get("processor")
    features = processor.get("features") if isinstance(processor, dict) else None
    known = next((name for name in _FASTER if isinstance(features, list) and name in features), None)
    if known is None or not facts.step_ns:
        return
    if not facts.called(_PRODUCTS)["input_types"].count():
        return
    products = _products(facts)
    total = facts.typical_ns(products)
    if total < _LEAST_SHARE * facts.step_ns:
        return
    least, likely, most = _FASTER[known]
    flops = 2.0 * float(products["product"].sum()) / float(products["duration_ns"].sum())
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=(
            Evidence("float32_products", total, "ns", facts.numbers, tuple(_longest(products))),
            Evidence("products", products.height / facts.steps.height, "count"),
            Evidence("float32_rate", flops, "GFLOP/s", per_step=False),
        ),
        saving=Saving(total * (1 - 1 / least), total * (1 - 1 / likely), total * (1 - 1 / most)),
        step_ns=facts.step_ns,
        part="computing_ns",
        values={"feature": known.upper()},
    )


def _products(facts: Facts) -> pl.DataFrame:
    """Calls that multiply large float32 matrices on the step's threads: name, input_shapes, duration_ns, product."""
    types = pl.col("input_types").cast(pl.String).str.split(";")
    shapes = pl.col("input_shapes").cast(pl.String).str.split(";")
    # the bias comes first
    first = pl.col("name").is_in(["aten::addmm", "aten::baddbmm"]).cast(pl.Int64)
    calls = facts.called(_PRODUCTS).with_columns(
        a=shapes.list.get(first, null_on_oob=True),
        b=shapes.list.get(first + 1, null_on_oob=True),
        type=types.list.get(first, null_on_oob=True),
    )
    sizes = pl.col("a").str.split(",").list.eval(pl.element().cast(pl.Int64, strict=False))
    columns = pl.col("b").str.split(",").list.last().cast(pl.Int64, strict=False)
    product = sizes.list.eval(pl.element().cast(pl.Float64).product()).list.first() * columns
    calls = calls.filter(pl.col("type") == "float").with_columns(product=product)
    return calls.filter(pl.col("product") >= _LEAST_PRODUCT).select("name", "step", "input_shapes", "duration_ns", "product")


def _longest(products: pl.DataFrame) -> list[str]:
    sums = products.group_by("name", "input_shapes").agg(pl.col("duration_ns").sum())
    top = sums.sort("duration_ns", "name", descending=[True, False]).head(3)
    return [f"{name} ({shapes})" for name, shapes in top.select("name", pl.col("input_shapes").cast(pl.String)).iter_rows()]


RULE = Rule("float32_matmul", judge, (OPERATOR_TIMES,), devices=(CORE_CPU,))
