"""Section 8.5 of the acceptance list: many ranks. Times in ms, work in 10**6 operations, as the list has them."""

from __future__ import annotations

import polars as pl
import pytest

from steplens.analysis.cluster.cluster_steps import cluster_steps, rank_means
from steplens.analysis.cluster.links import communication_costs, link_means, links, slow_links
from steplens.analysis.cluster.rank_communication import rank_costs
from steplens.analysis.operators.rank_flops import stage_work, work
from steplens.analysis.tools.parallel import DATA_PARALLEL, MODEL_PARALLEL, PIPELINE_PARALLEL, communication_rates, layout

from .samples import opened


def parts(sample: str, *columns: str) -> list[float]:
    run = opened(sample)
    row = cluster_steps(run.traces).row(0, named=True)
    assert (row["rank"], row["step"]) == (1, 1)
    return [round(row[column] / 1e6, 4) for column in columns]


def test_parts_of_a_data_parallel_step() -> None:
    """(K1) interval, forward and backward, tail, total"""
    expected = [0.0, 23.6681, 0.041, 23.7091]
    # the total is 23.70905: the list rounds half up, Python to even
    found = parts("run_2", "interval_ns", "forward_backward_ns", "tail_ns", "total_ns")
    assert found == pytest.approx(expected, abs=5.1e-5)
    assert layout(opened("run_2").traces).mode == DATA_PARALLEL
    assert cluster_steps(opened("run_2").traces).height == 1


def test_parts_of_a_model_parallel_step() -> None:
    """(K2) interval, computation, communication alone"""
    assert parts("run_3", "interval_ns", "computation_ns", "communication_alone_ns") == [0.0, 651.9051, 1293.1231]
    assert layout(opened("run_3").traces).mode == MODEL_PARALLEL


def test_parts_of_a_pipeline_parallel_step() -> None:
    """(K3) interval, computation, communication alone, stage, receive alone, collectives alone"""
    columns = ("interval_ns", "computation_ns", "communication_alone_ns", "stage_ns", "receive_alone_ns", "collective_alone_ns")
    assert parts("run_4", *columns) == [0.0, 651.9051, 1293.1231, 1577.1234, 368.7766, 227.1234]
    assert layout(opened("run_4").traces).mode == PIPELINE_PARALLEL


def test_intervals_of_four_ranks() -> None:
    """(K4) of the means that the source keeps; the files hold fewer steps than those are of."""
    means = rank_means(opened("cluster_propose").traces)
    assert [round(value / 1e6, 4) for value in means["interval_ns"]] == [1.5722, 1.5588, 2.4318, 2.3954]
    assert means["stored"].all() and means["stage"].to_list() == [1, 1, 2, 2]


def test_work_of_four_ranks() -> None:
    """(K5)"""
    found = work(opened("cluster_propose").traces)
    assert [value / 1e6 for value in found["flops"]] == pytest.approx([107146.763, 107145.034, 329608.369, 329612.4], rel=1e-12)
    assert [value / 1e9 for value in found["flops_per_s"]] == pytest.approx([5385.552, 5386.261, 4859.39, 4897.642], rel=1e-12)
    assert [round(value, 8) for value in found["normalized"]] == [0.32506897, 0.32506372, 0.99998777, 1]


def test_links_of_four_ranks() -> None:
    """(K6) ms and KB per step, by our own means over the steps of every rank; ends are ranks of the job, where the files (and
    MindInsight) number them within the stage.
    """
    means = link_means(links(opened("cluster_propose").traces))
    found = {
        (source, target): (time / 1e6, size / 1e3)
        for source, target, time, size in means.select("source", "destination", "time_ns", "bytes").iter_rows()
    }
    expected = {
        (1, 0): (2.2006933, 46069.4187), (0, 0): (0.0681617, 554.9653), (0, 1): (0.2195633, 1109.9307),
        (1, 1): (2.0616933, 45514.4533), (3, 2): (2.78157, 48309.248), (2, 2): (1.997395, 62691.328),
        (2, 3): (4.48225, 86845.952), (3, 3): (0.30524, 24154.624),
    }  # fmt: skip
    assert found.keys() == expected.keys()
    for link, (time, size) in expected.items():
        assert found[link] == (pytest.approx(time, abs=6e-8), pytest.approx(size, abs=6e-5))


def test_shares_of_communication() -> None:
    """(K7)"""
    found = communication_rates(rank_means(opened("cluster_propose").traces))
    assert found.between_stages == pytest.approx(0.25819082, abs=5e-9)
    assert found.within_stages == {1: pytest.approx(0.6029851045963494), 2: pytest.approx(0.23437938457647858)}


@pytest.mark.parametrize("step", [1, 2, 3, 6, 7])
def test_collectives_of_steps_that_some_ranks_lack(step: int) -> None:
    """(K9, K13) MindInsight answers step 3 with an error, because two of the four ranks recorded two steps."""
    costs = communication_costs(opened("cluster_propose").traces).filter(pl.col("step") == step)
    assert costs["rank"].to_list() == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3], 7: []}.get(step, [0, 1])
    if step == 1:
        expected = [(2.60018, 270.25056), (2.61475, 333.77764), (7.93334, 2000.81932), (7.94937, 2215.23546)]
        found = costs.select(pl.col("transit_ns", "wait_ns") / 1e6).rows()
        assert [pytest.approx(pair, abs=5e-6) for pair in expected] == found


def test_means_of_collectives() -> None:
    """(K10) over all steps that a rank has"""
    means = rank_costs(opened("cluster_propose").traces)
    assert means["steps"].to_list() == [6, 6, 2, 2]
    assert [value / 1e6 for value in means["transfer_ns"]] == pytest.approx([2.268855, 2.2812567, 4.778965, 4.78749], abs=5e-8)


def test_bandwidth_is_bytes_by_time() -> None:
    """(K11) KB/s. MindInsight adds up the bandwidths of 93 operations and reports 217,031,150 for 1 to 0 in step 1 of rank 0."""
    found = links(opened("cluster_propose").traces)
    means = link_means(found)
    real = means.filter(pl.col("source") != pl.col("destination"))
    speeds = {(source, target): round(speed / 1e3) for source, target, speed in
              real.select("source", "destination", "bytes_per_s").iter_rows()}  # fmt: skip
    assert speeds == {(1, 0): 20_934_047, (0, 1): 5_055_173, (3, 2): 17_367_619, (2, 3): 19_375_526}
    (slow,) = slow_links(means).iter_rows(named=True)
    assert (slow["source"], slow["destination"]) == (0, 1)
    assert (round(100 * slow["below"], 2), round(slow["mean_bytes_per_s"] / 1e3)) == (67.77, 15_683_091)
    first = found.filter(rank=0, step=1, source=1, destination=0)
    assert round(first["bytes_per_s"][0] / 1e3) == 20_907_853


def test_strategy_of_two_ranks() -> None:
    """(K12)"""
    run = opened("parallel_strategy")
    for trace in run.traces:
        assert trace.meta_values()["parallel_strategy"]["stage_devices"] == {"0": [0, 1]}
    assert run.trace(0).meta_values()["parallel_mode"] == "auto_parallel"
    assert layout(run.traces).mode == MODEL_PARALLEL and layout(run.traces).missing == ()


def test_a_run_answers_for_all_ranks() -> None:
    run = opened("cluster_propose")
    assert run.cluster_steps().equals(cluster_steps(run.traces)) and run.cluster_steps().height == 4 * 5
    assert run.links().equals(links(run.traces))
    assert run.work().equals(work(run.traces))
    assert run.communication_costs().equals(communication_costs(run.traces))


def test_work_of_stages() -> None:
    run = opened("cluster_propose")
    stages = stage_work(work(run.traces), layout(run.traces))
    assert [round(value / 1e6, 4) for value in stages.values()] == [107145.8985, 329610.3845]
