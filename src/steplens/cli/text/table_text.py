"""A table in the terminal: as many columns as fit, numbers with units, and what was left out."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from steplens.cli.text.text import clean, duration, plain, size
from steplens.trace.columns import MOMENT, unit_of

#: a longer text is cut in the terminal
_LONGEST = 44
#: integers from here on are Unix times in ns, from 1973 on
_MOMENT = 10**17
#: characters that the names of windows have in common, from which on they are left out
_LEAST_COMMON = 12
#: columns of which part of a run a row is
_PARTS = ("rank", "window")
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def show_table(out: Console, found: pl.DataFrame, top: int, title: str) -> None:
    """Print the first rows.

    Args:
        out: where.
        found: the rows.
        top: how many to show.
        title: of the table.
    """
    first_rows = found.head(top)
    origin = _earliest_time(first_rows)
    cells = {name: [_cell_text(name, value, origin) for value in first_rows[name].to_list()] for name in first_rows.columns}
    out.print(plain(f"{title}: {first_rows.height} of {found.height} rows", "bold"), soft_wrap=True)
    notes = []
    if (windows := _shorten_windows(cells.get("window", []))) is not None:
        cells["window"], common = windows
        notes.append(f"window: {common}")
    if first_rows.height == 1:
        _show_one(out, {name: texts[0] for name, texts in cells.items()})
    elif first_rows.height:
        # a column without any value, or with one for all rows, needs no room of its own
        empty = [name for name, texts in cells.items() if not any(texts)]
        same = [name for name, texts in cells.items() if name not in empty and len(set(texts)) == 1]
        table_cells = {name: texts for name, texts in cells.items() if name not in empty and name not in same}
        left = _show_rows(out, table_cells, {name for name in table_cells if first_rows.schema[name].is_numeric()})
        if same:
            notes.append(f"in every row: {', '.join(f'{name} {cells[name][0]}' for name in same)}")
        if left:
            notes.append(f"not shown: {', '.join(left)} (--columns, --csv and --json have them)")
        if empty:
            notes.append(f"without any value here: {', '.join(empty)}")
    if origin is not None:
        notes.append("+ counts from the earliest time shown")
    for note in notes:
        out.print(plain(note, "dim"), soft_wrap=True)


def _shorten_windows(names: list[str]) -> tuple[list[str], str] | None:
    """Names of run directories without what all have in common, and that; None where there is little of it."""
    if len(set(names)) < 2:
        return None
    head, tail = _common_start(names), _common_start([name[::-1] for name in names])[::-1]
    # whole words only
    head, tail = head[: head.rfind("_") + 1], tail[tail.find("_") :] if "_" in tail else ""
    if len(head) + len(tail) < _LEAST_COMMON or len(head) + len(tail) >= min(map(len, names)):
        return None
    return [name[len(head) : len(name) - len(tail)] for name in names], f"{head}...{tail}"


def _common_start(names: list[str]) -> str:
    first, last = min(names), max(names)
    equal = itertools.takewhile(lambda letters: letters[0] == letters[1], zip(first, last, strict=False))
    return first[: sum(1 for _ in equal)]


def _show_one(out: Console, row: dict[str, str]) -> None:
    width = max(map(len, row))
    for name, text in row.items():
        out.print(plain(f"  {name.ljust(width)}  {text or '-'}"), soft_wrap=True)


def _show_rows(out: Console, cells: dict[str, list[str]], numeric: set[str]) -> list[str]:
    """Print as many columns as fit; the names of the others."""
    room = out.width
    fitting: list[str] = []
    widths = sum(min(max([len(name), *map(len, texts)]), _LONGEST) + 2 for name, texts in cells.items())
    if widths > room + 2:
        # what tells rows apart must not be what is left out
        cells = {**{name: cells[name] for name in _PARTS if name in cells}, **cells}
    for name, texts in cells.items():
        width = min(max([len(name), *map(len, texts)]), _LONGEST)
        if fitting and width > room:
            break
        fitting.append(name)
        room -= width + 2
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in fitting:
        side: Literal["left", "right"] = "right" if name in numeric else "left"
        table.add_column(name, justify=side, no_wrap=True, overflow="ellipsis", max_width=_LONGEST)
    for row in zip(*(cells[name] for name in fitting), strict=True):
        table.add_row(*map(plain, row))
    for line in out.render_lines(table, pad=False):
        out.print(Text.assemble(*((segment.text, segment.style or "") for segment in line)), no_wrap=True, overflow="crop")
    return [name for name in cells if name not in fitting]


def _earliest_time(shown: pl.DataFrame) -> int | None:
    """The earliest Unix time of the rows; None where there is none."""
    moments = [name for name, dtype in shown.schema.items() if name.endswith("_ns") and dtype.is_integer()]
    lowest = [value for name in moments if isinstance(value := shown[name].min(), int) and value > _MOMENT]
    return min(lowest, default=None)


def _cell_text(name: str, value: Any, origin: int | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return _number_text(name, value, origin)
    if isinstance(value, list):
        return clean(" ".join(str(item) for item in value))[:_LONGEST]
    return clean(str(value))


def _number_text(name: str, value: float, origin: int | None) -> str:
    unit = unit_of(name)
    if unit in ("ns", MOMENT):
        return f"+{duration(value - origin)}" if value > _MOMENT and origin is not None else duration(value)
    if unit == "percent":
        return f"{value:.1f} %"
    if unit == "bytes":
        return size(value)
    if unit == "FLOP":
        return _with_unit_prefix(value).rstrip()
    if unit in ("B/s", "FLOP/s"):
        return f"{_with_unit_prefix(value)}{unit.removeprefix('FLOP')}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _with_unit_prefix(value: float) -> str:
    for limit, prefix in _PREFIXES:
        if abs(value) >= limit:
            return f"{value / limit:.2f} {prefix}"
    return f"{value:.0f} "
