"""The device rules on recorded runs: against what msprof-analyze says of the same files, and against the raw files."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.advice import advise
from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rules.device import units
from steplens.advice.rules.device.collectives import byte_alignment
from steplens.advice.rules.device.launches import launch_bound
from steplens.advice.rules.device.matrix_products import outside_matrix_units
from steplens.advice.rules.host import device_waits_for_host
from steplens.trace.health import HOST_AGAINST_DEVICE, WARNING, finding, frame_of
from steplens.trace.trace import Trace

from ..clients import msprof
from ..shared_data import shared
from .device_steps import DEVICE_RULES, evidence, only
from .test_advice import run_of


def said_of(path: Path) -> dict[str, Finding]:
    return {finding.id: finding for finding in advise(steplens.open(path), DEVICE_RULES).findings}


#: what every recording of the Ascend program shows: its environment, its optimizer, and what the host compiles
ALWAYS = {
    "environment_variables:ACLNN_CACHE_LIMIT",
    "environment_variables:HOST_CACHE_CAPACITY",
    "environment_variables:PYTORCH_NPU_ALLOC_CONF",
    "unfused_operators:optimizer",
}
#: what takes performance counters, or what the communication library measured
MEASURED = {"byte_alignment", "operator_compilation", "vector_performance", "unbound_operators"}


@pytest.mark.parametrize(
    ("run", "more"),
    [
        ("text_level0/rank0_ascend_pt", set()),
        ("text_level1/rank0_ascend_pt", {*MEASURED, "dynamic_shapes"}),
        # these databases do not say which operators are static
        ("db_level2/rank0_ascend_pt", MEASURED),
    ],
)
def test_what_is_said_of_ascend_runs(run: str, more: set[str]) -> None:
    found = said_of(shared("ascend_pytorch", run))
    assert set(found) == ALWAYS | more
    # none of it is worth a twentieth of the step: communication and the host are
    assert {finding.level for finding in found.values()} == {"low"}


def test_doubt_about_clocks_silences_what_compares_them() -> None:
    """What host calls cost the device takes one clock; what the device does alone does not."""
    trace = steplens.open(shared("ascend_pytorch", "db_level2")).trace()
    tables = {name: table for name in trace if (table := trace.table(name)) is not None}
    doubt = frame_of([finding("clocks", WARNING, 1, "clocks differ", HOST_AGAINST_DEVICE)])
    advice = advise(run_of(Trace(Path("x"), {**tables, "health": doubt})), DEVICE_RULES)
    silent = {"operator_compilation", "blocking_launches", "allocation_calls", "suspected_collections"}
    assert {one.rule for one in advice.silenced} == silent
    assert {finding.rule for finding in advice.findings} >= {"byte_alignment", "vector_performance", "unbound_operators"}


def kernel_rows(run: str) -> list[dict[str, str]]:
    """kernel_details.csv as it is."""
    with shared("ascend_pytorch", run, "ASCEND_PROFILER_OUTPUT", "kernel_details.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def number(row: dict[str, str], column: str) -> float:
    return 0.0 if row[column] in ("", "N/A") else float(row[column])


def test_vector_operators_against_the_raw_file() -> None:
    run = "text_level1/rank0_ascend_pt"
    # collectives are rows of this file, too, and ten times as long as all computing
    rows = [row for row in kernel_rows(run) if row["Accelerator Core"] != "HCCL"]
    lengths: dict[str, float] = {}
    for row in rows:
        lengths[row["Type"]] = lengths.get(row["Type"], 0.0) + number(row, "Duration(us)")
    whole = sum(lengths.values())
    lost = judged = 0.0
    for row in rows:
        if row["Accelerator Core"] in ("AI_VECTOR_CORE", "MIX_AIV") and lengths[row["Type"]] >= 0.01 * whole:
            vec, read, write = (number(row, f"aiv_{unit}_ratio") for unit in ("vec", "mte2", "mte3"))
            judged += number(row, "Duration(us)")
            lost += number(row, "Duration(us)") * max(
                0.0, 1 - max(vec / 0.7, read / 0.7, write / 0.7, (vec + read + write) / 0.9)
            )
    finding = only(units.vector_performance.judge(Facts(steplens.open(shared("ascend_pytorch", run)).trace())))
    assert evidence(finding)["judged_tasks"] == pytest.approx(1000 * judged, rel=1e-4)
    assert finding.saving is not None and finding.saving.high_ns == pytest.approx(1000 * lost, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["text_level1/rank0_ascend_pt", "db_level2/rank0_ascend_pt"])
def test_what_the_other_advisor_says(run: str, tmp_path: Path) -> None:
    """Every problem of a device that it finds is found, with the same operators and the same times."""
    folder = tmp_path / "in" / Path(run).name
    for file in shared("ascend_pytorch", run).rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(shared("ascend_pytorch", run))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    book = msprof.sheets(msprof.advisor(folder, tmp_path / "out").output)
    found, trace = said_of(shared("ascend_pytorch", run)), steplens.open(shared("ascend_pytorch", run)).trace()
    problems = {row[0] for row in book["problems"][1:]}

    if "Environment Variable Issues" in problems:
        theirs = {row[0] for row in book["Environment Variable Issues"][1:]}
        assert theirs == {finding.subject for finding in found.values() if finding.rule == "environment_variables"}

    _, *rows = book["Byte Alignment Analysis"]
    alignment = found["byte_alignment"]
    assert evidence(alignment)["operations_with_odd_transfers"] == len(rows)
    assert set(alignment.evidence[0].places) == {row[0] for row in rows}
    assert evidence(alignment)["odd_transfers"] == pytest.approx(1000 * sum(float(row[3]) for row in rows), abs=1)

    slow = units.tasks_below_limits(units.tasks_of_rule(Facts(trace), units.VECTOR), units.VECTOR_LIMITS)
    text = " ".join(cell for row in book["Vector Operator Perf Analysis"] for cell in row if "Optimization Space" in cell)
    theirs = set(re.findall(r"(\S+) Op shape", text))
    assert theirs and theirs <= set(map(str, slow["name"]))

    assert ("Operator Dynamic Shape Issues" in problems) == ("dynamic_shapes" in found)
    assert book["Affinity API Issues"][1][0] == found["unfused_operators:optimizer"].values["fused"]
    if "Operator No Bound Issues" in book:
        # it takes the reading unit of vector cores for idle, and so calls operators unbound that read all the time
        theirs = {row[0] for row in book["Operator No Bound Issues"][1:]}
        measured = Facts(trace).measured
        ours = units.tasks_below_limits(measured, units.UNIT_LIMITS)
        reading = measured.filter((measured["aiv_mte2"] >= 0.8) & (measured["core"] == "AI_VECTOR_CORE"))
        assert theirs - set(map(str, ours["name"])) <= set(map(str, reading["name"]))


def raw_kernels(name: str) -> list[dict[str, Any]]:
    with gzip.open(shared("kineto", f"{name}.json.gz"), "rt") as file:
        events = json.load(file)["traceEvents"]
    return [event for event in events if event.get("cat") == "kernel"]


def test_products_of_a_recorded_v100() -> None:
    """Against the kernels in the file, by their names; a V100 has tensor cores for float16 and trained in float32."""
    trace = steplens.open(shared("kineto", "cuda_ns_resolution_rank0.json.gz")).trace()
    finding = only(outside_matrix_units.judge(Facts(trace)))
    assert trace.kernels is not None
    known = {
        (int(row[0]), str(row[1]))
        for row in trace.kernels.filter(trace.kernels["step"].is_not_null()).select("correlation", "name").rows()
    }
    words = ("volta_sgemm", "scudnn", "grad_engine<float", "grad_alg0_engine<float")
    length = sum(
        event["dur"]
        for event in raw_kernels("cuda_ns_resolution_rank0")
        if (event["args"]["correlation"], event["name"]) in known and any(word in event["name"] for word in words)
    )
    assert 5 * evidence(finding)["in_float32_arithmetic"] / 1000 == pytest.approx(length, rel=0.02)
    assert finding.values["type"] == "float16"
    assert finding.level == "high"
    # what is named and what is not add up to the figure, of the kernels to that of their operators
    parts = {item.what: sum(item.places_ns) + item.other_places_ns for item in finding.evidence if item.places_ns}
    figures = {**evidence(finding), "float32_kernels": evidence(finding)["in_float32_arithmetic"]}
    assert parts == {what: pytest.approx(figures[what]) for what in parts} and len(parts) == 3
    assert all(item.other_places > 0 for item in finding.evidence if item.places_ns)
    # others are little, or there are eight names, and it is said how much one of the others is at most
    name_counts = {item.what: len(item.places) for item in finding.evidence if item.places_ns}
    much = {item.what for item in finding.evidence if item.places_ns and item.other_places_ns >= parts[item.what] / 3}
    assert (name_counts["in_float32_arithmetic"], name_counts["float32_kernels"], much) == (2, 8, {"float32_kernels"})
    kernels = next(item for item in finding.evidence if item.what == "float32_kernels")
    assert kernels.other_places_ns / kernels.other_places <= kernels.other_most <= kernels.places_ns[-1]
    assert {item.what for item in finding.evidence if item.other_most} == much


@pytest.mark.parametrize("name", ["cuda_nccl_distributed", "cuda_sampled_rank0", "cuda_sampled_rank1"])
def test_products_that_use_tensor_cores(name: str) -> None:
    """These runs multiply in TF32; what cuBLAS still does otherwise is its choice."""
    trace = steplens.open(shared("kineto", f"{name}.json.gz")).trace()
    assert any("s1688gemm" in event["name"] for event in raw_kernels(name))
    assert list(outside_matrix_units.judge(Facts(trace))) == []


def test_launches_of_a_recorded_a100() -> None:
    """The gaps of its stretches lie within the time in which the device is free, and no other rule promises them again."""
    run = steplens.open(shared("kineto", "cuda_nccl_distributed.json.gz"))
    facts = Facts(run.trace())
    launching = only(launch_bound.judge(facts))
    assert launching.saving is not None and 0 < launching.saving.high_ns < facts.median("idle_ns")
    found = {finding.rule: finding.saving for finding in advise(run, [*DEVICE_RULES, device_waits_for_host]).findings}
    assert set(found) == {"launch_bound", "memory_bound_sequences", "device_waits_for_host", "unfused_operators"}
    alone, left = only(device_waits_for_host.judge(facts)).saving, found["device_waits_for_host"]
    assert alone is not None and left is not None
    assert alone.likely_ns - left.likely_ns == pytest.approx(launching.saving.likely_ns)


def test_rules_of_ascend_say_nothing_of_gpus_and_cpus() -> None:
    for name in ("cuda_alexnet", "cpu_only_rank34", "cuda_rank_missing"):
        advice = advise(steplens.open(shared("kineto", f"{name}.json.gz")), DEVICE_RULES)
        assert not [
            one for one in (*advice.findings, *advice.silenced) if one.rule in ("environment_variables", byte_alignment.name)
        ]
        assert advice.findings == ()


def test_what_the_host_waits_for_is_not_priced_where_the_device_was_not_recorded() -> None:
    """Backward runs on a thread and a GPU that the trace does not show: nothing of it may pass for idle time."""
    advice = advise(steplens.open(shared("kineto", "cuda_rank_missing.json.gz")))
    assert advice.findings == ()
    assert {one.rule for one in advice.silenced} >= {"python_in_the_loop", "scalar_reads"}
