"""How long what takes in each usual step of a trace: the form in which both sides of a step are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from steplens.comparison.causes.calls import Calls

#: kinds of row: an operator's own time; time before it without an operator; the host waits in it; tasks of the device that it
#: launches; a collective; the device idles before what it launches, or while it runs; the same where the host had just waited for
#: the device, whose queue is empty therefore
CALL, GAP, WAIT, TASK, COLLECTIVE, IDLE_TIME, DRAINED_TIME = "call", "gap", "wait", "task", "collective", "idle", "drained"

#: what tells rows apart. part: the part of the step that the time is of; phase: what the training thread does when it makes the
#: call; path: names joined by ``calls.SEPARATOR``, ``ranges`` of which are of ranges around the outermost operator; detail:
#: what else there is to say: why the device idles, in ``DRAINED_TIME`` with the name and the phase of what waited, joined as
#: names of paths are
KEYS = {
    "part": pl.String(),
    "leaf": pl.String(),
    "phase": pl.String(),
    "module": pl.String(),
    "path": pl.String(),
    "ranges": pl.Int64(),
    "shapes": pl.String(),
    "types": pl.String(),
    "detail": pl.String(),
}


@dataclass(frozen=True)
class TraceTimes:
    """What is measured of one trace.

    Attributes:
        keys: columns ``KEYS``, a row each.
        times: step, key (a row of ``keys``), calls and ns: of each step what is in it.
    """

    keys: pl.DataFrame
    times: pl.DataFrame


def collect_times(frames: Sequence[pl.DataFrame], calls: Calls | None) -> TraceTimes:
    """Times of a trace.

    Args:
        frames: a row for each call, task or gap: step, calls, ns, and of these what there is: part, leaf, phase, detail; call,
            the row of ``calls`` whose place it has; has_inputs, whether shapes and types of that call matter; name, which is the
            path of what has no call.
        calls: of the trace.
    """
    keys_of_row = ["part", "leaf", "phase", "detail", "name", "module", "path", "input_shapes", "input_types"]
    summed = []
    for frame in frames:
        if not frame.height:
            continue
        rows = _with_places(frame, calls)
        present = [name for name in keys_of_row if name in rows.columns]
        summed.append(rows.group_by("step", *present, maintain_order=True).agg(pl.col("calls", "ns").cast(pl.Float64).sum()))
    paths = pl.DataFrame(
        {"path": range(len(calls.path_texts)), "text": calls.path_texts, "ranges": calls.ranges} if calls is not None else None,
        schema={"path": pl.Int64, "text": pl.String, "ranges": pl.Int64},
    )
    # steps without any length have no rows
    all_keys, offset = [pl.DataFrame(schema=KEYS)], 0
    times = [pl.DataFrame(schema={"step": pl.Int64, "key": pl.Int64, "calls": pl.Float64, "ns": pl.Float64})]
    for frame in summed:
        own_keys = frame.select(pl.exclude("step", "calls", "ns")).unique(maintain_order=True)
        numbered = own_keys.with_columns(key=pl.int_range(offset, offset + own_keys.height))
        joined = frame.join(numbered, on=own_keys.columns, how="left", nulls_equal=True, maintain_order="left")
        times.append(joined.select("step", "key", "calls", "ns"))
        all_keys.append(_describe_keys(own_keys, paths))
        offset += own_keys.height
    keys = pl.concat(all_keys)
    # rows of two frames may have the same key
    distinct = keys.unique(maintain_order=True).with_row_index("place").with_columns(pl.col("place").cast(pl.Int64))
    place = keys.join(distinct, on=list(KEYS), how="left", maintain_order="left")["place"]
    all_times = pl.concat(times)
    return TraceTimes(distinct.drop("place"), all_times.with_columns(key=place.gather(all_times["key"])))


def _with_places(frame: pl.DataFrame, calls: Calls | None) -> pl.DataFrame:
    if calls is None or "call" not in frame.columns:
        return frame.drop("call", "has_inputs", strict=False)
    valid_rows = pl.when(pl.col("call") >= 0).then("call")
    row = frame.select(valid_rows).to_series()
    columns = {name: calls.rows[name].gather(row) for name in ("module", "input_shapes", "input_types")}
    placed = frame.with_columns(path=pl.Series(calls.path, dtype=pl.Int64).gather(row), **columns)
    if "has_inputs" in frame.columns:
        inputs = pl.col("input_shapes", "input_types")
        placed = placed.with_columns(pl.when("has_inputs").then(inputs))
    return placed.drop("call", "has_inputs", strict=False)


def _describe_keys(own_keys: pl.DataFrame, paths: pl.DataFrame) -> pl.DataFrame:
    if "path" in own_keys.columns:
        own_keys = own_keys.join(paths, on="path", how="left", maintain_order="left").drop("path")
    path_columns = [pl.col(name) for name in ("text", "name") if name in own_keys.columns]
    own_keys = own_keys.with_columns(
        path=pl.coalesce(*path_columns) if path_columns else pl.lit(""),
    )
    own_keys = own_keys.rename(
        {name: new for name, new in (("input_shapes", "shapes"), ("input_types", "types")) if name in own_keys.columns}
    )
    missing = [pl.lit(0 if name == "ranges" else "").alias(name) for name in KEYS if name not in own_keys.columns]
    text = [pl.col(name).cast(dtype).fill_null("" if dtype == pl.String() else 0) for name, dtype in KEYS.items()]
    return own_keys.with_columns(missing).select(text)
