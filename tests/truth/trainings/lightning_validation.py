"""A perceptron trained by Lightning with Adam, validated every five batches on two batches.

What a person who knows this program says of it:

* Lightning runs forward and backward inside of ``Optimizer.step``, in a closure: the optimizer itself is Adam's update of 0.8
  million parameters in six tensors, and no half of the step is to be saved there.
* Matrix products of forward and backward take most of a usual step; Lightning's own Python (hooks, the progress of its loops,
  logging) is a part of such a small step that can be seen.
* Every fifth step holds a validation of two batches as well, and is longer by that; the median of steps does not have it.
* Nothing is to be said about the loader of validation: two batches are too few, and they come once in five steps.
* The training's loader has no workers and reads from memory; it costs some percent at most.

python lightning_validation.py DIRECTORY
"""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import steplens
from steplens.integrations.lightning import SteplensCallback

WIDTH = 512


class Perceptron(lightning.LightningModule):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
        )

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Forward and loss."""
        return nn.functional.mse_loss(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        """The loss of other data."""
        self.log("validation", nn.functional.mse_loss(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main(directory: str) -> None:
    """Trains 24 steps and records ten of them."""
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(0)
    samples = TensorDataset(torch.randn(4096, WIDTH), torch.randn(4096, WIDTH))
    training, validation = DataLoader(samples, batch_size=128), DataLoader(samples, batch_size=128)
    callback = SteplensCallback(directory, schedule=steplens.schedule(skip_first=6, wait=0, warmup=2, active=10, repeat=1))
    with tempfile.TemporaryDirectory() as kept:
        trainer = lightning.Trainer(
            max_steps=24,
            val_check_interval=5,
            limit_val_batches=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=kept,
            callbacks=[callback],
        )
        trainer.fit(Perceptron(), training, validation)


if __name__ == "__main__":
    main(sys.argv[1])
