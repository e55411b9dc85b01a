"""Section 8.2 of the acceptance list: operators of the AI Cores and the AI CPU."""

from __future__ import annotations

import pytest

from steplens.analysis.operators.operator_tables import (
    ai_cpu_types,
    core_operators,
    core_types,
    count_executions,
    in_order_of,
    query_table,
)
from steplens.analysis.operators.rank_flops import operator_work, work

from .samples import opened, table


def test_types_by_time() -> None:
    """(O1)"""
    page = query_table(core_types(opened("run_2").trace()), sort=["total_ns"], page_rows=3)
    assert page.total == 21
    rows = page.rows.select("type", "total_ns", "count").rows()
    assert [(kind, round(total / 1000, 2), count) for kind, total, count in rows] == [
        ("MatMul", 20657.74, 9), ("ApplyMomentum", 1241.28, 11), ("Conv2D", 461.07, 5),
    ]  # fmt: skip


def test_shares_that_are_percents_already() -> None:
    """(O2) MindInsight multiplies by 100 and shows 8947.0, 538.0 and 200.0."""
    assert core_types(opened("run_2").trace())["percent"].head(3).to_list() == [89.47, 5.38, 2.0]


def test_shares_of_the_newer_generation() -> None:
    """(O3) MindInsight shows 7380.0, 823.0, 433.0, 363.0 and 49.0: this file holds percents, too."""
    types = core_types(opened("profiler").trace(1))
    assert dict(types.select("type", "percent").iter_rows()) == {
        "MatMul": 73.80, "TransData": 8.23, "Conv2D": 4.33, "Cast": 3.63, "AtomicAddrClean": 0.49,
    }  # fmt: skip


def test_what_the_device_ran_all_in_all() -> None:
    """(O5) the stored summary counts 213 operators, where 105 on the AI Cores and 3 on the AI CPU are different ones, and adds
    9.694 ms of the AI CPU to 23,137.32 us of the AI Cores as if they were us (23,147.014).
    """
    found = count_executions(opened("run_2").trace())
    assert (found.operators, found.executions, found.streams) == (108, 112, 2)
    assert found.total_ns == 32_831_320


def test_ai_cpu_by_type() -> None:
    """(O6) sums; MindInsight's own test still expects the averages 590.5 and 303.5 of an older version."""
    found = ai_cpu_types(opened("run_2").trace())
    assert [
        (kind, round(total / 1000, 1), count, round(percent, 2))
        for kind, total, count, percent in found.select("type", "total_ns", "count", "percent").iter_rows()
    ] == [("InitData", 7906.0, 1, 81.56), ("GetNext", 1181.0, 2, 12.18), ("EndOfSequence", 607.0, 2, 6.26)]


def test_ai_cpu_averages() -> None:
    """(O7)"""
    found = ai_cpu_types(opened("run_2").trace())
    assert [
        (kind, round(mean / 1000, 1), round(dispatch / 1000, 1))
        for kind, mean, dispatch in found.select("type", "average_ns", "average_dispatch_ns").iter_rows()
    ] == [("InitData", 7906.0, 150.0), ("GetNext", 590.5, 102.5), ("EndOfSequence", 303.5, 84.5)]


def test_operators_of_the_oldest_generation() -> None:
    """(O8) of a table of two columns and a list of eight, at which MindInsight fails; counts are those of the device's log."""
    found = core_operators(opened("run_2").trace())
    assert found.height == 105
    assert found["info"].null_count() == found["type"].null_count() == found["count"].null_count() == 0
    assert found["count"].sum() == 107


def test_filters_and_pages() -> None:
    """(O9) the rows of the file in its order; the second page of three rows holds the last two of five."""
    stored = table(opened("profiler"), "aicore_intermediate_type", 1)
    assert stored["kernel_type"].to_list() == ["AtomicAddrClean", "Cast", "TransData", "Conv2D", "MatMul"]
    assert query_table(stored, among={"kernel_type": ["Cast"]}).total == 1
    assert query_table(stored, without={"kernel_type": ["Cast"]}).total == 4
    assert query_table(stored, containing={"kernel_type": "C"}).total == 3
    page = query_table(stored, page=1, page_rows=3)
    assert page.rows["kernel_type"].to_list() == ["Conv2D", "MatMul"] and page.total == 5


def test_operators_in_order_of_types() -> None:
    """(O10) types in the order that the caller gives, and within a type by time."""
    found = core_operators(opened("profiler").trace(1)).with_row_index("row")
    assert found.height == 10
    by_time = query_table(found, sort=["average_ns"]).rows
    assert in_order_of(by_time, "type", ["MatMul", "AtomicAddrClean", "Cast"])["row"].to_list() == [9, 0, 2, 1, 5, 3, 4]


def test_work_by_the_names_of_its_columns() -> None:
    """(O11) MindInsight takes the seven columns for four and shows the share of the cube units, 33.0, as work of the vector
    units.
    """
    (row,) = operator_work(opened("profiler").trace(1)).filter(name="Default/AtomicAddrClean-op104").iter_rows(named=True)
    assert (row["cube_flops"] / 1e6, row["cube_flops_per_s"] / 1e9, row["cube_utilization_percent"]) == (333, 333, 33)
    assert (row["vector_flops"] / 1e6, row["vector_flops_per_s"] / 1e9, row["vector_utilization_percent"]) == (333, 333, 33)


def test_keys_and_points_of_small_task_ids() -> None:
    """(O14) below 25,000 a task is known by its stream and its number."""
    run = opened("JOB4")
    listed = table(run, "framework_raw")
    keys = [f"{stream}_{task}" for stream, task in listed.select("stream_id", "task_id").iter_rows()]
    assert keys == ["0_1", "0_2", "0_3", "0_4"]
    meta = run.trace().meta_values()
    assert (meta["fp_start"], meta["bp_end"]) == ("Default/Cast-op6", "Default/TransData-op7")


def test_tables_of_all_ranks() -> None:
    """Every rank of a run in one table, whatever files each has."""
    run = opened("profiler")
    for name, own in (("core_types", core_types), ("core_operators", core_operators), ("ai_cpu_types", ai_cpu_types)):
        together = getattr(run, name)()
        assert together.height == sum(own(trace).height for trace in run.traces)
        assert {"rank", "window"} < set(together.columns)
    # of rank 0 there are the device's tasks, of rank 1 the stored sums, of rank 10 neither
    assert run.core_types()["rank"].unique().sort().to_list() == [0, 1]
    assert run.core_operators()["rank"].unique().to_list() == [1]
    # rank 0 has a table of nine steps, rank 1 the device's tasks
    assert run.dynamic_shapes()["rank"].unique().to_list() == [0]
    assert run.dynamic_shapes("kernel").group_by("rank").len().sort("rank").rows()[0] == (0, 9)
    assert set(run.processors()["scope"]) == {"host", "process", "op"}


def test_work_without_a_stored_summary() -> None:
    """Total by total: ten operators of 333 million operations on either unit in 0.4559 ms, where a mean of rates gives 333."""
    (row,) = work([opened("profiler").trace(1)]).iter_rows(named=True)
    assert row["flops"] == pytest.approx(10 * 2 * 333e6)
    ms = core_operators(opened("profiler").trace(1))["average_ns"].sum() / 1e6
    assert row["flops_per_s"] == pytest.approx(10 * 2 * 333e6 / ms * 1e3)
    assert row["source"] == "device counters of operators"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"sort": ["kernel_time"]}, "no column 'kernel_time'; the columns are type"),
        ({"among": {"op_type": ["Cast"]}}, "no column 'op_type'"),
        ({"page_rows": 0}, "a page has 1 to"),
        ({"page_rows": 100_001}, "a page has 1 to 100000 rows, not 100001"),
        ({"page": -1}, "pages count from 0"),
    ],
)
def test_questions_that_no_table_answers(arguments: dict[str, object], says: str) -> None:
    types = core_types(opened("run_2").trace())
    with pytest.raises(ValueError, match=says):
        query_table(types, **arguments)  # type: ignore[arg-type]
    # beyond the last page there is nothing, and the count says so
    assert query_table(types, page=9, page_rows=10).rows.height == 0
