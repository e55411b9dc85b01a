"""Reads Kineto and Chrome trace JSON (.json, .json.gz) into a ``Trace``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common.errors import InputError
from steplens.readers.common.json_events import JsonEventFile
from steplens.readers.common.json_start import without_events
from steplens.readers.common.trace_rows import add_recorded_beside
from steplens.readers.kineto.kineto_device import accelerator_meta, device_is_missing, device_tables
from steplens.readers.kineto.kineto_events import EventColumns
from steplens.readers.kineto.kineto_meta import meta_table, report_losses
from steplens.readers.kineto.kineto_tables import flow_arrows, host_tables
from steplens.readers.kineto.two_processes import read_columns
from steplens.trace.building.build import build_trace
from steplens.trace.health import (
    ERROR,
    EVERYTHING,
    INFO,
    KERNEL_CALLS,
    KERNEL_TIMES,
    OPERATOR_CALLS,
    OPERATOR_SELF_TIMES,
    OPERATOR_TIMES,
    RANK_COMPARISON,
    RUN_OPTIONS,
    STEP_TIMES,
    WARNING,
    HealthLog,
)
from steplens.trace.trace import Trace

#: share of events in times of no profile from which on the unit is another one
_MOST_BEYOND = 0.9
#: what calls that are left out would change
_OF_CALLS = (STEP_TIMES, OPERATOR_CALLS, OPERATOR_TIMES, OPERATOR_SELF_TIMES, KERNEL_CALLS, KERNEL_TIMES)


def read(
    path: Path,
    *,
    extra: dict[str, pl.DataFrame] | None = None,
    health: HealthLog | None = None,
    cpu_is_device: bool = True,
) -> Trace:
    """Read one trace file.

    Args:
        path: .json or .json.gz.
        extra: further raw tables of the same run that the file does not hold, see ``add_recorded_beside``.
        health: findings so far; a new log when absent.
        cpu_is_device: see ``build_trace``.

    Raises:
        InputError: the file is missing, empty or no trace at all. A damaged or truncated trace gives what can be read,
            and health findings.
    """
    log = health or HealthLog()
    events = read_events(path, log)
    columns, members, base_ns = events.columns, events.members, events.base_ns
    raw = host_tables(columns, base_ns)
    raw.update(device_tables(columns, raw, members, base_ns, log))
    raw["flows"] = flow_arrows(columns, base_ns, linked_correlations(raw), log)
    raw["meta"] = meta_table({**members, **accelerator_meta(raw, members)}, base_ns, path)
    add_recorded_beside(raw, extra or {})
    cpu_is_device = cpu_is_device and not device_is_missing(raw, members, log)
    return build_trace(path, raw, log, cpu_is_device=cpu_is_device)


@dataclass(frozen=True)
class TraceEvents:
    """The events of a trace file, before tables are made of them.

    Attributes:
        columns: the events.
        members: of the top object, but the events.
        base_ns: Unix time that the times of the events are relative to.
    """

    columns: EventColumns
    members: dict[str, Any]
    base_ns: int


def read_events(path: Path, log: HealthLog) -> TraceEvents:
    """The events of a trace file with times in ns.

    Args:
        path: .json or .json.gz.
        log: takes what is damaged or was lost.

    Raises:
        InputError: the file is missing, empty or no trace at all.
    """
    columns, file = read_columns(path)
    if columns.count == 0:
        raise without_events(path)
    columns.convert()
    if columns.beyond > _MOST_BEYOND * (columns.timed + columns.beyond):
        problem = f"the times of {columns.beyond} events are not microseconds: they would lie behind the year 2096"
        raise InputError(path, problem, "Write ts and dur in microseconds, as the format of Chrome traces has them")
    # other tools may write the members of the top object in another order
    members = {**file.header, **file.footer}
    _report_damage(columns, file, log)
    report_losses(members, log)
    base_ns = members.get("baseTimeNanoseconds", 0)
    return TraceEvents(columns, members, base_ns if isinstance(base_ns, int) and abs(base_ns) < 1 << 62 else 0)


def linked_correlations(tables: Mapping[str, pl.DataFrame]) -> pl.Series:
    """Correlations of which both the call and the device task were recorded: the lack of either is said by itself."""
    kernels, api = tables.get("kernels"), tables.get("api")
    if kernels is None:
        return pl.Series(dtype=pl.Int64)
    launched: pl.Series = kernels["correlation"]
    if api is None or "correlation" not in api.columns:
        return launched
    is_called: pl.Series = launched.is_in(api["correlation"].drop_nulls().unique().implode())
    called: pl.Series = launched.filter(is_called)
    return called


def _report_damage(columns: EventColumns, file: JsonEventFile, log: HealthLog) -> None:
    if file.stopped:
        log.extend([file.stopped])
    elif file.truncated:
        log.add(
            "truncated_file",
            ERROR,
            1,
            f"the file breaks off inside its events; {columns.count} events before the cut were read, "
            f"{file.lost_bytes} bytes behind them were not",
            EVERYTHING,
        )
    if file.footer_cut:
        message = "the file breaks off behind its events, where it says when its clock starts and how it was recorded"
        log.add("truncated_file", ERROR, 1, message, [RUN_OPTIONS, RANK_COMPARISON])
    if file.header_damaged:
        message = "what the file says in front of its events is damaged: how it was recorded, and of which rank, is unknown"
        log.add("damaged_header", WARNING, 1, message, [RUN_OPTIONS, RANK_COMPARISON])
    if columns.damaged:
        message = "events are not valid JSON, or have no time, duration or thread, and were left out"
        log.add("damaged_events", ERROR, columns.damaged, message, EVERYTHING)
    if columns.unended:
        message = "calls in two events (ph B and E) begin and have no end in the file; they were left out"
        log.add("unpaired_events", WARNING, columns.unended, message, _OF_CALLS)
    if columns.unbegun:
        message = "ends of calls in two events (ph B and E) have no beginning in the file; they were left out"
        log.add("unpaired_events", WARNING, columns.unbegun, message, _OF_CALLS)
    if columns.skipped:
        log.add("skipped_events", INFO, columns.skipped, "events are of a kind that a profile does not use")
