"""Reads the step trace of a device: raw (``training_trace``, ``ts_track``) into points of steps and of collectives.

``training_trace`` has records of 20 bytes (tag, task, stream, count), ``ts_track`` of 40. Counts are of the device's
100 MHz clock.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.readers.mindspore.legacy_files import LATEST_TICK, TICK_NS
from steplens.trace.health import COMMUNICATION_TIMES, ERROR, STEP_PHASES, STEP_TIMES, WARNING, HealthLog
from steplens.trace.schema import SCHEMA

_RECORD = np.dtype([("tag", "<u8"), ("task", "<u2"), ("stream", "<u2"), ("count", "<u8")])
_TRACK = np.dtype(
    [
        ("mode", "u1"), ("type", "u1"), ("size", "<u2"), ("reserved", "<u4"), ("count", "<u8"), ("index", "<u8"),
        ("model", "<u8"), ("stream", "<u2"), ("task", "<u2"), ("tag", "<u2"), ("reserved2", "<u2"),
    ]
)  # fmt: skip
_STEP_TRACE_TYPE = 10

_FORWARD, _BACKWARD, _END = 1, 2, 255
_TRACK_FORWARD, _TRACK_BACKWARD, _TRACK_END = 2, 3, 4
_TRACK_COLLECTIVES = (10_000, 20_000)
_LIMIT = 1 << 62

Points = tuple[pl.DataFrame, pl.DataFrame]


def decode_training_trace(data: bytes, health: HealthLog, *, skip_first: bool = False) -> Points:
    """Steps and collectives of a ``training_trace``.

    A step starts where the one before it ends, the first one at its forward point. Its last step may lack its end; it is
    left out then, as are records before the first step.

    Args:
        data: the joined slices.
        health: gets what is wrong.
        skip_first: whether the first step is the one that fills the data queue, and no training step.

    Returns:
        ``step_points`` and ``step_collectives``, steps from 1, in ns of the device's clock.
    """
    records = _decode_records(data, _RECORD, health)
    begins = (records["tag"] == 0) | (records["tag"] > _END)
    tag = np.minimum(records["tag"], _END + 1).astype(np.int64)
    jobs = np.unique(records["tag"][begins])
    if len(jobs) > 1:
        message = f"the step trace is of {len(jobs)} jobs; their steps stand in one row"
        health.add("several_jobs", WARNING, len(jobs), message, STEP_TIMES)
    number = np.cumsum(begins)
    if before := int((number == 0).sum()):
        message = "records of the step trace lie before its first step and were left out"
        health.add("incomplete_steps", WARNING, before, message, STEP_TIMES)
    frame = pl.DataFrame(
        {
            "step": number,
            "tag": tag,
            "stream": records["stream"].astype(np.int64),
            "time": records["count"].astype(np.int64) * TICK_NS,
        }
    ).filter(pl.col("step") > int(skip_first))
    steps = frame.group_by("step", maintain_order=True).agg(*_first_times(_FORWARD, _BACKWARD, _END))
    collectives = frame.filter(pl.col("tag").is_between(_BACKWARD + 1, _END - 1))
    return _complete_points(steps.with_columns(model_id=pl.lit(None, dtype=pl.Int64)), collectives, health)


def decode_track(data: bytes, health: HealthLog) -> Points:
    """Steps and collectives of the step-trace records of a ``ts_track``; the result is that of ``decode``, with models."""
    records = _decode_records(data, _TRACK, health)
    records = records[records["type"] == _STEP_TRACE_TYPE]
    bounded = (records["index"] < _LIMIT) & (records["model"] < _LIMIT)
    records = records[bounded]
    tag = records["tag"].astype(np.int64)
    frame = pl.DataFrame(
        {
            "step": records["index"].astype(np.int64),
            "model_id": records["model"].astype(np.int64),
            "tag": tag,
            "stream": records["stream"].astype(np.int64),
            "time": records["count"].astype(np.int64) * TICK_NS,
        }
    )
    in_steps = frame.filter(pl.col("tag").is_in([_TRACK_FORWARD, _TRACK_BACKWARD, _TRACK_END]))
    points = _first_times(_TRACK_FORWARD, _TRACK_BACKWARD, _TRACK_END)
    steps = in_steps.group_by("model_id", "step", maintain_order=True).agg(*points)
    low, high = _TRACK_COLLECTIVES
    return _complete_points(steps, frame.filter(pl.col("tag").is_between(low, high - 1)), health)


def _first_times(*tags: int) -> list[pl.Expr]:
    """The first times of the marks of a step: forward, backward and end."""
    names = ("forward_ns", "backward_ns", "end_ns")
    return [pl.col("time").filter(pl.col("tag") == tag).first().alias(name) for name, tag in zip(names, tags, strict=True)]


def _decode_records(data: bytes, layout: np.dtype[np.void], health: HealthLog) -> npt.NDArray[np.void]:
    record_count = len(data) // layout.itemsize
    if len(data) % layout.itemsize:
        message = "the step trace breaks off inside a record, which was left out"
        health.add("truncated_file", ERROR, 1, message, (STEP_TIMES, STEP_PHASES))
    records = np.frombuffer(data, dtype=layout, count=record_count)
    possible = records["count"] < LATEST_TICK
    if lost := int((~possible).sum()):
        message = "records of the step trace have an impossible time"
        health.add("damaged_records", WARNING, lost, message, (STEP_TIMES, STEP_PHASES))
    return records[possible]


def _complete_points(steps: pl.DataFrame, collectives: pl.DataFrame, health: HealthLog) -> Points:
    complete = steps.drop_nulls(["forward_ns", "end_ns"])
    if lost := steps.height - complete.height:
        message = "steps of the step trace have no forward point or no end and were left out"
        health.add("incomplete_steps", WARNING, lost, message, STEP_TIMES)
    if without := int(complete["backward_ns"].null_count()):
        message = "steps have no backward point: they were inference, or the point is not in the graph"
        health.add("no_backward_point", WARNING, without, message, STEP_PHASES)
    complete = complete.sort("model_id", "step")
    before = pl.col("end_ns").shift(1).over("model_id")
    complete = complete.with_columns(start_ns=pl.coalesce(before, "forward_ns"))
    impossible = complete.filter(
        (pl.col("end_ns") < pl.col("forward_ns"))
        | (pl.col("forward_ns") < pl.col("start_ns"))
        | (pl.col("backward_ns") > pl.col("end_ns")).fill_null(False)
        | (pl.col("backward_ns") < pl.col("forward_ns")).fill_null(False)
    ).height
    if impossible:
        message = "points of steps are not in the order of time"
        health.add("unordered_points", ERROR, impossible, message, (STEP_TIMES, STEP_PHASES))
    return complete.select(list(SCHEMA["step_points"])), _pair_marks(collectives, complete, health)


def _pair_marks(marks: pl.DataFrame, steps: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    """Marks of one step and stream, two and two: start and end of a collective."""
    if "model_id" not in marks.columns:
        marks = marks.with_columns(model_id=pl.lit(None, dtype=pl.Int64))
    marks_of_steps = marks.join(steps.select("step", "model_id"), on=["step", "model_id"], how="semi", nulls_equal=True)
    lane = ["model_id", "step", "stream"]
    numbered = marks_of_steps.with_columns(place=pl.int_range(pl.len()).over(lane), marks=pl.len().over(lane))
    odd = numbered.filter((pl.col("marks") % 2 == 1) & (pl.col("place") == pl.col("marks") - 1)).height
    if odd:
        message = "collectives of the step trace have a start and no end; they were left out"
        health.add("unpaired_collectives", WARNING, odd, message, COMMUNICATION_TIMES)
    index = pl.col("place") // 2
    pairs = (
        numbered.filter(index < pl.col("marks") // 2)
        .group_by([*lane, index.alias("index")], maintain_order=True)
        .agg(start_ns=pl.col("time").first(), end_ns=pl.col("time").last())
    )
    return pairs.select(
        "step",
        "model_id",
        "stream",
        pl.col("index").cast(pl.Int32),
        name=pl.format("stream_{}_parallel_{}", "stream", "index"),
        start_ns="start_ns",
        end_ns="end_ns",
    ).sort("model_id", "step", "stream", "index")
