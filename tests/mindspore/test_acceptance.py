"""Known values of the shared samples through what users call: ``steplens.open`` and its tables.

Names in parentheses are those of the acceptance list. Where the value differs from MindInsight's, the reason stands beside it.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.analysis.step_trace import averages, step_trace
from steplens.trace.run import Run

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "mindspore"


def opened(*parts: str) -> Run:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip("the shared test data is not beside this checkout")
    return steplens.open(path)


def table(run: Run, name: str, rank: int | None = None) -> pl.DataFrame:
    found = run.trace(rank).source_table(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("job", "count", "total", "interval", "forward_backward", "tail"),
    [("JOB1", 20, 130.4561, 90.3536, 17.0945, 23.0080), ("ERROR_JOB", 40, 130.4972, 90.3735, 17.1141, 23.0096)],
)
def test_averages_of_raw_logs(job: str, count: int, total: float, interval: float, forward_backward: float, tail: float) -> None:
    """(T1, T4) without the first step, which the averages say."""
    run = opened(job)
    assert run.steps().height == count
    found = averages(run.trace())
    means = {part: round(mean / 1e6, 4) for part, mean in found.parts.select("part", "mean_ns").iter_rows()}
    # the stored counts are of 10 ns, ours are exact
    assert means["total_ns"] == pytest.approx(total, abs=1e-4)
    assert means["interval_ns"] == pytest.approx(interval, abs=1e-4)
    assert means["forward_backward_ns"] == pytest.approx(forward_backward, abs=1e-4)
    assert means["tail_ns"] == pytest.approx(tail, abs=1e-4)
    assert found.excluded == (1,)


def test_collectives_of_some_steps_have_an_average(tmp_path: Path) -> None:
    """(T6) MindInsight averages absolute stamps with the zeros of the steps that lack them, and shows empty segments."""
    found = averages(opened("ERROR_JOB").trace()).collectives
    assert found.height == 4 and set(found["steps"]) == {19}
    assert found["start_ns"].min() > 0 and found["duration_ns"].min() > 0


def test_the_only_step_of_run_2() -> None:
    """(T7) the stored row of means has an interval of 12.4321 ms and nothing else: it is a reference, not the average."""
    run = opened("run_2")
    steps = step_trace(run.trace())
    assert steps.height == 1
    assert round(steps["forward_backward_ns"][0] / 1e6, 4) == 23.6681
    stored = table(run, "step_trace_average").row(0, named=True)
    assert round(int(stored["iteration_interval"]) / 1e5, 4) == 12.4321
    assert averages(run.trace()).parts.filter(part="interval_ns")["mean_ns"][0] == 0


def test_operators_of_the_oldest_generation() -> None:
    """(O2, O8) MindInsight multiplies percent by 100 and fails on tables of two and eight columns."""
    run = opened("run_2")
    types = table(run, "aicore_intermediate_type")
    assert float(types.filter(kernel_type="MatMul")["percent"][0]) == 89.47
    details = table(run, "aicore_intermediate_detail")
    listed = table(run, "framework_raw")
    joined = details.join(listed.unique("full_kernel_name"), on="full_kernel_name", how="left")
    assert details.height == 105 and joined["op_info"].null_count() == 0


def test_work_of_four_ranks() -> None:
    """(K5)"""
    run = opened("cluster_propose")
    rows = [table(run, "flops_summary", rank).row(0, named=True) for rank in range(4)]
    work = [float(row["FLOPs"]) for row in rows]
    assert work == [107146.763, 107145.034, 329608.369, 329612.4]
    assert [float(row["FLOPS"]) for row in rows] == [5385.552, 5386.261, 4859.39, 4897.642]
    assert [round(value / max(work), 8) for value in work] == [0.32506897, 0.32506372, 0.99998777, 1]


@pytest.mark.parametrize("step", [1, 2, 3, 6, 7])
def test_collectives_of_steps_that_some_ranks_lack(step: int) -> None:
    """(K9, K13) MindInsight answers step 3 with an error, because two of the four ranks recorded two steps."""
    run = opened("cluster_propose")
    rows = [run.trace(rank).required("communication_times").filter(pl.col("step") == step).collect().height for rank in range(4)]
    assert [count > 0 for count in rows] == [step <= 6, step <= 6, step <= 2, step <= 2]


def test_iterations_of_two_ranks() -> None:
    """(P2, P5, P6) us: computing, communication, free and the length of three iterations."""
    run = opened("profiler")
    expected = {
        (0, 1): (47587.81, 5914.58, 41534.30), (0, 2): (15369.16, 5928.10, 9303.05), (0, 3): (15304.02, 5946.60, 9213.81),
        (1, 1): (57532.96, 5927.58, 51464.47), (1, 2): (16792.73, 5922.86, 10727.54), (1, 3): (15654.64, 5951.24, 9560.20),
    }  # fmt: skip
    steps = run.steps().filter(pl.col("rank") < 2)
    for (rank, number), (length, computing, communication) in expected.items():
        row = steps.filter(rank=rank, step=number).row(0, named=True)
        points = step_trace(run.trace(rank)).filter(step=number).row(0, named=True)
        assert points["total_ns"] / 1000 == pytest.approx(length, abs=0.02)
        assert row["computing_ns"] / 1000 == pytest.approx(computing, abs=0.02)
        assert row["communication_not_overlapped_ns"] / 1000 == pytest.approx(communication, abs=0.02)
    for rank in (0, 1):
        kernels = run.trace(rank).required("kernels").collect()
        assert kernels.filter(pl.col("core").cast(pl.String) == "AI_CORE").height == 3 * 137
        assert run.trace(rank).meta_values()["model_ids"] == [[2], [0]][rank]


def test_strategy_of_two_ranks() -> None:
    """(K12)"""
    for trace in opened("parallel_strategy").traces:
        strategy = trace.meta_values()["parallel_strategy"]
        assert strategy["stage_devices"] == {"0": [0, 1]}
    assert opened("parallel_strategy").trace(0).meta_values()["parallel_mode"] == "auto_parallel"
