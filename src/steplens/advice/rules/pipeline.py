"""Data pipelines of MindSpore as a whole: the interval between steps, the queues on host and device, the processors."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import rule
from steplens.advice.rules.tools.pressure import (
    MATTERS_MUCH,
    WAITING,
    at_most,
    mindspore_operations,
    pipeline_basis,
    pipeline_pressure,
    pipeline_saving,
    trains_on_cpu,
    wait_evidence,
    waiting_values,
)
from steplens.analysis.data_loading.data_pipeline import host_queue, queue_summary
from steplens.analysis.data_loading.data_wait import data_wait, loads_with_pytorch
from steplens.analysis.data_loading.pipeline_cpu import HOST, HOST_PARTS, PROCESS, cpu_means, cpu_samples, host_idle
from steplens.analysis.data_loading.pipeline_verdict import MOST_EMPTY, keeps_up
from steplens.trace.health import COUNTERS, STEP_TIMES
from steplens.trace.schema import CORE_CPU
from steplens.trace.trace import Trace

#: an interval that is no reason to look any further
LEAST_NS = 500_000
#: of what is said where the CPU trains itself: there is no device to wait, and sinking data does nothing
_ON_CPU = "cpu"
#: of two steps one may be an accident
_SURE_STEPS = 3


@rule(rests_on=(STEP_TIMES,), explains=("device_waits_for_host",))
def iteration_interval(facts: Facts, *, least_ns: float = LEAST_NS) -> Iterator[Finding]:
    """The device waits between two steps: data, or the work of the host that sends it, comes late.

    A mean interval of more than 0.5 ms; all of it but that goes when the data is there and the next step is launched.

    The interval is that of ``analysis.data_loading.data_wait``, without warm-up. Steps that PyTorch's DataLoader feeds have
    rules of their own. Where the loop's own clock tells how long it waits, that is the price (``pipeline_saving``).
    """
    waited = data_wait(facts.trace)
    if waited is None or waited.wait_ns <= least_ns or loads_with_pytorch(facts.trace):
        return
    steps = tuple(waited.steps.filter(pl.col("wait_ns") > least_ns)["step"].to_list())
    by_loop = pipeline_saving(facts)
    yield Finding(
        rule=iteration_interval.name,
        confidence=0.8 if len(steps) >= _SURE_STEPS else 0.5,
        evidence=(
            Evidence("interval", waited.wait_ns, "ns", steps),
            Evidence("interval_share", 100 * waited.share, "%", per_step=False),
            Evidence("median_interval", float(waited.steps["wait_ns"].median() or 0), "ns"),  # type: ignore[arg-type]
        ),
        saving=by_loop or Saving((waited.wait_ns - least_ns) / 2, waited.wait_ns - least_ns, waited.wait_ns),
        step_ns=waited.step_ns,
        part=WAITING if by_loop else "",
        basis=pipeline_basis(facts) if by_loop else "",
        values={"threshold": f"{least_ns / 1e6:g}", "case": _ON_CPU if trains_on_cpu(facts) else ""},
    )


#: of fewer batches a share says little
_SURE_BATCHES = 10


@rule(explains=("iteration_interval",))
def data_processing(facts: Facts, *, most_empty: float = MOST_EMPTY) -> Iterator[Finding]:
    """The queue on the host runs empty: batches are used faster than the data pipeline makes them.

    More than 30 % of the batches found the queue empty. What it costs is what the loop waits (``pipeline_saving``), else the
    interval's to say (``iteration_interval``).

    A queue on the device that was never empty hid all of it: nobody waited.
    """
    if facts.trace.lazy("pipeline_loaders") is not None:
        # of PyTorch the rules about loaders say it, with the stage that is slow
        return
    queue = host_queue(facts.trace)
    if queue is None or queue.empty <= most_empty * queue.batches:
        return
    received = queue_summary(facts.trace, "receive")
    evidence = [
        Evidence("queue_empty", queue.empty, "count", empty_batches(facts.trace, queue.kind), per_step=False),
        Evidence("queue_batches", queue.batches, "count", per_step=False),
        Evidence("queue_empty_share", 100 * queue.empty / queue.batches, "%", per_step=False),
        *([Evidence("queue_full", queue.full, "count", per_step=False)] if queue.full is not None else []),
        *wait_evidence(facts),
    ]
    if received is not None:
        evidence.append(Evidence("device_queue_empty", received.empty, "count", per_step=False))
    elif not trains_on_cpu(facts):
        evidence.append(Evidence("no_device_queue", 0, ""))
    hidden = received is not None and not received.empty
    level = pipeline_pressure(facts)
    urgency = LOW if hidden else level if queue.batches >= _SURE_BATCHES else at_most(level, MEDIUM)
    yield facts.make_finding(
        data_processing.name,
        evidence,
        None if hidden else pipeline_saving(facts),
        part=WAITING,
        basis=pipeline_basis(facts),
        values=waiting_values(facts),
        confidence=0.9 if queue.batches >= _SURE_BATCHES else 0.6,
        urgency=urgency,
    )


def empty_batches(trace: Trace, kind: str) -> tuple[int, ...]:
    """The batches that found the queue of one kind empty."""
    rows = trace.required("pipeline_batches").filter(
        (pl.col("kind").cast(pl.String) == kind) & (pl.col("queue_size") == 0) & pl.col("batch").is_not_null()
    )
    return tuple(rows.select("batch").unique().sort("batch").collect()["batch"].to_list())


@rule()
def data_transfer(facts: Facts, *, most_empty: float = MOST_EMPTY) -> Iterator[Finding]:
    """The queue on the device runs empty although the one on the host does not: the transfer between them is slow.

    The device found its queue empty at least once, and the host's queue was empty for at most 30 % of the batches.

    It matters the more, the more batches found it empty; the first ones always do.
    """
    queue, received = host_queue(facts.trace), queue_summary(facts.trace, "receive")
    if queue is None or received is None or not received.empty or queue.empty > most_empty * queue.batches:
        return
    share = received.empty / received.batches
    moved = (
        facts.trace.required("pipeline_batches")
        .filter(pl.col("kind").cast(pl.String).is_in(["send", "receive"]))
        .select(push=pl.col("push_ns").mean(), wait=pl.col("wait_ns").mean())
        .collect()
        .row(0, named=True)
    )
    evidence = [
        Evidence("device_queue_empty", received.empty, "count", empty_batches(facts.trace, "receive"), per_step=False),
        Evidence("device_batches", received.batches, "count", per_step=False),
        Evidence("queue_empty_share", 100 * queue.empty / queue.batches, "%", per_step=False),
    ]
    if moved["push"] is not None:
        evidence.append(Evidence("transfer", float(moved["push"]), "ns"))
    if moved["wait"] is not None:
        evidence.append(Evidence("device_waits_for_batch", float(moved["wait"]), "ns"))
    enough = received.batches >= _SURE_BATCHES
    urgency = LOW if share < MATTERS_MUCH or not enough else HIGH if share > most_empty else MEDIUM
    yield facts.make_finding(data_transfer.name, evidence, confidence=0.7 if enough else 0.4, urgency=urgency)


@rule()
def data_pipeline_healthy(facts: Facts, *, most_empty: float = MOST_EMPTY) -> Iterator[Finding]:
    """The queues of the data pipeline were filled: it keeps up with the training. Nothing to change, said with its figures.

    The host's queue was empty for at most 30 % of the batches, and the device's queue, where it was recorded, never.
    """
    queue, received = host_queue(facts.trace), queue_summary(facts.trace, "receive")
    if queue is None or not keeps_up(facts.trace, most_empty=most_empty):
        return
    if loads_with_pytorch(facts.trace):
        return
    evidence = [
        Evidence("queue_empty", queue.empty, "count", per_step=False),
        Evidence("queue_batches", queue.batches, "count", per_step=False),
    ]
    if received is not None:
        evidence.append(Evidence("device_queue_empty", received.empty, "count", per_step=False))
    elif not trains_on_cpu(facts):
        evidence.append(Evidence("no_device_queue", 0, ""))
    usage = mindspore_operations(facts).drop_nulls("usage")
    if usage.height:
        evidence.append(Evidence("last_queue_usage", 100 * usage["usage"][0], "%", per_step=False))
    yield facts.make_finding(data_pipeline_healthy.name, evidence, confidence=0.9)


#: share of the processors that should be idle
LEAST_IDLE = 0.20


@rule()
def busy_host(facts: Facts, *, least_idle: float = LEAST_IDLE) -> Iterator[Finding]:
    """The processors of the host are busy: work on the data competes with everything else that runs there.

    Less than 20 % of the processors idle, on average over the samples that the data pipeline took.

    Where the CPU does the training itself it should be busy, and nothing is said.
    """
    if "pipeline_samples" not in facts.trace or ("kernels" in facts.trace and facts.device == CORE_CPU):
        return
    means = cpu_means(cpu_samples(facts.trace))
    host = means.filter(pl.col("scope") == HOST)
    mean_of = {name: mean for name, mean in host.select("name", "mean").iter_rows() if mean is not None}
    idle = host_idle(means)
    if idle is None or idle / 100 >= least_idle:
        return
    # MindSpore 2.10 cuts the samples of some parts off; those of idle time are whole
    reliable = HOST_PARTS[:3] if facts.trusts(COUNTERS) else ()
    shares = {part: mean_of[key] for part in reliable if (key := f"{part}_utilization") in mean_of}
    parts = [Evidence(f"{part}_time", share, "%", per_step=False) for part, share in shares.items()]
    process = means.filter((pl.col("scope") == PROCESS) & (pl.col("name") == "user_utilization"))["mean"].to_list()
    if process:
        parts.append(Evidence("process_time", float(process[0]), "%", per_step=False))
    values = {"percent": f"{100 - idle:.0f}"}
    urgency = at_most(pipeline_pressure(facts), MEDIUM)
    yield facts.make_finding(
        busy_host.name,
        [Evidence("busy_time", 100 - idle, "%", per_step=False), *parts],
        confidence=0.5,
        values=values,
        urgency=urgency,
    )
