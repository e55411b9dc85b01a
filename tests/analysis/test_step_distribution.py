"""The spread of step lengths against the statistics module and plain loops."""

from __future__ import annotations

import statistics

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.steps.step_distribution import step_distribution


def steps(lengths: list[int], left_out: tuple[int, ...] = ()) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "step": range(len(lengths)),
            # the host's duration is another figure, and none of this table's
            "duration_ns": pl.Series([7] * len(lengths), dtype=pl.Int64),
            "step_time_ns": pl.Series(lengths, dtype=pl.Int64),
            "complete": pl.Series([True] * len(lengths), dtype=pl.Boolean),
            "chosen": pl.Series([place not in left_out for place in range(len(lengths))], dtype=pl.Boolean),
        }
    )


@given(st.lists(st.integers(1, 10**12), min_size=2, max_size=200))
def test_figures_are_those_of_the_statistics_module(lengths: list[int]) -> None:
    found = step_distribution(steps(lengths))
    assert found.count == len(lengths) == sum(found.counts)
    assert found.mean_ns == pytest.approx(statistics.fmean(lengths))
    assert found.std_ns == pytest.approx(statistics.stdev(lengths), abs=1e-3)
    assert found.median_ns == pytest.approx(statistics.median(lengths))
    assert found.p90_ns == pytest.approx(statistics.quantiles(lengths, n=10, method="inclusive")[8])
    assert found.p99_ns == pytest.approx(statistics.quantiles(lengths, n=100, method="inclusive")[98])
    assert (found.min_ns, found.max_ns) == (min(lengths), max(lengths))


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200))
def test_every_step_is_in_the_bin_of_its_length(lengths: list[int]) -> None:
    found = step_distribution(steps(lengths))
    edges, counts = found.edges_ns, found.counts
    assert len(edges) == len(counts) + 1 <= 51
    for place, count in enumerate(counts):
        last = place == len(counts) - 1
        inside = [one for one in lengths if edges[place] <= one < edges[place + 1] or (last and one == edges[-1])]
        assert len(inside) == count


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=60))
def test_what_stands_out_is_far_by_both_measures(lengths: list[int]) -> None:
    median = statistics.median(lengths)
    spread = 1.4826 * statistics.median(abs(one - median) for one in lengths)
    far = [
        place
        for place, one in enumerate(lengths)
        if len(lengths) >= 5 and abs(one - median) > 3.5 * spread and abs(one - median) > 0.1 * median
    ]
    found = step_distribution(steps(lengths)).outliers
    assert sorted(found["step"].to_list()) == far
    distances = [abs(one - median) for one in found["step_time_ns"].to_list()]
    assert distances == sorted(distances, reverse=True)


def test_one_slow_step_among_steady_ones_is_named() -> None:
    found = step_distribution(steps([100, 101, 99, 102, 98, 250, 100]))
    assert found.outliers["step"].to_list() == [5]
    (deviations,) = found.outliers["deviations"].to_list()
    assert deviations == pytest.approx((250 - 100) / 1.4826)


def test_steps_that_are_left_out_do_not_count() -> None:
    found = step_distribution(steps([100, 100, 100, 100, 100, 1], left_out=(5,)))
    assert (found.count, found.min_ns, found.outliers.height) == (5, 100.0, 0)
    assert found.std_ns == 0


def test_without_steps_there_are_no_figures() -> None:
    found = step_distribution(steps([]))
    assert (found.count, found.mean_ns, found.edges_ns, found.counts) == (0, None, (), ())
    assert found.outliers.is_empty()
