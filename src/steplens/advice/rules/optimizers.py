"""Optimizers, the gradients that they zero, and the exchange of gradients before them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import rule, run_rule
from steplens.advice.rules.tools.tasks import counted_evidence, steps_of
from steplens.analysis.cluster.communication_operations import operations_in_portions
from steplens.analysis.steps.device_work import computing_tasks, exposed_communication
from steplens.analysis.steps.phases import phase_intervals
from steplens.analysis.tools.joined_rows import RowsOfRanks
from steplens.analysis.tools.names import containing, distinct
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.overlap import intersect, length_inside, merged
from steplens.run import Run
from steplens.trace.building.framework import PYTORCH
from steplens.trace.health import COMMUNICATION_TIMES, OPERATOR_CALLS, OPERATOR_TIMES, STEP_PHASES
from steplens.trace.schema import CORE_CPU, OPTIMIZER_CLOSURE, OPTIMIZER_STEP_PREFIX, SCOPE_BACKWARD
from steplens.trace.trace import Trace

#: PyTorch's modules of optimizers, as Python frames name them, and the class in each that takes ``fused``
_OF_MODULE = {"adagrad": "Adagrad", "adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
_MODULE = r"torch[/\\]optim[/\\](\w+)\.py\(\d+\): "


@dataclass(frozen=True)
class Updates:
    """The updates of one class of optimizer.

    Attributes:
        name: of the class, such as "AdamW".
        ranges: its ranges, rows of ``Facts.named_calls``, by start.
        share: of the time of all optimizers that is in these.
        calls: the operators of the update: the outermost ones inside the ranges, ``name`` as text.
        closures: what the ranges call besides: forward and backward of a closure.
    """

    name: str
    ranges: pl.DataFrame
    share: float
    calls: pl.DataFrame
    closures: pl.DataFrame


def costliest_optimizer(facts: Facts, classes: Collection[str]) -> Updates | None:
    """The optimizer that took the most time of those of some classes; None where there is none.

    A wrapper calls the optimizer that it wraps: of ranges within one another the innermost counts. A class of another name is
    looked for in the Python frames inside its range, where those were recorded: a subclass, or a wrapper without a range of what
    it wraps, runs a step of ``torch.optim``. A class that only has the name of one of PyTorch's does not.

    Args:
        facts: one trace.
        classes: their names.
    """
    ranges = facts.starting_with(OPTIMIZER_STEP_PREFIX).sort("pid", "tid", "start_ns")
    if ranges.is_empty():
        return None
    start, end, lane = (ranges[column].to_numpy() for column in ("start_ns", "end_ns", "tid"))
    around_another = np.r_[(start[1:] < end[:-1]) & (lane[1:] == lane[:-1]), False]
    inner = ranges.filter(pl.Series(~around_another))
    texts = inner["name"].str.strip_prefix(OPTIMIZER_STEP_PREFIX).str.extract(r"^([^.]*)", 1)
    inner = inner.with_columns(optimizer=texts)
    of_class = {str(name): _class_of(facts, str(name), rows) for (name,), rows in inner.group_by("optimizer")}
    inner = inner.with_columns(pl.col("optimizer").replace_strict(of_class, return_dtype=pl.String))
    mine = inner.filter(pl.col("optimizer").is_in(list(classes)))
    if mine.is_empty():
        return None
    sums = mine.group_by("optimizer").agg(pl.col("duration_ns").sum()).sort("duration_ns", "optimizer", descending=[True, False])
    name = str(sums["optimizer"][0])
    mine = mine.filter(pl.col("optimizer") == name)
    share = float(mine["duration_ns"].sum()) / max(float(inner["duration_ns"].sum()), 1.0)
    return Updates(name, mine.drop("optimizer").sort("start_ns"), share, *_split_update_calls(facts, mine))


def _class_of(facts: Facts, name: str, ranges: pl.DataFrame) -> str | None:
    """The class of ``torch.optim`` that runs inside ranges of this name; the name itself where no frames were recorded there."""
    if "python" not in facts.trace:
        return name
    begin, end = ranges.select("start_ns", "end_ns").row(0)
    is_inside = (pl.col("start_ns") >= begin) & (pl.col("end_ns") <= end)
    frames = facts.on_threads(facts.trace.required("python")).filter(is_inside).select("name").collect()["name"]
    if not frames.len():
        return name
    modules = pl.Series(containing(distinct(frames), _MODULE), dtype=pl.String).str.extract(_MODULE, 1).to_list()
    classes = [_OF_MODULE[module] for module in modules if module in _OF_MODULE]
    # AdamW is a subclass of Adam and may run in its module
    return name if not modules or name in classes or (name == "AdamW" and classes) else next(iter(classes), name)


def _split_update_calls(facts: Facts, ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the ranges call for the update, and what runs in the closure of an optimizer: that is forward and backward."""
    calls = facts.named_calls.filter(pl.col("parent").is_in(ranges["id"].implode())).with_columns(pl.col("name").cast(pl.String))
    phases = phase_intervals(facts.trace)
    if phases is None:
        return calls, calls.clear()
    start = calls["start_ns"].to_numpy()
    # a closure begins in the optimizer's own time, and what it holds is forward and backward
    in_phase = pl.Series(length_inside(phases.optimizer, start, start + 1) > 0, dtype=pl.Boolean)
    of_update = in_phase & (calls["name"] != OPTIMIZER_CLOSURE)
    return calls.filter(of_update), calls.filter(~of_update)


#: PyTorch's optimizers that take ``fused``; a wrapper of others does not, and neither do those of other libraries
_WITH_FUSED = ("Adagrad", "Adam", "AdamW", "SGD")
#: operators that update many parameters at once
_MANY_AT_ONCE = r"_foreach_|_fused_|fused_adam|multi_tensor"
#: passes over a parameter and its state that a fused update still makes
_PASSES = 2.0
#: the most that was ever measured
_MOST_SAVED = 0.95


@rule(rests_on=(OPERATOR_CALLS, STEP_PHASES), framework=PYTORCH)
def single_tensor_optimizer(facts: Facts, *, least_share: float = 0.03, least_calls: int = 40) -> Iterator[Finding]:
    """The optimizer updates one parameter after the other, in several operators each, where one operator could update them all.

    A fused update reads and writes a parameter's data about twice, whatever the number of operators it replaces.

    With k operators per parameter it takes 2 / k of the time: measured on CPUs, Adam (k = 12) saves 70 to 95 % and SGD with
    momentum (k = 3) 30 to 80 %. An optimizer with two operators per parameter or fewer gains nothing that is sure.
    """
    if not facts.step_ns or facts.named_calls.height < least_calls * facts.steps.height:
        return
    update = costliest_optimizer(facts, _WITH_FUSED)
    if update is None:
        return
    # without the forward and backward of a closure, and without what one slow step adds
    total = facts.median("optimizer_ns") * update.share
    if total < least_share * facts.step_ns:
        return
    update_calls = update.calls
    if update_calls["name"].str.contains(_MANY_AT_ONCE).any():
        return
    calls = update_calls.height / facts.steps.height
    parameters = float(update_calls["name"].value_counts()["count"].median() or 0) / facts.steps.height  # type: ignore[arg-type]
    per_parameter = calls / parameters if parameters >= 1 else 0.0
    if calls < least_calls or per_parameter <= _PASSES:
        return
    likely = min(1 - _PASSES / per_parameter, _MOST_SAVED) * total
    evidence = [
        Evidence("optimizer_time", total, "ns", facts.numbers, (f"{update.name}.step",)),
        counted_evidence("optimizer_calls", update_calls.with_columns(operator="name"), "operator", facts.steps.height),
    ]
    saving = Saving(likely / 2, likely, _MOST_SAVED * total)
    values: dict[str, str | int | float] = {"optimizer": update.name, "parameters": round(parameters)}
    yield facts.make_finding(single_tensor_optimizer.name, evidence, saving, confidence=0.85, part="optimizer_ns", values=values)


_RANGE = "Optimizer.zero_grad#"
_ZERO = r"^aten::(zero_|_foreach_zero_)$"
_ACCUMULATE = "torch::autograd::AccumulateGrad"
#: the most that is saved, in units of both: they also push out of the caches what the step needs next
_MOST = 1.5


@rule(rests_on=(OPERATOR_CALLS, OPERATOR_TIMES), framework=PYTORCH)
def gradient_zeroing(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Gradients are filled with zeros and added to, where they could be dropped and written: ``zero_grad(set_to_none=False)``.

    Filling gradients with zeros, and adding to the zeros what backward gives.

    Where a gradient is None, backward hands its result over without touching it. With n additions per parameter and step
    (accumulation over n backward passes) the first of the n would go. On an accelerator these are device tasks.
    """
    ranges = facts.starting_with(_RANGE)
    # a form over many tensors fills them one by one on a CPU
    zeroing_calls = facts.containing(_ZERO)
    outer = zeroing_calls.filter(pl.col("parent").is_in(ranges["id"].implode()))
    inner = zeroing_calls.filter(pl.col("parent").is_in(outer["id"].implode()) & (pl.col("name") == "aten::zero_"))
    if outer.is_empty() or not facts.step_ns:
        return
    cost = "duration_ns" if facts.device == CORE_CPU else "device_total_ns"
    additions = _gradient_additions(facts)
    parameters = inner.height or outer.filter(~pl.col("name").str.contains("_foreach_")).height
    passes = max(additions.height / parameters, 1.0) if parameters else 1.0
    zeroing = facts.typical_ns(ranges if cost == "duration_ns" else outer, cost)
    adding = facts.typical_ns(additions, cost) / passes
    total = zeroing + adding
    if total < least_share * facts.step_ns:
        return
    steps = steps_of(outer)
    evidence = [
        Evidence("zeroing_gradients", zeroing, "ns", steps, (ranges["name"][0].removeprefix(_RANGE),)),
        Evidence("adding_to_zeros", adding, "ns", steps),
    ]
    yield facts.make_finding(gradient_zeroing.name, evidence, Saving(total / 2, total, _MOST * total), confidence=0.9)


def _gradient_additions(facts: Facts) -> pl.DataFrame:
    """Where backward adds to gradients that are there already, on any thread: duration_ns and device_total_ns."""
    ops = facts.trace.required("ops").filter(pl.col("step").is_in(list(facts.numbers)))
    name = pl.col("name")
    accumulating = ops.filter(name == _ACCUMULATE).select(parent="id")
    additions = ops.filter(name == "aten::add_").join(accumulating, on="parent", how="semi")
    return additions.select("step", "device_total_ns", duration_ns=pl.col("end_ns") - pl.col("start_ns")).collect()


_GRADIENTS = r"(?i)all_?reduce|reduce_?scatter"
#: share of the exchange that runs beside backward, at most, of a program that does not overlap them
_OVERLAPPED = 0.2
_LEAST_EXCHANGE_SHARE = 0.03
#: DistributedDataParallel's own size of a bucket, and the number into which gradients of less than so many are cut
_BUCKET = 25 << 20
_LEAST_BUCKETS = 8
#: what is smaller than this takes as long as it does because of its latency, and cannot be cut
_LEAST_BYTES = 4 << 20
#: of what hides beside backward on processors that both need, what is gained: 0.8 to 1.1 of it in the measured trainings
_ON_CPU = 0.9
#: backward has no gradients to exchange at its beginning
_USABLE = 0.8


@run_rule(rests_on=(COMMUNICATION_TIMES, OPERATOR_TIMES), explains=("data_parallel_communication",))
def exposed_gradients(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """Gradients are exchanged after backward, where most of the exchange could run beside it.

    With M the time of moving gradients and B that of backward, only max(M - 0.8 B, M / buckets) need stay.

    The exchange of the last bucket has nothing to run beside. On CPUs the exchange takes processors and memory bandwidth from
    backward: of what is hidden nine tenths are counted, and a fifth at least.

    Waiting for ranks that are late is no moving and does not count, whoever told it (``communication_operations``); where
    nobody did, since ranks are missing, the finding is less sure and may save nothing.
    """
    facts_of = {id(part.trace): part for part in facts}
    for traces, operations in operations_in_portions(run.traces):
        exchanges = RowsOfRanks(operations.filter(pl.col("operation").str.contains(_GRADIENTS)))
        for part in (facts_of[id(trace)] for trace in traces if id(trace) in facts_of):
            finding = _of_rank(part, exchanges.of_rank(part.trace.rank))
            if finding is not None:
                yield finding


def _of_rank(facts: Facts, exchanges: pl.DataFrame) -> Finding | None:
    operations = _moved_in_steps(facts, exchanges) if exchanges.height else exchanges
    if operations.is_empty() or not facts.step_ns:
        return None
    spans = facts.steps.select("step").join(backward_spans(facts.trace), on="step").sort("start_ns")
    begin, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    exchange = merged(operations)
    beside = float(length_inside(exchange, begin, end).sum())
    if beside > _OVERLAPPED * exchange.length_ns or not len(begin):
        return None
    count = facts.steps.height
    alone = facts.typical_length_ns(intersect(exchange, exposed_communication(facts.trace)))
    backward = float(np.median(end - begin))
    size = facts.typical_ns(operations, "bytes", on_device=True)
    # a bucket holds one parameter at least
    buckets = max(min(max(size / _BUCKET, _LEAST_BUCKETS), _gradients_per_step(facts)), 1.0)
    on_cpu = facts.device == CORE_CPU
    hidden = alone - max(alone - _USABLE * backward, alone / buckets)
    saved = hidden * (_ON_CPU if on_cpu else 1.0)
    if size < _LEAST_BYTES or saved < _LEAST_EXCHANGE_SHARE * facts.step_ns:
        return None
    measured = operations["waited"].any()
    low = 0.2 if on_cpu else 0.5
    evidence = [
        Evidence("exchange_alone", alone, "ns", steps_of(operations)),
        Evidence("backward_beside", backward, "ns"),
        Evidence("exchanged", size, "bytes"),
        Evidence("exchanges", operations.height / count, "count"),
    ]
    saving = Saving(low * saved if measured else 0.0, saved, alone)
    values = {"bucket": max(round(size / buckets / (1 << 20)), 1)}
    return facts.make_finding(
        exposed_gradients.name,
        evidence,
        saving,
        confidence=0.8 if measured else 0.5,
        part="exposed_communication_ns",
        values=values,
    )


def _moved_in_steps(facts: Facts, exchanges: pl.DataFrame) -> pl.DataFrame:
    """Exchanges of gradients in whole steps, each as long as it moved data, at its end, where that is known."""
    rows = exchanges.filter(pl.col("step").is_in(list(facts.numbers)))
    end = pl.col("start_ns") + pl.col("duration_ns")
    moved = pl.col("transfer_ns").fill_null(pl.col("duration_ns"))
    return rows.select("step", "bytes", start_ns=end - moved, end_ns=end, waited=pl.col("transfer_ns").is_not_null())


def _gradients_per_step(facts: Facts) -> float:
    """How many gradients a step of backward hands over."""
    in_steps = gradients_of_steps(facts.trace).filter(pl.col("step").is_in(list(facts.numbers)))
    return float(in_steps["gradients"].sum()) / facts.steps.height


@once_per_trace
def gradients_of_steps(trace: Trace) -> pl.DataFrame:
    """How many gradients (``gradients``) backward hands over in each ``step``."""
    calls = trace.required("ops").filter(pl.col("name").cast(pl.String) == "torch::autograd::AccumulateGrad")
    return calls.group_by("step").agg(gradients=pl.len()).sort("step").collect()


@once_per_trace
def backward_spans(trace: Trace) -> pl.DataFrame:
    """When backward ran on the device in each step: from its first task to its last; step, start_ns and end_ns."""
    pid = trace.required("steps").select("pid").unique()
    ops = trace.required("ops").filter(pl.col("scope") == SCOPE_BACKWARD).join(pid, on="pid", how="semi")
    if Facts(trace).device != CORE_CPU:
        host = ops.group_by("step").agg(first=pl.col("start_ns").min(), last=pl.col("end_ns").max())
        tasks = computing_tasks(trace).join(host, on="step")
        ops = tasks.filter(pl.col("launch_ns").is_between("first", "last"))
    spans = ops.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return spans.drop_nulls("step").sort("step").collect()
