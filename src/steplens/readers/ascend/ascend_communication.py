"""Reads communication.json and communication_matrix.json, of CANN's analysis (``analyze/``) and of results.

CANN's files have the operations at the top; results put them below a step and "p2p" or "collective", and hold of the
matrix only selected rows per type of operation. Sums ("Total Op Info") are left out; they can be added up again.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common.storage.files import read_bytes
from steplens.formats import ascend_results as names
from steplens.formats.ascend_terms import HCCL_OPERATIONS, POINT_TO_POINT_OPERATIONS, RECEIVE_OPERATION, SELECTION, SEND_OPERATION
from steplens.readers.common import json_decoder
from steplens.readers.common.ascend_csv_file import UNKNOWN, report_no_numbers
from steplens.readers.common.microseconds import after_base, text_ns, with_possible_times
from steplens.readers.common.side_files import as_object
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, ERROR, WARNING, HealthLog
from steplens.trace.schema import COLLECTIVE, RECEIVE, SCHEMA, SEND

_FILE_LIMIT = 1 << 30
_CLASSES = (names.POINT_TO_POINT, names.COLLECTIVE)
_TOTAL = "total"
_LINK = re.compile(r"^(\d{1,9})-(\d{1,9})$")
#: ``allreduce-top1`` in a result
_SELECTED = re.compile(f"^(.+){SELECTION}")

#: results of a CPU or a GPU have the operations of gloo and NCCL, too
_OPERATION = f"({'|'.join((*HCCL_OPERATIONS, 'barrier', 'gather', 'recv'))})"

# a number that has no type comes as its text, so that no digit of a time is lost
_DECODER = json_decoder.Decoder[Any](float_hook=str)


def read_communication(path: Path, health: HealthLog, *, base_ns: int = 0) -> dict[str, pl.DataFrame]:
    """``communication.json``: the tables ``communication_times`` and ``communication_bandwidth``, where they have rows.

    ``step`` is null in CANN's form and for steps without a number. A transport that was not used has one row without
    packets.
    """
    times: list[tuple[Any, ...]] = []
    bandwidth: list[tuple[Any, ...]] = []
    odd = 0
    of_times, of_links = _Numbers(), _Numbers()
    for step, kind, key, value in _communication_operations(path, health, COMMUNICATION_TIMES):
        if not isinstance(value.get(names.TIME_INFO), dict) and not isinstance(value.get(names.BANDWIDTH_INFO), dict):
            odd += 1
            continue
        name, group = _name_and_group(key)
        info = as_object(value.get(names.TIME_INFO))
        milliseconds = (of_times.member(info, member) for member in names.OPERATION_TIMES.values())
        of_times.member(info, names.START_TIMESTAMP)
        times.append((name, group, kind, step, _to_text(info.get(names.START_TIMESTAMP)), *milliseconds))
        for transport, part in as_object(value.get(names.BANDWIDTH_INFO)).items():
            numbers = as_object(part)
            head = (name, group, kind, step, transport, *(of_links.member(numbers, column) for column in _BANDWIDTH_COLUMNS))
            distribution = as_object(numbers.get(names.PACKETS)).items()
            packets = [(size, packet) for size, packet in distribution if isinstance(packet, list) and len(packet) == 2]
            of_links.damaged[names.PACKETS] += len(distribution) - len(packets)
            for size, packet in packets:
                size_mb, count, duration_ms = (of_links.number(names.PACKETS, value) for value in (size, *packet))
                bandwidth.append((*head, size_mb, _to_integer(count), duration_ms))
            if not packets:
                bandwidth.append((*head, None, None, None))
    _report_odd(path, odd, health, COMMUNICATION_TIMES)
    report_no_numbers(path.name, +of_times.damaged, health, COMMUNICATION_TIMES)
    report_no_numbers(path.name, +of_links.damaged, health, COMMUNICATION_VOLUME)
    schema = {**SCHEMA["communication_times"], "start_ns": pl.String()}
    operations = pl.DataFrame(times, schema=schema, orient="row")
    operations = with_possible_times(operations, path.name, health, COMMUNICATION_TIMES)
    start_ns = after_base(pl.lit(text_ns(operations["start_ns"])), base_ns)
    links = pl.DataFrame(bandwidth, schema=SCHEMA["communication_bandwidth"], orient="row")
    tables = {
        "communication_times": operations.with_columns(start_ns=start_ns),
        "communication_bandwidth": with_possible_times(links, path.name, health, COMMUNICATION_VOLUME),
    }
    return {name: frame for name, frame in tables.items() if frame.height}


_BANDWIDTH_COLUMNS = (names.TRANSIT_SIZE, names.TRANSIT_TIME, names.BANDWIDTH, names.LARGE_PACKETS)


def read_communication_matrix(path: Path, health: HealthLog) -> pl.DataFrame:
    """``communication_matrix.json``: rows of ``communication_matrix``.

    In CANN's form a row is one link of one operation; in a result it is a selected one (``selection``) of a type of
    operation, and ``op_name`` says which.
    """
    rows: list[tuple[Any, ...]] = []
    odd = 0
    numbers = _Numbers()
    for step, kind, key, value in _communication_operations(path, health, COMMUNICATION_VOLUME):
        name, group = _name_and_group(key)
        selected = _SELECTED.match(name)
        if selected:
            name, selection = selected[1], selected[2]
        for link, part in value.items():
            ends = _LINK.match(link)
            if ends is None or not isinstance(part, dict):
                odd += 1
                continue
            rows.append(
                (
                    *(name, selection if selected else None, _to_text(part.get(names.OPERATION_NAME)), group, kind, step),
                    *(int(ends[1]), int(ends[2]), _to_text(part.get(names.TRANSPORT_TYPE))),
                    *(numbers.member(part, column) for column in _BANDWIDTH_COLUMNS[:3]),
                )
            )
    _report_odd(path, odd, health, COMMUNICATION_VOLUME)
    report_no_numbers(path.name, +numbers.damaged, health, COMMUNICATION_VOLUME)
    matrix = pl.DataFrame(rows, schema=SCHEMA["communication_matrix"], orient="row")
    return with_possible_times(matrix, path.name, health, COMMUNICATION_VOLUME)


def _communication_operations(
    path: Path, health: HealthLog, unsafe: str
) -> Iterator[tuple[int | None, str, str, dict[str, Any]]]:
    """Step, "p2p" or "collective", key and content of every operation of a file in either form."""
    odd = 0
    for key, value in _read_json_object(path, health, unsafe).items():
        if not isinstance(value, dict):
            odd += 1
        elif set(value) & set(_CLASSES) or re.fullmatch(rf"{names.STEP_PREFIX}\d*", key):
            step = int(key.removeprefix(names.STEP_PREFIX)) if re.fullmatch(rf"{names.STEP_PREFIX}\d{{1,18}}", key) else None
            for kind in _CLASSES:
                for operation, content in as_object(value.get(kind)).items():
                    if isinstance(content, dict) and not operation.lower().startswith(_TOTAL):
                        yield step, kind, operation, content
        elif not key.lower().startswith(_TOTAL):
            between_two = key.lower().startswith(POINT_TO_POINT_OPERATIONS)
            yield None, names.POINT_TO_POINT if between_two else names.COLLECTIVE, key, value
    _report_odd(path, odd, health, unsafe)


def _read_json_object(path: Path, health: HealthLog, unsafe: str) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > _FILE_LIMIT:
            raise ValueError(f"of {size >> 20} MiB is larger than such a file can be")
        value = _DECODER.decode(read_bytes(path))
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        health.add("unreadable_file", ERROR, 1, f"{path.name} cannot be read ({text})", unsafe)
        return {}
    if not isinstance(value, dict):
        health.add("unreadable_file", ERROR, 1, f"{path.name} holds no object", unsafe)
        return {}
    return value


def _report_odd(path: Path, count: int, health: HealthLog, unsafe: str) -> None:
    if count:
        health.add("unknown_layout", WARNING, count, f"parts of {path.name} are none that is known; they were left out", unsafe)


def _name_and_group(key: str) -> tuple[str, str | None]:
    name, _, group = key.partition("@")
    return name, group or None


class _Numbers:
    """Numbers of a file, also those that are written as text.

    Attributes:
        damaged: of each member, the values that say something and are no numbers.
    """

    def __init__(self) -> None:
        self.damaged: Counter[str] = Counter()

    def member(self, members: dict[str, Any], name: str) -> float | None:
        """A member of an object; None where it is missing or no number."""
        return self.number(name, members.get(name))

    def number(self, name: str, value: Any) -> float | None:
        """A value of what is called so."""
        try:
            if isinstance(value, (int, float, str)) and not isinstance(value, bool) and math.isfinite(number := float(value)):
                return number
        except (ValueError, OverflowError):
            pass
        if value is not None and value not in UNKNOWN:
            self.damaged[name] += 1
        return None


def _to_integer(number: float | None) -> int | None:
    return int(number) if number is not None and abs(number) < 1 << 62 else None


def _to_text(value: Any) -> str | None:
    return None if value is None or isinstance(value, (dict, list, bool)) else str(value)


def operation_kind(name: pl.Expr) -> pl.Expr:
    """Kind of a communication operation by its name (text)."""
    lower = name.str.to_lowercase()
    return (
        pl.when(lower.str.starts_with(RECEIVE_OPERATION))
        .then(pl.lit(RECEIVE))
        .when(lower.str.starts_with(SEND_OPERATION))
        .then(pl.lit(SEND))
        .otherwise(pl.lit(COLLECTIVE))
    )


def operation_name(name: pl.Expr) -> pl.Expr:
    """``hcom_allReduce__586_0_1`` -> ``allreduce``: the leftmost known word, the longest there; null without one."""
    return (
        name.str.to_lowercase()
        .str.extract(r"^(?:hcom_|\w+:|c10d::)?_?([a-z_]+)")
        .str.replace_all("_", "")
        .str.extract(_OPERATION)
    )
