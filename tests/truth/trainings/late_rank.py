"""DistributedDataParallel on two ranks with gloo, of which rank 1 computes something of its own before every batch.

What a person who knows this program says of it:

* Rank 1 is the late one: matrix products of some 20 ms that rank 0 does not have, in front of its loader.
* Rank 0 pays for it: it waits in backward, when all of its gradients are there and the average is not. That is gradient
  synchronisation, about as long as rank 1 is late, and no slowness of the network; both ranks' steps are equally long.
* The transfer itself is short: 1 MB of gradients between two processes of one machine.
* What to do is to take the work off rank 1, or to share it; no larger bucket and no faster network changes anything.
* Forward is the same on both ranks, and small.

torchrun --nproc_per_node 2 late_rank.py DIRECTORY
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import steplens

LATE_S = 0.020


def main(directory: str) -> None:
    """Trains 20 steps and records ten of them."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    samples = TensorDataset(torch.randn(4096, 256), torch.randn(4096, 256))
    batches = iter(DataLoader(samples, batch_size=128))
    extra = torch.randn(300, 300)
    with steplens.profile(
        schedule=steplens.schedule(skip_first=8, wait=0, warmup=2, active=10, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(directory),
        record_shapes=True,
    ) as prof:
        for _ in range(20):
            until = time.perf_counter() + LATE_S * dist.get_rank()
            while time.perf_counter() < until:
                extra = torch.tanh(extra @ extra)
            batch, target = next(batches)
            loss = nn.functional.mse_loss(model(batch), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
    dist.barrier()
    # torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
