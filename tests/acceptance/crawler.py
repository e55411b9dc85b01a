"""Looks for figures that cannot be: in tables, in answers of the server and in texts, whatever they are about.

A share is 0 to 1, a percentage 0 to 100, a duration is not negative, and no figure is infinite or not a number. What a column
is, its unit says (``trace.columns``) and its name; those that may be more are named below, each with its reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from steplens.server.tables import columns
from steplens.server.tables.tables import every_table
from steplens.trace.columns import MOMENT, unit_of

#: parts are divided by wholes, in floating point
_ROUNDING = 1e-9
#: columns that may be more, or less, by the tables that have them: why
BEYOND = {
    ("bound", "device_percent"): "time on the device in relation to time on the host, which an accelerator may exceed",
    ("ranks", "slower_percent"): "how much longer a step takes than that of the usual rank",
    ("task_launches", "delay_ns"): "a task may begin while its call still runs",
    ("task_launches", "wait_ns"): "a task may begin before its call by two clocks that do not quite agree, which health says",
}
#: in answers: how much more one rank takes than the others, which is less than nothing where it takes less
_DIFFERENCES = ("more_ns", "more_device_ns")
#: percentages in texts that are growth
_GROWTH = re.compile(r"% too high")
_MOMENTS = frozenset(column for table in every_table().values() for column, unit in table.units.items() if unit == MOMENT)
_MOMENT = re.compile(r"(^|_)(time|start|end|from|to|at|begin|origin|moment|launch|release|allocation)_ns$")


def of_frame(frame: pl.DataFrame, table: str = "") -> Iterator[str]:
    """What cannot be in a table of some name: column, value and bound."""
    for column in columns.describe_columns(frame.schema, {}):
        values = frame[column.name]
        if not values.dtype.is_numeric():
            continue
        if values.dtype.is_float():
            lost = values.is_nan().sum() + values.is_infinite().sum()
            if lost:
                yield f"{column.name}: {lost} values are no numbers"
        low, high = values.min(), values.max()
        if low is not None and (table, column.name) not in BEYOND and (bounds := _bounds(column.name, column.unit)):
            yield from _outside(column.name, float(low), float(high), bounds)  # type: ignore[arg-type]


def of_page(page: Any, table: str) -> Iterator[str]:
    """What cannot be in a page of a table of the server, whose columns have units."""
    for number, column in enumerate(page["columns"]):
        if (table, column["name"]) not in BEYOND:
            for row in page["rows"]:
                yield from _of_number(f"{table}.{column['name']}", column["name"], column["unit"], row[number])


def of_answer(answer: Any, path: str = "") -> Iterator[str]:
    """What cannot be in an answer of the server: every number of it, by the names that lead to it."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            unit = unit_of(name)
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, (dict, list)):
                    yield from of_answer(one, f"{path}.{name}")
                else:
                    yield from _of_number(f"{path}.{name}", name, unit, one)
    elif isinstance(answer, list):
        for one in answer:
            yield from of_answer(one, path)


_NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?"
_PERCENT = re.compile(rf"({_NUMBER}) ?%")
_NEGATIVE = re.compile(r"(?<![\w.,%-])-\d+(?:\.\d+)? (?:ns|us|ms|s|B|KiB|MiB|GiB)\b")
_NO_NUMBER = re.compile(r"(?<![\w:/.])-?(?:nan|inf)(?![\w:/.])", re.IGNORECASE)


def of_text(text: str) -> Iterator[str]:
    """What cannot be in a text for people."""
    joined = " ".join(text.split())
    for found in _PERCENT.finditer(joined):
        if not 0 <= float(found[1]) <= 100 and not _GROWTH.match(joined, found.end() - 1):
            yield f"{found[0]}: {joined[max(found.start() - 60, 0) : found.end()]}"
    for pattern in (_NEGATIVE, _NO_NUMBER):
        for found in pattern.finditer(joined):
            yield f"{found[0]}: {joined[max(found.start() - 60, 0) : found.end()]}"


def _bounds(name: str, unit: str) -> tuple[float, float] | None:
    if unit == "percent":
        return 0.0, 100.0
    if unit == "ratio":
        return 0.0, 1.0
    if unit in ("ns", "us", "ms") and name not in _MOMENTS and not _MOMENT.search(name):
        return 0.0, math.inf
    return None


def _of_number(path: str, name: str, unit: str, value: Any) -> Iterator[str]:
    if isinstance(value, str) and unit and value.lower() in ("nan", "inf", "-inf"):
        yield f"{path}: {value}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if not math.isfinite(value):
        yield f"{path}: {value}"
    elif name not in _DIFFERENCES and (bounds := _bounds(name, unit)):
        yield from _outside(path, value, value, bounds)


def _outside(name: str, low: float, high: float, bounds: tuple[float, float]) -> Iterator[str]:
    slack = _ROUNDING * bounds[1] if math.isfinite(bounds[1]) else 0.0
    if low < bounds[0] - slack:
        yield f"{name}: {low:g} is less than {bounds[0]:g}"
    if high > bounds[1] + slack:
        yield f"{name}: {high:g} is more than {bounds[1]:g}"
