"""Call stacks with the time spent in them, a line per stack: what FlameGraph, speedscope and others draw.

A line is the frames from outermost to innermost, joined by ";", a space and whole microseconds.
"""

from __future__ import annotations

import re
from typing import IO

import polars as pl

from steplens.common.errors import InputError
from steplens.trace.building.devices import device_kind
from steplens.trace.schema import CORE_CPU
from steplens.writers.exports.subject import Subject

SELF_CPU = "self_cpu_time_total"
#: time of the device tasks that a call launched, whatever the device is called
SELF_DEVICE = ("self_npu_time_total", "self_cuda_time_total")
METRICS = (SELF_CPU, *SELF_DEVICE)

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")


def write(subject: Subject, handle: IO[bytes], metric: str = SELF_CPU) -> None:
    """Write every stack with at least a microsecond; equal stacks are added up before their time is cut to microseconds.

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
        raise InputError(subject.path, "has no call stacks", "Record it with with_stack=True")
    if metric in SELF_DEVICE and device_kind(trace) == CORE_CPU:
        raise InputError(subject.path, f"has no device tasks, so no {metric}", f"Take {SELF_CPU}")
    self_time = pl.col("self_ns" if metric == SELF_CPU else "device_self_ns")
    sums = calls.group_by("stack").agg(us=self_time.sum() // 1000).filter(pl.col("us") > 0).sort("us", descending=True).collect()
    lines: dict[str, int] = {}
    for text, us in sums.select(pl.col("stack").cast(pl.String), "us").iter_rows():
        line = fold_stack(text)
        # stacks may differ in nothing but characters that a line cannot hold
        lines[line] = lines.get(line, 0) + us
    for line, us in lines.items():
        handle.write(f"{line} {us}\n".encode("utf-8", "replace"))


def fold_stack(stack: str) -> str:
    """A stack of the table ``ops``, innermost frame first, the other way round and on one line."""
    return ";".join(_CONTROLS.sub(" ", frame).strip() for frame in reversed(stack.split(";")))
