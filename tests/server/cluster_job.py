"""A small training on several ranks, recorded with shapes and memory; the last rank works longer before every backward pass.

torchrun --nproc_per_node 4 tests/server/cluster_job.py DIRECTORY
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import steplens

STEPS = 8
#: so many more products on the last rank
EXTRA = 60


def main(directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    late = dist.get_rank() == dist.get_world_size() - 1
    network = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    busy = torch.randn(300, 300)
    # where the others say that they have come to their backward pass
    meeting = f"{directory}.store"
    store = dist.FileStore(meeting, dist.get_world_size())
    others = range(dist.get_world_size() - 1)
    with steplens.profile(
        schedule=steplens.schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(directory),
        record_shapes=True,
        profile_memory=True,
        with_flops=True,
    ) as prof:
        for step in range(STEPS + 3):
            loss = network(torch.randn(32, 64)).square().mean()
            if late:
                # its work comes on top of whatever keeps the others: it is the late one on a busy machine too
                store.wait([f"{step} {rank}" for rank in others])
            for _ in range(EXTRA if late else 1):
                busy = torch.tanh(busy @ busy)
            if not late:
                store.set(f"{step} {dist.get_rank()}", "")
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
    dist.barrier()
    if dist.get_rank() == 0:
        os.unlink(meeting)
    # torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
