"""Rows of cells as JSON text, for files with an event per row: whole columns at a time, no Python object per row.

A cell that many rows share, such as a name with the keys around it, is text once and a number per row. What stands beside it
and is text as well becomes part of it, so that what is printed per row is little more than its times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.writers.common.text import rendered_texts

#: rows that are printed at a time; keeps the text that is being built in memory below about 60 MB
ROWS_PER_CHUNK = 100_000
#: pairs of texts that are tried together, at most
_MOST_PAIRS = 1 << 20
#: joined texts are worth it where at least so many rows share one, on average
_LEAST_SHARED = 4
#: integers of a column that lie within such a range are few enough to be texts
_MOST_NUMBERS = 1 << 12
_NULL = "null"


@dataclass(frozen=True)
class Shared:
    """A column of text that is one of a few texts in every row.

    Attributes:
        texts: the distinct texts; None is printed as ``null``.
        index: place of each row's, shape (n,).
    """

    texts: Sequence[str | None]
    index: npt.NDArray[np.unsignedinteger]

    def column(self, dtype: type[pl.String | pl.Categorical] = pl.String) -> pl.Series:
        """The text of every row, as text or as categories."""
        told: pl.Series = pl.Series(list(self.texts), dtype=pl.String).cast(dtype).gather(pl.Series(self.index))
        return told


#: literal text, or what a column of the frame or beside it says
Cell = str | pl.Expr | pl.Series | Shared
#: a cell, or a key and a cell, which stand for the member ``,"key":value``
Member = Cell | tuple[str, Cell]


def shared_texts(values: pl.Series, render: Callable[[str], str | None], missing: str | None = None) -> Shared:
    """``values`` as text, with ``render`` applied once per distinct value; see ``text.render_distinct``."""
    return Shared(*rendered_texts(values, render, missing))


def write_rows(handle: IO[bytes], frame: pl.DataFrame, *cells: Member) -> None:
    """Write the cells of every row of ``frame`` in order and no line ends; there may be a space between two of them.

    A JSON object may hold spaces between its parts, so the CSV serialiser (which prints integers, decimals and text
    without a Python object per row) writes JSON here: text cells hold the braces, keys and quoted strings.

    Args:
        handle: open binary file.
        frame: what the expressions refer to.
        cells: literal text, an expression, or a column as long as ``frame``; null numbers become ``null``.
    """
    if frame.is_empty():
        return
    single: list[Cell] = []
    for cell in cells:
        single += (f',"{cell[0]}":', cell[1]) if isinstance(cell, tuple) else (cell,)
    parts = list(_join_neighbours(_cell_columns(frame, [cell for cell in single if not isinstance(cell, str) or cell])))
    for start in range(0, frame.height, ROWS_PER_CHUNK):
        rows = pl.DataFrame({str(number): _slice_rows(part, start) for number, part in enumerate(parts)})
        rows.write_csv(handle, include_header=False, separator=" ", line_terminator="", quote_style="never", null_value=_NULL)


def _slice_rows(part: pl.Series | Shared, start: int) -> pl.Series:
    if isinstance(part, pl.Series):
        return part.slice(start, ROWS_PER_CHUNK)
    return Shared(part.texts, part.index[start : start + ROWS_PER_CHUNK]).column()


def _cell_columns(frame: pl.DataFrame, cells: Sequence[Cell]) -> Iterator[pl.Series | Shared]:
    """The cells as columns of as many rows as the frame has, as shared text where they can be."""
    expressions = {str(number): cell for number, cell in enumerate(cells) if isinstance(cell, (pl.Expr, pl.Series))}
    # a column beside the frame has to fit it, and a single value stands for all rows
    evaluated = frame.select(
        (pl.lit(cell) if isinstance(cell, pl.Series) else cell).alias(name) for name, cell in expressions.items()
    )
    for number, cell in enumerate(cells):
        if isinstance(cell, Shared):
            yield cell
        elif isinstance(cell, str):
            yield Shared([cell], np.zeros(frame.height, dtype=np.uint32))
        else:
            values = evaluated[str(number)]
            yield _share_few_values(values if len(values) == frame.height else values.new_from_index(0, frame.height))


def _share_few_values(values: pl.Series) -> pl.Series | Shared:
    """Categories, and integers of which few are possible, such as ids of threads, as shared text; others as they are."""
    if isinstance(values.dtype, pl.Categorical):
        return shared_texts(values, str)
    if not values.dtype.is_integer():
        return values
    low, high = values.min(), values.max()
    if low is None:
        return Shared([None], np.zeros(len(values), dtype=np.uint32))
    assert isinstance(low, int)
    assert isinstance(high, int)
    if high - low >= min(_MOST_NUMBERS, len(values)):
        return values
    filled = values.fill_null(low).to_numpy()
    # wide enough for the differences: those of 64 bits are small
    wide = filled if filled.itemsize == np.int64().itemsize else filled.astype(np.int64)
    index = (wide - wide.dtype.type(low)).astype(np.uint32)
    # null rows point behind the last number
    index[values.is_null().to_numpy()] = high - low + 1
    return Shared([*map(str, range(low, high + 1)), None], index)


def _join_neighbours(parts: Iterable[pl.Series | Shared]) -> Iterator[pl.Series | Shared]:
    """The parts, with neighbours that are shared text made one where that leaves few texts."""
    last: pl.Series | Shared | None = None
    for part in parts:
        both = _join_pair(last, part) if isinstance(last, Shared) and isinstance(part, Shared) else None
        if both is None and last is not None:
            yield last
        last = part if both is None else both
    if last is not None:
        yield last


def _join_pair(left: Shared, right: Shared) -> Shared | None:
    """Two parts as one; None where their texts meet in too many pairs."""
    width = len(right.texts)
    if len(left.texts) * width > _MOST_PAIRS:
        return None
    pairs = left.index.astype(np.uint32) * np.uint32(width) + right.index
    met = np.zeros(len(left.texts) * width, dtype=bool)
    met[pairs] = True
    codes = np.flatnonzero(met)
    if len(codes) > 1 and len(codes) * _LEAST_SHARED > len(pairs):
        return None
    number = np.zeros(len(met), dtype=np.uint32)
    number[codes] = np.arange(len(codes), dtype=np.uint32)
    texts = [_text_or_null(left.texts[code // width]) + _text_or_null(right.texts[code % width]) for code in codes.tolist()]
    return Shared(texts, number[pairs])


def _text_or_null(text: str | None) -> str:
    return _NULL if text is None else text
