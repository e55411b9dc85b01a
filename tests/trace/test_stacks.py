"""Call stacks from the Python frames around calls, against a loop over all frames."""

from __future__ import annotations

import random
import re

import polars as pl
import pytest

from steplens.trace.building.stacks import call_stacks
from steplens.trace.schema import NAME


def frame_of(rows: list[tuple[str, int, int, int]]) -> pl.DataFrame:
    """Rows (name, start, end, thread) of ``ops`` or ``python``."""
    table = pl.DataFrame(rows, schema=["name", "start_ns", "end_ns", "tid"], orient="row").with_columns(pid=pl.lit(1))
    return table.with_columns(pl.col("name").cast(NAME), pl.col("pid", "tid", "start_ns", "end_ns").cast(pl.Int64))


def by_hand(call: tuple[str, int, int, int], frames: list[tuple[str, int, int, int]]) -> str | None:
    """Names of the frames around a call, innermost first, without addresses."""
    around = [one for one in frames if one[3] == call[3] and one[1] <= call[1] and call[2] <= one[2]]
    around.sort(key=lambda one: (one[2] - one[1], -one[1]))
    return ";".join(re.sub(" at 0x[0-9a-f]+", "", name) for name, *_ in around) or None


@pytest.mark.parametrize("seed", range(5))
def test_against_a_loop(seed: int) -> None:
    numbers = random.Random(seed)
    frames: list[tuple[str, int, int, int]] = []
    calls: list[tuple[str, int, int, int]] = []

    def nested(begin: int, end: int, tid: int, depth: int) -> None:
        """Frames that lie in one another, with ends that differ, and calls in some of them."""
        if end - begin < 40 or depth > 6:
            calls.append(("aten::add", begin + 1, begin + 5, tid))
            return
        frames.append(
            (f"<built-in method f{numbers.randrange(4)} of Tensor object at 0x{numbers.getrandbits(40):x}>", begin, end, tid)
        )
        middle = numbers.randrange(begin + 5, end - 5)
        nested(begin + 1, middle - 1, tid, depth + 1)
        nested(middle + 1, end - 2, tid, depth + 1)

    for tid in (7, 8):
        nested(tid * 100_000, tid * 100_000 + 5000, tid, 0)
    calls.append(("aten::alone", 1, 2, 7))
    found = call_stacks(frame_of(calls), frame_of(frames)).cast(pl.String).to_list()
    assert found == [by_hand(call, frames) for call in calls]
    assert found[-1] is None and len(set(found)) > 10
    # a tensor's address is not a place in the program: the stacks of the same frames are one
    assert not any(text and "0x" in text for text in found)


def test_frames_that_differ_in_an_address_are_one_place() -> None:
    frames = [
        ("<built-in method add of Tensor object at 0x7f01>", 0, 10, 1),
        ("<built-in method add of Tensor object at 0x7f02>", 20, 30, 1),
    ]
    calls = [("aten::add", 1, 5, 1), ("aten::add", 21, 25, 1)]
    found = call_stacks(frame_of(calls), frame_of(frames)).cast(pl.String).to_list()
    assert found == ["<built-in method add of Tensor object>"] * 2
