"""How things reach the terminal: names from traces as plain text, numbers with a fitting unit, JSON as one document."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from steplens.common.display import clean as clean
from steplens.common.display import duration as duration
from steplens.common.display import size as size
from steplens.common.stand_ins import told_in

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def plain(text: object, style: str = "") -> Text:
    """``text`` as a rich cell that is shown as it is: no markup, no control characters."""
    from rich.text import Text

    return Text(clean(str(text)), style=style)


def console() -> Console:
    """A console on stdout; without a terminal it has no colour and is 80 columns (or ``COLUMNS``) wide."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, legacy_windows=False)


#: ns and name of the units of a length
_LENGTHS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))


def estimated_duration(ns: float, most_ns: float = math.inf) -> str:
    """An estimated length: two significant digits, since more would promise too much; at most ``most_ns`` as it is shown."""
    divisor, unit = next(((of, name) for of, name in _LENGTHS if abs(ns) >= 0.995 * of), _LENGTHS[-1])
    if abs(ns) < 0.995:
        return "0" if ns == 0 else f"{ns:.1g} ns"
    value = float(f"{ns / divisor:.1e}")
    return most_duration(most_ns) if value * divisor > most_ns else f"{value:.12g} {unit}"


def least_duration(ns: float) -> str:
    """The low end of a range: two significant digits, and no more than it is."""
    return _length_cut_off(ns, 2)


def most_duration(ns: float) -> str:
    """The high end of a range: three significant digits, and no more than it is, as evidence beside it has more of them."""
    return _length_cut_off(ns, 3)


def estimated_share(part: float, whole: float, most: float = math.inf) -> str:
    """What ``estimated_duration`` makes of ``part``, as a share in per cent; a dash when there is no whole."""
    if whole <= 0:
        return "-"
    value = float(f"{100 * part / whole:.1e}")
    return most_share(most, whole) if value > 100 * most / whole else f"{value:.12g} %"


def most_share(part: float, whole: float) -> str:
    """What ``most_duration`` makes of ``part``, as a share."""
    return f"{_cut_off(100 * part / whole, 3):.12g} %" if whole > 0 else "-"


def _length_cut_off(ns: float, digits: int) -> str:
    divisor, unit = next(((of, name) for of, name in _LENGTHS if ns >= of), _LENGTHS[-1])
    return f"{_cut_off(ns / divisor, digits):.12g} {unit}" if ns > 0 else "0"


def _cut_off(value: float, digits: int) -> float:
    """A number with so many significant digits, rounded down."""
    if value <= 0:
        return 0.0
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    # 1.15 times 100 is a little less than 115
    return math.floor(value * scale * (1 + 1e-12)) / scale


def share(part: float, whole: float) -> str:
    """``part`` of ``whole`` in per cent; a dash when there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else "-"


def print_json(document: Mapping[str, Any]) -> None:
    """Write one JSON document to stdout; numbers JSON does not know (NaN, infinity) become null."""
    json.dump(_as_told(document), sys.stdout, indent=2, default=str, allow_nan=False)
    sys.stdout.write("\n")


def _as_told(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return told_in(value)
    if isinstance(value, Mapping):
        return {str(key): _as_told(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_as_told(item) for item in value]
    return value
