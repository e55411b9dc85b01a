"""A convolutional network, AdamW and a loader with two workers, in a loop that somebody wrote by hand.

What a person who knows this program says of it:

* It is compute bound, as a network on a CPU is: convolutions, above all their backward, take most of a step; backward takes about
  twice as long as forward.
* The loader is no problem: samples are made of random numbers in microseconds, and two workers are ahead of the loop.
* AdamW updates 0.1 million parameters in 14 tensors one by one; that is a few milliseconds, a few percent of a step.
  ``fused=True`` would save most of that, and no more than that.
* The loss is read every step, which costs nothing on a CPU.
* There is one process: nothing to say of ranks or communication. Nothing is to be compiled away but small elementwise work.

python plain_loop.py DIRECTORY
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import steplens


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Noise with a label."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 32, 32), index % 10 / 10), index % 10


def main(directory: str) -> None:
    """Trains 24 steps and records ten of them."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Conv2d(64, 128, 3, padding=1, stride=2), nn.BatchNorm2d(128), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Images(), batch_size=64, num_workers=2, shuffle=True)
    with steplens.profile(
        schedule=steplens.schedule(skip_first=8, wait=0, warmup=2, active=10, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(directory),
        record_shapes=True,
    ) as prof:
        for number, (images, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
            prof.step()
            if number == 23:
                break


if __name__ == "__main__":
    main(sys.argv[1])
