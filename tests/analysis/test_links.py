"""Bandwidths of links against sums over operations made by hand."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from steplens.analysis.cluster.links import communication_costs, link_means, links, slow_links
from steplens.trace.trace import Trace

from ..writers.builder import build


def measured(rng: random.Random, rank: int) -> tuple[Trace, list[dict[str, Any]]]:
    rows = [
        {"name": f"allreduce_{number}", "op_name": f"allreduce_{number}", "kind": "collective", "group": rng.choice(["a", "b"]),
         "step": rng.randint(1, 3), "source": rng.randrange(3), "destination": rank, "transport": rng.choice(["HCCS", "RDMA"]),
         "size_mb": rng.random(), "transit_ms": rng.random()}
        for number in range(60)
    ]  # fmt: skip
    for row in rows:
        row["bandwidth_gbps"] = row["size_mb"] / row["transit_ms"]
    return build(meta={"rank": rank, "world_size": 3}, communication_matrix=rows), rows


def test_bandwidth_is_bytes_by_time_of_everything_that_moved() -> None:
    rng = random.Random(5)
    traces, expected = [], defaultdict(lambda: [0.0, 0.0])
    for rank in range(3):
        trace, rows = measured(rng, rank)
        traces.append(trace)
        for row in rows:
            sums = expected[rank, row["step"], row["source"], row["destination"], row["transport"]]
            sums[0] += row["transit_ms"] * 1e6
            sums[1] += row["size_mb"] * 1e6
    found = links(traces)
    keys = ["rank", "step", "source", "destination", "transport"]
    assert {row[:5]: pytest.approx(list(row[5:7])) for row in found.iter_rows()} == expected
    for row in found.iter_rows(named=True):
        time, size = expected[tuple(row[key] for key in keys)]
        assert row["bytes_per_s"] == pytest.approx(size / time * 1e9)
    means = link_means(found)
    for row in means.iter_rows(named=True):
        parts = [sums for key, sums in expected.items() if (key[0], *key[2:]) == tuple(row[key] for key in keys if key != "step")]
        time, size = (sum(column) for column in zip(*parts, strict=True))
        assert row["time_ns"] == pytest.approx(time / 3) and row["bytes"] == pytest.approx(size / 3)
        assert row["bytes_per_s"] == pytest.approx(size / time * 1e9)


def test_links_without_time_have_no_bandwidth() -> None:
    rows = [{"name": "x", "op_name": "x", "kind": "collective", "group": "g", "step": 1, "source": 0, "destination": 1,
             "transport": "HCCS", "size_mb": 1.0, "transit_ms": 0.0, "bandwidth_gbps": 0.0}]  # fmt: skip
    found = links([build(meta={"rank": 1}, communication_matrix=rows)])
    assert found["bytes_per_s"].to_list() == [None]
    assert slow_links(link_means(found)).is_empty()
    assert links([]).is_empty() and link_means(links([])).is_empty() and communication_costs([]).is_empty()


def test_costs_are_sums_over_operations() -> None:
    rows = [
        {"name": f"op{number}", "kind": "collective", "group": "g", "step": step, "transit_ms": 1.5, "wait_ms": float(step)}
        for step in (1, 2)
        for number in range(3)
    ]
    costs = communication_costs([build(meta={"rank": 0}, communication_times=rows)])
    assert costs.rows() == [(0, 1, 4.5e6, 3e6), (0, 2, 4.5e6, 6e6)]
