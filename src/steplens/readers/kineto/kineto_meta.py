"""What a Kineto trace says about itself: rank, versions, devices, and what the profiler lost while it recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

from steplens.formats.ascend_results import TIME_BASE_KEY
from steplens.readers.common.rank_names import rank_in_name
from steplens.readers.common.side_files import as_list, as_object
from steplens.readers.common.trace_rows import meta_rows
from steplens.trace.health import EVERYTHING, INFO, KERNEL_CALLS, KERNEL_TIMES, OPERATOR_DEVICE_TIMES, WARNING, HealthLog

#: what Kineto's log, which it puts into the trace, counts at the end of a recording
_RECORD_COUNT = re.compile(r"(Out-of-range|Invalid ext correlations|CPU GPU out-of-order|Unexpected CUDA events) = (\d+)")
_STOPPED_EARLY = re.compile(r"CUPTI stopped early\? = (\d+)")


def meta_table(members: dict[str, Any], base_ns: int, path: Path) -> pl.DataFrame:
    """``meta`` rows: every member of the top object but the events, the base time, and the rank where it is known.

    Args:
        members: of the top object.
        base_ns: base time of the file.
        path: the file; its name tells the rank where the file does not (``rank_source`` is "file name" then).
    """
    values = {key: value for key, value in members.items() if key != "traceEvents"}
    values[TIME_BASE_KEY] = base_ns
    distributed = as_object(members.get("distributedInfo"))
    rank, size = distributed.get("rank"), distributed.get("world_size")
    if isinstance(rank, int) and not isinstance(rank, bool):
        values["rank"] = rank
    else:
        named_rank = rank_in_name(path.name, distributed=bool(distributed))
        if named_rank is not None:
            values["rank"], values["rank_source"] = named_rank, "file name"
    if isinstance(size, int) and not isinstance(size, bool):
        values["world_size"] = size
    return meta_rows(values)


def report_losses(members: dict[str, Any], log: HealthLog) -> None:
    """Health findings from the log lines that Kineto puts into its traces: what it left out of them, and why."""
    lines = (line for key in ("INFO", "WARNING", "ERROR") for line in as_list(members.get(key)) if isinstance(line, str))
    text = "\n".join(lines)
    counts: dict[str, int] = {}
    for name, number in _RECORD_COUNT.findall(text):
        counts[name] = counts.get(name, 0) + int(number[:18])
    if counts.get("Out-of-range"):
        message = "records of the device lay outside the recorded window, as those of warm-up steps do, and were left out"
        log.add("out_of_range_records", INFO, counts["Out-of-range"], message)
    if counts.get("Invalid ext correlations"):
        message = "device records name no operator, says the profiler"
        log.add("records_without_operator", WARNING, counts["Invalid ext correlations"], message, (OPERATOR_DEVICE_TIMES,))
    disordered = counts.get("CPU GPU out-of-order", 0) + counts.get("Unexpected CUDA events", 0)
    if disordered:
        message = "device records start before their launch or are of an unknown kind, says the profiler, which left them out"
        log.add("disordered_records", WARNING, disordered, message, (KERNEL_CALLS, KERNEL_TIMES))
    if any(int(number_text[:18]) for number_text in _STOPPED_EARLY.findall(text)):
        message = "the profiler stopped recording the device before the end of the window, as its buffers were full"
        log.add("recording_stopped_early", WARNING, 1, message, (EVERYTHING,))
