"""Kineto's form: exact times, links by number, and the same tables when it is read again."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.readers.kineto.kineto_tables import shapes_text, types_text
from steplens.run import open_run
from steplens.trace.building.devices import device_kind
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError
from steplens.writers.common.rows import ROWS_PER_CHUNK
from steplens.writers.exports.kineto import kineto
from steplens.writers.exports.kineto.kineto_host import shapes_json, types_json
from steplens.writers.exports.subject import Subject

from ...readers.ascend_fixture import write_golden
from ...shared_data import shared
from ...writers.builder import BASE_NS, MAIN, PID, build, kernel, op, synthetic, training_step


def twin(trace: Trace, name: str = "run") -> dict[str, Any]:
    handle = io.BytesIO()
    kineto.write(Subject(trace, Path(name)), handle)
    found = json.loads(handle.getvalue(), parse_float=Decimal)
    assert isinstance(found, dict)
    return found


def named(found: dict[str, Any], name: str, category: str) -> list[dict[str, Any]]:
    return [event for event in found["traceEvents"] if event["name"] == name and event.get("cat") == category]


def test_a_training_step() -> None:
    found = twin(training_step())
    base_ns = found["baseTimeNanoseconds"]
    (step,) = named(found, "ProfilerStep#7", "user_annotation")
    assert base_ns + int(step["ts"] * 1000) == BASE_NS + 1_000
    assert step["dur"] == Decimal("99.000")
    (linear,) = named(found, "aten::linear", "cpu_op")
    assert linear["args"]["Sequence number"] == 5
    assert linear["args"]["Input Dims"] == [[32, 16], [16, 8]]
    assert linear["args"]["Input type"] == ["float", "float"]
    # the CPU's task is tied to the call that it is
    (call,), (task,) = named(found, "aten::mm", "cpu_op"), named(found, "aten::mm", "kernel")
    assert task["dur"] == call["dur"] == Decimal("16.001")
    assert task["args"]["External id"] == call["args"]["External id"]
    assert task["args"]["correlation"] == call["args"]["correlation"]
    assert (task["pid"], task["tid"], task["args"]["stream"], task["args"]["core"]) == (0, MAIN, MAIN, "CPU")
    assert "correlation" not in linear["args"]
    assert found["distributedInfo"] == {"rank": 0, "world_size": 1}
    assert found["deviceProperties"] == [{"id": 0, "name": "CPU"}]
    allocation, _, _ = named(found, "[memory]", "cpu_instant_event")
    sizes = {"Bytes": 2048, "Addr": 64, "Total Allocated": 2048, "Total Reserved": 0, "Device Type": 0, "Device Id": -1}
    assert allocation["args"] == sizes
    (module,) = named(found, "nn.Module: Linear_0", "python_function")
    assert module["args"] == {"Python id": 1, "Python parent id": 0, "Python module id": 0}
    arrow = [event for event in found["traceEvents"] if event.get("cat") == "fwdbwd"]
    assert [(event["ph"], event["tid"]) for event in arrow] == [("s", MAIN), ("f", MAIN + 1)]


def test_the_rank_stands_on_a_line_of_its_own() -> None:
    handle = io.BytesIO()
    trace = build(meta={"rank": 3, "world_size": 8, "host_name": "x"}, ops=[op("a", 1, 2)])
    kineto.write(Subject(trace, Path("run")), handle)
    lines = handle.getvalue().decode().splitlines()
    where = [number for number, line in enumerate(lines) if '"rank": 3' in line]
    assert where == [1]
    assert len(lines) > 5


def test_steps_of_a_source_without_ranges_around_them() -> None:
    steps = [{"id": 4, "start_ns": BASE_NS, "end_ns": BASE_NS + 9_000, "pid": PID, "tid": MAIN}]
    found = twin(build(ops=[op("a", 1, 2)], steps=steps))
    (step,) = named(found, "ProfilerStep#4", "user_annotation")
    assert step["dur"] == 9


def test_arrows_and_numbers_are_unique() -> None:
    call = {"name": "cudaLaunchKernel", "layer": "cuda_runtime", "start_ns": BASE_NS, "end_ns": BASE_NS + 10}
    api = [{**call, "pid": PID, "tid": MAIN, "correlation": number} for number in (5, 5, 6)]
    kernels = [kernel(f"k{number}", 10 + number, 11 + number, core="CUDA", correlation=5, stream=7) for number in range(3)]
    found = twin(build(ops=[op("a", 1, 2)], api=api, kernels=kernels))
    arrows = Counter((event["ph"], event["id"]) for event in found["traceEvents"] if event.get("cat") == "ac2g")
    assert arrows == {("s", 5): 1, ("f", 5): 1}
    assert [event["args"]["correlation"] for event in found["traceEvents"] if event.get("cat") == "kernel"] == [5, 5, 5]


def test_waiting_tasks_are_left_out_and_collectives_are_named_as_tools_expect() -> None:
    kernels = [
        kernel("MatMul", 1, 2, core="AI_CORE", kind="compute"),
        kernel("EVENT_WAIT", 2, 3, core="EVENT_WAIT", kind="other"),
        kernel("MEMCPY_ASYNC", 3, 4, core="SDMA", kind="copy"),
        kernel("hcom_allReduce__865_0_1", 4, 9, core="HCCL", kind="communication"),
    ]
    collective = {
        "name": "hcom_allReduce__865_0_1", "kind": "collective", "operation": "allreduce", "group": "dp", "ranks": 2,
        "elements": 10, "dtype": "float", "device": 0, "stream": MAIN,
        "start_ns": kernels[3]["start_ns"], "end_ns": kernels[3]["end_ns"],
    }  # fmt: skip
    job = {"backend": "hccl", "pg_config": [{"pg_name": "dp", "pg_desc": "data", "ranks": [0, 1]}]}
    found = twin(build(meta={"distributedInfo": job}, ops=[op("a", 1, 2)], kernels=kernels, communication=[collective]))
    tasks = [(event["cat"], event["name"]) for event in found["traceEvents"] if event["pid"] == 0 and event["ph"] == "X"]
    assert sorted(tasks) == [
        ("gpu_memcpy", "Memcpy: MEMCPY_ASYNC"),
        ("kernel", "MatMul"),
        ("kernel", "ncclKernel: hcom_allReduce__865_0_1"),
    ]
    args = named(found, "ncclKernel: hcom_allReduce__865_0_1", "kernel")[0]["args"]
    assert args["Collective name"] == "allreduce"
    assert (args["In msg nelems"], args["Group size"], args["Process Group Name"]) == (10, 2, "dp")
    assert (args["Process Group Description"], args["Process Group Ranks"]) == ("data", "[0, 1]")
    assert found["distributedInfo"]["backend"] == "hccl"


def test_nothing_to_write() -> None:
    with pytest.raises(NothingToWriteError):
        twin(build(meta={"rank": 0}))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(min_size=1).filter(lambda text: not any(0xD800 <= ord(sign) <= 0xDFFF for sign in text)), min_size=1))
def test_any_name_survives(names: list[str]) -> None:
    calls = [op(name, 2 * number, 2 * number + 1) for number, name in enumerate(names)]
    found = twin(build(ops=calls, kernels=[kernel(name, 1, 2) for name in names], python=[]))
    assert [event["name"] for event in found["traceEvents"] if event.get("cat") == "cpu_op"] == names
    assert len([event for event in found["traceEvents"] if event.get("cat") == "kernel"]) == len(names)


@given(
    st.recursive(st.lists(st.integers(0, 10**6), max_size=4), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=8)
)
def test_shapes_are_what_the_reader_makes_of_them(shape: Any) -> None:
    text = shapes_text(json.dumps([shape, [2]]))
    assert text is not None
    back = shapes_json(text)
    assert back is not None
    assert shapes_text(back) == text


def test_types_are_what_the_reader_makes_of_them() -> None:
    for types in (["float", "", "Scalar"], [["float", "long int"], ""], ["c10::complex<float>"]):
        text = types_text(json.dumps(types))
        assert text is not None
        assert json.loads(types_json(text)) == types
    assert json.loads(types_json("odd[;x")) == ["odd[", "x"]
    assert shapes_json("2,x") is None
    assert shapes_json("[2;3") is None


def test_more_rows_than_a_chunk() -> None:
    rows = ROWS_PER_CHUNK + 7
    found = twin(synthetic(ops=rows, kernels=10, memory_events=20, steps=2))
    calls = [event for event in found["traceEvents"] if event.get("cat") == "cpu_op"]
    assert [event["args"]["Ev Idx"] for event in calls] == list(range(rows))


COMPARED = {
    "ops": ["name", "start_ns", "end_ns", "pid", "tid", "parent", "depth", "self_ns", "step", "scope", "sequence", "external_id",
            "input_shapes", "input_types", "device_self_ns", "device_total_ns"],
    "kernels": ["name", "type", "kind", "category", "core", "device", "stream", "start_ns", "end_ns", "wait_ns", "launch_ns",
                "correlation", "op", "step", "bytes", "context_id", "blocks"],
    "api": ["name", "layer", "start_ns", "end_ns", "pid", "tid", "correlation", "external_id"],
    "communication": ["name", "kind", "operation", "group", "ranks", "elements", "bytes", "dtype", "start_ns", "end_ns", "device",
                      "stream", "op", "step", "peer", "correlation"],
    "kernel_metrics": ["kernel", "name", "value"],
    "steps": ["id", "start_ns", "end_ns", "pid", "tid"],
    "marks": ["domain", "message", "start_ns", "end_ns", "stream"],
    "memory": ["time_ns", "address", "bytes", "allocated", "reserved", "device_type", "pid", "tid", "op"],
    "python": ["id", "name", "start_ns", "end_ns", "pid", "tid", "parent", "module_id"],
}  # fmt: skip


def rows(trace: Trace, table: str) -> pl.DataFrame:
    frame = trace.required(table).select(COMPARED[table]).collect()
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).sort(COMPARED[table], nulls_last=True)


@pytest.mark.parametrize(
    "sample",
    [
        "cuda_alexnet", "cuda_nccl_distributed", "cuda_ns_resolution_rank0", "cuda_sampled_rank1", "rocm_mi250_minitoy",
        "cpu_only_rank34",
    ],
)  # fmt: skip
def test_recorded_traces_are_read_back_the_same(sample: str, tmp_path: Path) -> None:
    source = shared("kineto", f"{sample}.json.gz")
    shutil.copy(source, tmp_path)
    trace = open_run(tmp_path / source.name).trace()
    # arguments of a launch that stand in the call on ROCm, the collective's own in newer traces
    target = tmp_path / f"twin_rank{trace.rank}.json"
    with target.open("wb") as handle:
        kineto.write(Subject(trace, source), handle)
    again = open_run(target).trace()
    assert again.rank == max(trace.rank, 0)
    compared = 0
    for table in COMPARED:
        expected, found = rows(trace, table), rows(again, table)
        assert found.equals(expected), (table, first_difference(expected, found))
        compared += expected.height
    assert compared > 20


def test_a_cpu_is_read_back_as_a_cpu(tmp_path: Path) -> None:
    """Its tasks are kernels for other tools; for steplens they are the operator calls that they repeat."""
    generations = [training_step()]
    for number in range(2):
        target = tmp_path / f"twin{number}.json"
        with target.open("wb") as handle:
            kineto.write(Subject(generations[-1], Path("run")), handle)
        generations.append(open_run(target).trace())
    assert not any(trace.has_accelerator for trace in generations)
    # the hand-built run lists fewer tasks than the rule finds
    first, second = (trace.required("kernels").collect() for trace in generations[1:])
    assert set(first["core"].cast(pl.String)) == {"CPU"} and first.height >= 2
    columns = ("name", "core", "device", "stream", "start_ns", "end_ns", "op", "kind", "step")
    assert second.select(columns).rows() == first.select(columns).rows()


def first_difference(expected: pl.DataFrame, found: pl.DataFrame) -> Any:
    if expected.height != found.height:
        return expected.height, found.height
    for column in expected.columns:
        for one, other in zip(expected[column], found[column], strict=True):
            if one != other:
                return column, one, other
    return None


def test_a_capture_of_an_npu(tmp_path: Path) -> None:
    run = write_golden(tmp_path)
    trace = open_run(run).trace()
    found = twin(trace)
    (label,) = {
        event["args"]["labels"] for event in found["traceEvents"] if event["name"] == "process_labels" and event["pid"] == 0
    }
    assert label == "NPU 0"
    launched = [event for event in found["traceEvents"] if event.get("cat") == "kernel"]
    assert launched
    known = {event["args"]["External id"]: event["name"] for event in found["traceEvents"] if event.get("cat") == "cpu_op"}
    calls = trace.required("kernels").filter(pl.col("kind").cast(pl.String) == "compute").collect()
    names = trace.ops["name"].cast(pl.String)
    expected = {row["name"]: None if row["op"] is None else names[row["op"]] for row in calls.iter_rows(named=True)}
    for event in launched:
        if event["name"] in expected:
            assert known.get(event["args"].get("External id")) == expected[event["name"]]
    calls = [event for event in found["traceEvents"] if event.get("cat") == "cuda_runtime"]
    assert len(calls) == trace.api.height
    # calls that launch are called as the tools know them, and keep their own name beside
    renamed = {event["args"]["name"] for event in calls if event["name"] == "cudaLaunchKernel"}
    assert renamed and all("@" in name for name in renamed)
    linked = {event["args"]["correlation"] for event in calls if event["name"].startswith("cuda")}
    tasks = {event["args"].get("correlation") for event in found["traceEvents"] if event.get("pid") == 0 and event["ph"] == "X"}
    assert linked == tasks & {event["args"].get("correlation") for event in calls}


@pytest.mark.parametrize("source", ["golden", "db_level2"])
def test_an_npu_is_read_back_as_an_npu(tmp_path: Path, source: str) -> None:
    """Its tasks have names of CUDA in the file, for other tools, and their own when steplens reads it."""
    if source == "golden":
        trace = open_run(write_golden(tmp_path)).trace()
    else:
        folder = shared("ascend_pytorch", source, "rank0_ascend_pt")
        from steplens.readers.ascend.database import ascend_db

        # read here and not opened: opening would write its cache beside the data
        trace = ascend_db.read_trace(folder / "ASCEND_PROFILER_OUTPUT", folder)
    target = tmp_path / "twin.json"
    with target.open("wb") as handle:
        kineto.write(Subject(trace, tmp_path), handle)
    again = open_run(target).trace()
    assert device_kind(again) == "NPU"
    kind = pl.col("kind").cast(pl.String)
    compute = [
        found.required("kernels")
        .filter(kind == "compute")
        .select("start_ns", "end_ns", *(pl.col(name).cast(pl.String) for name in ("name", "core", "type")))
        .sort(pl.all())
        .collect()
        .rows()
        for found in (trace, again)
    ]
    assert compute[1] == compute[0] != []
    collectives = [
        found.required("communication")
        .select("start_ns", "end_ns", pl.col("name").cast(pl.String))
        .sort(pl.all())
        .collect()
        .rows()
        for found in (trace, again)
    ]
    assert collectives[1] == collectives[0] != []
    copies = again.required("kernels").filter(kind == "copy").select(pl.col("name").cast(pl.String)).collect()["name"]
    assert not copies.str.starts_with("Memcpy: ").any()
