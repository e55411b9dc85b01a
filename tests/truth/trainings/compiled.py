"""A residual network of linear layers, compiled by ``torch.compile``, trained with SGD.

What a person who knows this program says of it:

* Compilation happens in the first steps, which take seconds and are no steps of the training: a recorded step takes some 10 ms.
* The step is matrix products: ``addmm`` and ``mm`` of the compiled graph take most of it, backward twice as many as forward. What
  lies between them (GELU, normalisation, residuals) is a few fused kernels; nothing is left to compile, and no advice should
  name ``torch.compile``.
* Forward and backward are one call each (``CompiledFunction`` and its backward).
* No loader: the batch is made once. SGD without momentum takes next to nothing.

python compiled.py DIRECTORY
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import steplens

WIDTH = 512


class Block(nn.Module):
    """Normalise, widen, narrow, add."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def main(directory: str) -> None:
    """Trains 20 steps, of which the first compile, and records ten."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(WIDTH, 1))
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, target = torch.randn(128, WIDTH), torch.randn(128, 1)
    with steplens.profile(
        schedule=steplens.schedule(skip_first=8, wait=0, warmup=2, active=10, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(directory),
        record_shapes=True,
    ) as prof:
        for _ in range(20):
            loss = nn.functional.mse_loss(compiled(batch), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()


if __name__ == "__main__":
    main(sys.argv[1])
