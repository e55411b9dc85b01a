"""Which functions of Python, and which of their lines, hold the time of each thread, as sampled stacks tell it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.trace.building.nesting import Int64Array
from steplens.trace.schema import STACK_SAMPLING_RATE
from steplens.trace.trace import Trace

FUNCTION, LINE, THREAD = "function", "line", "thread"

#: of the normal distribution, for an interval that holds the true share in 95 of 100 recordings
_QUANTILE = 1.959964
#: the line that a function begins at, in its name
_FIRST_LINE = re.compile(r"\(\d+\)(?=: [^/]*$)")
_COLUMNS = (
    "self_percent", "total_percent", "self_ns", "self_samples", "total_samples", "self_low_ns", "self_high_ns", "cpu_ns",
)  # fmt: skip


@dataclass(frozen=True)
class _Stacks:
    """Stacks by their id; ids that no stack has are outermost ones that no sample is of.

    Attributes:
        parent: the stack around each; -1 for none.
        depth: how many frames are around its innermost one.
        label: number in ``labels`` of what it is counted under.
        labels: functions, or lines.
    """

    parent: Int64Array
    depth: Int64Array
    label: Int64Array
    labels: pl.Series


def python_hotspots(trace: Trace, by: str = FUNCTION) -> pl.DataFrame:
    """Samples of Python stacks, added up per thread, threads with most processor time first, most self samples first.

    A thread that waits is in the function that waits all the time, and uses no processor time: ``cpu_ns`` tells whether it ran.

    Source: ``python_samples`` and ``python_stacks``; the host clock. A sample stands for the time between two: what it says is
    an estimate. Processor time between two samples counts for the function of the later one.

    Args:
        trace: one process.
        by: "function"; "line", that a frame was at; "thread".

    Returns:
        by function or line: thread, name (or line), self_samples (it was the innermost frame), total_samples (it was any
        frame, once where it calls itself), self_percent and total_percent of the samples of the thread, self_ns (estimated)
        with the ends of its 95 % interval, self_low_ns and self_high_ns (Wilson's, of a binomial share; null where the rate of
        sampling is not known), cpu_ns (processor time as innermost frame).
        By thread: thread, samples, time_ns (estimated), cpu_ns, cpu_percent of that time, name (the function with most self
        samples).
    """
    samples, stacks = trace.required("python_samples").collect(), trace.required("python_stacks").collect()
    leaves = (
        samples.group_by("pid", "tid", "stack")
        .agg(pl.col("samples").sum(), cpu_ns=pl.col("processor_ns").sum())
        .sort("pid", "tid", "stack", nulls_last=True)
    )
    period_ns = _sample_period(trace)
    threads = _sampled_threads(trace, leaves, period_ns)
    if by == THREAD:
        return _of_threads(threads, leaves, _read_stacks(stacks, FUNCTION))
    counted = _count_samples(
        leaves.join(threads.select("pid", "tid", number="number"), on=["pid", "tid"]), _read_stacks(stacks, by)
    )
    in_thread = threads.select("number", "thread", thread_samples="samples")
    rows = counted.join(in_thread, on="number").sort(
        ["number", "self_samples", "total_samples", "label"], descending=[False, True, True, False], nulls_last=True
    )
    share, count = pl.col("self_samples") / pl.col("thread_samples"), pl.col("thread_samples")
    shrunk = 1 + _QUANTILE**2 / count
    middle = (share + _QUANTILE**2 / (2 * count)) / shrunk
    reach = _QUANTILE / shrunk * (share * (1 - share) / count + _QUANTILE**2 / (4 * count**2)).sqrt()
    period = pl.lit(period_ns, dtype=pl.Float64)
    return rows.with_columns(
        self_percent=100 * share,
        total_percent=100 * pl.col("total_samples") / count,
        self_ns=(pl.col("self_samples") * period).round().cast(pl.Int64),
        self_low_ns=((middle - reach).clip(0, 1) * count * period).round().cast(pl.Int64),
        self_high_ns=((middle + reach).clip(0, 1) * count * period).round().cast(pl.Int64),
    ).select("thread", pl.col("label").alias("line" if by == LINE else "name"), *_COLUMNS)


def _sample_period(trace: Trace) -> float | None:
    """The time that a sample stands for, ns; None where it is not known."""
    rate = trace.meta_value(STACK_SAMPLING_RATE)
    return 1e9 / rate if isinstance(rate, int | float) and 0 < rate < 1e6 else None


def _sampled_threads(trace: Trace, leaves: pl.DataFrame, period_ns: float | None) -> pl.DataFrame:
    """The threads that were sampled, numbered from the one that used most processor time on."""
    names = trace.required("threads").select("pid", "tid", thread="name").unique(["pid", "tid"]).collect()
    sums = leaves.group_by("pid", "tid").agg(pl.col("samples", "cpu_ns").sum())
    period = pl.lit(period_ns, dtype=pl.Float64)
    return (
        sums.join(names, on=["pid", "tid"], how="left")
        .sort(["cpu_ns", "samples", "pid", "tid"], descending=[True, True, False, False])
        .with_columns(
            thread=pl.col("thread").fill_null(pl.format("thread {}", "tid")),
            time_ns=(pl.col("samples") * period).round().cast(pl.Int64),
        )
        .with_row_index("number")
        .with_columns(pl.col("number").cast(pl.Int64))
    )


def _of_threads(threads: pl.DataFrame, leaves: pl.DataFrame, stacks: _Stacks) -> pl.DataFrame:
    with_stack = leaves.drop_nulls("stack")
    labelled = with_stack.with_columns(name=stacks.labels.gather(pl.Series(stacks.label[with_stack["stack"].to_numpy()])))
    most = (
        labelled.group_by("pid", "tid", "name")
        .agg(pl.col("samples").sum())
        .sort(["samples", "name"], descending=[True, False])
        .unique(["pid", "tid"], keep="first", maintain_order=True)
    )
    return (
        threads.join(most.select("pid", "tid", "name"), on=["pid", "tid"], how="left")
        .sort("number")
        .with_columns(cpu_percent=100.0 * pl.col("cpu_ns") / pl.col("time_ns"))
        .select("thread", "samples", "time_ns", "cpu_ns", "cpu_percent", "name")
    )


def _read_stacks(stacks: pl.DataFrame, by: str) -> _Stacks:
    size = int(stacks["id"].max() or 0) + 1 if stacks.height else 0  # type: ignore[arg-type]
    ids = stacks["id"].to_numpy()
    parent, depth, label = np.full(size, -1), np.zeros(size, np.int64), np.zeros(size, np.int64)
    parent[ids] = stacks["parent"].fill_null(-1).to_numpy()
    depth[ids] = stacks["depth"].to_numpy()
    distinct = stacks.select("name", *(["line"] if by == LINE else [])).unique(maintain_order=True).with_row_index("number")
    numbers = stacks.select(*distinct.columns[1:]).join(distinct, on=distinct.columns[1:], how="left", maintain_order="left")
    label[ids] = numbers["number"].to_numpy()
    texts = distinct["name"].cast(pl.String)
    if by == LINE:
        texts = pl.Series([_at_line(name, line) for name, line in zip(texts, distinct["line"], strict=True)], dtype=pl.String)
    return _Stacks(parent, depth, label, texts)


def _at_line(name: str, line: int) -> str:
    """The name of a function with the line that it is at in place of the one that it begins at."""
    return _FIRST_LINE.sub(f"({line})", name) if line > 0 else name


def _count_samples(leaves: pl.DataFrame, stacks: _Stacks) -> pl.DataFrame:
    """Self and total samples and the processor time of each label on each thread: number, label and their sums."""
    with_stack = leaves.filter(pl.col("stack").is_not_null())
    node, thread = with_stack["stack"].to_numpy().astype(np.int64), with_stack["number"].to_numpy()
    number, place, total = _total_samples(thread, node, with_stack["samples"].to_numpy(), stacks)
    totals = pl.DataFrame({"number": number, "place": place, "total_samples": total})
    owns = with_stack.select("number", "samples", "cpu_ns", place=pl.Series(stacks.label[node]))
    sums = owns.group_by("number", "place").agg(self_samples=pl.col("samples").sum(), cpu_ns=pl.col("cpu_ns").sum())
    counted = totals.join(sums, on=["number", "place"], how="left").with_columns(pl.col("self_samples", "cpu_ns").fill_null(0))
    unknown = leaves.filter(pl.col("stack").is_null()).select(
        "number",
        pl.lit(None, pl.String).alias("label"),
        total_samples="samples",
        self_samples="samples",
        cpu_ns="cpu_ns",
    )
    labelled = counted.with_columns(label=stacks.labels.gather(counted["place"])).select(unknown.columns)
    return pl.concat([labelled, unknown])


def _total_samples(
    thread: Int64Array, node: Int64Array, samples: Int64Array, stacks: _Stacks
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Samples in which each label was any frame, by thread: from the innermost frames to the outermost, depth by depth.

    Where a label is around itself, its outermost frame has the samples of all of them.
    """
    is_counted = _are_outermost(stacks)
    width = max(len(stacks.parent), 1)
    keys: list[Int64Array] = []
    sums: list[Int64Array] = []
    pairs, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    depth = stacks.depth[node]
    for level in range(int(depth.max(initial=-1)), -1, -1):
        here = depth == level
        pairs, where = np.unique(np.r_[pairs, thread[here] * width + node[here]], return_inverse=True)
        added = np.zeros(len(pairs), np.int64)
        np.add.at(added, where, np.r_[counts, samples[here]])
        threads, nodes = np.divmod(pairs, width)
        counted = is_counted[nodes]
        keys.append(threads[counted] * width + stacks.label[nodes[counted]])
        sums.append(added[counted])
        pairs, counts = threads * width + stacks.parent[nodes], added
    joined, where = np.unique(np.concatenate([np.empty(0, np.int64), *keys]), return_inverse=True)
    total = np.zeros(len(joined), np.int64)
    np.add.at(total, where, np.concatenate([np.empty(0, np.int64), *sums]))
    number, label = np.divmod(joined, width)
    return number, label, total


def _are_outermost(stacks: _Stacks) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether no frame around that of a stack has its label."""
    outermost = np.ones(len(stacks.parent), dtype=bool)
    rows = np.flatnonzero(stacks.parent >= 0)
    around = stacks.parent[rows]
    while len(rows):
        outermost[rows[stacks.label[around] == stacks.label[rows]]] = False
        next_around = stacks.parent[around]
        rows, around = rows[next_around >= 0], next_around[next_around >= 0]
    return outermost
