"""What the process groups of a job are for: by name, and without names against how generated jobs were laid out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchmarks.jobs.__main__ import main
from benchmarks.jobs.layout import Group, Layout
from benchmarks.jobs.truth import MESSAGES

import steplens
from steplens.analysis.cluster.groups.group_table import parallel_layout, process_group_table, ranks_text
from steplens.analysis.cluster.groups.kinds import kind_of_name
from steplens.run import Run
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import BASE_NS, build

MS = 1_000_000
SMALL = ["--layers", "1", "--operators-per-layer", "3", "--batches", "2", "--steps", "2", "--seed", "5"]
LAYOUT = Layout(2, 2, 2, 4)


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        ("DATA_PARALLEL_GROUP", "data"), ("dp", "data"), ("mesh_dp_shard", "data"), ("DATA_PARALLEL_GROUP_WITH_CP", "data"),
        ("dp_cp", "data"), ("EXPERT_DATA_PARALLEL_GROUP", "data"), ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("mesh_tp", "tensor"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tensor"), ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"), ("pp_new_stream", "pipeline"),
        ("CONTEXT_PARALLEL_GROUP", "context"), ("EXPERT_MODEL_PARALLEL_GROUP", "expert"), ("exp", "expert"),
        ("MODEL_PARALLEL_GROUP", "model"), ("mp", "model"), ("TENSOR_AND_DATA_PARALLEL_GROUP", "several"), ("embd", "embedding"),
        ("default_pg", "all"), ("default_group", "all"), ("undefined", ""), ("", ""), ("my_group", ""),
    ],
)  # fmt: skip
def test_names_say_kinds(description: str, kind: str) -> None:
    assert kind_of_name(description) == kind


@pytest.mark.parametrize("named", [True, False], ids=["named", "without names"])
def test_a_generated_job_is_laid_out_as_it_was(tmp_path: Path, named: bool) -> None:
    main([str(tmp_path), *SMALL, "--layout", "2x2x2", "--ranks-per-host", "4", "--form", "kineto"])
    if not named:
        for file in tmp_path.glob("**/*.json"):
            text = file.read_text()
            for name in ("DATA_PARALLEL_GROUP", "TENSOR_MODEL_PARALLEL_GROUP", "PIPELINE_MODEL_PARALLEL_GROUP"):
                text = text.replace(f'"{name}"', '"undefined"')
            file.write_text(text)
    run = steplens.open(tmp_path)
    found = {row["group"]: row for row in run.process_groups().iter_rows(named=True)}
    true: dict[str, tuple[Group, str]] = {}
    for rank in range(LAYOUT.ranks):
        of_rank = [(LAYOUT.everybody, "all"), (LAYOUT.data_group(rank), "data"), (LAYOUT.tensor_group(rank), "tensor")]
        true |= {str(group.number): (group, kind) for group, kind in [*of_rank, (LAYOUT.pipeline_group(rank), "pipeline")]}
    assert found.keys() == true.keys()
    for name, (group, kind) in true.items():
        row = found[name]
        assert (row["kind"], row["members"]) == (kind, ranks_text(group.ranks))
        assert (row["ranks"], row["recorded"]) == (len(group.ranks), len(group.ranks))
        assert "cannot" not in row["reason"]
        hosts = {LAYOUT.host_of(rank) for rank in group.ranks}
        assert (row["hosts"], row["spans_hosts"]) in [(len(hosts), len(hosts) > 1), (None, None)]
    assert run.parallel_layout().rows() == [
        (8, 2, 2, 2, 1, 1, "the sizes of the groups multiply to the number of ranks")
    ]  # fmt: skip
    _check_costs(run, found, tmp_path)


def _check_costs(run: Run, found: dict[str, dict[str, Any]], folder: Path) -> None:
    """Operations, bytes and times of a step, to the ns, over all messages of the steps that figures are of."""
    chosen = {trace.rank: set(run.steps().filter(pl.col("rank") == trace.rank, "chosen")["step"]) for trace in run.traces}
    true = pl.read_parquet(folder / MESSAGES)
    assert all(steps == set(true["step"]) for steps in chosen.values())
    for (group,), rows in true.group_by("group"):
        row, pairs = found[str(group)], rows.select("rank", "step").n_unique()
        assert row["operations"] == rows.height
        assert row["operations_per_step"] == rows.height / pairs
        assert row["bytes_per_step"] == rows["bytes"].sum() / pairs
        for name in ("wait_ns", "transfer_ns"):
            assert row[name] == pytest.approx(rows[name].sum() / pairs, abs=1e-3), (group, name)
        assert row["unexplained_ns"] == 0


def rank_of_pair(rank: int, meta: dict[str, Any], **values: Any) -> Trace:
    """One all-reduce in each of two steps."""
    begins = {number: BASE_NS + number * 100 * MS for number in (1, 2)}
    steps = [{"id": number, "start_ns": at, "end_ns": at + 100 * MS, "pid": 1, "tid": 1} for number, at in begins.items()]
    rows = [
        {"name": "nccl:all_reduce", "kind": "collective", "operation": "allreduce", "group": "0", "step": number,
         "start_ns": at, "end_ns": at + MS, **values}
        for number, at in begins.items()
    ]  # fmt: skip
    return build(meta={"rank": rank, **meta}, steps=steps, communication=rows)


def test_what_nothing_tells_is_not_told() -> None:
    """One of four ranks, with a group of two of which nobody says the members."""
    (row,) = process_group_table([rank_of_pair(0, {"world_size": 4}, ranks=2)]).rows(named=True)
    assert (row["kind"], row["members"], row["ranks"], row["recorded"]) == ("", "0", 2, 1)
    assert row["reason"].startswith("cannot be told")
    assert (row["hosts"], row["spans_hosts"], row["bytes_per_step"], row["wait_ns"]) == (None, None, None, None)
    (layout,) = parallel_layout([rank_of_pair(0, {"world_size": 4}, ranks=2)]).rows(named=True)
    assert layout["data"] is None and layout["reason"].startswith("cannot be told")
    # of sizes that do not fit
    info = {"g1": {"group_name": "dp", "group_rank": 0, "global_ranks": [0, 1, 2]}}
    (layout,) = parallel_layout([rank_of_pair(0, {"world_size": 4, "parallel_group_info": info})]).rows(named=True)
    assert layout["data"] is None and "do not multiply" in layout["reason"]


def test_groups_of_ascend_go_by_id_hash_or_name() -> None:
    from steplens.analysis.cluster.measured_communication import group_hash

    info = {"90.91_60000_0_17": {"group_name": "dp", "group_rank": 0, "global_ranks": [0, 1]},
            "default": {"group_name": "default_group", "group_rank": 0, "global_ranks": [0, 1]}}  # fmt: skip
    for name in ("90.91_60000_0_17", str(group_hash("90.91_60000_0_17")), "dp"):
        meta = {"world_size": 2, "parallel_group_info": info}
        rows = process_group_table([rank_of_pair(rank, meta, group=name) for rank in range(2)]).rows(named=True)
        used = [row for row in rows if row["operations"]]
        assert [(row["group"], row["kind"], row["members"]) for row in used] == [("90.91_60000_0_17", "data", "0, 1")]
        assert len(rows) == 2


def test_a_real_capture_of_one_rank() -> None:
    (row,) = steplens.open(shared("kineto", "cuda_nccl_distributed.json.gz")).process_groups().rows(named=True)
    assert (row["kind"], row["members"], row["recorded"], row["operations"]) == ("data", "0, 1", 1, 21)
    assert row["reason"] == "it reduces outside of the forward pass alone"


def test_ranges_of_ranks() -> None:
    assert ranks_text([0, 1, 2, 4, 5, 8]) == "0-2, 4, 5, 8"
