"""Gradients are exchanged after backward, where most of the exchange could run beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from steplens.advice.facts import Facts, together
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.analysis.cluster.communication_operations import communication_operations
from steplens.analysis.steps.work import computing_tasks
from steplens.analysis.tools.overlap import Int64Array, intersect, length_inside, merged, subtract
from steplens.trace.health import COMMUNICATION_TIMES, OPERATOR_TIMES
from steplens.trace.run import Run
from steplens.trace.schema import CORE_CPU, SCOPE_BACKWARD

_GRADIENTS = r"(?i)all_?reduce|reduce_?scatter"
#: share of the exchange that runs beside backward, at most, of a program that does not overlap them
_OVERLAPPED = 0.2
_LEAST_SHARE = 0.03
#: DistributedDataParallel's own size of a bucket, and the number into which gradients of less than so many are cut
_BUCKET = 25 << 20
_LEAST_BUCKETS = 8
#: what is smaller than this takes as long as it does because of its latency, and cannot be cut
_LEAST_BYTES = 4 << 20
#: of what hides beside backward on processors that both need, what is gained: 0.8 to 1.1 of it in the measured trainings
_ON_CPU = 0.9
#: backward has no gradients to exchange at its beginning
_USABLE = 0.8


def judge(run: Run, facts: Sequence[Facts]) -> Iterator[Finding]:
    """With M the time of moving gradients and B that of backward, only max(M - 0.8 B, M / buckets) need stay.

    The exchange of the last bucket has nothing to run beside. On CPUs the exchange takes processors and memory bandwidth from
    backward: of what is hidden nine tenths are counted, and a fifth at least.

    Waiting for ranks that are late is no moving and does not count, whoever told it (``communication_operations``); where
    nobody did, since ranks are missing, the finding is less sure and may save nothing.
    """
    operations = together(communication_operations, facts, run.traces)
    for part in facts:
        found = _of_rank(part, operations)
        if found is not None:
            yield found


def _of_rank(facts: Facts, every: pl.DataFrame) -> Finding | None:
    operations = _operations(facts, every)
    if operations.is_empty() or not facts.step_ns:
        return None
    begin, end = _backward(facts)
    exchange = merged(operations)
    tasks = computing_tasks(facts.trace).select("start_ns", "end_ns").collect()
    computing = merged(tasks)
    beside = float(length_inside(exchange, begin, end).sum())
    if beside > _OVERLAPPED * exchange.length_ns or not len(begin):
        return None
    count = facts.steps.height
    alone = facts.typical_length_ns(subtract(exchange, intersect(exchange, computing)))
    backward = float(np.median(end - begin))
    size = facts.typical_ns(operations, "bytes", on_device=True)
    # a bucket holds one parameter at least
    buckets = max(min(max(size / _BUCKET, _LEAST_BUCKETS), _parameters(facts)), 1.0)
    on_cpu = facts.device == CORE_CPU
    hidden = alone - max(alone - _USABLE * backward, alone / buckets)
    saved = hidden * (_ON_CPU if on_cpu else 1.0)
    if size < _LEAST_BYTES or saved < _LEAST_SHARE * facts.step_ns:
        return None
    known = operations["waited"].any()
    low = 0.2 if on_cpu else 0.5
    return Finding(
        rule=RULE.name,
        confidence=0.8 if known else 0.5,
        evidence=(
            Evidence("exchange_alone", alone, "ns", tuple(sorted(set(operations["step"].to_list())))),
            Evidence("backward_beside", backward, "ns"),
            Evidence("exchanged", size, "bytes"),
            Evidence("exchanges", operations.height / count, "count"),
        ),
        saving=Saving(low * saved if known else 0.0, saved, alone),
        step_ns=facts.step_ns,
        part="exposed_communication_ns",
        values={"bucket": max(round(size / buckets / (1 << 20)), 1)},
    )


def _operations(facts: Facts, every: pl.DataFrame) -> pl.DataFrame:
    """Exchanges of gradients in whole steps, each as long as it moved data, at its end, where that is known."""
    own = (pl.col("rank") == facts.trace.rank) & pl.col("step").is_in(list(facts.numbers))
    rows = every.filter(own & pl.col("operation").str.contains(_GRADIENTS))
    end = pl.col("start_ns") + pl.col("duration_ns")
    moved = pl.col("transfer_ns").fill_null(pl.col("duration_ns"))
    return rows.select("step", "bytes", start_ns=end - moved, end_ns=end, waited=pl.col("transfer_ns").is_not_null())


def _parameters(facts: Facts) -> float:
    """How many gradients a step of backward hands over."""
    name = pl.col("name").cast(pl.String) == "torch::autograd::AccumulateGrad"
    calls = facts.trace.required("ops").filter(name & pl.col("step").is_in(list(facts.numbers)))
    return float(calls.select(pl.len()).collect().item()) / facts.steps.height


def _backward(facts: Facts) -> tuple[Int64Array, Int64Array]:
    """When backward ran on the device in each step: from its first task to its last."""
    steps = facts.steps.select("step")
    pid = facts.trace.required("steps").select("pid").unique()
    ops = facts.trace.required("ops").filter(pl.col("scope") == SCOPE_BACKWARD).join(pid, on="pid", how="semi")
    if facts.device != CORE_CPU:
        host = ops.group_by("step").agg(first=pl.col("start_ns").min(), last=pl.col("end_ns").max())
        tasks = computing_tasks(facts.trace).join(host, on="step")
        ops = tasks.filter(pl.col("launch_ns").is_between("first", "last"))
    spans = ops.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).collect()
    spans = steps.join(spans, on="step").sort("start_ns")
    return spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()


RULE = Rule(
    "exposed_gradients",
    rests_on=(COMMUNICATION_TIMES, OPERATOR_TIMES),
    judge_run=judge,
    explains=("data_parallel_communication",),
)
