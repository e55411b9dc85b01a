"""A real data-parallel job over gloo, profiled three times: as text, as databases, as both.

    torchrun --nproc_per_node N train.py OUT [--slow-rank R]

Every step trains a network under DistributedDataParallel, reduces a vector and broadcasts another several times. The slow rank
sleeps before each forward pass.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import steplens

STEPS = 3
REDUCED = 4096
BROADCAST = 1000
BROADCASTS = 6
#: parameters of the network: what DistributedDataParallel reduces in every step
PARAMETERS = 128 * 256 + 256 + 256 * 10 + 10
SLEEP_S = 0.3

FORMS = {
    "text": [steplens.ExportType.Text],
    "db": [steplens.ExportType.Db],
    "both": [steplens.ExportType.Text, steplens.ExportType.Db],
}


def main() -> None:
    """Join the job, train, and leave it together."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--forms", nargs="+", default=list(FORMS))
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = DistributedDataParallel(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for form in options.forms:
        profiled(options.out / form, FORMS[form], network, optimizer, options.steps, slow=dist.get_rank() == options.slow_rank)
    dist.barrier()
    dist.destroy_process_group()
    # torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
    os._exit(0)


def profiled(
    out: Path, exports: list[str], network: nn.Module, optimizer: torch.optim.Optimizer, steps: int, *, slow: bool
) -> None:
    """Train a few steps under the profiler."""
    world = dist.get_world_size()
    with steplens.profile(
        schedule=steplens.schedule(wait=1, warmup=1, active=steps, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(str(out), analyse_flag=False),
        record_shapes=True,
        profile_memory=True,
        experimental_config=steplens._ExperimentalConfig(
            profiler_level=steplens.ProfilerLevel.Level1, export_type=exports, mstx=True
        ),
    ) as profiler:
        # what Megatron and its relatives add
        sizes = {f"{kind}_parallel_size": 1 for kind in ("tensor_model", "pipeline_model", "context", "expert_model")}
        job = {**sizes, "data_parallel_size": world, "world_size": world, "rank": dist.get_rank(), "sequence_parallel": False}
        profiler.add_metadata_json("distributed_args", json.dumps(job))
        for _ in range(steps + 2):
            train_one_step(network, optimizer, slow=slow)
            profiler.step()


def train_one_step(network: nn.Module, optimizer: torch.optim.Optimizer, *, slow: bool) -> None:
    """One step, with a mark around its forward pass."""
    if slow:
        time.sleep(SLEEP_S)
    optimizer.zero_grad()
    mark = steplens.mstx.range_start("forward", domain="Module")
    loss = nn.functional.cross_entropy(network(torch.randn(32, 128)), torch.randint(10, (32,)))
    steplens.mstx.range_end(mark, domain="Module")
    loss.backward()
    optimizer.step()
    dist.all_reduce(torch.ones(REDUCED))
    for _ in range(BROADCASTS):
        dist.broadcast(torch.ones(BROADCAST), 0)


if __name__ == "__main__":
    main()
