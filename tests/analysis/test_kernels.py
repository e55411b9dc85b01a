"""Device tasks added up per type and core, against plain Python."""

from __future__ import annotations

import statistics
from collections import defaultdict
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.device.kernels import core_self_ns, kernel_statistics, op_statistic, subtree_total_ns

from ..writers.builder import BASE_NS, build, kernel, op

TASKS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["CPU", "CUDA"]), st.integers(0, 10**6)), max_size=30)


@given(TASKS)
def test_like_plain_python(tasks: list[tuple[str, str, int]]) -> None:
    rows = [kernel(kind, 0, 0, core=core, end_ns=BASE_NS + length) for kind, core, length in tasks]
    lengths = defaultdict(list)
    for kind, core, length in tasks:
        lengths[kind, core].append(length)
    total = sum(length for _, _, length in tasks)
    found = {(row["type"], row["core"]): row for row in op_statistic(build(kernels=rows)).iter_rows(named=True)}
    assert set(found) == set(lengths)
    for key, values in lengths.items():
        row = found[key]
        assert (row["count"], row["total_ns"], row["min_ns"], row["max_ns"]) == (
            len(values),
            sum(values),
            min(values),
            max(values),
        )
        assert abs(Fraction(sum(values), len(values)) - row["mean_ns"]) <= Fraction(1, 2)
        assert row["ratio_percent"] == pytest.approx(sum(values) * 100 / total if total else 0)
    totals = [row["total_ns"] for row in found.values()]
    assert totals == sorted(totals, reverse=True)


@given(TASKS)
def test_statistics_like_plain_python(tasks: list[tuple[str, str, int]]) -> None:
    rows = [kernel(kind, 0, 0, core=core, category=core, kind=core, end_ns=BASE_NS + length) for kind, core, length in tasks]
    trace = build(kernels=rows)
    for by, position in (("name", 0), ("category", 1), ("kind", 1)):
        lengths = defaultdict(list)
        kinds = defaultdict(set)
        for one in tasks:
            lengths[one[position]].append(one[2])
            kinds[one[position]].add(one[1])
        found = {row[by]: row for row in kernel_statistics(trace, by).iter_rows(named=True)}  # type: ignore[arg-type]
        assert set(found) == set(lengths)
        for key, values in lengths.items():
            row = found[key]
            assert (row["count"], row["total_ns"], row["min_ns"], row["max_ns"]) == (
                len(values), sum(values), min(values), max(values),
            )  # fmt: skip
            assert row["mean_ns"] == pytest.approx(statistics.mean(values))
            assert row["std_ns"] == pytest.approx(statistics.stdev(values) if len(values) > 1 else 0, abs=1e-6)
            if by != "kind":
                assert row["kind"] == (next(iter(kinds[key])) if len(kinds[key]) == 1 else None)


def test_time_of_one_kind_of_core_per_call() -> None:
    ops = [op("a", 0, 10), op("b", 1, 5, parent=0), op("c", 2, 3, parent=1), op("d", 20, 30)]
    tasks = [
        kernel("k", 1, 2, core="AI_CORE", op=2),
        kernel("k", 3, 5, core="AI_CORE", op=1),
        kernel("k", 3, 9, core="AI_CORE"),
        kernel("k", 3, 9, core="AI_CORE", op=77),
        kernel("k", 6, 7, core="AIV", op=0),
    ]
    trace = build(ops=ops, kernels=tasks)
    own = core_self_ns(trace, "AI_CORE")
    assert own is not None
    assert own.tolist() == [0, 2000, 1000, 0]
    assert subtree_total_ns(trace, own).tolist() == [3000, 3000, 1000, 0]
    assert core_self_ns(trace, "nothing") is None
