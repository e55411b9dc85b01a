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

from steplens.readers.common import json_decoder
from steplens.readers.common.ascend_csv_file import UNKNOWN, report_no_numbers
from steplens.readers.common.microseconds import after_base, text_ns, with_possible_times
from steplens.trace.health import COMMUNICATION_TIMES, COMMUNICATION_VOLUME, ERROR, WARNING, HealthLog
from steplens.trace.schema import SCHEMA

_FILE_LIMIT = 1 << 30
_CLASSES = ("p2p", "collective")
_POINT_TO_POINT = ("hcom_send", "hcom_receive", "hcom_batchsendrecv")
_TOTAL = "total"
_TIMES = "Communication Time Info"
_BANDWIDTH = "Communication Bandwidth Info"
_TIME_PARTS = ("Elapse", "Transit", "Wait", "Synchronization", "Idle")
_START = "Start Timestamp(us)"
_SIZES = "Size Distribution"
_LINK = re.compile(r"^(\d{1,9})-(\d{1,9})$")
#: ``allreduce-top1`` in a result
_SELECTED = re.compile(r"^(.+)-(top\d*|middle|bottom\d*|total)$")

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
    for step, kind, key, value in _operations(path, health, COMMUNICATION_TIMES):
        if not isinstance(value.get(_TIMES), dict) and not isinstance(value.get(_BANDWIDTH), dict):
            odd += 1
            continue
        name, group = _name_and_group(key)
        info = _object(value.get(_TIMES))
        milliseconds = (of_times.member(info, f"{part} Time(ms)") for part in _TIME_PARTS)
        of_times.member(info, _START)
        times.append((name, group, kind, step, _text(info.get(_START)), *milliseconds))
        for transport, part in _object(value.get(_BANDWIDTH)).items():
            numbers = _object(part)
            head = (
                *(name, group, kind, step, transport),
                *(of_links.member(numbers, column) for column in _BANDWIDTH_COLUMNS),
            )
            distribution = _object(numbers.get(_SIZES)).items()
            packets = [(size, packet) for size, packet in distribution if _is_packet(packet)]
            of_links.damaged[_SIZES] += len(distribution) - len(packets)
            for size, (count, duration) in packets:
                row = (of_links.number(_SIZES, size), of_links.number(_SIZES, count), of_links.number(_SIZES, duration))
                bandwidth.append((*head, row[0], _whole(row[1]), row[2]))
            if not packets:
                bandwidth.append((*head, None, None, None))
    _report_odd(path, odd, health, COMMUNICATION_TIMES)
    report_no_numbers(path.name, +of_times.damaged, health, COMMUNICATION_TIMES)
    report_no_numbers(path.name, +of_links.damaged, health, COMMUNICATION_VOLUME)
    schema = {**SCHEMA["communication_times"], "start_ns": pl.String()}
    found = pl.DataFrame(times, schema=schema, orient="row")
    found = with_possible_times(found, path.name, health, COMMUNICATION_TIMES)
    found = found.with_columns(text_ns(found["start_ns"])).with_columns(start_ns=after_base(pl.col("start_ns"), base_ns))
    links = pl.DataFrame(bandwidth, schema=SCHEMA["communication_bandwidth"], orient="row")
    tables = {
        "communication_times": found,
        "communication_bandwidth": with_possible_times(links, path.name, health, COMMUNICATION_VOLUME),
    }
    return {name: frame for name, frame in tables.items() if frame.height}


_BANDWIDTH_COLUMNS = ("Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)", "Large Packet Ratio")


def read_communication_matrix(path: Path, health: HealthLog) -> pl.DataFrame:
    """``communication_matrix.json``: rows of ``communication_matrix``.

    In CANN's form a row is one link of one operation; in a result it is a selected one (``selection``) of a type of
    operation, and ``op_name`` says which.
    """
    rows: list[tuple[Any, ...]] = []
    odd = 0
    numbers = _Numbers()
    for step, kind, key, value in _operations(path, health, COMMUNICATION_VOLUME):
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
                    *(name, selection if selected else None, _text(part.get("Op Name")), group, kind, step),
                    *(int(ends[1]), int(ends[2]), _text(part.get("Transport Type"))),
                    *(numbers.member(part, column) for column in _BANDWIDTH_COLUMNS[:3]),
                )
            )
    _report_odd(path, odd, health, COMMUNICATION_VOLUME)
    report_no_numbers(path.name, +numbers.damaged, health, COMMUNICATION_VOLUME)
    found = pl.DataFrame(rows, schema=SCHEMA["communication_matrix"], orient="row")
    return with_possible_times(found, path.name, health, COMMUNICATION_VOLUME)


def _operations(path: Path, health: HealthLog, unsafe: str) -> Iterator[tuple[int | None, str, str, dict[str, Any]]]:
    """Step, "p2p" or "collective", key and content of every operation of a file in either form."""
    odd = 0
    for key, value in _read(path, health, unsafe).items():
        if not isinstance(value, dict):
            odd += 1
        elif set(value) & set(_CLASSES) or key == "step" or re.fullmatch(r"step\d+", key):
            step = int(key[4:]) if re.fullmatch(r"step\d{1,18}", key) else None
            for kind in _CLASSES:
                for operation, content in _object(value.get(kind)).items():
                    if isinstance(content, dict) and not operation.lower().startswith(_TOTAL):
                        yield step, kind, operation, content
        elif not key.lower().startswith(_TOTAL):
            yield None, "p2p" if key.lower().startswith(_POINT_TO_POINT) else "collective", key, value
    _report_odd(path, odd, health, unsafe)


def _read(path: Path, health: HealthLog, unsafe: str) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > _FILE_LIMIT:
            raise ValueError(f"of {size >> 20} MiB is larger than such a file can be")
        value = _DECODER.decode(path.read_bytes())
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


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_packet(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


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
            if isinstance(value, (int, float, str)) and not isinstance(value, bool) and math.isfinite(found := float(value)):
                return found
        except (ValueError, OverflowError):
            pass
        if value is not None and value not in UNKNOWN:
            self.damaged[name] += 1
        return None


def _whole(number: float | None) -> int | None:
    return int(number) if number is not None and abs(number) < 1 << 62 else None


def _text(value: Any) -> str | None:
    return None if value is None or isinstance(value, (dict, list, bool)) else str(value)
