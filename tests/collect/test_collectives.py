"""A real job of two ranks over gloo: the sizes of its collectives, also of those that C++ starts, with and without shapes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import steplens

from ..warm_python import run_warm_ranks

PARAMETERS = 64 * 256 + 256 + 256 * 16 + 16
STEPS = 3

TRAIN = """
import os, sys, torch, torch.distributed as dist, torch.nn as nn, steplens

dist.init_process_group("gloo")
torch.set_num_threads(1)
beside = dist.new_group([0, 1])
network = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 16)))
with steplens.profile(
    record_shapes=sys.argv[1] == "shapes",
    schedule=steplens.schedule(wait=1, warmup=1, active=3, repeat=1),
    experimental_config=steplens._ExperimentalConfig(profiler_level=steplens.ProfilerLevel.Level1, export_type=["text", "db"]),
    on_trace_ready=steplens.tensorboard_trace_handler("out", analyse_flag=False),
) as prof:
    for _ in range(5):
        network(torch.ones(8, 64)).sum().backward()
        dist.all_reduce(torch.ones(1000, dtype=torch.float64), group=beside)
        dist.broadcast(torch.ones(10, dtype=torch.int32), 0)
        dist.barrier()
        prof.step()
dist.destroy_process_group()
# torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
os._exit(0)
"""


@pytest.mark.parametrize("shapes", ["shapes", "none"])
def test_sizes_of_a_real_job(tmp_path: Path, shapes: str) -> None:
    torch = pytest.importorskip("torch")
    c10d = torch._C._distributed_c10d if torch.distributed.is_available() else None
    recorder = hasattr(c10d, "_dump_fr_trace_json")
    if shapes == "none" and not recorder:
        pytest.skip("this version of PyTorch has no flight recorder for the CPU")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = run_warm_ranks(2, script, shapes, folder=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = {(PARAMETERS * 4, "default_group"): STEPS, (8000, "1"): STEPS, (40, "default_group"): STEPS}
    for run in sorted((tmp_path / "out").glob("*_ascend_pt")):
        assert steplens.analyse(run)[0].ok
        trace = steplens.open(run).trace()
        rows = trace.required("communication").filter(~pl.col("name").cast(pl.String).str.contains("barrier")).collect()
        told = rows.group_by("bytes", pl.col("group").cast(pl.String)).len()
        found = {(size, group if recorder else where): count for size, group, count in told.rows() for where in [group]}
        if recorder:
            assert found == expected
        assert sorted(rows["bytes"].to_list()) == sorted(size for size, _ in expected for _ in range(STEPS))
        output = run / "ASCEND_PROFILER_OUTPUT"
        steps = json.loads((output / "communication.json").read_bytes())
        assert len(steps) == STEPS
        listed = set()
        for step, classes in steps.items():
            operations = classes["collective"]
            total = operations.pop("Total Op Info")
            sizes = {}
            for key, info in operations.items():
                moved = info["Communication Bandwidth Info"]
                if "barrier" in key:
                    assert moved == {}
                    continue
                # a size, and nothing that one rank cannot know
                assert set(moved) == {"GLOO"} and set(moved["GLOO"]) == {"Transit Size(MB)"}
                sizes[key] = moved["GLOO"]["Transit Size(MB)"]
                listed.add((step, key.partition("@")[0], sizes[key]))
            assert sorted(sizes.values()) == sorted(size / 1e6 for size, _ in expected)
            assert total["Communication Bandwidth Info"] == {"GLOO": {"Transit Size(MB)": pytest.approx(sum(sizes.values()))}}
        with closing(sqlite3.connect(output / "analysis.db")) as database:
            query = "SELECT step, hccl_op_name, transit_size, transport_type, bandwidth FROM CommAnalyzerBandwidth"
            found_rows = database.execute(query).fetchall()
        assert {row[:3] for row in found_rows} == listed and {row[3:] for row in found_rows} == {("GLOO", None)}
