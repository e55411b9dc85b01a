"""Microseconds, and milliseconds, as text files print them, to integer ns, without a digit lost.

A double near 1.7e15 us (the time since 1970) resolves 0.25 us, and one near 1.5e8 ms 30 ns, so such text never goes through one.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from steplens.trace.health import WARNING, HealthLog

#: below this many us a double tells ns apart; above it only the digits do
_FLOAT_LIMIT_US = float(1 << 42)
#: results stay below 2**62 ns (the year 2116), so that a start and a duration can be added
_LIMIT_NS = 1 << 62
_LIMIT_US = float(_LIMIT_NS // 1000)
#: a time before 1973 is none since 1970: it counts from a time base that is stored elsewhere
_RELATIVE_BELOW_NS = 100_000_000_000_000_000

_MICROSECONDS = r"^([+-]?)(\d{1,16})(?:\.(\d*))?$"
_MILLISECONDS = r"^()(\d{1,14})(?:\.(\d*))?$"


def text_ns(values: pl.Series) -> pl.Series:
    """Decimal text of us as ns, rounded to the nearest; null for what is no time.

    Args:
        values: String column; blanks and TABs around a number do not matter.
    """
    # what the exporters print: three decimals, hence all digits in a row are ns
    if values.str.slice(-4, 1).eq(".").all():
        digits = values.str.replace(".", "", literal=True).cast(pl.Int64, strict=False)
        if digits.null_count() == values.null_count():
            return _null_beyond_limit(digits)
    values = values.str.strip_chars()
    number = values.cast(pl.Float64, strict=False)
    result = float_ns(number)
    large = (number.abs() >= _FLOAT_LIMIT_US).fill_null(False)
    return result.zip_with(~large, _null_beyond_limit(_parse_digits(values, _MICROSECONDS, 3))) if large.any() else result


def ms_text_ns(values: pl.Series) -> pl.Series:
    """Decimal text of ms as ns, digit by digit; null for what is no time."""
    ns = _parse_digits(values.str.strip_chars(), _MILLISECONDS, 6)
    possible_ns: pl.Series = ns.set(~(ns < _LIMIT_NS // 2), None)
    return possible_ns


def float_ns(values: pl.Series) -> pl.Series:
    """Us as doubles to ns; null for what is no time.

    Whole us and the fraction are converted apart: the product of a double with 1000 can be one ns off.
    """
    number = values.set(~(values.abs() < _LIMIT_US), None)
    whole_us = number.floor()
    fraction = ((number - whole_us) * 1000).round().cast(pl.Int64, strict=False)
    result: pl.Series = whole_us.cast(pl.Int64, strict=False) * 1000 + fraction
    return result


def with_possible_times(
    frame: pl.DataFrame, source: str, health: HealthLog, unsafe: str, times: Sequence[str] | None = None
) -> pl.DataFrame:
    """A table without the durations that no time in ns can hold: they count as missing, and are reported.

    Args:
        frame: doubles; durations in ms are the columns whose name ends in ``_ms``, or those of ``times``.
        source: the file's name, for the message.
        health: gets what is wrong.
        unsafe: what such a duration makes unsafe.
        times: the columns of durations.
    """
    times = [name for name in frame.columns if name.endswith("_ms")] if times is None else times
    possible = frame.with_columns(pl.when(pl.col(name).abs() < _LIMIT_US / 1000).then(name).alias(name) for name in times)
    lost = {name: possible[name].null_count() - frame[name].null_count() for name in times}
    if any(lost.values()):
        names = ", ".join(name for name, count in lost.items() if count)
        message = f"values of {source} are no times that are possible and count as missing ({names})"
        health.add("damaged_values", WARNING, sum(lost.values()), message, unsafe)
    return possible


def after_base(ns: pl.Expr, base_ns: int) -> pl.Expr:
    """Unix ns of times that may count from a time base: those too small to be times since 1970 do."""
    return pl.when(ns.abs() < _RELATIVE_BELOW_NS).then(ns + base_ns).otherwise(ns) if base_ns else ns


def _null_beyond_limit(ns: pl.Series) -> pl.Series:
    result: pl.Series = ns.set(~(ns.abs() < _LIMIT_NS), None)
    return result


def _parse_digits(values: pl.Series, pattern: str, digits: int) -> pl.Series:
    """Any decimal text of a unit with so many digits of ns behind its point, digit by digit; slower."""
    groups = values.str.extract_groups(pattern).struct.unnest()
    sign, whole_digits, fraction = (groups[name] for name in groups.columns)
    # the digit behind those of ns rounds
    tail = fraction.fill_null("").str.pad_end(digits + 1, "0").str.slice(0, digits + 1).cast(pl.Int64, strict=False)
    ns = whole_digits.cast(pl.Int64, strict=False) * 10**digits + (tail + 5) // 10
    return pl.select(pl.when(sign == "-").then(-ns).otherwise(ns)).to_series()
