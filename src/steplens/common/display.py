"""How names from traces, lengths of time and sizes are written where people read them: in a terminal, in reports."""

from __future__ import annotations

import unicodedata

from steplens.common.stand_ins import told_in

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# control characters (escape sequences start with one), direction overrides, lone surrogates
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs"})


def clean(text: str) -> str:
    """Replace every character that could move the cursor, change colours or reverse the text; line ends become spaces.

    Paths that stand for URLs become these.
    """
    text = told_in(text).replace("\r\n", " ").replace("\n", " ").replace("\t", " ")
    if text.isascii() and text.isprintable():
        return text
    return "".join(_REPLACEMENT if unicodedata.category(character) in _UNPRINTABLE else character for character in text)


def duration(ns: float) -> str:
    """Nanoseconds with a unit that leaves one to three digits before the point."""
    for limit, divisor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms"), (120e9, 1e9, "s")):
        if abs(ns) < limit:
            return f"{ns / divisor:.0f} ns" if unit == "ns" else f"{ns / divisor:.2f} {unit}"
    return f"{ns / 60e9:.1f} min"


def mean_count(count: float) -> str:
    """How often something is on average: four digits, and all of a large number."""
    return f"{count:,.0f}" if abs(count) >= 1000 else f"{count:.4g}"


def size(count: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
