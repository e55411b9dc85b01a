"""Section 8.7 of the acceptance list: operators of a net whose shapes change; times in us."""

from __future__ import annotations

import json

from steplens.analysis.operators.dynamic_shape import KERNEL, runs, series, sums, types_of

from .samples import opened


def test_operators_from_step_to_step() -> None:
    """(Y1)"""
    trace = opened("profiler").trace(0)
    (add,) = runs(trace, types=["Add"]).filter(step=1).iter_rows(named=True)
    assert (add["type"], add["name"], add["duration_ns"] / 1000) == ("Add", "Add-op6", 75.616)
    assert json.loads(add["shapes"]) == ["[32, 1]", "[32, 1]"]
    found = sums(trace)
    assert types_of(found) == ["InitDataSetQueue", "GetNext", "Add"]
    get_next = [value / 1000 for value in series(found, ["GetNext"])[0]["average_ns"]]
    assert get_next == [153.52, 80.224, 50.752, 72.768, 59.936, 81.344, 67.232, 52.064, 0]


def test_kernels_from_step_to_step() -> None:
    """(Y2)"""
    found = sums(opened("profiler").trace(0), KERNEL)
    (name,) = types_of(found)
    assert [value / 1000 for value in series(found, [name])[0]["average_ns"]] == [
        3.904, 3.232, 3.04, 3.04, 3.072, 3.072, 3.232, 3.04, 3.072,
    ]  # fmt: skip
