"""Which device tasks communicate: every mark of every format, and the whole way from a capture to its figures."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from steplens.analysis.device.breakdown import temporal_breakdown
from steplens.common import rundir
from steplens.readers.ascend.text import ascend_text
from steplens.trace.building.communication_marks import LIBRARY_KERNEL, is_collective, is_part
from steplens.trace.trace import Trace

from ..shared_data import shared


@pytest.mark.parametrize(
    ("core", "name", "type_", "answer"),
    [
        ("HCCL", "hcom_allReduce__586_0_1", "hcom_allReduce_", "collective"),
        ("COMMUNICATION", "hcom_allReduce__586_0_1", "hcom_allReduce_", "collective"),
        ("COMMUNICATION", "anything", None, "collective"),
        (None, "hcom_allReduce__586_0_1", None, "collective"),
        ("AI_CORE", "Default/HcomAllReduce-op1", "hcom_allReduce_", "collective"),
        ("AI_CPU", "hcom_allReduceAicpuKernel", "hcom_allReduce_", "part"),
        ("COMMUNICATION", "AivKernel", "hcom_allGather_", "part"),
        ("HCCL_AI_CPU", "allgather", None, "part"),
        ("AI_CORE", "MatMulV3", "MatMulV3", ""),
        ("AI_CORE", "AllGatherMatmul", "AllGatherMatmul", ""),
        (None, None, None, ""),
    ],
)
def test_the_marks_of_ascend(core: str | None, name: str | None, type_: str | None, answer: str) -> None:
    texts = dict.fromkeys(("core", "name", "type"), pl.String)
    row = pl.DataFrame({"core": [core], "name": [name], "type": [type_]}, schema=texts)
    collective, part = row.select(
        collective=is_collective(pl.col("core"), pl.col("name"), pl.col("type")), part=is_part(pl.col("core"), pl.col("name"))
    ).row(0)
    assert (collective, part) == (answer == "collective", answer == "part")


def test_the_kernels_of_libraries() -> None:
    names = pl.Series(["ncclDevKernel_AllReduce", "void ncclKernel<float>", "rcclGeneric", "mscclpp::allreduce", "hcom_send_"])
    assert names.str.contains(LIBRARY_KERNEL).all()
    others = pl.Series(["gemm_nccl", "void gemm<float>", "MatMul", "reduce_scatter_kernel"])
    assert not others.str.contains(LIBRARY_KERNEL).any()


@pytest.mark.parametrize("timeline", [True, False], ids=["with timeline", "without timeline"])
@pytest.mark.parametrize("name", ["text_level0/rank0", "text_level1/rank0", "text_level1/rank1"])
def test_newer_captures_have_the_figures_of_older_ones(tmp_path: Path, name: str, timeline: bool) -> None:
    """CANN has renamed the core of collectives: the same capture with the new word must give the same tables."""
    traces = {}
    for core in ("HCCL", "COMMUNICATION"):
        run = tmp_path / core
        shutil.copytree(shared("ascend_pytorch", *f"{name}_ascend_pt".split("/")), run)
        output = run / rundir.OUTPUT_DIRECTORY
        output.chmod(0o755)
        for file in ("kernel_details.csv", "trace_view.json"):
            (output / file).chmod(0o644)
        text = (output / "kernel_details.csv").read_bytes()
        (output / "kernel_details.csv").write_bytes(text.replace(b",HCCL,", f",{core},".encode()))
        if not timeline:
            (output / "trace_view.json").unlink()
        traces[core] = ascend_text.read_trace(output, run)
    old, new = traces["HCCL"], traces["COMMUNICATION"]
    assert kinds(new) == kinds(old)
    assert kinds(new)["communication"][0] == 4
    assert cores(new) == (cores(old) - {"HCCL"}) | {"COMMUNICATION"}
    assert new.required("communication").collect().height == 4
    assert temporal_breakdown(new).equals(temporal_breakdown(old))


def kinds(trace: Trace) -> dict[str, tuple[int, int]]:
    kernels = trace.required("kernels").with_columns(pl.col("kind").cast(pl.String))
    rows = kernels.group_by("kind").agg(pl.len(), length=(pl.col("end_ns") - pl.col("start_ns")).sum()).collect().rows()
    return {kind: (count, length) for kind, count, length in rows}


def cores(trace: Trace) -> set[str]:
    return set(trace.required("kernels").select(pl.col("core").cast(pl.String).drop_nulls().unique()).collect()["core"])
