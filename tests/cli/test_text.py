from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.cli.text.bars import PHASES, cell_counts, split_backward, step_bar
from steplens.cli.text.text import clean, duration, share, size


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
