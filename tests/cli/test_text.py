from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.cli.text.bars import PHASES, cell_counts, split_backward, step_bar
from steplens.cli.text.text import (
    clean,
    duration,
    estimated_duration,
    estimated_share,
    least_duration,
    most_duration,
    most_share,
    share,
    size,
)


@given(st.lists(st.floats(0, 1e12), max_size=8), st.integers(1, 200))
def test_cells_never_exceed_the_width_and_round_ends(values: list[float], width: int) -> None:
    whole = sum(values)
    found = cell_counts(values, whole, width)
    assert len(found) == len(values)
    assert all(cell >= 0 for cell in found)
    assert sum(found) == (width if whole else 0)


def test_bar_is_as_long_as_the_step_compared_with_the_longest() -> None:
    row = split_backward({"forward_ns": 40.0, "backward_ns": 10.0, "gradient_sync_ns": 0.0})
    assert step_bar(row, PHASES, 100, 10, colour=False).plain == "ffffb"
    assert step_bar(row, PHASES, 100, 10, colour=True).plain == "█████"
    waits = split_backward({"backward_ns": 50.0, "gradient_sync_ns": 30.0})
    assert step_bar(waits, PHASES, 100, 10, colour=False).plain == "bbsss"


@given(st.text())
def test_clean_text_cannot_move_the_cursor(text: str) -> None:
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in clean(text))


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0 ns"), (999, "999 ns"), (1500, "1.50 us"), (2.5e6, "2.50 ms"), (3e9, "3.00 s"), (600e9, "10.0 min")]
)
def test_duration(ns: float, text: str) -> None:
    assert duration(ns) == text


def test_size_and_share() -> None:
    assert size(1023) == "1023 B"
    assert size(1536) == "1.5 KiB"
    assert size(5 << 40) == "5.0 TiB"
    assert share(1, 4) == "25.0 %"
    assert share(1, 0) == "-"


@pytest.mark.parametrize(
    ("ns", "low", "likely", "high"),
    [
        (115_913_000, "110 ms", "115 ms", "115 ms"),
        (57_956_500, "57 ms", "57.9 ms", "57.9 ms"),
        (54_400_000, "54 ms", "54 ms", "54.4 ms"),
        (1_170_000, "1.1 ms", "1.17 ms", "1.17 ms"),
        (999_600, "990 us", "999 us", "999 us"),
        (2_000_000_000, "2 s", "2 s", "2 s"),
        (0, "0", "0", "0"),
    ],
)
def test_ends_of_a_range_are_no_more_than_they_are(ns: float, low: str, likely: str, high: str) -> None:
    assert (least_duration(ns), estimated_duration(ns, ns), most_duration(ns)) == (low, likely, high)
    # below the most there is, what is likely is rounded as any figure
    assert estimated_duration(115_913_000) == estimated_duration(115_913_000, 120_000_000) == "120 ms"


@given(st.floats(1, 1e12), st.floats(0, 1), st.floats(0, 1))
def test_what_is_shown_of_a_range_is_in_order(high_ns: float, likely: float, low: float) -> None:
    def read(text: str) -> float:
        number, _, unit = text.partition(" ")
        return float(number) * {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1, "": 1}[unit]

    likely_ns = max(high_ns * likely, 1.0)
    low_ns = max(likely_ns * low, 1.0)
    shown = [read(text) for text in (least_duration(low_ns), estimated_duration(likely_ns, high_ns), most_duration(high_ns))]
    assert shown == sorted(shown) and shown[0] <= low_ns and shown[2] <= high_ns * (1 + 1e-9)


def test_shares_of_ends() -> None:
    assert (most_share(115.9, 1000), estimated_share(115.9, 1000), estimated_share(115.9, 1000, 115.9)) == (
        "11.5 %",
        "12 %",
        "11.5 %",
    )
    assert most_share(1, 0) == estimated_share(1, 0) == "-"
