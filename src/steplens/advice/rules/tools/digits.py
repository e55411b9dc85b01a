"""Numbers in sentences."""

from __future__ import annotations


def in_digits(value: float, digits: int = 2) -> str:
    """A number rounded to some significant digits, without an exponent: 1234 as "1200"."""
    return f"{float(f'{value:.{digits}g}'):.15g}"


def in_ms(ns: float, digits: int = 2) -> str:
    """A length in ns as milliseconds, rounded like ``in_digits``."""
    return in_digits(ns / 1e6, digits)
