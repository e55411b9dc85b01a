"""A stretch of time of a trace."""

from __future__ import annotations

import polars as pl
import pytest

import steplens
from steplens.trace.trace import Trace
from steplens.trace.window import trace_window

from ..shared_data import shared


@pytest.fixture(scope="module")
def trace() -> Trace:
    return steplens.open(shared("kineto", "cuda_alexnet.json.gz")).trace()


def span(trace: Trace) -> tuple[int, int]:
    low, high = trace.required("ops").select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)
    return low, high


def test_ids_are_rows_and_lead_to_the_same_calls(trace: Trace) -> None:
    low, high = span(trace)
    part = trace_window(trace, low + (high - low) // 3, low + (high - low) // 2)
    assert part.ops is not None and trace.ops is not None and part.kernels is not None and trace.kernels is not None
    assert part.ops["id"].to_list() == list(range(part.ops.height))
    assert 0 < part.ops.height < trace.ops.height

    def tied(of: Trace) -> set[tuple[object, ...]]:
        ops = of.required("ops").select("id", "start_ns", name=pl.col("name").cast(pl.String)).collect()
        calls = of.required("ops").select("start_ns", "tid", "parent", name=pl.col("name").cast(pl.String)).collect()
        tasks = of.required("kernels").select("start_ns", "stream", "op", name=pl.col("name").cast(pl.String)).collect()
        parents = calls.join(ops, left_on="parent", right_on="id").drop("parent")
        launchers = tasks.join(ops, left_on="op", right_on="id").drop("op")
        return set(parents.iter_rows()) | set(launchers.iter_rows())

    assert tied(part) and tied(part) <= tied(trace)
    # whoever encloses a call of the window overlaps it too
    assert part.ops["parent"].null_count() == sum(parent is None for parent in _parents_of(trace, part))


def _parents_of(trace: Trace, part: Trace) -> list[int | None]:
    keys = ["start_ns", "end_ns", "tid", "depth"]
    whole = trace.required("ops").select(*keys, "parent", name=pl.col("name").cast(pl.String))
    some = part.required("ops").select(*keys, name=pl.col("name").cast(pl.String))
    return some.join(whole, on=[*keys, "name"], how="left", maintain_order="left").collect()["parent"].to_list()


def test_the_whole_is_the_trace(trace: Trace) -> None:
    low, high = span(trace)
    part = trace_window(trace, min(low, 0), high * 2)
    for name in trace:
        assert part.required(name).collect().equals(trace.required(name).collect()), name


def test_a_window_without_events_is_empty(trace: Trace) -> None:
    part = trace_window(trace, 0, 1)
    assert part.required("ops").collect().is_empty()
    assert part.required("meta").collect().height == trace.required("meta").collect().height
