"""Reads what MindSpore computed about communication: ``hccl_raw`` and ``ascend_cluster_analyse``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import json_text
from steplens.readers.common.ascend_csv_file import has_required_columns, read_table
from steplens.readers.common.microseconds import with_possible_times
from steplens.trace.health import (
    COMMUNICATION_TIMES,
    INFO,
    STEP_DEVICE_TIMES,
    WARNING,
    HealthLog,
)
from steplens.trace.schema import SCHEMA

_AVERAGE = "-"
_LINK = re.compile(r"^(\d{1,6})-(\d{1,6})$")
_LARGEST = 1e15
#: a cost that is so many times the sum of its links is in us
_US_RATIO = 100

#: column of the file -> name and whether it is a time of a step
_CLUSTER = {
    "computation_time": ("computation_time", "computation"),
    "communication_alone_time": ("communication_alone_time", "communication_alone"),
    "stage_time": ("stage_time",),
    "receive_alone_time": ("receive_alone_time",),
    "collective_communication_alone_time": ("collective_communication_alone_time", "collective_communication_time"),
}
_DATA_PARALLEL = ("iteration_interval", "fp_and_bp", "tail")
_TICKS_PER_MS = 100_000


def read_collectives(path: Path, first_rank: int, health: HealthLog) -> dict[str, pl.DataFrame]:
    """``hccl_raw_<rank>.csv``: times and links of every collective, per step.

    Bandwidths are computed from sizes and times: the stored ones are sums over operations, in one version KB/s and in
    another GB/s. Links are numbered within a stage; ``first_rank`` makes ranks of the job of them.

    Args:
        path: the file.
        first_rank: first rank of the rank's stage.
        health: gets what is wrong.

    Returns:
        ``communication_times`` and ``communication_matrix`` per operation, and the frame "hccl_raw": step_num ("-": the stored
        averages), communication_cost and wait_cost (ms), link_info (JSON: link -> transport -> ms, KB, GB/s).
    """
    unsafe = COMMUNICATION_TIMES
    table = read_table([path], health, unsafe)
    needed = (("step_num",), ("communication_cost",), ("wait_cost",), ("link_info",))
    if not has_required_columns(table, path.name, health, unsafe, *needed):
        return {}
    steps = table.text("step_num").cast(pl.String).to_list()
    costs, waits = table.number("communication_cost").to_list(), table.number("wait_cost").to_list()
    links = [_decode_object(text) for text in table.text("link_info").cast(pl.String).to_list()]
    operations = [_decode_object(text) for text in table.text("communication_operator_cost").cast(pl.String).to_list()]
    scale = _cost_scale(costs, links)
    if scale != 1:
        health.add("us_for_ms", INFO, 1, f"costs in {path.name} are microseconds; they were converted to milliseconds")
    times: list[tuple[Any, ...]] = []
    matrix: list[tuple[Any, ...]] = []
    rows: list[tuple[Any, ...]] = []
    damaged = 0
    for step, cost, wait, link, operation in zip(steps, costs, waits, links, operations, strict=True):
        if step is None or cost is None or wait is None or link is None:
            damaged += 1
            continue
        all_links = _link_costs(link, first_rank)
        times_of_link: dict[str, dict[str, list[float]]] = {f"{source}-{target}": {} for source, target, *_ in all_links}
        for source, target, transport, ms, size in all_links:
            times_of_link[f"{source}-{target}"][transport] = [ms, size, _bandwidth_gbps(ms, size)]
        rows.append((step, cost * scale, wait * scale, json.dumps(times_of_link)))
        if step == _AVERAGE or not step.isdigit() or len(step) > 12:
            continue
        for name, value in (operation or {}).items():
            if not isinstance(value, list) or len(value) < 3 or not (_is_number(value[1]) and _is_number(value[2])):
                damaged += 1
                continue
            kind = "p2p" if re.search(r"(?i)receive|send", name) else "collective"
            times.append((name, kind, int(step), value[1] * scale, value[2] * scale))
            for source, target, transport, ms, size in _link_costs(value[3] if len(value) > 3 else None, first_rank):
                matrix.append((name, kind, int(step), source, target, transport, size / 1000, ms, _bandwidth_gbps(ms, size)))
    if damaged:
        health.add("damaged_rows", WARNING, damaged, f"rows of {path.name} are damaged and were left out", unsafe)
    return {
        "communication_times": _schema_frame("communication_times", ("name", "kind", "step", "transit_ms", "wait_ms"), times),
        "communication_matrix": _schema_frame(
            "communication_matrix",
            ("op_name", "kind", "step", "source", "destination", "transport", "size_mb", "transit_ms", "bandwidth_gbps"),
            matrix,
        ).with_columns(name=pl.col("op_name")),
        "hccl_raw": pl.DataFrame(
            rows,
            schema={
                "step_num": pl.String,
                "communication_cost": pl.Float64,
                "wait_cost": pl.Float64,
                "link_info": pl.String,
            },
            orient="row",
        ),
    }


def _schema_frame(table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={name: SCHEMA[table][name] for name in columns}, orient="row")


def _decode_object(text: str | None) -> dict[str, Any] | None:
    try:
        value = json_text.loads(text or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -_LARGEST < value < _LARGEST


def _link_costs(members: Any, first_rank: int) -> list[tuple[int, int, str, float, float]]:
    """Source and destination (ranks of the job), transport, ms and KB of every link."""
    links = []
    for link, transports in members.items() if isinstance(members, dict) else ():
        ends = _LINK.match(link)
        for transport, values in transports.items() if ends and isinstance(transports, dict) else ():
            if ends and isinstance(values, list) and len(values) >= 2 and _is_number(values[0]) and _is_number(values[1]):
                source, target = (int(end) + first_rank for end in ends.groups())
                links.append((source, target, str(transport), float(values[0]), float(values[1])))
    return links


def _bandwidth_gbps(ms: float, kilobytes: float) -> float:
    """Bandwidth of so many KB (1000 bytes) in so many ms, GB/s; 0 where no time passed."""
    return kilobytes / ms / 1000 if ms > 0 else 0.0


def _cost_scale(costs: list[float | None], links: list[dict[str, Any] | None]) -> float:
    """What makes ms of the costs: newer files have us there, while links stay in ms."""
    cost = sum(value for value in costs if value is not None)
    parts = [ms for link in links for *_, ms, _ in _link_costs(link, 0)]
    return 0.001 if sum(parts) > 0 and cost / sum(parts) > _US_RATIO else 1


def read_cluster(path: Path, health: HealthLog) -> pl.DataFrame:
    """``ascend_cluster_analyse_*.csv`` in ms under the newest names; step counts from 1, the last row ("-") is the average.

    Of data-parallel runs the file has the parts of the step trace in counts of 10 ns.
    """
    table = read_table([path], health, STEP_DEVICE_TIMES)
    present = {new: names for new, names in _CLUSTER.items() if table.find(*names) is not None}
    columns = {new: table.number(*names) for new, names in present.items()}
    for name in _DATA_PARALLEL:
        if table.find(name) is not None:
            columns[name] = table.number(name) / _TICKS_PER_MS
    table.report(path.name, health, {}, STEP_DEVICE_TIMES)
    if not columns:
        has_required_columns(table, path.name, health, STEP_DEVICE_TIMES, ("computation_time",))
        return pl.DataFrame()
    frame = with_possible_times(pl.DataFrame(columns), path.name, health, STEP_DEVICE_TIMES, list(columns))
    # one row is the only step: its average would repeat it
    last = frame.height if frame.height == 1 else frame.height - 1
    numbers = [str(number) if number <= last else _AVERAGE for number in range(1, frame.height + 1)]
    return frame.select(pl.Series("step_num", numbers, dtype=pl.String), *frame.columns)


def stage_first_rank(rank: int, stages: int, ranks: int) -> int:
    """First rank of the pipeline stage of a rank; ranks are dealt to stages in order."""
    per_stage = ranks // stages if stages > 0 else 0
    return rank // per_stage * per_stage if per_stage > 0 else 0
