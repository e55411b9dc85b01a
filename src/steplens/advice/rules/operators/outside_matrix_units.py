"""Matrix products and convolutions in float32 arithmetic on a GPU whose matrix units would take them."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.device_profile import MATRIX_UNITS, MATRIX_UNITS_FOR_FLOAT32
from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.common import per_step, steps_of, top
from steplens.trace.health import KERNEL_TIMES
from steplens.trace.schema import CORE_CUDA

_CATEGORIES = ("matmul", "convolution", "attention")
#: kernels of the libraries that multiply in float32 outside matrix units, and those that use them
_OUTSIDE = r"(?i)sgemm|scudnn|simt|grad\w*_engine<float|_f32f32_f32f32_f32"
_INSIDE = r"(?i)tensorop|tf32|s1688|s16816|[hs]884|hmma|wgmma|bf16|_f16|half|nvjet"
#: architectures by their names in those of kernels, for traces that do not say what the device is
_ARCHITECTURES = {8: r"(?i)\b(\w+_)?ampere_|sm8\d_|_80_|sm90_", 7: r"(?i)volta_|turing_|sm7\d_"}
_LEAST_SHARE = 0.03
_LOW, _LIKELY = 0.3, 0.5
#: where the device's peaks are unknown
_USUAL_SPEEDUP = 8.0


def judge(facts: Facts) -> Iterator[Finding]:
    """Told by the names of kernels, per category: where a category uses matrix units at all, the switch is on already.

    They make up to peak / peak times as many operations; memory and small matrices leave about half of that.
    """
    kinds = facts.computing.filter(pl.col("category").is_in(_CATEGORIES))
    names = kinds.select("name").unique().with_columns(text=pl.col("name").cast(pl.String).str.slice(0, 2000))
    names = names.with_columns(inside=pl.col("text").str.contains(_INSIDE), outside=pl.col("text").str.contains(_OUTSIDE))
    capability = facts.profile.capability or _architecture(names["text"])
    if capability is None or capability < MATRIX_UNITS or kinds.is_empty():
        return
    tasks = kinds.join(names.drop("text"), on="name")
    tasks = tasks.filter(~pl.col("inside").any().over("category") & pl.col("outside"))
    length = per_step(facts, tasks)
    if length < _LEAST_SHARE * facts.step_ns or tasks.is_empty():
        return
    takes_float32 = capability >= MATRIX_UNITS_FOR_FLOAT32
    most = 1 - 1 / max(facts.profile.matrix_speedup or _USUAL_SPEEDUP, 1 / (1 - _LIKELY))
    change = (
        "+torch.set_float32_matmul_precision('high')"
        if takes_float32
        else "+with torch.autocast('cuda', dtype=torch.float16):   # with torch.amp.GradScaler"
    )
    yield Finding(
        rule=RULE.name,
        confidence=0.8,
        evidence=(
            Evidence("in_float32_arithmetic", length, "ns", steps_of(tasks), top(tasks, "name")),
            Evidence("float32_kernels", tasks.height / facts.steps.height, "count", places=top(tasks, "category")),
        ),
        saving=Saving(_LOW * length, _LIKELY * length, most * length),
        step_ns=facts.step_ns,
        part="computing_ns",
        values={"change": change, "type": "TF32" if takes_float32 else "float16"},
    )


def _architecture(names: pl.Series) -> int | None:
    """Major number of the compute capability that kernels were made for; None where no name tells."""
    return next((major for major, pattern in _ARCHITECTURES.items() if names.str.contains(pattern).any()), None)


RULE = Rule("outside_matrix_units", judge, (KERNEL_TIMES,), devices=(CORE_CUDA,))
