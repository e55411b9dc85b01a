"""Call stacks with the time spent in them, a line per stack: what FlameGraph, speedscope and others draw.

A line is the frames from outermost to innermost, joined by ";", a space and whole microseconds.
"""

from __future__ import annotations

import re
from typing import IO

import numpy as np
import polars as pl

from steplens.common.errors import InputError
from steplens.trace.building.devices import device_kind
from steplens.trace.schema import CORE_CPU
from steplens.writers.exports.flame.sampled_stacks import SampledStacks, sampled_stacks
from steplens.writers.exports.subject import Subject

SELF_CPU = "self_cpu_time_total"
#: time of the device tasks that a call launched, whatever the device is called
SELF_DEVICE = ("self_npu_time_total", "self_cuda_time_total")
METRICS = (SELF_CPU, *SELF_DEVICE)

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")


def write(subject: Subject, handle: IO[bytes], metric: str = SELF_CPU) -> None:
    """Write every stack with at least a microsecond; equal stacks are added up before their time is cut to microseconds.

    Where stacks were sampled and calls were not, it is the samples, thread by thread.

    Args:
        subject: the trace.
        handle: open binary file.
        metric: ``self_cpu_time_total``, a call's own time on the host, or ``self_npu_time_total`` / ``self_cuda_time_total``,
            the time of the device tasks that it launched.

    Raises:
        InputError: the trace has no stacks, or no device tasks where their time is wanted.
    """
    trace = subject.trace
    if metric not in METRICS:
        raise InputError(subject.path, f"has no metric {metric!r}; they are {', '.join(METRICS)}")
    stack = pl.col("stack").cast(pl.String)
    calls = trace.required("ops").filter(stack.is_not_null() & (stack != ""))
    if calls.select(pl.len()).collect().item() == 0:
        if metric == SELF_CPU and (sampled := sampled_stacks(trace)) is not None:
            _write_samples(sampled, handle)
            return
        raise InputError(subject.path, "has no call stacks", "Record it with with_stack=True, or with stack_sampling_hz")
    if metric in SELF_DEVICE and device_kind(trace) == CORE_CPU:
        raise InputError(subject.path, f"has no device tasks, so no {metric}", f"Take {SELF_CPU}")
    self_time = pl.col("self_ns" if metric == SELF_CPU else "device_self_ns")
    sums = calls.group_by("stack").agg(us=self_time.sum() // 1000).filter(pl.col("us") > 0).sort("us", descending=True).collect()
    lines: dict[str, int] = {}
    for text, us in sums.select(pl.col("stack").cast(pl.String), "us").iter_rows():
        line = fold_stack(text)
        # stacks may differ in nothing but characters that a line cannot hold
        lines[line] = lines.get(line, 0) + us
    _write_lines(lines, handle)


def _write_samples(sampled: SampledStacks, handle: IO[bytes]) -> None:
    """Stacks that were sampled, with the estimated time in each; the outermost frame is the thread."""
    us = np.zeros(len(sampled.stacks.parent), dtype=np.int64)
    np.add.at(us, sampled.stacks.of_call, sampled.time_ns)
    lines: dict[str, int] = {}
    paths: list[str] = []
    parts = (sampled.stacks.parent.tolist(), sampled.stacks.frame.tolist(), sampled.stacks.lane.tolist(), (us // 1000).tolist())
    for parent, frame, lane, own_us in zip(*parts, strict=True):
        name = _CONTROLS.sub(" ", sampled.lanes[lane] if frame < 0 else sampled.names[frame]).replace(";", ",").strip()
        paths.append(name if frame < 0 else f"{paths[parent]};{name}")
        if own_us:
            lines[paths[-1]] = lines.get(paths[-1], 0) + own_us
    _write_lines(dict(sorted(lines.items(), key=lambda line: -line[1])), handle)


def _write_lines(lines: dict[str, int], handle: IO[bytes]) -> None:
    for line, us in lines.items():
        handle.write(f"{line} {us}\n".encode("utf-8", "replace"))


def fold_stack(stack: str) -> str:
    """A stack of the table ``ops``, innermost frame first, the other way round and on one line."""
    return ";".join(_CONTROLS.sub(" ", frame).strip() for frame in reversed(stack.split(";")))
