"""How numbers, names and rows become text: shared by every CSV and JSON writer.

Everything here works on whole columns. Times stay integers of ns until they are printed as decimals, so no digit ever
goes through a float; names are rendered once per distinct value, because a run repeats a few hundred of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

_T = TypeVar("_T")

#: a spreadsheet treats a cell that starts with one of these as a formula
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

_THOUSANDTH = pl.lit(Decimal("0.001")).cast(pl.Decimal(38, 3))


def microseconds(ns: pl.Expr) -> pl.Expr:
    """Integer ns as an exact decimal of µs; printed with exactly three digits after the point."""
    return ns.cast(pl.Decimal(38, 0)) * _THOUSANDTH


def microseconds_text(ns: pl.Expr) -> pl.Expr:
    """Like ``microseconds``, followed by a TAB, which keeps the value text in spreadsheets; null stays null."""
    return microseconds(ns).cast(pl.String) + "\t"


def distinct_texts(values: pl.Series) -> tuple[list[str], npt.NDArray[np.uint32]]:
    """The distinct values of a column, and for each row the position of its own; null rows get one behind the last.

    Args:
        values: a Categorical or String column.
    """
    values = values.cast(pl.Categorical())
    distinct = values.drop_nulls().unique(maintain_order=True)
    if distinct.is_empty():
        return [], np.zeros(len(values), dtype=np.uint32)
    codes = distinct.to_physical().to_numpy()
    # The codes of a Categorical are positions in a pool that all columns share: renumber them from 0.
    position = np.zeros(int(codes.max()) + 1, dtype=np.uint32)
    position[codes] = np.arange(len(codes), dtype=np.uint32)
    unknown = values.is_null()
    if unknown.any():
        text_places = position[values.to_physical().fill_null(int(codes[0])).to_numpy()]
        index = np.where(unknown.to_numpy(), np.uint32(len(codes)), text_places)
    else:
        index = position[values.to_physical().to_numpy()]
    return distinct.cast(pl.String).to_list(), index


def rendered_texts(
    values: pl.Series, render: Callable[[str], _T | None], missing: _T | None = None
) -> tuple[list[_T | None], npt.NDArray[np.uint32]]:
    """What ``map_distinct`` puts into rows, and for each row the place of its own."""
    distinct, index = distinct_texts(values)
    # the last one is the one that null rows point at
    return [*(missing if value is None else value for value in map(render, distinct)), missing], index


def map_distinct(
    values: pl.Series, render: Callable[[str], _T | None], missing: _T | None, dtype: type[pl.DataType]
) -> pl.Series:
    """A column with ``render`` applied once per distinct value of ``values``.

    Args:
        values: a Categorical or String column.
        render: one value to what stands for it; None counts as missing.
        missing: what stands for null and missing values; None keeps them null.
        dtype: of the result.
    """
    rendered, index = rendered_texts(values, render, missing)
    return pl.Series(values.name, rendered, dtype=dtype).gather(pl.Series(index, dtype=pl.UInt32))


def render_distinct(values: pl.Series, render: Callable[[str], str | None], missing: str | None = None) -> pl.Series:
    """``values`` as text; see ``map_distinct``."""
    return map_distinct(values, render, missing, pl.String)


def guard_formula(text: str) -> str | None:
    """A cell of text that somebody else chose: a leading quote where a spreadsheet would see a formula; "" is null.

    A text that looks like a guarded one gets a quote too, so that whoever takes one off has the text again.
    """
    if text.lstrip("'").startswith(_FORMULA_STARTS):
        return "'" + text
    return text or None


def names(values: pl.Series, missing: str | None = None) -> pl.Series:
    """A column of names as guarded CSV cells; see ``render_distinct``."""
    return render_distinct(values, guard_formula, missing)


def lay_out_list(text: str, separator: str = ";\r\n") -> str:
    """A ``;`` list (shapes, types, stack) as the reference lays it out: one element per line."""
    return text.replace(";", separator)


def write_csv(frame: pl.DataFrame, path: Path) -> None:
    """Write ``frame`` with the conventions of the contract: comma, CRLF, quotes only where needed, null as nothing."""
    write_plain_csv(frame, path, line_terminator="\r\n", quote_style="necessary", null_value="")


def write_plain_csv(frame: pl.DataFrame, path: Path, **conventions: Any) -> None:
    """Write ``frame`` into a file of any name: polars itself takes only names that are text, and a folder's may be in GBK."""
    with path.open("wb") as handle:
        guarded_header(frame).write_csv(handle, **conventions)


def guarded_header(frame: pl.DataFrame) -> pl.DataFrame:
    """The same with a quote before each name of a column that a spreadsheet would take for a formula: a capture may name some."""
    taken_names, new_names = set(frame.columns), dict[str, str]()
    for name in frame.columns:
        if name.startswith(_FORMULA_STARTS):
            guarded = "'" + name
            while guarded in taken_names:
                guarded = "'" + guarded
            taken_names.add(guarded)
            new_names[name] = guarded
    return frame.rename(new_names) if new_names else frame


def json_string(text: str) -> str:
    """A JSON string."""
    return json.dumps(text, ensure_ascii=False)


def write_json(value: Any, path: Path) -> None:
    """Write ``value`` on one line."""
    path.write_bytes(json.dumps(value, ensure_ascii=False).encode())
