"""Times of Kineto events: microseconds as a double or as text, to exact integer ns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Raw

from steplens.readers.json_events import Piece
from steplens.trace.nesting import Int64Array

#: from here on neighbouring doubles are more than 0.001 apart, so that a double of microseconds loses nanoseconds
_FINE_LIMIT_US = float(1 << 43)
#: 2096; what lies behind is no time of a profile, and its ns with a base time would not fit 64 bits
_LAST_US = 4e15
_FRACTION = re.compile(rb'"ts"\s*:\s*\d{13,}\.\d*[1-9]')
_NUMBER = r"^-?[0-9]{1,16}(\.[0-9]*)?$"


def needs_text(times: Sequence[float], text: Piece) -> bool:
    """Whether a double holds less of the times than the file: it does of fractions of microseconds since the epoch.

    Args:
        times: some of the times of a piece of the file.
        text: the beginning of that piece.
    """
    return any(time > _FINE_LIMIT_US for time in times) and _FRACTION.search(text) is not None


def time_columns(events: list[Any], *, text: bool) -> list[pl.Series]:
    """Start and end of events with a duration: as the doubles of the file (``ts``, ``dur``), which ``with_ns`` converts all
    at once, or, where they are text, in ns (``start_ns``, ``end_ns``).
    """
    if not text:
        return [
            pl.Series("ts", [event.ts for event in events], dtype=pl.Float64),
            pl.Series("dur", [event.dur for event in events], dtype=pl.Float64),
        ]
    start = text_ns([event.ts for event in events])
    return [pl.Series("start_ns", start), pl.Series("end_ns", start + text_ns([event.dur for event in events]))]


def time_column(events: list[Any], *, text: bool) -> pl.Series:
    """Time of events without a duration: ``ts`` as a double, or ``time_ns``."""
    if not text:
        return pl.Series("ts", [event.ts for event in events], dtype=pl.Float64)
    return pl.Series("time_ns", text_ns([event.ts for event in events]))


def with_ns(frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with ``start_ns`` and ``end_ns`` (or ``time_ns``) in place of doubles of microseconds.

    Whole microseconds and the fraction are converted apart: a double near 4e15 ns has no room for both, and the error
    of the product would reach half a nanosecond. What is no time of a profile is 0.
    """
    if "ts" not in frame.columns:
        return frame
    start = _float_ns(_without_nulls(frame["ts"]).to_numpy())
    if "dur" in frame.columns:
        converted = {"start_ns": start, "end_ns": start + _float_ns(_without_nulls(frame["dur"]).to_numpy())}
    else:
        converted = {"time_ns": start}
    columns = [pl.Series(name, values) for name, values in converted.items()]
    if frame["ts"].null_count():
        # some pieces of the file had text
        is_text = frame["ts"].is_null()
        columns = [column.zip_with(~is_text, frame[column.name]) for column in columns]
    kept = {column.name: column for column in frame.get_columns() if column.name not in ("ts", "dur")}
    return pl.DataFrame([*{**kept, **{column.name: column for column in columns}}.values()])


def _without_nulls(times: pl.Series) -> pl.Series:
    """The times with 0 for what is missing; mostly nothing is."""
    return times.fill_null(0) if times.null_count() else times


def _float_ns(times: np.typing.NDArray[np.float64]) -> Int64Array:
    if len(times) and not (np.abs(times) < _LAST_US).all():
        times = np.where(np.abs(times) < _LAST_US, times, 0.0)
    whole = np.floor(times)
    result: Int64Array = whole.astype(np.int64) * 1000 + np.rint((times - whole) * 1000).astype(np.int64)
    return result


def text_ns(raws: Sequence[Raw]) -> Int64Array:
    """JSON text of microseconds, perhaps in quotes, as integer ns; to the nearest where it has more than three decimals."""
    text = pl.Series("text", list(map(bytes, raws)), dtype=pl.Binary).cast(pl.String).str.strip_chars('" ')
    plain = text.str.contains(_NUMBER)
    parts = pl.DataFrame({"text": text}).select(
        whole=pl.col("text").str.extract(r"^(-?\d+)").cast(pl.Int64, strict=False),
        fraction=(pl.lit("0.") + pl.col("text").str.extract(r"\.(\d*)$").fill_null("0")).cast(pl.Float64, strict=False),
        negative=pl.col("text").str.starts_with("-"),
    )
    sign = pl.when("negative").then(-1).otherwise(1)
    exact = parts.select(pl.col("whole") * 1000 + sign * (pl.col("fraction") * 1000).round().cast(pl.Int64)).to_series()
    in_range = plain & (parts["whole"].abs() < int(_LAST_US))
    result: Int64Array = exact.fill_null(0).to_numpy().copy()
    rest = np.flatnonzero(~in_range.fill_null(False).to_numpy())
    if len(rest):
        # exponents, hexadecimal infinities, null: as a double where it is one
        result[rest] = _float_ns(np.nan_to_num(text[rest].cast(pl.Float64, strict=False).fill_null(0).to_numpy()))
    return result
