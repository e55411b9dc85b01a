"""Matrix products of GPUs: beside communication, and outside the matrix units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from steplens.advice.device_profile import MATRIX_UNITS, MATRIX_UNITS_FOR_FLOAT32
from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import rule
from steplens.advice.rules.tools.digits import in_digits
from steplens.advice.rules.tools.tasks import per_step, steps_of, timed_evidence, top_values, with_top_values
from steplens.analysis.tools.overlap import length_inside, merged
from steplens.trace.health import COMMUNICATION_TIMES, KERNEL_TIMES
from steplens.trace.schema import CORE_CUDA, CORE_ROCM, STEP_PREFIX

_CATEGORIES = ("matmul", "convolution", "attention")
#: of a kernel's time that must lie beside communication
_BESIDE = 0.5
#: kernels of one name and shape that must be seen either way, and by how much they must differ
_LEAST_KERNELS = 5
_SLOWER = 1.1


@rule(rests_on=(COMMUNICATION_TIMES, KERNEL_TIMES), devices=(CORE_CUDA, CORE_ROCM))
def contended_matmuls(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Matrix products that take longer while the GPU communicates: the collectives' kernels hold multiprocessors and bandwidth.

    Kernels of the same name, launched for the same shapes: the median beside communication against the median without.

    The price is their difference times the kernels beside communication.
    """
    in_steps = pl.col("step").is_in(list(facts.numbers))
    operations = facts.trace.required("communication").filter(in_steps).select("start_ns", "end_ns").drop_nulls().collect()
    products = facts.computing.filter(pl.col("category").is_in(_CATEGORIES))
    if operations.is_empty() or products.is_empty():
        return
    shapes = facts.trace.required("ops").select("input_shapes").collect().to_series()
    valid_op = pl.when(pl.col("op").is_between(0, shapes.len() - 1)).then(pl.col("op"))
    products = products.with_columns(shapes=shapes.gather(products.select(valid_op).to_series()))
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
    if both.is_empty() or lost < least_share * facts.step_ns:
        return
    times = float((both["slow_ns"] * both["slow"]).sum()) / float((both["usual_ns"] * both["slow"]).sum())
    evidence = [
        with_top_values(
            Evidence("slowed_kernels", slower.height / facts.steps.height, "count", steps_of(slower)), both, "name", "lost_ns"
        ),
        Evidence("longer_beside_communication", 100 * (times - 1), "%", per_step=False),
    ]
    yield facts.make_finding(contended_matmuls.name, evidence, Saving.up_to(lost), confidence=0.7, part="computing_ns")


#: kernels of the libraries that multiply in float32 outside matrix units, and those that use them
_OUTSIDE = r"(?i)sgemm|scudnn|simt|grad\w*_engine<float|_f32f32_f32f32_f32"
_INSIDE = r"(?i)tensorop|tf32|s1688|s16816|[hs]884|hmma|wgmma|bf16|_f16|half|nvjet"
#: architectures by their names in those of kernels, for traces that do not say what the device is
_ARCHITECTURES = {8: r"(?i)\b(\w+_)?ampere_|sm8\d_|_80_|sm90_", 7: r"(?i)volta_|turing_|sm7\d_"}
#: how many times as fast the lower precision is: at least, probably
_LEAST_SPEEDUP, _LIKELY_SPEEDUP = 1.4, 2.0
#: where the device's peaks are unknown
_USUAL_SPEEDUP = 8.0
#: on what the range rests then
_UNKNOWN_PEAK = "matrix_units_of_unknown_peak"


@rule(rests_on=(KERNEL_TIMES,), devices=(CORE_CUDA,))
def outside_matrix_units(facts: Facts, *, least_share: float = 0.03) -> Iterator[Finding]:
    """Matrix products and convolutions in float32 arithmetic on a GPU whose matrix units would take them.

    Told by the names of kernels, per category: where a category uses matrix units at all, the switch is on already.

    They make up to peak / peak times as many operations. Memory, layouts and small matrices keep kernels below that: twice as
    fast is assumed as likely, 1.4 times as the least.
    """
    kinds = facts.computing.filter(pl.col("category").is_in(_CATEGORIES))
    names = kinds.select("name").unique().with_columns(text=pl.col("name").cast(pl.String).str.slice(0, 2000))
    names = names.with_columns(inside=pl.col("text").str.contains(_INSIDE), outside=pl.col("text").str.contains(_OUTSIDE))
    capability = facts.profile.capability or _capability_of_kernels(names["text"])
    if capability is None or capability < MATRIX_UNITS or kinds.is_empty():
        return
    tasks = kinds.join(names.drop("text"), on="name")
    tasks = tasks.filter(~pl.col("inside").any().over("category") & pl.col("outside"))
    length = per_step(facts, tasks)
    if length < least_share * facts.step_ns or tasks.is_empty():
        return
    takes_float32 = capability >= MATRIX_UNITS_FOR_FLOAT32
    peak_speedup = facts.profile.matrix_speedup
    most_speedup = max(peak_speedup or _USUAL_SPEEDUP, _LIKELY_SPEEDUP)
    categories = top_values(tasks, "category")
    change = _FLOAT16
    if takes_float32:
        change = "\n".join([*dict.fromkeys(_ALLOW_TF32[category] for category in categories), _BFLOAT16])
    beside = kinds.join(tasks, on="id", how="anti").filter(pl.col("category").cast(pl.String).is_in(categories))
    by_operator = _with_operators(facts, tasks)
    kernels = timed_evidence(facts, "float32_kernels", tasks, "name")
    evidence = [
        timed_evidence(facts, "in_float32_arithmetic", by_operator, "operator", least=_NAMED_OPERATORS),
        replace(kernels, value=tasks.height / facts.steps.height, unit="count", steps=()),
    ]
    if per_step(facts, beside):
        evidence.append(timed_evidence(facts, "beside_float32", beside, "name"))
    if peak_speedup and (peak := facts.profile.peak) is not None:
        evidence.append(Evidence("peak_speedup", peak_speedup, "x", places=(peak.name,), per_step=False))
    low, likely, high = (length * (1 - 1 / speedup) for speedup in (_LEAST_SPEEDUP, _LIKELY_SPEEDUP, most_speedup))
    saving = Saving(low, likely, high)
    values = {
        "change": change,
        "type": "TF32" if takes_float32 else "float16",
        "operators": ", ".join(evidence[0].places[:_NAMED_OPERATORS] or categories),
        "least_times": f"{_LEAST_SPEEDUP:g}",
        "times": f"{_LIKELY_SPEEDUP:g}",
        "most_times": in_digits(most_speedup),
    }
    yield facts.make_finding(
        outside_matrix_units.name,
        evidence,
        saving,
        confidence=0.8,
        part="computing_ns",
        values=values,
        basis="" if peak_speedup else _UNKNOWN_PEAK,
    )


#: what makes the libraries take float32 to matrix units, by category; attention multiplies as matrix products do
_ALLOW_TF32 = {
    "convolution": "+torch.backends.cudnn.allow_tf32 = True",
    "matmul": "+torch.set_float32_matmul_precision('high')",
    "attention": "+torch.set_float32_matmul_precision('high')",
}
#: the training loop in lower precision; bfloat16 has the range of float32 and needs no scaler
_BFLOAT16 = """\
 # or, faster still, in bfloat16, which needs no GradScaler:
-loss = loss_fn(model(batch), target)
+with torch.autocast('cuda', dtype=torch.bfloat16):
+    loss = loss_fn(model(batch), target)"""
_FLOAT16 = """\
+scaler = torch.amp.GradScaler('cuda')   # once, before the loop
 for batch, target in loader:
     optimizer.zero_grad()
-    loss = loss_fn(model(batch), target)
-    loss.backward()
-    optimizer.step()
+    with torch.autocast('cuda', dtype=torch.float16):   # forward and loss
+        loss = loss_fn(model(batch), target)
+    scaler.scale(loss).backward()
+    scaler.step(optimizer)
+    scaler.update()"""
_NAMED_OPERATORS = 2


def _with_operators(facts: Facts, tasks: pl.DataFrame) -> pl.DataFrame:
    """Some tasks with the operator that launched each; null where launches were not recorded, or a step launched them itself.

    What a replayed CUDA graph runs has no operator: the call that replays it lies in nothing but its step.
    """
    ops = facts.trace.required("ops").filter(pl.col("id").is_in(tasks["op"].drop_nulls().unique().implode()))
    is_step = pl.col("operator").str.starts_with(STEP_PREFIX)
    names = ops.select(op="id", operator=pl.col("name").cast(pl.String)).filter(~is_step).collect()
    return tasks.join(names, on="op", how="left")


def _capability_of_kernels(names: pl.Series) -> int | None:
    """Major number of the compute capability that kernels were made for; None where no name tells."""
    return next((major for major, pattern in _ARCHITECTURES.items() if names.str.contains(pattern).any()), None)
