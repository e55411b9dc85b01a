"""A small training on two ranks, recorded with everything that the pages show; some names are hostile.

torchrun --nproc_per_node 2 tests/web/training.py DIRECTORY
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import steplens

STEPS = 12
SLOW_STEP = 9
PYTHON = 300_000
#: what a browser must show as the text that it is
HOSTILE = "<img src=x onerror=document.title='owned'>&amp;<script>document.title='owned'</script>"


class Noise(Dataset[Tensor]):
    """Images that take a moment to draw."""

    def __len__(self) -> int:
        return 16 * (STEPS + 4)

    def __getitem__(self, index: int) -> Tensor:
        drawn = torch.randn(3, 24, 24, generator=torch.Generator().manual_seed(index))
        for _ in range(3):
            drawn = torch.nn.functional.avg_pool2d(drawn, 3, 1, 1) + drawn.sort().values
        return drawn


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU())
        self.attention = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.attention(tokens).mean(1))


def main(directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    network = DistributedDataParallel(Network())
    optimizer = torch.optim.AdamW(network.parameters())
    loader = DataLoader(Noise(), batch_size=8, num_workers=1)
    with steplens.profile(
        schedule=steplens.schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(directory),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_modules=True,
        with_flops=True,
    ) as prof:
        for number, batch in enumerate(loader):
            with torch.profiler.record_function(HOSTILE):
                loss = network(batch).square().mean()
            if number == SLOW_STEP and os.environ["RANK"] == "1":
                for _ in range(40):
                    torch.randn(200, 200) @ torch.randn(200, 200)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            # something to advise about on any machine: it takes longer where all else does
            for _ in range(PYTHON):
                pass
            prof.step()
            if number == STEPS + 2:
                break
    dist.destroy_process_group()
    # torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
