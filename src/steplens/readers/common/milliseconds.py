"""Milliseconds as text files print them, to integer ns, without a digit lost."""

from __future__ import annotations

import polars as pl

_DECIMAL = r"^(\d{1,14})(?:\.(\d*))?$"
_LIMIT_NS = 1 << 61


def ms_text_ns(values: pl.Series) -> pl.Series:
    """Decimal text of ms as ns, digit by digit; null for what is no time.

    A double near 1.5e8 ms resolves 30 ns, so such text never goes through one.
    """
    groups = values.str.strip_chars().str.extract_groups(_DECIMAL).struct.unnest()
    whole_ms, fraction = (groups[name] for name in groups.columns)
    digits = fraction.fill_null("").str.pad_end(7, "0").str.slice(0, 7).cast(pl.Int64, strict=False)
    ns = whole_ms.cast(pl.Int64, strict=False) * 1_000_000 + (digits + 5) // 10
    possible_ns: pl.Series = ns.set(~(ns < _LIMIT_NS), None)
    return possible_ns
