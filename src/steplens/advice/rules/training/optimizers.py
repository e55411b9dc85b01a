"""Which optimizer updated the parameters in the steps, and which calls are its update: not a wrapper's, not a closure's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.advice.facts import Facts
from steplens.analysis.steps.phases import phase_intervals
from steplens.analysis.tools.names import containing, distinct
from steplens.analysis.tools.overlap import length_inside
from steplens.trace.schema import OPTIMIZER_CLOSURE, OPTIMIZER_STEP_PREFIX

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


def updates(facts: Facts, known: Collection[str]) -> Updates | None:
    """The optimizer that took the most time of those whose constructor is known; None where none is.

    A wrapper calls the optimizer that it wraps: of ranges within one another the innermost counts. A class of another name is
    looked for in the Python frames inside its range, where those were recorded: a subclass, or a wrapper without a range of what
    it wraps, runs a step of ``torch.optim``. A class that only has the name of one of PyTorch's does not.

    Args:
        facts: one trace.
        known: names of classes.
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
    mine = inner.filter(pl.col("optimizer").is_in(list(known)))
    if mine.is_empty():
        return None
    sums = mine.group_by("optimizer").agg(pl.col("duration_ns").sum()).sort("duration_ns", "optimizer", descending=[True, False])
    name = str(sums["optimizer"][0])
    mine = mine.filter(pl.col("optimizer") == name)
    share = float(mine["duration_ns"].sum()) / max(float(inner["duration_ns"].sum()), 1.0)
    return Updates(name, mine.drop("optimizer").sort("start_ns"), share, *_calls(facts, mine))


def _class_of(facts: Facts, name: str, ranges: pl.DataFrame) -> str | None:
    """The class of ``torch.optim`` that runs inside ranges of this name; the name itself where no frames were recorded there."""
    if "python" not in facts.trace:
        return name
    begin, end = ranges.select("start_ns", "end_ns").row(0)
    inside = (pl.col("start_ns") >= begin) & (pl.col("end_ns") <= end)
    frames = facts.on_threads(facts.trace.required("python")).filter(inside).select("name").collect()["name"]
    if not frames.len():
        return name
    modules = pl.Series(containing(distinct(frames), _MODULE), dtype=pl.String).str.extract(_MODULE, 1).to_list()
    found = [_OF_MODULE[module] for module in modules if module in _OF_MODULE]
    # AdamW is a subclass of Adam and may run in its module
    return name if not modules or name in found or (name == "AdamW" and found) else next(iter(found), name)


def _calls(facts: Facts, ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the ranges call for the update, and what runs in the closure of an optimizer: that is forward and backward."""
    calls = facts.named_calls.filter(pl.col("parent").is_in(ranges["id"].implode())).with_columns(pl.col("name").cast(pl.String))
    phases = phase_intervals(facts.trace)
    if phases is None:
        return calls, calls.clear()
    start = calls["start_ns"].to_numpy()
    # a closure begins in the optimizer's own time, and what it holds is forward and backward
    in_phase = pl.Series(length_inside(phases.optimizer, start, start + 1) > 0, dtype=pl.Boolean)
    own = in_phase & (calls["name"] != OPTIMIZER_CLOSURE)
    return calls.filter(own), calls.filter(~own)
