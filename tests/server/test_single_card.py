"""The pages of a single card: their figures are those of the acceptance list, of the analyses, or counted by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.analysis.operators.dynamic_shape import runs as shape_runs
from steplens.analysis.operators.flops import counted_calls
from steplens.analysis.steps.choice import chosen_steps
from steplens.run import Run

from .conftest import Client, Start, sample

RECORDED, RUN_2, PROFILER, JOB_1, JOB_4, PIPELINES, ERROR_JOB, ASCEND = range(8)


@pytest.fixture(scope="module")
def paths(recorded: Path) -> list[Path]:
    mindspore = [sample("mindspore", name) for name in ("run_2", "profiler", "JOB1", "JOB4", "minddata_pipeline", "ERROR_JOB")]
    return [recorded, *mindspore, sample("ascend_pytorch", "text_level1")]


@pytest.fixture(scope="module")
def client(serve: Start, paths: list[Path]) -> Client:
    return serve(paths)


@pytest.fixture(scope="module")
def run(paths: list[Path]) -> Run:
    return steplens.open(paths[RECORDED])


def rows_of(figure: Any) -> dict[str, list[tuple[str, float, float]]]:
    """Rows of a figure: name, start and length in ms, rounded as the acceptance list has them."""
    return {
        row["kind"] if row["stream"] is None else f"stream {row['stream']}": [
            (one["name"], round(one["start_ns"] / 1e6, 4), round(one["duration_ns"] / 1e6, 4)) for one in row["segments"]
        ]
        for row in figure["rows"]
    }


def test_the_average_step_is_that_of_the_acceptance_list(client: Client) -> None:
    """(T1, T2) ms"""
    figure = client.get(f"/api/runs/{JOB_1}/step-trace")
    rows = rows_of(figure)
    assert [pytest.approx(length, abs=1e-4) for _, _, length in rows["total"] + rows["parts"]] == [
        130.4561, 90.3536, 17.0945, 23.0080,
    ]  # fmt: skip
    # every part begins where the one before it ends, and the last ends with the step
    for (_, start, length), (_, following, _) in zip(rows["parts"], rows["parts"][1:], strict=False):
        assert start + length == pytest.approx(following, abs=2e-4)
    assert sum(rows["parts"][-1][1:]) == pytest.approx(130.4561, abs=2e-4)
    expected = {"stream 10": [(90.4991, 0.2181), (100.5027, 3.0058), (112.6086, 1.9994)], "stream 11": [(90.5095, 0.2986)]}
    for stream, segments in expected.items():
        for (_, start, length), listed in zip(rows[stream], segments, strict=True):
            assert (start, length) == pytest.approx(listed, abs=1.01e-4)
    assert figure["steps"] == list(range(1, 21)) and figure["excluded"] == [1] and figure["step"] is None


def test_one_step_and_steps_that_are_not_there(client: Client) -> None:
    figure = client.get(f"/api/runs/{JOB_1}/step-trace", step=20)
    table = client.post(f"/api/runs/{JOB_1}/tables/step_trace", {"where": [{"column": "step", "one_of": [20]}]})
    cells = dict(zip((one["name"] for one in table["columns"]), table["rows"][0], strict=True))
    (total,) = figure["rows"][0]["segments"]
    assert total["duration_ns"] == cells["total_ns"]
    parts = {one["name"]: one["duration_ns"] for one in figure["rows"][1]["segments"]}
    assert parts == {name: cells[f"{name}_ns"] for name in ("interval", "forward_backward", "tail")}
    for step in (0, 21):
        problem = client.get(f"/api/runs/{JOB_1}/step-trace", expect=404, step=step)
        assert problem["problem"] == f"there is no step {step}; the run has steps 1 to 20"


def test_collectives_of_some_steps_are_averaged_over_these(client: Client) -> None:
    """(T6) no segment is empty."""
    figure = client.get(f"/api/runs/{ERROR_JOB}/step-trace")
    streams = [row for row in figure["rows"] if row["kind"] == "collectives"]
    assert {one["steps"] for row in streams for one in row["segments"]} == {19}
    assert all(one["duration_ns"] > 0 for row in streams for one in row["segments"])


def test_the_operators_at_the_points_have_names(client: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = client.get(f"/api/runs/{RUN_2}/step-trace")
    assert (stored["forward_names"], stored["backward_names"]) == (["Default/EndOfSequence-op131"], ["Default/AssignAdd-op138"])
    assert client.get(f"/api/runs/{JOB_4}/step-trace")["forward_names"] == ["Default/Cast-op6"]
    found = client.get(f"/api/runs/{RECORDED}/step-trace", step=4)
    ops = run.trace().required("ops").filter((pl.col("step") == 4) & (pl.col("name").cast(pl.String) == "aten::linear"))
    linear = ops.select(pl.col("start_ns").min()).collect().item()
    tasks = run.trace().required("kernels").filter((pl.col("step") == 4) & (pl.col("start_ns") >= linear))
    # what the data loader calls before it is no forward pass
    first = tasks.sort("start_ns").select(pl.col("name").cast(pl.String)).collect()["name"][0]
    assert found["forward_names"] == [first]
    asked = client.get(f"/api/runs/{RECORDED}/step-trace", step=4, forward_point="aten::addmm")
    own = tasks.filter(pl.col("name").cast(pl.String) == "aten::addmm").select(pl.col("start_ns").min()).collect().item()
    begin = run.trace().required("steps").filter(pl.col("id") == 4).select("start_ns").collect().item()
    assert asked["rows"][1]["segments"][0]["duration_ns"] == own - begin
    # the names of MindSpore's profiler
    monkeypatch.setenv("FP_POINT", "aten::addmm")
    assert client.get(f"/api/runs/{RECORDED}/step-trace", step=4)["rows"] == asked["rows"]
    assert client.get(f"/api/runs/{RECORDED}/step-trace")["forward_point"] == "aten::addmm"


def test_types_of_a_dynamic_net(client: Client) -> None:
    """(Y1, Y2)"""
    listed = client.get(f"/api/runs/{PROFILER}/shapes")
    assert listed["first"] == ["InitDataSetQueue", "GetNext", "Add"] and listed["steps"] == 9
    (series,) = client.get(f"/api/runs/{PROFILER}/shapes/series", types="GetNext")
    assert [one / 1000 for one in series["average_ns"]] == [153.52, 80.224, 50.752, 72.768, 59.936, 81.344, 67.232, 52.064, 0]
    found = client.get(f"/api/runs/{PROFILER}/shapes/runs", types="Add", name="add-OP6")
    assert {row["name"] for row in found["runs"]} == {"Add-op6"} and found["total"] == len(found["runs"]) > 0
    first = found["runs"][0]
    assert (first["step"], first["duration_ns"] / 1000) == (1, 75.616) and "[32, 1]" in first["shapes"]
    kernels = client.get(f"/api/runs/{PROFILER}/shapes", level="kernel")
    (series,) = client.get(f"/api/runs/{PROFILER}/shapes/series", types=kernels["types"][0]["type"], level="kernel")
    assert [one / 1000 for one in series["average_ns"]] == [3.904, 3.232, 3.04, 3.04, 3.072, 3.072, 3.232, 3.04, 3.072]
    client.get(f"/api/runs/{PROFILER}/shapes/series", expect=404, types="nothing")


def test_long_lists_of_runs_keep_their_extremes(client: Client, run: Run) -> None:
    every = shape_runs(run.trace(), types=["aten::add_"])
    few = client.get(f"/api/runs/{RECORDED}/shapes/runs", types="aten::add_", points=4)
    assert every.height > 4 == max(len(few["runs"]), 4)
    assert few["total"] == every.height
    lengths = [row["duration_ns"] for row in few["runs"]]
    assert (max(lengths), min(lengths)) == (every["duration_ns"].max(), every["duration_ns"].min())
    stretches = [every["duration_ns"].to_list()[: -(-every.height // 2)], every["duration_ns"].to_list()[-(-every.height // 2) :]]
    assert sorted(lengths) == sorted(one for part in stretches for one in {min(part), max(part)})


def test_arithmetic_along_the_scopes(client: Client, run: Run) -> None:
    found = client.get(f"/api/runs/{RECORDED}/flops")
    steps = chosen_steps(run.trace()).steps
    calls = counted_calls(run.trace()).filter(pl.col("step").is_in(list(steps)))
    by_id = {node["id"]: node for node in found["nodes"]}
    assert by_id[0]["parent"] is None and by_id[0]["flops"] == pytest.approx(calls["flops"].sum() / len(steps))
    # the figure above it is of the same
    assert found["work"]["flops"] == pytest.approx(by_id[0]["flops"])
    assert (found["steps"], [(row["trace"], row["flops"]) for row in found["ranks"]]) == (
        len(steps),
        [(0, found["work"]["flops"])],
    )
    # brute force: the sum of what lies below is the node, and every module has what its calls did
    below: Counter[int] = Counter()
    for node in found["nodes"][1:]:
        below[node["parent"]] += node["flops"]
    assert all(by_id[parent]["flops"] == pytest.approx(value) for parent, value in below.items())
    named: dict[int, str] = {}
    for node in found["nodes"]:
        above = named.get(node["parent"], "")
        named[node["id"]] = f"{above}.{node['name']}".strip(".") if node["parent"] is not None else ""
    for module in calls["module"].drop_nulls().unique():
        own = sum(row["flops"] for row in calls.to_dicts() if (row["module"] or "").startswith(module))
        (shown,) = [node["flops"] for node in found["nodes"] if named[node["id"]] == module]
        assert shown == pytest.approx(own / len(steps))
    assert found["work"]["source"] == "operator shapes" and found["cube"] is None


def test_arithmetic_that_the_device_counted(client: Client) -> None:
    """(O11) ten operators of 333 million operations on either unit; rank 0 has a stored summary."""
    ranks = {one["rank"]: one["trace"] for one in client.get(f"/api/runs/{PROFILER}/ranks")}
    found = client.get(f"/api/runs/{PROFILER}/flops", trace=ranks[1])
    for unit in ("cube", "vector"):
        assert (found[unit]["flops"], found[unit]["operators"]) == (10 * 333e6, 10)
        assert (found[unit]["best_flops_per_s"], found[unit]["best_utilization_percent"]) == (333e9, 33)
    top = {node["name"]: node["percent"] for node in found["nodes"] if node["depth"] == 1}
    assert top == {"Default": 80, "Gradients": 20}
    work = client.get(f"/api/runs/{PROFILER}/flops", trace=ranks[0])["work"]
    assert work == {"flops": 8167.743e6, "flops_per_s": 9868.936e9, "utilization_percent": 3.765, "source": "device counters"}


def test_the_way_of_a_batch(client: Client) -> None:
    """(M1, M2, M3)"""
    places = {place["kind"]: place for place in client.get(f"/api/runs/{RUN_2}/pipeline")["places"]}
    assert [(places[kind]["empty"], places[kind]["not_empty"], places[kind]["batches"]) for kind in ("send", "receive")] == [
        (1, 0, 1), (0, 3, 3),
    ]  # fmt: skip
    assert places["send"]["full"] == 0 and places["receive"]["full"] is None
    received = {one["name"]: one for one in client.get(f"/api/runs/{RUN_2}/pipeline/batches", kind="receive")["curves"]}
    assert received["queue_size"]["last"] == [3, 2, 1]
    assert [one / 1e6 for one in received["wait_ns"]["last"]] == [0.001, 0, 0.001]
    assert received["wait_ns"]["mean"] / 1e6 == pytest.approx(0.000666666, abs=1e-8)
    sent = {one["name"]: one["last"] for one in client.get(f"/api/runs/{RUN_2}/pipeline/batches", kind="send")["curves"]}
    assert [sent[name][0] / 1e6 for name in ("total_ns", "push_ns", "get_ns")] == [4, 4, 0]
    assert places["send"]["costs"]["total_ns"] == 4e6


BATCH = {"operation": "Batch_0", "id": 0, "type": "Batch", "workers": 4}


def test_one_operation_and_its_remedy(client: Client) -> None:
    """(M5) and the four remedies of the first guide."""
    found = client.get(f"/api/runs/{PROFILER}/pipeline/operation", op=1)
    assert found["interval_ms"] == 10 and found["parent"]["id"] == 0
    source = client.get(f"/api/runs/{JOB_1}/pipeline/operation", op=1)
    assert source["operation"] == "Shuffle_1"
    assert (source["capacity"], source["samples"], source["mean_size"]) == (64, 3, 20)
    assert (source["parent"], [child["id"] for child in source["children"]]) == (BATCH, [2, 3])
    remedies = {
        one["type"]: client.get(f"/api/runs/{RUN_2}/pipeline/operation", op=one["id"])["remedy"]
        for one in client.get(f"/api/runs/{RUN_2}/pipeline")["operations"]
    }
    assert remedies["ImageFolderOp"] == "source" and remedies["MapOp"] == "map"
    assert client.get(f"/api/runs/{JOB_1}/pipeline/operation", op=0)["remedy"] == "batch"
    problem = client.get(f"/api/runs/{JOB_1}/pipeline/operation", expect=404, op=5)
    assert problem["problem"] == "the data pipeline has no operation 5; it has 0, 1, 2, 3"


def test_advice_names_its_operation(client: Client) -> None:
    """(G2)"""
    client.get(f"/api/runs/{RUN_2}/advice")
    found = client.get(f"/api/runs/{RUN_2}/pipeline/operation", op=3)
    assert "slow_source:ImageFolderOp_3" in [one["id"] for one in found["findings"]]


def test_processors_of_the_chosen_batches(client: Client) -> None:
    """(M12)"""
    found = client.get(f"/api/runs/{RUN_2}/pipeline/processors", first=1, last=1)
    host = {one["name"]: one["mean"] for one in found["curves"] if one["scope"] == "host"}
    assert [host[f"{part}_utilization"] for part in ("user", "sys", "io", "idle")] == [15, 15, 10, 10]
    assert (found["cores"], found["interval_ms"], found["idle_percent"]) == (100, 10, 10)
    assert (found["first_batch"], found["last_batch"]) == (1, 1)
    assert client.get(f"/api/runs/{RUN_2}/pipeline/processors", first=2)["curves"] == []
    client.get(f"/api/runs/{RUN_2}/pipeline/processors", expect=422, first=2, last=1)
    assert client.get(f"/api/runs/{RECORDED}/pipeline/processors")["curves"] == []


def test_memory_in_a_few_figures(client: Client, run: Run) -> None:
    found = client.get(f"/api/runs/{RECORDED}/memory")
    (device,) = found["devices"]
    events = run.trace().required("memory").collect()
    origin = int(client.get(f"/api/runs/{RECORDED}/ranks")[0]["origin_ns"])
    totals = list(events.select("time_ns", "allocated").iter_rows())
    peak = max(total for _, total in totals)
    when = min(time for time, total in totals if total == peak)
    assert (device["peak_bytes"], device["peak_ns"]) == (peak, when - origin)
    (step,) = [one for one in found["steps"] if one["start_ns"] <= device["peak_ns"] < one["end_ns"]]
    assert device["peak_step"] == step["step"]
    first, last = found["steps"][0]["start_ns"] + origin, found["steps"][-1]["end_ns"] + origin
    assert device["static_bytes"] == min(total for time, total in totals if first <= time <= last)
    assert device["allocations"] == sum(size > 0 for size in events["bytes"])
    assert device["releases"] == sum(size < 0 for size in events["bytes"])
    whole = [one for one in found["steps"] if one["backward_ns"] is not None]
    assert len(whole) >= 5
    assert all(one["start_ns"] <= one["forward_ns"] <= one["backward_ns"] <= one["end_ns"] for one in whole)
    (npu,) = client.get(f"/api/runs/{ASCEND}/memory")["devices"]
    # a source that keeps totals only says nothing of single allocations
    assert npu["allocations"] is None and npu["static_bytes"] < npu["peak_bytes"]


def test_advice_of_one_rank(client: Client, paths: list[Path]) -> None:
    """The advice about a trace is that of a run that has no other."""
    whole = {one["id"] for one in client.get(f"/api/runs/{PIPELINES}/advice")["findings"]}
    alone = [{one["id"] for one in client.get(f"/api/runs/{PIPELINES}/advice", trace=trace)["findings"]} for trace in range(4)]
    assert set().union(*alone) == whole and len({frozenset(one) for one in alone}) > 1
    # (M7 to M10) the operations that hold up the pipeline of each of the four
    slow = [sorted(one.partition(":")[2] for one in found if one.startswith("slow_")) for found in alone]
    assert [[name.rpartition("_")[2] for one in names for name in one.split("/")] for names in slow] == [
        ["4"],
        ["1"],
        ["0"],
        ["2", "3"],
    ]
    client.get(f"/api/runs/{PIPELINES}/advice", expect=404, trace=4)


def test_tables_that_mindspore_stored_of_hosts_and_gpus(serve: Start, tmp_path: Path) -> None:
    """The GPU and host tabs of MindInsight: files as MindSpore 2.4 writes them, numbers as numbers, units from the heads."""
    folder = tmp_path / "profiler"
    folder.mkdir()
    durations = ",".join(f"{name}_duration(us)" for name in ("total", "avg", "max", "min"))
    kernels = [
        f"name,type,op_full_name,stream_id,block_dim,grid_dim,occurrences,{durations}",
        '"gemm<float, 128>(int)",cuLaunchKernel,Default/MatMul-op1,7,"128,1,1","32,1,1",2,9.5,4.75,5.5,4.0',
        '"relu(float*)",cuLaunchKernel,Default/ReLU-op2,7,"64,1,1","8,1,1",1,30.25,30.25,30.25,30.25',
    ]
    (folder / "gpu_activity_data_0.csv").write_text("\n".join(kernels) + "\n")
    types = ["op_type,type_occurrences,execution_frequency(per-step),total_compute_time,avg_time(ms),percent"]
    types.append("ReLU,40,2,2.07454,0.0518635,0.0157512")
    (folder / "cpu_op_type_info_0.csv").write_text("\n".join(types) + "\n")
    client = serve([tmp_path])
    names = [one["name"] for one in client.get("/api/runs/0/tables")]
    assert "stored_gpu_activity_data" in names and "stored_cpu_op_type_info" in names and "stored_gpu_op_type_info" not in names
    wanted = {
        "sort": [{"column": "total_duration(us)", "descending": True}],
        "where": [{"column": "op_full_name", "contains": "default/"}],
    }
    page = client.post("/api/runs/0/tables/stored_gpu_activity_data", wanted)
    place = [one["name"] for one in page["columns"]].index("total_duration(us)")
    assert page["columns"][place]["unit"] == "us"
    assert [row[place] for row in page["rows"]] == [30.25, 9.5]
    assert any("gemm<float, 128>(int)" in row for row in page["rows"])
    (row,) = client.post("/api/runs/0/tables/stored_cpu_op_type_info", {})["rows"]
    assert row[-6:] == ["ReLU", 40, 2, 2.07454, 0.0518635, 0.0157512]


def test_memory_that_mindspore_planned(serve: Start, tmp_path: Path) -> None:
    """Every graph, not only the first; figures are those of a loop over all tensors."""
    from ..readers.test_mindspore_memory import random_graph, run_of

    graphs = [random_graph(0, 30, 5), random_graph(4, 90, 6)]
    run_of(tmp_path, graphs)
    client = serve([tmp_path])
    listed = client.get("/api/runs/0/memory/graphs")
    assert [one["graph"] for one in listed] == [0, 4]
    for graph, row in zip(graphs, listed, strict=True):
        used = graph.in_use()
        assert (row["peak_bytes"], row["peak_node"], row["capacity_bytes"]) == (max(used), used.index(max(used)), 32 << 30)
        assert client.get(f"/api/runs/0/memory/graphs/{graph.id}", points=20_000)["last"] == used
        coarse = client.get(f"/api/runs/0/memory/graphs/{graph.id}", points=3)
        assert (max(coarse["max"]), min(coarse["min"]), len(coarse["node"])) == (max(used), min(used), 3)
        alive = client.get(f"/api/runs/0/memory/graphs/{graph.id}/tensors", node=row["peak_node"], limit=2)
        assert alive["bytes"] + graph.static == max(used) and len(alive["tensors"]) == min(alive["count"], 2)
    client.get("/api/runs/0/memory/graphs/1", expect=404)
    client.get("/api/runs/0/memory/graphs/1/tensors", expect=404, node=0)
