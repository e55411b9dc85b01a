"""The certificates of untouched recordings: what is odd about each is known, and nothing else is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from steplens.run import open_run
from steplens.trace.health import ERROR, INFO, WARNING

from ..shared_data import shared

#: recorded trace -> findings: check, severity, count
KINETO: dict[str, list[tuple[str, str, int]]] = {
    "cpu_only_rank34": [("missing_ranks", INFO, 299)],
    # whole microseconds; two memsets of nothing
    "cuda_alexnet": [("timestamp_precision", INFO, 1), ("copies_without_tasks", INFO, 2)],
    # Kineto itself counted the records that it left out
    "cuda_nccl_distributed": [
        ("out_of_range_records", INFO, 4181),
        ("copies_without_tasks", INFO, 3),
        ("missing_ranks", INFO, 1),
    ],
    "cuda_ns_resolution_rank0": [("out_of_range_records", INFO, 3829), ("copies_without_tasks", INFO, 235)],
    # its distributedInfo names the back end, which is of GPUs, and no rank
    "cuda_rank_missing": [("device_not_recorded", WARNING, 1), ("timestamp_precision", INFO, 1), ("rank_unknown", WARNING, 1)],
    "cuda_sampled_rank0": [("timestamp_precision", INFO, 1), ("missing_ranks", INFO, 127)],
    "cuda_sampled_rank1": [("timestamp_precision", INFO, 1), ("missing_ranks", INFO, 127)],
    # ProfilerStep#2 lasts 49 us, ProfilerStep#1 9.3 ms: the profiler was stopped right after a step()
    "rocm_mi250_minitoy": [("incomplete_last_step", WARNING, 1)],
}


#: the same of the Ascend PyTorch Profiler's results; the links of the library are those of eight ranks
ASCEND: dict[str, list[tuple[str, str, int]]] = {
    # 4 tasks start up to 6 us before their launch: so well do the two clocks agree
    "db_level0/rank0_ascend_pt": [("schema_differences", INFO, 6), ("tasks_before_launch", INFO, 4)],
    "db_level2/rank0_ascend_pt": [("schema_differences", INFO, 6), ("missing_ranks", INFO, 7)],
    # 215 arrows end and 210 start
    "text_level0/rank0_ascend_pt": [("unmatched_launches", INFO, 5)],
    "text_level1/rank0_ascend_pt": [("unmatched_launches", INFO, 5), ("missing_ranks", INFO, 7)],
    "text_level1/rank1_ascend_pt": [
        ("unmatched_launches", INFO, 5),
        ("tasks_before_launch", INFO, 4),
        ("missing_ranks", INFO, 7),
    ],
    "text_level1": [
        ("unmatched_launches", INFO, 5),
        ("unmatched_launches", INFO, 5),
        ("tasks_before_launch", INFO, 4),
        ("missing_ranks", INFO, 6),
    ],
}


def copied(name: str, tmp_path: Path) -> Path:
    source = shared(name)
    target = tmp_path / source.name
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target


@pytest.mark.parametrize("name", KINETO)
def test_recorded_kineto_traces(name: str, tmp_path: Path) -> None:
    health = open_run(copied(f"kineto/{name}.json.gz", tmp_path)).health()
    assert sorted(health.select("check", "severity", "count").rows()) == sorted(KINETO[name]), health["message"].to_list()
    assert ERROR not in health["severity"].to_list()


@pytest.mark.parametrize("name", ASCEND)
def test_recorded_ascend_results(name: str, tmp_path: Path) -> None:
    health = open_run(copied(f"ascend_pytorch/{name}", tmp_path)).health()
    assert sorted(health.select("check", "severity", "count").rows()) == sorted(ASCEND[name]), health["message"].to_list()


def test_two_ranks_of_one_job(tmp_path: Path) -> None:
    for rank in (0, 1):
        copied(f"kineto/cuda_sampled_rank{rank}.json.gz", tmp_path)
    health = open_run(tmp_path).health()
    # a sample of the collectives was recorded, so that some are paired that are not the same
    told = [("contradictory_messages", WARNING), ("missing_ranks", INFO), *[("timestamp_precision", INFO)] * 2]
    assert sorted(health.select("check", "severity").rows()) == told
