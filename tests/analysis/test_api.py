"""Statistics of runtime calls, against the statistics module."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.analysis.device.api import api_statistic

from ..writers.builder import BASE_NS, build

_CALLS = st.lists(st.tuples(st.sampled_from(["acl", "node"]), st.sampled_from("abc"), st.integers(0, 10**9)), max_size=30)


@settings(deadline=None)
@given(_CALLS)
def test_against_a_loop(calls: list[tuple[str, str, int]]) -> None:
    rows = [
        {"layer": layer, "name": name, "start_ns": BASE_NS + at, "end_ns": BASE_NS + at + length}
        for at, (layer, name, length) in enumerate(calls)
    ]
    found = api_statistic(build(api=rows))
    keys = list(found.select("layer", "name").iter_rows())
    assert keys == sorted({(layer, name) for layer, name, _ in calls}, key=lambda key: (key[1], key[0]))
    for row in found.to_dicts():
        own = [length for layer, name, length in calls if (layer, name) == (row["layer"], row["name"])]
        assert (row["count"], row["total_ns"], row["min_ns"], row["max_ns"]) == (len(own), sum(own), min(own), max(own))
        assert abs(row["mean_ns"] - statistics.fmean(own)) <= 0.5
        assert row["variance_ns2"] == pytest.approx(statistics.pvariance(own), rel=1e-9, abs=1e-6)
