"""Reads ``step_trace_raw_<rank>_detail_time.csv`` (either generation) and the names of its points."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

from steplens.readers.common.ascend_csv_file import TextTable, has_required_columns, read_table
from steplens.readers.mindspore.legacy_files import LATEST_TICK, TICK_NS
from steplens.readers.mindspore.minddata_cpu import json_object
from steplens.trace.health import COMMUNICATION_TIMES, ERROR, INFO, STEP_AVERAGES, STEP_TIMES, WARNING, HealthLog
from steplens.trace.schema import NAME, SCHEMA

#: step_num of the row of means; 0 in the oldest files
_AVERAGE = ("-", "0")
#: older: stream_<s>_parallel_<i>; newer: stream_<s>_<i>_<operator>
_COLLECTIVE = re.compile(r"^stream_(\d{1,9})_(?:parallel_)?(\d{1,6})(?:_(.+))?_start_point$")
_COLLECTIVE_LIMIT = 100_000

Steps = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]


def read_steps(path: Path, health: HealthLog) -> Steps:
    """Points of steps, points of collectives, and the stored row of means.

    Counts are of 10 ns. A collective that a step did not have is stored as 0; it has no row.

    Returns:
        rows of ``step_points`` and ``step_collectives``; one row of text with the file's columns (empty where there is none).
    """
    table = read_table([path], health, STEP_TIMES)
    needed = (("step_num",), ("start_point",), ("end_point",), ("fp_point",))
    if not has_required_columns(table, path.name, health, STEP_TIMES, *needed):
        return pl.DataFrame(), pl.DataFrame(), pl.DataFrame()
    step_num = table.text("step_num").cast(pl.String)
    last = table.frame.tail(1)
    stored = table.frame.clear()
    # a run of one step may have its number overwritten
    if table.frame.height > 1 and step_num[-1] in _AVERAGE:
        stored = last
        table = TextTable(table.frame.head(-1))
    elif table.frame.height == 1 and step_num[0] == "-":
        table = TextTable(table.frame.with_columns(pl.lit("1").alias(table.find("step_num") or "")))
    times = {name: _tick_column(table, source) for name, source in _POINTS.items()}
    points = pl.DataFrame({"step": table.integer("step_num"), **times}).with_columns(model_id=pl.lit(None, dtype=pl.Int64))
    row = pl.int_range(points.height, eager=True)
    complete_points = points.with_columns(row=row).drop_nulls(["step", "start_ns", "forward_ns", "end_ns"])
    complete_points = complete_points.filter(pl.col("end_ns") >= pl.col("start_ns")).unique(
        "step", keep="first", maintain_order=True
    )
    # 0 stands for a point that a step does not have: an evaluation has no backward pass
    absent = [pl.when((pl.col(name) != 0) | (pl.col("start_ns") == 0)).then(name).alias(name) for name in _MAY_BE_ABSENT]
    complete_points = complete_points.with_columns(absent)
    if lost := points.height - complete_points.height:
        message = f"rows of {path.name} have no step, no point or no length and were left out"
        health.add("damaged_rows", ERROR, lost, message, STEP_TIMES)
    if stored.height:
        _check_means(table, stored, complete_points, path, health)
    collectives = _step_collectives(table, complete_points, health)
    return complete_points.select(list(SCHEMA["step_points"])), collectives, stored


_MAY_BE_ABSENT = ("forward_ns", "backward_ns")
_POINTS = {"start_ns": "start_point", "forward_ns": "fp_point", "backward_ns": "bp_point", "end_ns": "end_point"}


def _tick_column(table: TextTable, name: str) -> pl.Series:
    """A column of counts as ns; null for what is no count."""
    counts = table.integer(name)
    if counts.null_count() == len(counts):
        # means, and counts that were computed from ms, have decimals
        counts = table.number(name).set(~(table.number(name).abs() < 2.0**53), None).round().cast(pl.Int64)
    possible_ns: pl.Series = counts.set(~counts.is_between(0, LATEST_TICK - 1), None) * TICK_NS
    return possible_ns


def _step_collectives(table: TextTable, known: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    names = [matched for column in table.frame.columns if (matched := _COLLECTIVE.match(column))][:_COLLECTIVE_LIMIT]
    frames = [pl.DataFrame(schema=SCHEMA["step_collectives"])]
    backwards = 0
    steps = known.select("step", "model_id")
    for matched in names:
        base = matched[0].removesuffix("_start_point")
        if f"{base}_end_point" not in table.frame.columns:
            continue
        times = {side: _tick_column(table, f"{base}_{side}_point").gather(known["row"]) for side in ("start", "end")}
        there = (times["end"] > 0) & times["start"].is_not_null()
        right = there & (times["end"] >= times["start"])
        backwards += int((there & ~right).sum())
        frame = steps.with_columns(
            stream=pl.lit(int(matched[1]), dtype=pl.Int64),
            index=pl.lit(int(matched[2]), dtype=pl.Int32),
            name=pl.lit(base, dtype=NAME),
            start_ns=times["start"],
            end_ns=times["end"],
        )
        frames.append(frame.filter(right))
    if backwards:
        health.add(
            "negative_duration", ERROR, backwards, "collectives end before they start; they were left out", COMMUNICATION_TIMES
        )
    return pl.concat(frames).sort("step", "stream", "index")


def _check_means(table: TextTable, stored: pl.DataFrame, known: pl.DataFrame, path: Path, health: HealthLog) -> None:
    """Whether the stored mean is one of the stored steps: of all of them, or of all but the first."""
    name = table.find("total")
    if name is None or not known.height:
        return
    totals = ((known["end_ns"] - known["start_ns"]) // TICK_NS).to_list()
    mean = TextTable(stored).number(name)[0]
    candidates = [sum(part) / len(part) for part in (totals, totals[1:]) if part]
    if mean is None or all(abs(mean - candidate) > 1 for candidate in candidates):
        message = f"the stored means of {path.name} are not those of its steps; they were computed anew"
        health.add("foreign_averages", INFO, 1, message, STEP_AVERAGES)


def read_point_names(path: Path, health: HealthLog) -> dict[str, Any]:
    """``fp_start`` and ``bp_end`` of ``step_trace_point_info``: a name, or a list of names where there are several graphs."""
    members = json_object(path, health)
    names = {key: members[key] for key in ("fp_start", "bp_end") if key in members}
    point_names: dict[str, Any] = {key: value for key, value in names.items() if isinstance(value, (str, list))}
    if len(point_names) < len(names):
        health.add("damaged_side_file", WARNING, len(names) - len(point_names), f"points in {path.name} are no names", STEP_TIMES)
    return point_names
