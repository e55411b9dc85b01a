"""Words about steps, apart from what finds out about them: whoever shows figures that were kept needs no more."""

from __future__ import annotations

from collections.abc import Sequence

#: why host duration and device period differ
RUN_AHEAD, THROTTLED, CUT_WINDOW = "run-ahead", "throttled queue", "cut window"


def number_ranges(numbers: Sequence[int]) -> str:
    """Numbers as ranges: "1, 3-5"."""
    texts: list[str] = []
    first = last = None
    for number in [*sorted(set(numbers)), None]:
        if last is not None and first is not None and number != last + 1:
            texts.append(str(first) if first == last else f"{first}-{last}" if last > first + 1 else f"{first}, {last}")
            first = None
        if first is None:
            first = number
        last = number
    return ", ".join(texts)
