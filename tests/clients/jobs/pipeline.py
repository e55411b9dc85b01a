"""A real pipeline of two stages over gloo; then the same with more process groups than the default one.

torchrun --nproc_per_node 2 pipeline.py OUT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import steplens

STEPS = 3
BATCH, WIDTH = 16, 64
REDUCED = 1 << 20


def main() -> None:
    """Join the job, train both ways, and leave it together."""
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    stage = nn.Linear(WIDTH, WIDTH)
    profiled(out / "pipeline", stage, None)
    profiled(out / "groups", stage, dist.new_group([0, 1], group_desc="dp"))
    dist.barrier()
    dist.destroy_process_group()
    # torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
    os._exit(0)


def profiled(out: Path, stage: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Train a few steps under the profiler, with text and databases as the result."""
    with steplens.profile(
        schedule=steplens.schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(str(out), analyse_flag=False),
        record_shapes=True,
        profile_memory=True,
        experimental_config=steplens._ExperimentalConfig(
            profiler_level=steplens.ProfilerLevel.Level1, export_type=[steplens.ExportType.Text, steplens.ExportType.Db]
        ),
    ) as profiler:
        for _ in range(STEPS + 2):
            train_one_step(stage)
            if group is not None:
                # two at a time: gloo has two threads for a group
                for work in [dist.all_reduce(torch.ones(REDUCED), group=group, async_op=True) for _ in range(2)]:
                    work.wait()
            profiler.step()


def train_one_step(stage: nn.Module) -> None:
    """Activations go to the second stage, their gradients come back."""
    if dist.get_rank() == 0:
        activations = stage(torch.randn(BATCH, WIDTH))
        dist.send(activations.detach(), 1)
        gradients = torch.empty(BATCH, WIDTH)
        dist.recv(gradients, 1)
        activations.backward(gradients)
    else:
        received = torch.empty(BATCH, WIDTH)
        dist.recv(received, 0)
        received.requires_grad_()
        stage(received).square().mean().backward()
        assert received.grad is not None
        dist.send(received.grad, 0)


if __name__ == "__main__":
    main()
