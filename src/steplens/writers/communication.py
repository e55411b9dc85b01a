"""communication.json and communication_matrix.json: what the communication library measured, per step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from steplens.analysis.communication import (
    COLLECTIVE,
    POINT_TO_POINT,
    TOTAL,
    bandwidth_totals,
    communication_bandwidth,
    communication_matrix,
    communication_times,
    package_totals,
    time_totals,
)
from steplens.trace.trace import Trace
from steplens.writers.output import NothingToWriteError, Output
from steplens.writers.text import write_json

#: every operation lists these transports, used or not
TRANSPORTS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")

STEP_PREFIX = "step"
_TOTAL_OP = "Total Op Info"
_NOT_MEASURED = "the source has no measurements of communication"

_SIZE, _TIME, _BANDWIDTH = "Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)"
_LARGE, _PACKETS = "Large Packet Ratio", "Size Distribution"

Steps = dict[str, dict[str, dict[str, Any]]]


def write_times(output: Output, path: Path) -> None:
    """Write communication.json: start µs after the time base, durations ms, sizes MB of 10**6 bytes, bandwidths GB/s."""
    times = communication_times(output.trace)
    if times.is_empty():
        raise NothingToWriteError(_NOT_MEASURED)
    bandwidth = communication_bandwidth(output.trace)
    steps = _steps(output.trace, times)
    operations = _operations(bandwidth)
    for row in times.iter_rows(named=True):
        if row["step"] is None and None not in steps:
            continue
        key = _key(row["name"], row["group"])
        start = None if row["start_ns"] is None else (row["start_ns"] - output.base_ns) / 1000
        steps[row["step"]][_class(row["kind"])][key] = {
            "Communication Time Info": {"Start Timestamp(us)": start, **_time_info(row)},
            "Communication Bandwidth Info": operations.get((row["step"], row["kind"], row["name"], row["group"]), _unused()),
        }
    _add_totals(steps, times, bandwidth)
    write_json(_named(steps), path)


def write_matrix(output: Output, path: Path) -> None:
    """Write communication_matrix.json: the operations of each link that ``analysis.communication`` selects."""
    rows = communication_matrix(output.trace)
    if rows.is_empty():
        raise NothingToWriteError(_NOT_MEASURED)
    without_steps = output.trace.required("steps").select(pl.len()).collect().item() == 0
    steps: dict[int | None, dict[str, dict[str, Any]]] = {}
    for row in rows.sort("step", maintain_order=True).iter_rows(named=True):
        if row["step"] is None and not without_steps:
            continue
        classes = steps.setdefault(row["step"], {POINT_TO_POINT: {}, COLLECTIVE: {}})
        links = classes[_class(row["kind"])].setdefault(_key(f"{row['type']}-{row['selection']}", row["group"]), {})
        links[f"{row['source']}-{row['destination']}"] = {
            "Transport Type": row["transport"],
            _SIZE: row["size_mb"] or 0,
            _TIME: row["transit_ms"] or 0,
            _BANDWIDTH: row["bandwidth_gbps"] or 0,
            **({} if row["selection"] == TOTAL else {"Op Name": row["op_name"]}),
        }
    write_json(_named(steps), path)


def _steps(trace: Trace, rows: pl.DataFrame) -> dict[int | None, dict[str, dict[str, Any]]]:
    """An entry for every step, also for those in which nothing was communicated; one without a name on a run without steps."""
    ids: list[int | None] = trace.required("steps").select("id").collect()["id"].to_list()
    known = rows["step"].unique(maintain_order=True).to_list()
    ids += [step for step in known if step not in ids and (step is not None or not ids)]
    return {step: {POINT_TO_POINT: {}, COLLECTIVE: {}} for step in ids}


def _named(steps: dict[int | None, dict[str, dict[str, Any]]]) -> Steps:
    return {STEP_PREFIX if step is None else f"{STEP_PREFIX}{step}": classes for step, classes in steps.items()}


def _key(name: str, group: str | None) -> str:
    return f"{name}@{group or ''}"


def _class(kind: str | None) -> str:
    return POINT_TO_POINT if kind == POINT_TO_POINT else COLLECTIVE


def _time_info(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "Elapse Time(ms)": row["elapse_ms"],
        "Transit Time(ms)": row["transit_ms"],
        "Wait Time(ms)": row["wait_ms"],
        "Synchronization Time(ms)": row["synchronization_ms"],
        "Idle Time(ms)": row["idle_ms"],
        "Wait Time Ratio": row["wait_ratio"],
        "Synchronization Time Ratio": row["synchronization_ratio"],
    }


def _unused() -> dict[str, dict[str, Any]]:
    return {transport: {_SIZE: 0, _TIME: 0, _BANDWIDTH: 0, _LARGE: 0, _PACKETS: {}} for transport in TRANSPORTS}


def _operations(bandwidth: pl.DataFrame) -> dict[tuple[Any, ...], dict[str, dict[str, Any]]]:
    """(step, kind, name, group) -> transport -> what it moved."""
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in bandwidth.iter_rows(named=True):
        transports = found.setdefault((row["step"], row["kind"], row["name"], row["group"]), _unused())
        info = transports.setdefault(row["transport"], {_PACKETS: {}})
        info.update(
            {
                _SIZE: row["size_mb"] or 0,
                _TIME: row["transit_ms"] or 0,
                _BANDWIDTH: row["bandwidth_gbps"] or 0,
                _LARGE: row["large_packet_ratio"] or 0,
                _PACKETS: info[_PACKETS],
            }
        )
        if row["package_mb"] is not None:
            info[_PACKETS][str(row["package_mb"])] = [row["count"], row["duration_ms"]]
    return found


def _add_totals(steps: dict[int | None, dict[str, dict[str, Any]]], times: pl.DataFrame, bandwidth: pl.DataFrame) -> None:
    for row in time_totals(times).iter_rows(named=True):
        if row["step"] in steps:
            unused: dict[str, dict[str, Any]] = {
                transport: {_TIME: 0, _SIZE: 0, _BANDWIDTH: 0, _PACKETS: {}} for transport in TRANSPORTS
            }
            steps[row["step"]][_class(row["kind"])][_TOTAL_OP] = {
                "Communication Time Info": _time_info(row),
                "Communication Bandwidth Info": unused,
            }
    for row in bandwidth_totals(bandwidth).iter_rows(named=True):
        if (info := _total_of(steps, row)) is not None:
            info.update({_TIME: row["transit_ms"] or 0, _SIZE: row["size_mb"] or 0, _BANDWIDTH: row["bandwidth_gbps"] or 0})
            info.setdefault(_PACKETS, {})
    for row in package_totals(bandwidth).iter_rows(named=True):
        if (info := _total_of(steps, row)) is not None:
            info[_PACKETS][str(row["package_mb"])] = [row["count"], row["duration_ms"]]


def _total_of(steps: dict[int | None, dict[str, dict[str, Any]]], row: dict[str, Any]) -> dict[str, Any] | None:
    """The entry of a transport in the totals of the row's step and class; None where the operation itself is unknown."""
    total = steps.get(row["step"], {}).get(_class(row["kind"]), {}).get(_TOTAL_OP)
    if total is None:
        return None
    entry: dict[str, Any] = total["Communication Bandwidth Info"].setdefault(row["transport"], {})
    return entry
