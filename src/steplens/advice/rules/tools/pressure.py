"""How much a training suffers from its data pipeline: the level of findings about single operations, whose price is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence, Saving
from steplens.advice.rules.tools.digits import in_ms
from steplens.analysis.data_loading.data_pipeline import OPERATIONS, host_queue, operations, queue_summary
from steplens.analysis.data_loading.data_wait import data_wait, loads_with_pytorch, waiting_steps
from steplens.analysis.data_loading.pipeline_cpu import PROCESS, cpu_means, cpu_samples
from steplens.analysis.data_loading.pipeline_verdict import MOST_EMPTY
from steplens.trace.building.devices import cpu_is_device

#: share of a step, or of the batches, that makes waiting matter, and matter much
MATTERS, MATTERS_MUCH = 0.03, 0.10
#: the part of a step in which its loop waits for a batch
WAITING = "data_wait_ns"
_NO_OPERATIONS = pl.DataFrame(schema=OPERATIONS)


def pipeline_pressure(facts: Facts) -> str:
    """Level of what slows down the pipeline: how long steps wait for data, else how often the queues were empty.

    What fills a queue in front of which nobody waits matters little. Where nothing tells whether anybody waits, it may.
    """
    waited = data_wait(facts.trace)
    if waited is not None:
        return HIGH if waited.share >= MATTERS_MUCH else MEDIUM if waited.share >= MATTERS else LOW
    received = queue_summary(facts.trace, "receive")
    if received is not None:
        share = received.empty / received.batches
        return HIGH if share >= MATTERS_MUCH else MEDIUM if share >= MATTERS else LOW
    queue = host_queue(facts.trace)
    return LOW if queue is not None and queue.empty <= MOST_EMPTY * queue.batches else MEDIUM


#: on what these savings rest: where the load of the processors is not known, where it leaves room for all, and for a part of it
PIPELINE_WAIT, _IDLE_PROCESSORS, _BUSY_PROCESSORS = "pipeline_wait", "pipeline_wait_idle", "pipeline_wait_busy"


def pipeline_saving(facts: Facts) -> Saving | None:
    """What a step saves whose batches are always there; None where its loop did not wait for them, or nothing tells.

    The wait that the verdict names. A step takes no less than its processor time over the processors, as far as samples of the
    process tell it: a function that sleeps or waits can be hidden, one that works needs a processor.
    """
    waiting = facts.most_ns(WAITING) or 0.0
    if not facts.step_ns or waiting < MATTERS * facts.step_ns:
        return None
    busy = _busy_share_of_process(facts)
    if busy is None:
        return Saving.up_to(waiting)
    likely = min(waiting, max(1 - busy, 0.0) * facts.step_ns)
    return Saving(likely / 2, likely, waiting)


def pipeline_basis(facts: Facts) -> str:
    """On what ``pipeline_saving`` rests."""
    saving = pipeline_saving(facts)
    if saving is None or _busy_share_of_process(facts) is None:
        return PIPELINE_WAIT
    return _IDLE_PROCESSORS if saving.likely_ns >= saving.high_ns else _BUSY_PROCESSORS


def _busy_share_of_process(facts: Facts) -> float | None:
    """The share of the processors that the process used in the steps, 0 to 1; None where it was not sampled."""
    if not facts.numbers or "pipeline_samples" not in facts.trace:
        return None
    means = cpu_means(cpu_samples(facts.trace, first=min(facts.numbers), last=max(facts.numbers)))
    used = means.filter((pl.col("scope") == PROCESS) & pl.col("name").is_in(["user_utilization", "sys_utilization"]))["mean"]
    return float(used.sum()) / 100 if used.drop_nulls().len() == 2 else None


def trains_on_cpu(facts: Facts) -> bool:
    """Whether the CPU does the training itself, so that there is no device to send batches to."""
    return "kernels" in facts.trace and cpu_is_device(facts.trace)


def at_most(level: str, limit: str) -> str:
    """A level, or the limit where that is lower."""
    levels = (LOW, MEDIUM, HIGH)
    return min(level, limit, key=levels.index)


def mindspore_operations(facts: Facts) -> pl.DataFrame:
    """``data_pipeline.operations`` of MindSpore's pipelines; PyTorch's loaders have rules in PyTorch's words."""
    # a look at every call is worth its time only where there is a pipeline
    if "pipeline_ops" not in facts.trace or loads_with_pytorch(facts.trace):
        return _NO_OPERATIONS
    return operations(facts.trace)


def wait_evidence(facts: Facts) -> Iterable[Evidence]:
    """What tells that the training waits, where it is known."""
    waited = data_wait(facts.trace)
    if waited is not None:
        steps = tuple(waited.steps.filter(pl.col("wait_ns") >= MATTERS * pl.col("total_ns"))["step"].to_list())
        # where the loop's own clock tells, it is the figure of the verdict and of the price
        yield Evidence("wait_for_data", facts.most_ns(WAITING) or waited.wait_ns, "ns", steps)


def waiting_values(facts: Facts) -> dict[str, str | int | float]:
    """What the text says of steps of which some wait and the others find their batch ready (``words.Words``)."""
    waiting = waiting_steps(facts.trace)
    if waiting is None:
        return {}
    values: dict[str, str | int | float] = {"waiting": len(waiting.steps), "waiting_of": waiting.of}
    values["waiting_ms"] = in_ms(waiting.wait_ns)
    return values | ({"waiting_since": waiting.since} if waiting.since is not None else {})


def needed_rate(facts: Facts) -> float | None:
    """How many times as fast the training needs its batches, in the steps that wait for them; None where they hardly wait."""
    waiting = waiting_steps(facts.trace)
    steps = facts.steps if waiting is None else facts.steps.filter(pl.col("step").is_in(list(waiting.steps)))
    whole_ns, wait_ns = steps.select(pl.col("duration_ns").mean(), pl.col(WAITING).mean()).row(0)
    if not whole_ns or not wait_ns or wait_ns < MATTERS * whole_ns or wait_ns >= whole_ns:
        return None
    return float(whole_ns / (whole_ns - wait_ns))


def names_of(table: pl.DataFrame, numbers: Sequence[int]) -> tuple[str, ...]:
    """The names of some operations, such as ``TFReader_3``."""
    names = dict(table.select("id", "operation").iter_rows())
    return tuple(names[number] for number in numbers)
