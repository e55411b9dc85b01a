"""A small GPT-2 trained by the Trainer of Hugging Face, four batches to an update.

What a person who knows this program says of it:

* A step is an update, and holds four batches: four times forward and backward, once clipping, once the optimizer.
* It is compute bound: matrix products take most of it. The embedding of 2,000 tokens is also the output layer: its product
  and its gradient are the largest single ones.
* Backward is the largest phase, about twice forward. AdamW (fused, the Trainer's default) takes a percent or a few.
* Clipping gradients (``max_grad_norm``, on by default) lies between backward and the optimizer and is small.
* The data are in memory, and the loader has no workers and needs none.
* Accumulating costs nothing here; larger batches instead of four small ones would give larger products, if memory allows.

python hugging_face.py DIRECTORY
"""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import steplens
from steplens.integrations.huggingface import SteplensCallback

LENGTH, TOKENS = 64, 2000


class Texts(Dataset[dict[str, torch.Tensor]]):
    """Sequences of tokens."""

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) * (index % 13 + 1)) % TOKENS
        return {"input_ids": tokens, "labels": tokens}


def main(directory: str) -> None:
    """Trains 16 updates and records six of them."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=128, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0)
    callback = SteplensCallback(directory, schedule=steplens.schedule(skip_first=6, wait=0, warmup=2, active=6, repeat=1))
    with tempfile.TemporaryDirectory() as kept:
        arguments = TrainingArguments(
            output_dir=kept,
            max_steps=16,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=4,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Texts(), callbacks=[callback]).train()


if __name__ == "__main__":
    main(sys.argv[1])
