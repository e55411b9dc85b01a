"""What the DataLoaders of PyTorch do: the stages of a batch, how busy workers are, what the loop waits for, and for which stage.

Source of everything: ``pipeline_tasks``, ``pipeline_loaders`` and ``pipeline_epochs``, in Unix ns of the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from steplens.analysis.data_loading.loader_stages import COLLATE, FETCH, LEAST_BATCHES, LOOP, PIN, STAGES, TRANSFER, TRANSFORM
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

#: a loop that waits less than this part of its time is not held up
LEAST_WAIT = 0.03

STAGE_TABLE = table_schema(
    "loader: Int32, stage: String, batches: UInt32, mean_ns: Float64, p90_ns: Float64, total_ns, share: Float64"
)
WORKER_TABLE = table_schema(
    "loader: Int32, worker: Int32, pid, batches: UInt32, busy_ns, wait_ns, busy_share: Float64, cpu_ns, cpu_share: Float64"
)


def _stage_times() -> dict[str, pl.Expr]:
    """Time of each stage of a batch, ns; null where it was not seen."""
    pickled = pl.col("pickle_end_ns") - pl.col("pickle_start_ns")
    received = pl.col("receive_end_ns") - pl.col("receive_start_ns")
    return {
        FETCH: pl.col("collate_ns") - pl.col("start_ns") - pl.col("transform_ns"),
        TRANSFORM: pl.when(pl.col("transforms") > 0).then("transform_ns"),
        COLLATE: pl.col("end_ns") - pl.col("collate_ns"),
        TRANSFER: pickled + received,
        # without workers the loop itself pins, right after collating
        PIN: pl.col("pin_end_ns") - pl.coalesce("receive_end_ns", "end_ns"),
    }


def stages(trace: Trace) -> pl.DataFrame:
    """The stages of each loader's batches; columns as in ``STAGE_TABLE``, in the order of a batch.

    1. fetch: reading the samples (``__getitem__``, ``__getitems__`` or ``next``), without transforms that are timed apart.
    2. transform: all calls of the data set's transforms for the batch.
    3. collate: ``collate_fn``.
    4. transfer: pickling in the worker plus receiving and unpickling in the training process; not the time in between, in
       which the batch lies in the queue.
    5. pin: copying to pinned memory.

    ``share``: of the time that all stages of the loader take together. Batches count that were made or got in the window.
    """
    tasks = trace.required("pipeline_tasks").filter(~pl.col("failed").fill_null(False))
    times = _stage_times()
    long = (
        tasks.select("loader", **times)
        .unpivot(index="loader", variable_name="stage", value_name="time")
        .drop_nulls("time")
        .group_by("loader", "stage")
        .agg(
            batches=pl.len(),
            mean_ns=pl.col("time").mean(),
            p90_ns=pl.col("time").quantile(0.9, "linear"),
            total_ns=pl.col("time").sum(),
        )
        .with_columns(share=pl.col("total_ns") / pl.col("total_ns").sum().over("loader"))
        .with_columns(order=pl.col("stage").replace_strict({name: place for place, name in enumerate(STAGES)}))
        .sort("loader", "order")
        .collect()
    )
    return long.select(cast_columns(STAGE_TABLE))


def workers(trace: Trace) -> pl.DataFrame:
    """How busy each worker process was; columns as in ``WORKER_TABLE``.

    A worker is busy from getting the indices of a batch to having collated it, and waits from there to the next indices:
    the loop takes batches no faster. ``busy_share`` = busy / (busy + wait); ``cpu_share`` = processor time of the process /
    the time that it is of, so 1 is one processor all the time, and more where a data set has threads.
    """
    tasks = trace.required("pipeline_tasks").filter(pl.col("worker").is_not_null() & pl.col("start_ns").is_not_null())
    who = ("loader", "worker", "pid")
    before = pl.col("end_ns").shift().over(*who, order_by="start_ns")
    worker_rows = (
        tasks.with_columns(
            busy=pl.col("end_ns") - pl.col("start_ns"),
            rest=(pl.col("start_ns") - before).clip(0),
            wall=pl.when(pl.col("cpu_ns").is_not_null()).then(pl.col("end_ns") - before),
        )
        .group_by(*who)
        .agg(
            batches=pl.len(),
            busy_ns=pl.col("busy").sum(),
            wait_ns=pl.col("rest").sum(),
            cpu_ns=pl.col("cpu_ns").sum(),
            wall=pl.col("wall").sum(),
        )
        .with_columns(
            busy_share=pl.col("busy_ns") / (pl.col("busy_ns") + pl.col("wait_ns")),
            cpu_share=pl.when(pl.col("wall") > 0).then(pl.col("cpu_ns") / pl.col("wall")),
        )
        .sort(*who)
        .collect()
    )
    return worker_rows.select(cast_columns(WORKER_TABLE))


def queue_depths(trace: Trace) -> pl.DataFrame:
    """How many batches were ready whenever the loop asked for one: loader, time_ns, ready, capacity, usage; by time."""
    capacity = trace.required("pipeline_loaders").select("loader", capacity="queue_capacity")
    return (
        trace.required("pipeline_tasks")
        .drop_nulls("ready")
        .select("loader", "ready", time_ns="next_start_ns")
        .join(capacity, on="loader")
        .with_columns(usage=pl.col("ready") / pl.when(pl.col("capacity") > 0).then("capacity"))
        .sort("loader", "time_ns")
        .select("loader", "time_ns", "ready", "capacity", "usage")
        .collect()
    )


def first_batches(trace: Trace) -> pl.DataFrame:
    """How long each epoch took to deliver its first batch: loader, epoch, start_ns, delay_ns, workers_ns.

    ``delay_ns``: from ``iter()`` to the first batch, starting workers included; ``workers_ns``: starting them, null where they
    were there. Epochs count of which both ends were seen.
    """
    return (
        trace.required("pipeline_epochs")
        .drop_nulls(["start_ns", "first_batch_ns"])
        .select(
            "loader",
            "epoch",
            "start_ns",
            delay_ns=pl.col("first_batch_ns") - pl.col("start_ns"),
            workers_ns=pl.col("workers_ns") - pl.col("start_ns"),
        )
        .sort("loader", "epoch")
        .collect()
    )


def step_waits(trace: Trace) -> pl.DataFrame:
    """What each step waits for batches: loader, step, batches, next_ns, wait_ns.

    ``next_ns``: all time that the loop spends in ``next()``; ``wait_ns``: the part in which no batch was there to be received.
    Without workers the loop makes batches itself and ``wait_ns`` is 0.
    """
    return (
        trace.required("pipeline_tasks")
        .drop_nulls(["next_start_ns", "step"])
        .group_by("loader", "step")
        .agg(batches=pl.len(), next_ns=(pl.col("next_end_ns") - pl.col("next_start_ns")).sum(), wait_ns=pl.col("wait_ns").sum())
        .sort("loader", "step")
        .collect()
    )


@dataclass(frozen=True)
class LoaderVerdict:
    """What a loader does to its loop.

    Attributes:
        loader: its number.
        dataset: class of its data set.
        workers: worker processes; 0: the loop makes the batches.
        batches: that the loop got, without the first ones of epochs.
        stage: the stage that holds up the loop, one of ``STAGES``, or ``LOOP`` where none does.
        stage_ns: what that stage takes per batch, mean; 0 for the loop.
        stage_share: of the time of all stages.
        made_ns: what making a batch takes, mean: fetch, transform and collate.
        next_share: part of the loop's time that is spent in ``next()``.
        wait_share: part of it in which no batch was there.
        receive_share: part of it that receiving, unpickling and, without a thread for it, pinning takes.
        usage: mean number of ready batches / capacity of the queue; None without workers.
        busy_share: of all workers together; None without workers.
        cpu_share: processors that a worker uses; None where unknown.
    """

    loader: int
    dataset: str
    workers: int
    batches: int
    stage: str
    stage_ns: float
    stage_share: float
    made_ns: float
    next_share: float
    wait_share: float
    receive_share: float
    usage: float | None
    busy_share: float | None
    cpu_share: float | None


def verdicts(trace: Trace) -> list[LoaderVerdict]:
    """Which stage of each loader holds up its loop, if any does.

    The first batch of an epoch does not count: it waits for the pipeline to fill (``first_batches``).

    0. A loader with fewer than ``LEAST_BATCHES`` batches is not judged.
    1. A loop that spends less than ``LEAST_WAIT`` of its time waiting for and receiving batches is not held up.
    2. Without workers it is held up by the longest stage.
    3. With workers, a loop that waits is held up by the thread that pins, if that is busier than the workers; by the transfer,
       if pickling takes longer than making; else by the longest stage in the workers.
    4. A loop that finds its batches ready, and still spends more than that on receiving, is held up by the transfer.
    """
    loaders = trace.pipeline_loaders
    if loaders is None or not loaders.height:
        return []
    tasks = trace.required("pipeline_tasks").collect()
    steady = tasks.drop_nulls("next_start_ns").filter(
        pl.col("batch") > pl.col("batch").min().over("loader", "epoch") if tasks.height else pl.lit(True)
    )
    all_stages, each_worker = stages(trace), workers(trace)
    loader_verdicts = []
    for row in loaders.iter_rows(named=True):
        steady_stages = steady.filter(pl.col("loader") == row["loader"])
        parts = {part["stage"]: part for part in all_stages.filter(pl.col("loader") == row["loader"]).iter_rows(named=True)}
        if steady_stages.height and parts:
            loader_verdicts.append(
                _judge_loader(row, steady_stages, parts, each_worker.filter(pl.col("loader") == row["loader"]))
            )
    return loader_verdicts


def _judge_loader(
    loader: dict[str, object], own: pl.DataFrame, parts: dict[str, dict[str, float]], each_worker: pl.DataFrame
) -> LoaderVerdict:
    # what lies between epochs (evaluation, checkpoints) is none of the loop's time
    ends = own.group_by("epoch").agg(span=pl.col("next_end_ns").max() - pl.col("next_start_ns").min())
    span = max(float(ends["span"].sum()), 1.0)
    count = int(loader["workers"]) if isinstance(loader["workers"], int) else 0
    in_next = float((own["next_end_ns"] - own["next_start_ns"]).sum()) / span
    waits = float(own["wait_ns"].sum()) / span if count else 0.0
    received = float((own["receive_end_ns"] - own["receive_start_ns"]).sum()) / span if count else 0.0
    pinned = own["pin_end_ns"].null_count() < own.height
    pinning = float((own["pin_end_ns"] - own["receive_end_ns"]).sum()) / span if count and pinned else 0.0
    worked, rested = (int(each_worker[column].sum()) for column in ("busy_ns", "wait_ns"))
    busy = _ratio_or_none(worked, worked + rested)
    made = [name for name in (FETCH, TRANSFORM, COLLATE) if name in parts]
    longest = max(made or parts, key=lambda name: parts[name]["mean_ns"])
    # with a thread that pins, receiving is its work and not the loop's
    in_loop = 0.0 if pinned else received
    making = sum(parts[name]["mean_ns"] for name in made)
    pickling = (own["pickle_end_ns"] - own["pickle_start_ns"]).mean()
    stage = LOOP
    if not count:
        stage = max(parts, key=lambda name: parts[name]["mean_ns"]) if in_next >= LEAST_WAIT else LOOP
    elif waits >= LEAST_WAIT:
        if pinned and received + pinning > (busy or 0.0):
            stage = PIN if pinning > received else TRANSFER
        else:
            stage = TRANSFER if isinstance(pickling, float) and pickling > making else longest
    elif in_loop >= LEAST_WAIT:
        stage = TRANSFER
    stage = stage if stage in parts and own.height >= LEAST_BATCHES else LOOP
    capacity = loader["queue_capacity"]
    ready = own["ready"].mean()
    return LoaderVerdict(
        loader=int(loader["loader"]) if isinstance(loader["loader"], int) else 0,
        dataset=str(loader["dataset"] or ""),
        workers=count,
        batches=own.height,
        stage=stage,
        stage_ns=parts[stage]["mean_ns"] if stage != LOOP else 0.0,
        stage_share=parts[stage]["share"] if stage != LOOP else 0.0,
        made_ns=making,
        next_share=in_next,
        wait_share=waits,
        receive_share=in_loop,
        usage=_ratio_or_none(ready, capacity) if isinstance(ready, float) and isinstance(capacity, int) else None,
        busy_share=busy if count else None,
        cpu_share=float(share) if count and isinstance(share := each_worker["cpu_share"].mean(), float) else None,
    )


def _ratio_or_none(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
