"""communication.json and communication_matrix.json: what is known of communication, per step.

An NPU's library measures transfer, waiting and links of every operation. Nothing measures them on CPU and GPU: there the files
hold what was recorded, the length and the size of every operation and the rank in its group, and lack every member that would
have to be invented: one rank cannot tell moving data from waiting for the others, so there is no bandwidth. The clients take what
is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from steplens.analysis.cluster.measured_communication import (
    TOTAL,
    bandwidth_totals,
    communication_bandwidth,
    communication_matrix,
    communication_times,
    package_totals,
    time_totals,
)
from steplens.formats import ascend_results as names
from steplens.trace.trace import Trace
from steplens.writers.common.communication_names import is_unmeasured, own_links, unmeasured_times, unmeasured_totals
from steplens.writers.common.output import NPU, NothingToWriteError, Output, device_kind, step_exists
from steplens.writers.common.text import write_json

_ELAPSED = names.OPERATION_TIMES["elapse"]
_NOT_MEASURED = "the source has no measurements of communication"

Steps = dict[str, dict[str, dict[str, Any]]]


def write_times(output: Output, path: Path) -> None:
    """Write communication.json: start µs after the time base, durations ms, sizes MB of 10**6 bytes, bandwidths GB/s."""
    times = communication_times(output.trace)
    if times.is_empty() or is_unmeasured(output):
        _write_unmeasured_times(output, path)
        return
    bandwidth = communication_bandwidth(output.trace)
    steps = _step_entries(output.trace, times)
    operations = _transports_of_operations(bandwidth)
    for row in times.iter_rows(named=True):
        if row["step"] is None and None not in steps:
            continue
        key = _operation_key(row["name"], row["group"])
        start = None if row["start_ns"] is None else (row["start_ns"] - output.base_ns) / 1000
        steps[row["step"]][_operation_class(row["kind"])][key] = {
            names.TIME_INFO: {names.START_TIMESTAMP: start, **_time_info(row)},
            names.BANDWIDTH_INFO: operations.get((row["step"], row["kind"], row["name"], row["group"]), _empty_transports()),
        }
    _add_totals(steps, times, bandwidth)
    write_json(_name_steps(steps), path)


def write_matrix(output: Output, path: Path) -> None:
    """Write communication_matrix.json: the operations of each link that ``analysis.cluster.measured_communication`` selects."""
    rows = communication_matrix(output.trace)
    if rows.is_empty():
        _write_own_links(output, path)
        return
    without_steps = not step_exists(output.trace)
    steps: dict[int | None, dict[str, dict[str, Any]]] = {}
    for row in rows.sort("step", maintain_order=True).iter_rows(named=True):
        if row["step"] is None and not without_steps:
            continue
        classes = steps.setdefault(row["step"], {names.POINT_TO_POINT: {}, names.COLLECTIVE: {}})
        links = classes[_operation_class(row["kind"])].setdefault(
            _operation_key(f"{row['type']}-{row['selection']}", row["group"]), {}
        )
        links[f"{row['source']}-{row['destination']}"] = {
            names.TRANSPORT_TYPE: row["transport"],
            **_measures(row),
            **({} if row["selection"] == TOTAL else {names.OPERATION_NAME: row["op_name"]}),
        }
    write_json(_name_steps(steps), path)


def _write_unmeasured_times(output: Output, path: Path) -> None:
    times = unmeasured_times(output) if device_kind(output.trace) != NPU else pl.DataFrame()
    if times.is_empty():
        raise NothingToWriteError(_NOT_MEASURED)
    steps = _step_entries(output.trace, times)
    for row in times.sort("start_ns", maintain_order=True).iter_rows(named=True):
        if row["step"] not in steps:
            continue
        start = (row["start_ns"] - output.base_ns) / 1000
        steps[row["step"]][_operation_class(row["kind"])][_operation_key(row["name"], row["group"])] = {
            names.TIME_INFO: {names.START_TIMESTAMP: start, _ELAPSED: row["elapse_ms"]},
            names.BANDWIDTH_INFO: _unmeasured_transport(row["library"], row["size_mb"]),
        }
    sizes = {
        (step, kind): _unmeasured_transport(library, size) for step, kind, library, size in unmeasured_totals(times).iter_rows()
    }
    for step, classes in steps.items():
        for name, operations in classes.items():
            # the clients stop at a step whose collectives have no total
            if operations or name == names.COLLECTIVE:
                elapsed = sum(operation[names.TIME_INFO][_ELAPSED] for operation in operations.values())
                operations[names.TOTAL_OPERATION] = {
                    names.TIME_INFO: {_ELAPSED: elapsed},
                    names.BANDWIDTH_INFO: sizes.get((step, name), {}),
                }
    write_json(_name_steps(steps), path)


def _unmeasured_transport(library: str | None, size_mb: float | None) -> dict[str, dict[str, float]]:
    """The transport of an operation that nothing measured, which is its library, and what was put in."""
    return {} if library is None or size_mb is None else {library: {names.TRANSIT_SIZE: size_mb}}


def _write_own_links(output: Output, path: Path) -> None:
    links = own_links(output) if device_kind(output.trace) != NPU else pl.DataFrame()
    if links.is_empty():
        raise NothingToWriteError(_NOT_MEASURED)
    steps = _step_entries(output.trace, links)
    for step, kind, type_, group, rank in links.iter_rows():
        if step in steps:
            steps[step][_operation_class(kind)][_operation_key(f"{type_}-{TOTAL}", group)] = {
                f"{rank}-{rank}": {names.TRANSPORT_TYPE: names.LOCAL}
            }
    write_json(_name_steps(steps), path)


def _step_entries(trace: Trace, rows: pl.DataFrame) -> dict[int | None, dict[str, dict[str, Any]]]:
    """An entry for every step, also for those in which nothing was communicated; one without a name on a run without steps."""
    ids: list[int | None] = trace.required("steps").select("id").collect()["id"].to_list()
    step_numbers = rows["step"].unique(maintain_order=True).to_list()
    ids += [step for step in step_numbers if step not in ids and (step is not None or not ids)]
    return {step: {names.POINT_TO_POINT: {}, names.COLLECTIVE: {}} for step in ids}


def _name_steps(steps: dict[int | None, dict[str, dict[str, Any]]]) -> Steps:
    return {names.STEP_PREFIX if step is None else f"{names.STEP_PREFIX}{step}": classes for step, classes in steps.items()}


def _operation_key(name: str, group: str | None) -> str:
    return f"{name}@{group or ''}"


def _operation_class(kind: str | None) -> str:
    return names.POINT_TO_POINT if kind == names.POINT_TO_POINT else names.COLLECTIVE


def _time_info(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **{member: row[f"{part}_ms"] for part, member in names.OPERATION_TIMES.items()},
        names.WAIT_RATIO: row["wait_ratio"],
        names.SYNCHRONIZATION_RATIO: row["synchronization_ratio"],
    }


def _measures(row: dict[str, Any]) -> dict[str, Any]:
    """What a transport moved, in MB, ms and GB/s; 0 where nothing was measured."""
    columns = {names.TRANSIT_SIZE: "size_mb", names.TRANSIT_TIME: "transit_ms", names.BANDWIDTH: "bandwidth_gbps"}
    return {member: row[column] or 0 for member, column in columns.items()}


def _empty_transports() -> dict[str, dict[str, Any]]:
    return {
        transport: {names.TRANSIT_SIZE: 0, names.TRANSIT_TIME: 0, names.BANDWIDTH: 0, names.LARGE_PACKETS: 0, names.PACKETS: {}}
        for transport in names.TRANSPORTS
    }


def _transports_of_operations(bandwidth: pl.DataFrame) -> dict[tuple[Any, ...], dict[str, dict[str, Any]]]:
    """(step, kind, name, group) -> transport -> what it moved."""
    by_step: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in bandwidth.iter_rows(named=True):
        transports = by_step.setdefault((row["step"], row["kind"], row["name"], row["group"]), _empty_transports())
        info = transports.setdefault(row["transport"], {names.PACKETS: {}})
        info.update({**_measures(row), names.LARGE_PACKETS: row["large_packet_ratio"] or 0})
        if row["package_mb"] is not None:
            info[names.PACKETS][str(row["package_mb"])] = [row["count"], row["duration_ms"]]
    return by_step


def _add_totals(steps: dict[int | None, dict[str, dict[str, Any]]], times: pl.DataFrame, bandwidth: pl.DataFrame) -> None:
    for row in time_totals(times).iter_rows(named=True):
        if row["step"] in steps:
            unused: dict[str, dict[str, Any]] = {
                transport: {names.TRANSIT_TIME: 0, names.TRANSIT_SIZE: 0, names.BANDWIDTH: 0, names.PACKETS: {}}
                for transport in names.TRANSPORTS
            }
            steps[row["step"]][_operation_class(row["kind"])][names.TOTAL_OPERATION] = {
                names.TIME_INFO: _time_info(row),
                names.BANDWIDTH_INFO: unused,
            }
    for row in bandwidth_totals(bandwidth).iter_rows(named=True):
        if (info := _total_of(steps, row)) is not None:
            # as the others have them: the time first
            info.setdefault(names.TRANSIT_TIME, 0)
            info.update(_measures(row))
            info.setdefault(names.PACKETS, {})
    for row in package_totals(bandwidth).iter_rows(named=True):
        if (info := _total_of(steps, row)) is not None:
            info[names.PACKETS][str(row["package_mb"])] = [row["count"], row["duration_ms"]]


def _total_of(steps: dict[int | None, dict[str, dict[str, Any]]], row: dict[str, Any]) -> dict[str, Any] | None:
    """The entry of a transport in the totals of the row's step and class; None where the operation itself is unknown."""
    total = steps.get(row["step"], {}).get(_operation_class(row["kind"]), {}).get(names.TOTAL_OPERATION)
    if total is None:
        return None
    entry: dict[str, Any] = total[names.BANDWIDTH_INFO].setdefault(row["transport"], {})
    return entry
