"""The whole of the shared captures opened at once: every capture is listed, none hidden, and what is not read is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from typer.testing import CliRunner

from steplens.cli.main import app

from .mindspore_data import shared

#: the captures in each folder, with their ranks, written down by hand: path, rank (None: the capture does not say)
CAPTURES = [
    ("ascend_pytorch/db_level0/rank0_ascend_pt", 0),
    ("ascend_pytorch/db_level2/rank0_ascend_pt", 0),
    ("ascend_pytorch/text_level0/rank0_ascend_pt", 0),
    ("ascend_pytorch/text_level1/rank0_ascend_pt", 0),
    ("ascend_pytorch/text_level1/rank1_ascend_pt", 1),
    ("kineto/cpu_only_rank34.json.gz", 34),
    ("kineto/cuda_alexnet.json.gz", 0),
    ("kineto/cuda_nccl_distributed.json.gz", 0),
    ("kineto/cuda_ns_resolution_rank0.json.gz", 0),
    ("kineto/cuda_rank_missing.json.gz", None),
    ("kineto/cuda_sampled_rank0.json.gz", 0),
    ("kineto/cuda_sampled_rank1.json.gz", 1),
    ("kineto/rocm_mi250_minitoy.json.gz", 0),
    ("mindspore/ERROR_JOB", 10),
    ("mindspore/JOB1", 0),
    ("mindspore/JOB2", 0),
    ("mindspore/JOB4", 0),
    ("mindspore/JOB_AICPU", 0),
    ("mindspore/JOB_AICPU/expect", 0),
    *(("mindspore/cluster_propose", rank) for rank in range(4)),
    *(("mindspore/minddata_pipeline", rank) for rank in range(4)),
    *(("mindspore/parallel_strategy", rank) for rank in range(2)),
    *(("mindspore/profiler", rank) for rank in (0, 1, 10)),
    ("mindspore/run_2/normal_run/profiler", 1),
    ("mindspore/run_3/normal_run/profiler", 1),
    ("mindspore/run_4/normal_run/profiler", 1),
    ("tracelens/h100/Falconsai_nsfw_image_detection__1016002/trace.json.gz", 0),
    ("tracelens/mi300/Falconsai_nsfw_image_detection__1016002/trace.json.gz", 0),
    ("tracelens/mi300_resnet_act_checkpoint.json.gz", 0),
    ("tracelens/vllm_graph_capture.json.gz", 0),
    ("tracelens/vllm_graph_execution.json.gz", 0),
]
#: captures without a reader: why they are not read
NOT_READ = {
    "nsys/h100_2gpu_1s.sqlite": "an export of Nsight Systems, for which there is no reader",
    "parallel_jobs/trace-ST.parquet": "a Parquet table, for which there is no reader",
    "parallel_jobs/result-ST.json": "a JSON file without events of a profiler",
}


def test_the_shared_captures_are_all_listed(tmp_path: Path) -> None:
    top = tmp_path / "data"
    folders = sorted({path.split("/")[0] for path in [*(path for path, _ in CAPTURES), *NOT_READ]})
    for name in folders:
        shutil.copytree(shared("..", name), top / name, copy_function=shutil.copyfile)
    shown = CliRunner().invoke(app, ["open", str(top), "--json"])
    assert shown.exit_code == 0
    answer = json.loads(shown.stdout)
    found = [(str(Path(trace["path"]).relative_to(top)), trace["rank"]) for trace in answer["traces"]]
    # a source that nobody wrote down is news, too
    assert sorted(found, key=str) == sorted(CAPTURES, key=str)
    reasons = {str(Path(item["path"]).relative_to(top)): item["reason"] for item in answer["not_read"]}
    assert NOT_READ.items() <= reasons.items()
    files = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file() and ".steplens" not in path.parts}
    parts = {path for path in files if any(path == own or path.startswith(f"{own}/") for own, _ in CAPTURES)}
    assert files == parts | set(reasons)
    text = CliRunner().invoke(app, ["open", str(top)]).output
    assert f"{len(CAPTURES)} traces" in text and "h100_2gpu_1s.sqlite: an export of Nsight Systems" in text
