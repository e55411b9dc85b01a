"""Times that are kept in few bytes tell how far sums of any rows differ from step to step."""

from __future__ import annotations

import numpy as np
import pytest

from steplens.comparison.baselines.kept_times import MOST_STEPS, KeptTimes, keep_times
from steplens.comparison.causes.row_times import MeasuredTimes
from steplens.comparison.noise import Floats, sample_mean

STEPS = 400


def spread_ratio(ns: Floats, rows: list[int], shares: Floats | None = None) -> float:
    """The spread of a sum of rows as it is kept, over what it is."""
    measured = MeasuredTimes(ns, 0.0)
    weights = np.ones(len(rows)) if shares is None else shares
    kept, whole = (times.sample_sum(np.array(rows), weights) for times in (keep_times(measured), measured))
    assert kept.usual == pytest.approx(whole.usual, abs=len(rows))
    assert kept.sampling_variance >= 0.4 * whole.sampling_variance
    return kept.spread / whole.spread


def test_of_large_rows_sums_of_any_differ_as_they_do() -> None:
    """Whether they are long in the same steps, or one where the other is short."""
    random = np.random.default_rng(1)
    common, own = random.normal(size=STEPS), random.normal(size=(6, STEPS))
    ns = 1e6 + 1e4 * np.array([own[0], own[1], common, common + 0.1 * own[2], -common + 0.1 * own[3], np.exp(own[4])])
    for rows in ([0], [2], [5], [0, 1], [2, 3], [3, 4], [0, 1, 2, 3, 4, 5]):
        assert spread_ratio(ns, rows) == pytest.approx(1.0, abs=0.35)
    ratios = [spread_ratio(ns + 1e4 * random.normal(size=ns.shape), [0, 2, 4], np.array([0.5, 1.0, 0.25])) for _ in range(40)]
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.1)


def test_of_small_rows_sums_differ_by_no_less_than_they_do() -> None:
    random = np.random.default_rng(2)
    large = np.full((1, STEPS), 1e7)
    for noise in (random.normal(size=(50, STEPS)), np.repeat(random.normal(size=(1, STEPS)), 50, axis=0)):
        ns = np.concatenate([large, 1000.0 + 100.0 * noise])
        kept = keep_times(MeasuredTimes(ns, 0.0))
        assert not kept.rows.size and (kept.spread[1:] > 0).all() and kept.spread[0] == 0
        for rows in ([1], [1, 2, 3], list(range(1, 51))):
            assert spread_ratio(ns, rows) > 0.9
        assert spread_ratio(ns, [7]) == pytest.approx(1.0, abs=0.35)


def test_means_are_whole_numbers_that_add_up() -> None:
    ns = np.random.default_rng(3).exponential(300.0, size=(500, 40))
    kept = keep_times(MeasuredTimes(ns, 0.25))
    assert (kept.mean_ns == np.round(kept.mean_ns)).all() and np.abs(kept.mean_ns - ns.mean(axis=1)).max() <= 1.0
    assert kept.mean_ns.sum() == pytest.approx(ns.mean(axis=1).sum(), abs=0.5) and kept.waited_share == 0.25


@pytest.mark.parametrize("count", [1, 2, 3, MOST_STEPS, 5 * MOST_STEPS])
def test_however_many_steps_there_are_they_are_kept(count: int) -> None:
    ns = np.random.default_rng(4).exponential(1e6, size=(3, count))
    kept = keep_times(MeasuredTimes(np.concatenate([ns, np.zeros((1, count))]), 0.0))
    assert kept.step_count == min(count, MOST_STEPS)
    assert np.isfinite(kept.sum_deviations(np.arange(4), np.ones(4))[0]).all()
    assert kept.sum_deviations(np.array([], dtype=np.int64), np.array([]))[0].tolist() == [0.0] * kept.step_count
    assert keep_times(kept) is kept


def test_a_single_step_that_is_far_longer_stays_far_longer() -> None:
    ns = 1e6 + 1e3 * np.random.default_rng(5).normal(size=(2, MOST_STEPS))
    ns[0, 10] += 5e4
    steps, blocks = keep_times(MeasuredTimes(ns, 0.0)).sum_deviations(np.array([0]), np.array([1.0]))
    assert not blocks.size
    assert int(np.argmax(steps)) == 10 and steps.max() - np.median(steps) == pytest.approx(5e4, rel=0.25)


def test_rows_have_other_numbers_or_become_one() -> None:
    ns = 1e6 + 1e4 * np.random.default_rng(6).normal(size=(3, 30))
    kept = keep_times(MeasuredTimes(ns, 0.0))

    def steps_of(times: KeptTimes, row: int) -> Floats:
        return times.sum_deviations(np.array([row]), np.ones(1))[0]

    moved = kept.move_rows(np.array([4, 0, 2]), 5)
    for old, new in enumerate((4, 0, 2)):
        assert np.allclose(steps_of(moved, new), steps_of(kept, old))
        assert moved.mean_ns[new] == kept.mean_ns[old]
    assert moved.mean_ns[[1, 3]].tolist() == [0.0, 0.0] and not steps_of(moved, 1).any()
    joined = kept.move_rows(np.array([0, 0, 1]), 2)
    assert joined.mean_ns[0] == kept.mean_ns[:2].sum()
    assert sample_mean(steps_of(joined, 0)).spread >= sample_mean(steps_of(kept, 0) + steps_of(kept, 1)).spread


def test_a_mean_is_no_surer_for_a_long_step_that_is_not_kept() -> None:
    """Of 400 steps one in four is kept; the mean hangs on a single one."""
    random = np.random.default_rng(7)
    for place in range(40, 48):
        ns = 1e5 + 1e3 * random.normal(size=(2, STEPS))
        ns[0, place] += 4e7
        measured = MeasuredTimes(ns, 0.0)
        kept, whole = (times.sample_sum(np.array([0]), np.ones(1)) for times in (keep_times(measured), measured))
        assert 0.6 < kept.sampling_variance / whole.sampling_variance < 2.5
        assert kept.spread < 0.2 * whole.sampling_variance**0.5
