"""Links over which messages move slowly: of many, those that do so by chance are not named."""

from __future__ import annotations

from math import comb

import numpy as np
import polars as pl
import pytest

from steplens.analysis.cluster.stragglers.slow_messages import OF_RANKS, find_slow_links, group_speeds
from steplens.analysis.tools.chance import chance_of_at_least
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, build

MS = 1_000_000
STEPS, STEP_MS, EACH = (1, 2, 3), 20, 2


def pairs_of_ranks(pairs: int, late: np.ndarray) -> list[Trace]:
    """Pairs that exchange two messages a step; one takes 1 ms, or 2 ms where ``late`` (pairs, messages) says so."""
    traces = []
    for rank in range(2 * pairs):
        rows, steps = [], []
        for number, step in enumerate(STEPS):
            begin = BASE_NS + number * STEP_MS * MS
            steps.append({"id": step, "start_ns": begin, "end_ns": begin + STEP_MS * MS, "pid": 1, "tid": 1})
            for place in range(EACH):
                start = begin + (1 + 5 * place) * MS
                took = 2 * MS if late[rank // 2, number * EACH + place] else MS
                rows.append(
                    {"name": "nccl:all_reduce", "kind": "collective", "operation": "allreduce", "group": str(rank // 2),
                     "ranks": 2, "bytes": 1 << 20, "step": step, "start_ns": start, "end_ns": start + took}
                )  # fmt: skip
        traces.append(build(meta={"rank": rank, "host_name": "host"}, steps=steps, communication=rows))
    return traces


def test_of_many_links_chance_names_none() -> None:
    numbers = np.random.default_rng(1)
    late = numbers.uniform(size=(120, len(STEPS) * EACH)) < 0.15
    late[7] = False
    traces = pairs_of_ranks(120, late)
    groups, _ = group_speeds(traces, STEPS)
    # some are late in half of their messages and more
    assert groups.filter(pl.col("transfer_ns") >= 1.5 * pl.col("usual_ns")).height >= 3
    assert groups["late"].sum() == late.sum() and groups["messages"].sum() == late.size
    assert find_slow_links(traces, STEPS, STEP_MS * MS) == []

    late[7] = True
    (link,) = find_slow_links(pairs_of_ranks(120, late), STEPS, STEP_MS * MS)
    assert (link.kind, link.ranks, link.groups) == (OF_RANKS, (14, 15), 1)
    assert (link.transfer_ns, link.usual_ns, link.lost_ns) == (2 * MS, MS, 2 * MS)


@pytest.mark.parametrize("pairs", [2, 4])
def test_of_a_few_links_the_slow_one_is_named(pairs: int) -> None:
    late = np.zeros((pairs, len(STEPS) * EACH), bool)
    late[1] = True
    (link,) = find_slow_links(pairs_of_ranks(pairs, late), STEPS, STEP_MS * MS)
    assert link.ranks == (2, 3)


@pytest.mark.parametrize("of", [1, 3, 12, 200])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 1.0])
def test_the_chance_is_the_tail_of_the_binomial_distribution(of: int, share: float) -> None:
    for count in range(of + 2):
        exact = sum(comb(of, hits) * share**hits * (1 - share) ** (of - hits) for hits in range(count, of + 1))
        assert chance_of_at_least(count, of, share) == pytest.approx(exact, rel=1e-9, abs=1e-12)
    assert 0 < chance_of_at_least(5_500, 10_000, 0.5) < 1e-20
    assert chance_of_at_least(4_500, 10_000, 0.5) == pytest.approx(1)
