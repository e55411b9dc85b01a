"""Operators of a step: too small, of ever new shapes, more exact than needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import rule
from steplens.advice.rules.synchronization import READS
from steplens.advice.rules.tools.digits import in_ms
from steplens.advice.rules.tools.tasks import costliest_lines, timed_evidence, with_top_values
from steplens.analysis.operators.recording_cost import RecordingOfCall, cost_of_call, dispatch_ns
from steplens.analysis.steps.phases import BACKWARD, DATA, FORWARD, phase_of_calls
from steplens.analysis.tools.groups import Float64Array, are_among, first_rows, group_medians, number_groups
from steplens.analysis.tools.names import containing, distinct, with_prefix
from steplens.analysis.tools.order import in_order
from steplens.analysis.tools.overlap import Int64Array, length_inside, merged
from steplens.trace.health import OPERATOR_CALLS, OPERATOR_SELF_TIMES, OPERATOR_TIMES
from steplens.trace.schema import CORE_CPU, SCOPE_BACKWARD, SCOPE_FUNCTION

_OPTIMIZER = "Optimizer."
#: a call this short is mostly dispatch, not arithmetic
_TINY_NS = 30_000
#: between two calls of a loop lies a little Python, and at times another process has the processor
_GAP_NS = 1_000_000
#: a loop repeats few operators often
_REPEATS = 20
#: what one operator over all the data still takes, at least
_REMAINING = 0.05
#: of what is said of a storm while the loop loads its data itself
IN_LOADING = "loading"
#: phase of a storm -> the part of the step that a cure shortens
_PART_OF_PHASE = {DATA: "data_wait_ns", FORWARD: "forward_ns", BACKWARD: "backward_ns"}
_COLUMNS = ("id", "parent", "name", "scope", "pid", "tid", "step", "start_ns", "end_ns", "duration_ns", "stack")


@rule(rests_on=(OPERATOR_CALLS, OPERATOR_TIMES))
def tiny_operators(facts: Facts, *, least_calls: int = 100, least_share: float = 0.03) -> Iterator[Finding]:
    """A Python loop over elements or rows: hundreds of operators of microseconds, one after the other, where one would do.

    Storms of tiny calls: their length, gaps included, without their work and without what recording them took.

    On a CPU the work is what each call takes itself beyond a call that does next to nothing (``recording_cost.dispatch_ns``); one
    operator over all the data has it to do as well. On an accelerator the device has it.

    A storm is a row of at least 100 outermost calls of one thread, of operators that take less than 30 us as a rule, each
    less than 1 ms after the one before it, in which every operator occurs 20 times on average. The optimizer's calls and
    reads of scalars have rules of their own.
    """
    if facts.named_calls.height < least_calls:
        return
    calls = _outermost_calls(facts)
    if calls.is_empty() or not facts.step_ns:
        return
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    operator, count = number_groups(calls, ["name", "step"])
    tiny = (group_medians(operator, calls["duration_ns"].to_numpy(), count) < _TINY_NS)[operator]
    lane = calls.select(pl.struct("pid", "tid", "step").rle_id()).to_series().to_numpy()
    apart = np.r_[True, (start[1:] - end[:-1] > _GAP_NS) | (lane[1:] != lane[:-1]) | ~tiny[1:] | ~tiny[:-1]]
    storm = np.cumsum(apart) - 1
    # most rows are too short, and counting them takes next to nothing
    enough = np.bincount(storm[tiny], minlength=len(calls)) >= least_calls
    members = calls.with_columns(storm=pl.Series(storm)).filter(pl.Series(tiny & enough[storm]))
    storms = (
        members.group_by("storm")
        .agg(
            calls=pl.len(),
            names=pl.col("name").n_unique(),
            start_ns=pl.col("start_ns").min(),
            end_ns=pl.col("end_ns").max(),
            length_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
            step=pl.col("step").first(),
            stacks=pl.col("stack").count(),
        )
        .filter(pl.col("calls") >= _REPEATS * pl.col("names"))
    )
    total = facts.typical_ns(storms, "length_ns")
    if total < least_share * facts.step_ns:
        return
    longest = storms.sort("length_ns", "storm", descending=[True, False])
    # until the next call of the same storm begins, so that the lengths add up to those of the storms
    until_next = pl.col("start_ns").shift(-1).over("storm").fill_null(pl.col("end_ns")) - pl.col("start_ns")
    spans = members.join(storms.select("storm"), on="storm", how="semi", maintain_order="left").with_columns(length_ns=until_next)
    by_operator = timed_evidence(facts, "storms", spans, "name", column="length_ns", on_device=False)
    placed = longest.filter(pl.col("stacks") > 0)["storm"].head(1).to_list()
    line = _most_common_name(members, placed[0], "stack").partition(";")[0] if placed else ""
    phase, work, recording = _parts_of_storms(facts, storms)
    part = _PART_OF_PHASE.get(phase, "")
    # as the figure of that part: it is no longer than the part that it lies in
    median_ns, most_ns = (facts.median(part), facts.most_ns(part)) if part else (0.0, None)
    scale = min(most_ns / median_ns, 1.0) if most_ns and median_ns else 1.0
    total, work, recording = total * scale, work * scale, recording.of_calls(scale)
    gone = total - max(min(work, total), _REMAINING * total)
    likely = max(gone - recording.likely_ns, 0.0)
    if likely < least_share * facts.step_ns:
        return
    evidence = [
        _scaled_lengths(by_operator, scale),
        Evidence("storm_calls", float(storms["calls"].sum()) / facts.steps.height, "count", places=(line,) if line else ()),
    ]
    evidence += [Evidence("storm_work", min(work, total), "ns")] if work else []
    values = {"operator": _most_common_name(members, longest["storm"][0], "name"), "case": IN_LOADING if phase == DATA else ""}
    basis = ""
    if recording.most_ns:
        values |= {"recording_least": in_ms(recording.least_ns), "recording_most": in_ms(recording.most_ns)}
        basis = "tiny_recorded" if likely / 2 <= gone - recording.most_ns else "tiny_recorded_most"
    yield facts.make_finding(
        tiny_operators.name,
        evidence,
        Saving(max(min(likely / 2, gone - recording.most_ns), 0.0), likely, gone - recording.least_ns),
        confidence=0.8,
        part=part,
        recording_ns=recording.likely_ns,
        values=values,
        calls=storms,
        basis=basis,
    )


def _parts_of_storms(facts: Facts, storms: pl.DataFrame) -> tuple[str, float, RecordingOfCall]:
    """Of storms of calls: the phase that most of them lie in, their work, and what recording them took, ns per step."""
    trace = facts.trace
    intervals = merged(storms.select("start_ns", "end_ns"))
    of_phases = trace.required("ops").select("id").collect().with_columns(phase_of_calls(trace))
    calls = facts.named_calls.filter(pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]))
    starts = calls["start_ns"].to_numpy()
    calls = calls.filter(pl.Series(length_inside(intervals, starts, starts + 1) > 0)).join(of_phases, on="id", how="left")
    phase = calls.group_by("phase").agg(pl.len()).sort("len", "phase", descending=[True, False])["phase"].first()
    beyond = (pl.col("self_ns") - dispatch_ns(trace)).clip(0).fill_null(0).alias("work_ns")
    work = facts.typical_ns(calls.select("step", beyond), "work_ns") if facts.device == CORE_CPU else 0.0
    count = calls.height / facts.steps.height
    return str(phase), work, (cost_of_call(trace) or RecordingOfCall(0.0, 0.0, 0.0)).of_calls(count)


def _most_common_name(members: pl.DataFrame, storm: int, column: str) -> str:
    """What most calls of a storm have in a column of names; of several the first by alphabet."""
    names = members.filter(pl.col("storm") == storm)[column].drop_nulls()
    return str(names.mode().cast(pl.String).sort()[0])


def _scaled_lengths(evidence: Evidence, scale: float) -> Evidence:
    """Evidence about lengths, each times the same factor."""
    return replace(
        evidence,
        value=evidence.value * scale,
        places_ns=tuple(length * scale for length in evidence.places_ns),
        other_places_ns=evidence.other_places_ns * scale,
        other_most=evidence.other_most * scale,
    )


def _outermost_calls(facts: Facts) -> pl.DataFrame:
    """Operator calls that no other operator made, outside the optimizer, in order of thread and time."""
    calls = facts.named_calls.select(_COLUMNS)
    optimizers = with_prefix(facts.names, _OPTIMIZER)
    # handing over gradients is as much work as there are parameters
    handing_over = containing(facts.names, "AccumulateGrad")
    name = pl.col("name")
    outer_calls = calls.filter(name.is_in(optimizers + handing_over))["id"]
    # a node of the graph is one call, whatever it calls
    kinds = pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    functions = calls.filter(kinds & ~name.is_in(READS) & ~name.is_in(handing_over))
    inner = are_among(functions["parent"], pl.concat([functions["id"], outer_calls]))
    return in_order(functions.filter(pl.Series(~inner)), "pid", "tid", "start_ns")


#: share of the steps that bring shapes which no step before them had
_NEW_STEPS = 1 / 3
#: shapes with a first and a later call, which tell by how much an operator's first call is slower
_LEAST_PAIRS = 3
_SHAPE = ["name", "input_shapes", "input_types"]


@rule(rests_on=(OPERATOR_SELF_TIMES,), explains=("device_waits_for_host", "outlier_steps"))
def changing_shapes(facts: Facts, *, least_steps: int = 5, least_share: float = 0.02) -> Iterator[Finding]:
    """The shapes of the inputs change from step to step, and what the library prepares per shape is prepared again.

    By how much calls with new shapes are slower than calls of the same operator with shapes seen before.

    The first call of a shape is compared with the median of the later ones. Where a shape does not come again, what it would
    take is the first call divided by how many times slower first calls of this operator are than later ones, over the shapes
    that do come again (at least three); operators without such shapes are left out. Of the first recorded step, in which
    everything is new, nothing is known: the cost per step is that of the others. Self times: what an operator calls is
    compared on its own.
    """
    if facts.steps.height < least_steps or not facts.step_ns:
        return
    calls = facts.named_calls.select(*_SHAPE, "start_ns", "step", "self_ns").drop_nulls("input_shapes")
    if not calls["start_ns"].is_sorted():
        calls = calls.sort("start_ns", maintain_order=True)
    shape, count = number_groups(calls, _SHAPE)
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
    later_ns = _later_self_times(shape, row, calls["self_ns"], count)
    new = new.with_columns(later_ns=pl.Series(later_ns, nan_to_null=True))
    pair = pl.col("later_ns").is_not_null()
    slower = new.group_by("name").agg(
        times=pl.col("first_ns").filter(pair).sum() / pl.col("later_ns").filter(pair).sum(), pairs=pair.sum()
    )
    slower = slower.filter((pl.col("pairs") >= _LEAST_PAIRS) & (pl.col("times") > 1) & pl.col("times").is_finite())
    usual = pl.coalesce("later_ns", pl.col("first_ns") / pl.col("times"))
    extra = new.join(slower, on="name").with_columns(extra_ns=pl.col("first_ns") - usual)
    by_name = extra.group_by("name").agg(pl.col("extra_ns").sum()).filter(pl.col("extra_ns") > 0)
    by_name = by_name.with_columns(operator=pl.col("name").cast(pl.String))
    judged = facts.steps.height - 1
    total = float(by_name["extra_ns"].sum()) / judged
    priced = total >= least_share * facts.step_ns
    shapes = new.group_by("name").len().with_columns(operator=pl.col("name").cast(pl.String))
    # on an accelerator the host may be ahead of the device by more than it loses
    on_cpu = facts.device == CORE_CPU
    saving = Saving(total / 2, total, 1.2 * total) if on_cpu else Saving.up_to(total)
    cost = Evidence("new_shapes_cost", total, "ns", steps, of_mean=True)
    evidence = [
        with_top_values(cost, by_name, "operator", "extra_ns") if priced else with_top_values(cost, shapes, "operator", "len"),
        Evidence("new_shapes", new.height / judged, "count"),
    ]
    values = {"steps": len(steps), "of": facts.steps.height}
    yield facts.make_finding(
        changing_shapes.name,
        evidence,
        saving if priced else None,
        confidence=0.7 if priced else 0.5,
        values=values,
        basis="new_shapes_on_cpu" if on_cpu else "",
    )


def _later_self_times(shape: Int64Array, first: Int64Array, self_ns: pl.Series, count: int) -> Float64Array:
    """Median self time of the later calls of the shapes of some first calls, ns; nan of those without. Shape of ``first``."""
    selected = np.zeros(count, dtype=bool)
    selected[shape[first]] = True
    again = selected[shape] & self_ns.is_not_null().to_numpy()
    again[first] = False
    return group_medians(shape[again], self_ns.fill_null(0).to_numpy()[again], count)[shape[first]]


#: how many times faster bfloat16 products are: at least, probably, at most. With AVX512_BF16 measured, conversion included: 1.8
#: times on a Zen 4 and 3.3 times on a later EPYC; probably is what saves the mean of both. With AMX as its makers and users say
_FASTER = {"amx_bf16": (1.5, 3.0, 8.0), "avx512_bf16": (1.3, 2.3, 3.5)}
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
#: smaller products (m n k) gain less than the conversions cost
_LEAST_PRODUCT = 1 << 24


@rule(rests_on=(OPERATOR_TIMES,), devices=(CORE_CPU,))
def float32_matmul(facts: Facts, *, least_share: float = 0.05) -> Iterator[Finding]:
    """Large matrix products in float32 on a CPU that multiplies bfloat16 natively.

    The time of float32 products of 2^24 multiplications or more, less what bfloat16 products take on this CPU.

    Needs recorded shapes and a recorded list of the CPU's instructions. Whether the training bears the lower precision is
    for its author to judge.
    """
    processor = facts.trace.meta_value("processor")
    features = processor.get("features") if isinstance(processor, dict) else None
    feature = next((name for name in _FASTER if isinstance(features, list) and name in features), None)
    if feature is None or not facts.step_ns:
        return
    if not facts.called(_PRODUCTS)["input_types"].count():
        return
    products = _float32_products(facts)
    total = facts.typical_ns(products)
    if total < least_share * facts.step_ns:
        return
    least, likely, most = _FASTER[feature]
    flops = 2.0 * float(products["product"].sum()) / float(products["duration_ns"].sum())
    evidence = [
        timed_evidence(facts, "float32_products", _with_shapes(products), "with_shapes", on_device=False),
        Evidence("products", products.height / facts.steps.height, "count"),
        Evidence("float32_rate", flops, "GFLOP/s", per_step=False),
    ]
    saving = Saving(total * (1 - 1 / least), total * (1 - 1 / likely), total * (1 - 1 / most))
    finding = facts.make_finding(
        float32_matmul.name,
        evidence,
        saving,
        confidence=0.7,
        part="computing_ns",
        values={
            "feature": feature.upper(),
            **{name: f"{times:g}" for name, times in (("least_times", least), ("times", likely), ("most_times", most))},
        },
        calls=products,
    )
    change = _change_to_bfloat16(facts, products, finding.lies_in)
    yield replace(finding, values={**finding.values, "change": change})


#: phases in which calling the model runs the operators
_OF_MODEL = frozenset({"forward_ns", "backward_ns"})


def _change_to_bfloat16(facts: Facts, products: pl.DataFrame, phases: Sequence[str]) -> str:
    """Lines of a diff that make the products bfloat16: around the model where it makes them, or else around their own lines."""
    autocast = "with torch.autocast('cpu', dtype=torch.bfloat16):"
    if not phases or _OF_MODEL & set(phases):
        return f"-loss = model(batch)\n+{autocast}\n+    loss = model(batch)"
    line = next(iter(costliest_lines(products, count=1)), "")
    where = line or ", ".join(products["name"].cast(pl.String).unique().sort().to_list())
    return f"+{autocast}   # around what calls it, outside of the model: {where}\n+    ..."


_OF_PRODUCT = ("name", "step", "input_shapes", "start_ns", "end_ns", "duration_ns", "stack", "product")


def _float32_products(facts: Facts) -> pl.DataFrame:
    """Calls that multiply large float32 matrices on the step's threads: columns as in ``_OF_PRODUCT``."""
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
    return calls.filter(pl.col("product") >= _LEAST_PRODUCT).select(*_OF_PRODUCT)


def _with_shapes(products: pl.DataFrame) -> pl.DataFrame:
    """The products with what evidence calls each: the operator, and in brackets what it multiplies."""
    return products.with_columns(
        with_shapes=pl.format("{} ({})", pl.col("name").cast(pl.String), pl.col("input_shapes").cast(pl.String))
    )
