"""Where a rank falls behind: by hand."""

from __future__ import annotations

import polars as pl

from steplens.analysis.cluster.joined_operators import JOINED, find_delays

MS = 1_000_000


def joined(*rows: tuple[int, str, int, float, float]) -> pl.DataFrame:
    """Operators of one stage: rank, name, number, begin and end in ms."""
    made = [
        {"rank": rank, "stage": 1, "name": name, "number": number, "kind": "communication" if name == "allreduce" else "compute",
         "start_ns": round(begin * MS), "end_ns": round(end * MS)}
        for rank, name, number, begin, end in rows
    ]  # fmt: skip
    return pl.DataFrame(made, schema=JOINED)


def test_a_delay_is_told_once_with_the_rank_and_what_it_ran() -> None:
    """Rank 1 multiplies for 20 ms between the first and the second common operator; what comes later inherits the delay."""
    found = find_delays(
        joined(
            (0, "zero", 0, 0, 1), (0, "linear", 0, 1, 3), (0, "relu", 0, 3, 4), (0, "allreduce", 0, 4, 27),
            (0, "adam", 0, 28, 29),
            (1, "zero", 0, 0, 1), (1, "mm", 0, 1, 19), (1, "mul", 0, 19, 21), (1, "linear", 0, 21, 23), (1, "relu", 0, 23, 24),
            (1, "allreduce", 0, 24, 27), (1, "adam", 0, 30, 31),
        ),
        MS,
    )  # fmt: skip
    (row,) = found.iter_rows(named=True)
    assert (row["rank"], row["name"], row["grown_ns"], row["from_ns"], row["start_ns"]) == (1, "linear", 20 * MS, 0, 21 * MS)
    assert (row["doing"], row["doing_ns"]) == (["mm", "mul", "zero"], [18 * MS, 2 * MS, MS])


def test_ranks_that_keep_together_have_no_delay() -> None:
    together = joined((0, "linear", 0, 1, 3), (1, "linear", 0, 1.2, 3), (0, "relu", 0, 3, 4), (1, "relu", 0, 3.5, 4))
    assert find_delays(together, MS).is_empty()
    assert find_delays(joined(), MS).is_empty()
    assert find_delays(joined((0, "linear", 0, 1, 3)), 0).is_empty()
