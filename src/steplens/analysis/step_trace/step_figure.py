"""One step, or the average of all, as rows of segments: the whole, its parts, and the collectives of every stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from steplens.analysis.step_trace.step_trace import (
    NamedPoints,
    StepAverages,
    averages,
    points_of,
    step_collectives,
    step_parts,
    step_trace,
)
from steplens.trace.schema import COLLECTIVE, KIND_COMPUTE
from steplens.trace.trace import Trace

#: what a row shows
TOTAL, PARTS, COLLECTIVES = "total", "parts", "collectives"
#: parts of a step in the order in which they follow each other
ORDER = ("interval_ns", "forward_backward_ns", "tail_ns")
#: different names of one point that are told
_NAMES = 8


@dataclass(frozen=True)
class Segment:
    """A stretch of a step.

    Attributes:
        name: "total", "interval", "forward_backward", "tail", or the name of the collective.
        start_ns: from the start of the step.
        duration_ns: its length.
        steps: over how many steps these are means; 1 for a single step.
    """

    name: str
    start_ns: float
    duration_ns: float
    steps: int


@dataclass(frozen=True)
class Row:
    """Segments that follow each other; ``kind`` is ``TOTAL``, ``PARTS`` or ``COLLECTIVES``, the last with their stream."""

    kind: str
    stream: int | None
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class StepFigure:
    """One step or the average.

    Attributes:
        step: its number; None for the average.
        steps: the steps that there are.
        excluded: those that the average leaves out: warm-up.
        rows: total, parts (where the points are known), and a row per stream with collectives.
        forward_names: operators at the first point, those of most steps first.
        backward_names: operators at the second point.
        parts: of the averages over all counted steps, see ``StepAverages.parts``.
    """

    step: int | None
    steps: tuple[int, ...]
    excluded: tuple[int, ...]
    rows: tuple[Row, ...]
    forward_names: tuple[str, ...]
    backward_names: tuple[str, ...]
    parts: pl.DataFrame


def step_figure(
    trace: Trace, step: int | None = None, *, forward_point: str | None = None, backward_point: str | None = None
) -> StepFigure:
    """The figure of a step; parts as in ``step_trace``, means as in ``averages``.

    Collectives are those whose points the device recorded (``step_collectives``), else the rows of ``communication`` in the
    step, counted per stream. Names of the points are the source's (``fp_start``, ``bp_end``), else those of the tasks that
    begin and end there.

    Args:
        trace: one rank.
        step: its number; None is the average.
        forward_point: name of the first forward operator, as ``step_trace`` takes it.
        backward_point: the same of the last backward operator.

    Raises:
        ValueError: the run has no such step; the message says which it has.
    """
    if forward_point is None and backward_point is None and points_of(trace) == NamedPoints():
        table, collectives, mean = trace.once(_default_tables)
    else:
        collectives = collectives_of_steps(trace)
        table = step_trace(trace, forward_point=forward_point, backward_point=backward_point)
        mean = averages(trace, steps=table, collectives=collectives)
    numbers = tuple(table["step"].to_list())
    if step is not None:
        parts = step_parts(table, step)
        means = {name: (parts[name], 1) for name in ("total_ns", *ORDER)}
        begin = parts["start_ns"]
        mine = collectives.filter(pl.col("step") == step).select(
            "stream",
            pl.col("name").cast(pl.String),
            start_ns=pl.col("start_ns") - begin,
            duration_ns=pl.col("end_ns") - pl.col("start_ns"),
            steps=pl.lit(1),
        )
    else:
        means = {part: (value, steps) for part, value, steps in mean.parts.select("part", "mean_ns", "steps").iter_rows()}
        mine = mean.collectives.select("stream", "name", "start_ns", "duration_ns", "steps")
    points = table if step is None else table.filter(pl.col("step") == step)
    named = points_of(trace)
    point_names = (forward_point or named.forward, backward_point or named.backward)
    forward, backward = _point_names(trace, points, point_names)
    return StepFigure(
        step, numbers, mean.excluded, (*_total_and_part_rows(means), *_stream_rows(mine)), forward, backward, mean.parts
    )


def _default_tables(trace: Trace) -> tuple[pl.DataFrame, pl.DataFrame, StepAverages]:
    """What the figures of all steps rest on, where nobody names points: the environment may name others later."""
    table, collectives = step_trace(trace), collectives_of_steps(trace)
    return table, collectives, averages(trace, steps=table, collectives=collectives)


def collectives_of_steps(trace: Trace) -> pl.DataFrame:
    """Collectives of the steps, columns stream, index, name, step, start_ns, end_ns; see ``step_figure``."""
    columns = ["step", "stream", "index", "name", "start_ns", "end_ns"]
    recorded = step_collectives(trace)
    if recorded.height:
        return recorded.select(columns)
    return (
        trace.required("communication")
        .filter((pl.col("kind").cast(pl.String) == COLLECTIVE) & pl.col("step").is_not_null())
        .sort("step", "stream", "start_ns")
        .with_columns(index=pl.int_range(pl.len(), dtype=pl.Int32).over("step", "stream"))
        .select(columns)
        .collect()
    )


def _total_and_part_rows(means: dict[str, tuple[Any, int]]) -> list[Row]:
    total, steps = means.get("total_ns", (None, 0))
    if total is None:
        return []
    rows = [Row(TOTAL, None, (Segment("total", 0.0, float(total), steps),))]
    # the tail ends with the step, whatever steps the other means are of
    starts = {"interval_ns": 0.0, "forward_backward_ns": means["interval_ns"][0], "tail_ns": None}
    if means["tail_ns"][0] is not None:
        starts["tail_ns"] = float(total) - means["tail_ns"][0]
    parts = tuple(
        Segment(name.removesuffix("_ns"), float(starts[name]), float(means[name][0]), means[name][1])
        for name in ORDER
        if means[name][0] is not None and starts[name] is not None
    )
    return [*rows, Row(PARTS, None, parts)] if parts else rows


def _stream_rows(collectives: pl.DataFrame) -> list[Row]:
    rows = []
    for (stream,), mine in sorted(collectives.partition_by("stream", as_dict=True).items(), key=lambda item: item[0][0] or 0):
        ordered = mine.sort("start_ns")
        columns = ("name", "start_ns", "duration_ns", "steps")
        segments = tuple(
            Segment(name or "", float(start), float(length), steps)
            for name, start, length, steps in ordered.select(columns).iter_rows()
        )
        rows.append(Row(COLLECTIVES, stream, segments))
    return rows


def _point_names(
    trace: Trace, points: pl.DataFrame, told: tuple[str | None, str | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    meta = trace.meta_values()
    stored = (meta.get("fp_start"), meta.get("bp_end"))
    tasks = trace.required("kernels").filter(pl.col("kind").cast(pl.String) == KIND_COMPUTE)
    names_of_points: list[tuple[str, ...]] = []
    for point, recorded, ours, theirs in zip(told, stored, ("forward_ns", "backward_ns"), ("start_ns", "end_ns"), strict=True):
        if point is not None:
            names_of_points.append((point,))
        elif recorded:
            names_of_points.append((recorded,) if isinstance(recorded, str) else tuple(map(str, recorded[:_NAMES])))
        else:
            names_of_points.append(_most_common(tasks, points, ours, theirs))
    return names_of_points[0], names_of_points[1]


def _most_common(tasks: pl.LazyFrame, points: pl.DataFrame, ours: str, theirs: str) -> tuple[str, ...]:
    point_times = points.lazy().select("step", pl.col(ours).alias("at")).drop_nulls()
    task_names = tasks.select("step", pl.col(theirs).alias("at"), name=pl.col("name").cast(pl.String)).join(
        point_times, on=["step", "at"]
    )
    counted = task_names.group_by("name").agg(count=pl.len()).sort("count", "name", descending=[True, False]).head(_NAMES)
    names: Sequence[str] = counted.collect()["name"].to_list()
    return tuple(names)
