"""Times of Kineto events: microseconds as a double or as text, to exact integer ns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from msgspec import Raw

from steplens.readers.common.json_events import Piece

#: from here on neighbouring doubles are more than 0.001 apart, so that a double of microseconds loses nanoseconds
_FINE_LIMIT_US = float(1 << 43)
#: 2096; what lies behind is no time of a profile, and its ns with a base time would not fit 64 bits
_LAST_US = 4e15
_LAST_NS = int(_LAST_US) * 1000
#: ns of what lies behind it
_BEYOND = (1 << 63) - 1
_FRACTION = re.compile(rb'"ts"\s*:\s*\d{13,}\.\d*[1-9]')
_CALL = re.compile(rb'"ph"\s*:\s*"[XBE]"')
#: how much text is searched for a fraction
_SEARCHED_BYTES = 1 << 16
_NUMBER = r"^-?[0-9]{1,16}(\.[0-9]*)?$"


def needs_text(times: Sequence[float], text: Piece) -> bool:
    """Whether a double holds less of the times than the file: it does of fractions of microseconds since the epoch.

    Args:
        times: some of the times of a piece of the file.
        text: that piece; it is searched from its first call on, as far as some hundred of them reach.
    """
    if not any(time > _FINE_LIMIT_US for time in times):
        return False
    # the time of a call may stand before its phase, with its name and arguments; what is in front of the first has no fraction
    first = _CALL.search(text)
    begin = max(first.start() - _SEARCHED_BYTES, 0) if first is not None else 0
    return _FRACTION.search(text, begin, begin + 2 * _SEARCHED_BYTES) is not None


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
    return [start.alias("start_ns"), _end_times(start, text_ns([event.dur for event in events]))]


def time_column(events: list[Any], *, text: bool) -> pl.Series:
    """Time of events without a duration: ``ts`` as a double, or ``time_ns``."""
    if not text:
        return pl.Series("ts", [event.ts for event in events], dtype=pl.Float64)
    return text_ns([event.ts for event in events]).alias("time_ns")


@dataclass(frozen=True)
class Timed:
    """Events that have a time.

    Attributes:
        frame: ``start_ns`` and ``end_ns`` (or ``time_ns``) in place of doubles of microseconds.
        lost: events that were left out, since their time or duration is missing or is none.
        beyond: those of them that start when no profile in microseconds does.
    """

    frame: pl.DataFrame
    lost: int = 0
    beyond: int = 0


def with_ns(frame: pl.DataFrame) -> Timed:
    """The events of a frame of ``time_columns`` or ``time_column`` with their times in ns."""
    if not frame.width:
        return Timed(frame)
    if "ts" in frame.columns:
        frame = _convert_times(frame)
    start, end = (frame["start_ns"], frame["end_ns"]) if "start_ns" in frame.columns else (frame["time_ns"],) * 2
    if not start.null_count() and not end.null_count() and start.max() != _BEYOND:
        return Timed(frame)
    beyond = (start == _BEYOND).fill_null(False)
    is_possible = start.is_not_null() & end.is_not_null() & ~beyond
    return Timed(frame.filter(is_possible), int((~is_possible).sum()), int(beyond.sum()))


def _convert_times(frame: pl.DataFrame) -> pl.DataFrame:
    start = _float_ns(frame["ts"].to_numpy())
    columns = (
        [start.alias("start_ns"), _end_times(start, _float_ns(frame["dur"].to_numpy()))]
        if "dur" in frame.columns
        else [start.alias("time_ns")]
    )
    if frame["ts"].null_count():
        # some pieces of the file had text
        is_text = frame["ts"].is_null()
        columns = [column.zip_with(~is_text, frame[column.name]) for column in columns]
    kept_columns = {column.name: column for column in frame.get_columns() if column.name not in ("ts", "dur")}
    return pl.DataFrame([*{**kept_columns, **{column.name: column for column in columns}}.values()])


def _end_times(start: pl.Series, duration: pl.Series) -> pl.Series:
    """Ends of events, null where the start or the duration is, or where they are no time of a profile."""
    if duration.max() == _BEYOND:
        duration = duration.set(duration == _BEYOND, None)
    ends: pl.Series = (start + duration).alias("end_ns")
    last, first = ends.max(), ends.min()
    if last is not None and (last >= _LAST_NS or first <= -_LAST_NS):  # type: ignore[operator]
        # of a start beyond all times the end may be any number, and the start tells
        ends = ends.set((ends.abs() >= _LAST_NS) & (start != _BEYOND), None)
    return ends


def _float_ns(times: np.typing.NDArray[np.float64]) -> pl.Series:
    """Microseconds as integer ns: null for what is no number, ``_BEYOND`` for what is no time of a profile.

    Whole microseconds and the fraction are converted apart: a double near 4e15 ns has no room for both, and the error
    of the product would reach half a nanosecond.
    """
    # of no events, and of what is no number, neither is true
    is_all_fine = len(times) > 0 and bool(times.min() > -_LAST_US and times.max() < _LAST_US)
    if is_all_fine:
        return pl.Series(_round_to_ns(times))
    fine = np.abs(times) < _LAST_US
    result = _round_to_ns(np.where(fine, times, 0.0))
    result[~fine] = _BEYOND
    possible_ns: pl.Series = pl.Series(result).set(pl.Series(np.isnan(times)), None)
    return possible_ns


def _round_to_ns(times: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.int64]:
    """Microseconds to the nearest ns. In place where it can be: new memory takes longer than the sums."""
    whole_us = np.floor(times)
    fraction = times - whole_us
    fraction *= 1000
    np.rint(fraction, out=fraction)
    result = whole_us.astype(np.int64)
    result *= 1000
    result += fraction.astype(np.int64)
    return result


def ns_text(time_ns: int) -> bytes:
    """JSON text of microseconds that ``text_ns`` makes the same ns of again."""
    whole_us, fraction = divmod(abs(time_ns), 1000)
    return b"%s%d.%03d" % (b"-" if time_ns < 0 else b"", whole_us, fraction)


def text_ns(raws: Sequence[Raw]) -> pl.Series:
    """JSON text of microseconds, perhaps in quotes, as integer ns, to the nearest where it has more than three decimals.

    What is no time is as in ``_float_ns``.
    """
    text = pl.Series("text", list(map(bytes, raws)), dtype=pl.Binary).cast(pl.String).str.strip_chars('" ')
    plain = text.str.contains(_NUMBER)
    parts = pl.DataFrame({"text": text}).select(
        whole=pl.col("text").str.extract(r"^(-?\d+)").cast(pl.Int64, strict=False),
        fraction=(pl.lit("0.") + pl.col("text").str.extract(r"\.(\d*)$").fill_null("0")).cast(pl.Float64, strict=False),
        negative=pl.col("text").str.starts_with("-"),
    )
    sign = pl.when("negative").then(-1).otherwise(1)
    exact = parts.select(pl.col("whole") * 1000 + sign * (pl.col("fraction") * 1000).round().cast(pl.Int64)).to_series()
    in_range = (plain & (parts["whole"].abs() < int(_LAST_US))).fill_null(False)
    if in_range.all():
        return exact
    # exponents, words, null: as a double where it is one
    mended: pl.Series = exact.zip_with(in_range, _float_ns(text.cast(pl.Float64, strict=False).to_numpy()))
    return mended
