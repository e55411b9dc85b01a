"""The program that ``compare_causes.py`` records: a small transformer, with whatever of it a setting changes."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import steplens

WAIT, WARM_UP = 4, 1
WORDS = 1000
#: parameters of mallopt(3)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


@dataclass(frozen=True)
class Settings:
    """A version of the program.

    Attributes:
        width, inner, heads, layers, length, batch: of the transformer, its feed-forward layers and its input.
        gelu: how it is approximated: "tanh" or "none".
        fused_attention: ``scaled_dot_product_attention`` instead of matrix products and a softmax.
        optimizer: a class of ``torch.optim``; way: "single", "foreach" or "fused".
        dtype: of parameters and activations.
        sorted_scores: sorts numbers that are in order already, else at random; 0 of them are not sorted at all.
        repeated: how many times each feed-forward layer is run.
        loader_ms: reading a batch takes so much longer. hook_ms: a forward hook of the last layer sleeps.
        logging: numbers that Python formats between steps.
        set_to_none: ``zero_grad`` drops gradients instead of filling them with 0.
        recompute: activation checkpointing of each layer.
        twice: the backward pass runs twice over a graph that is kept.
        reduced: numbers that two ranks add up after each backward pass; 0 without a second rank.
        late_ms: the second rank comes so much later to it.
        read_loss: reads the losses of so many words one by one, as often as it takes.
        kept: the outputs of so many steps are kept.
        memory: with the allocator's events.
        modules: with the modules that call.
        seed: of everything that is drawn.
    """

    width: int = 128
    inner: int = 256
    heads: int = 4
    layers: int = 2
    length: int = 64
    batch: int = 8
    gelu: str = "tanh"
    fused_attention: bool = True
    optimizer: str = "AdamW"
    way: str = "foreach"
    dtype: str = "float32"
    sorted_scores: int = 0
    is_sorted: bool = True
    repeated: int = 1
    loader_ms: float = 0.0
    hook_ms: float = 0.0
    logging: int = 0
    set_to_none: bool = True
    recompute: bool = False
    twice: bool = False
    reduced: int = 0
    late_ms: float = 0.0
    read_loss: int = 0
    kept: int = 0
    memory: bool = False
    modules: bool = False
    seed: int = 0


class Layer(nn.Module):
    """Attention and a feed-forward layer, each with its norm."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.settings = settings
        self.projection, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, settings.inner), nn.Linear(settings.inner, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.activation = nn.GELU(approximate=settings.gelu)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, length, width), as of the result."""
        x = x + self.out(self.attention(self.projection(self.norms[0](x))))
        for _ in range(self.settings.repeated):
            x = x + self.second(self.activation(self.first(self.norms[1](x))))
        return x

    def attention(self, joined: torch.Tensor) -> torch.Tensor:
        """Shape (batch, length, 3 * width) to (batch, length, width)."""
        batch, length, _ = joined.shape
        heads = self.settings.heads
        query, key, value = joined.view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        if self.settings.fused_attention:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
            mixed = scores.softmax(-1) @ value
        return mixed.transpose(1, 2).reshape(batch, length, -1)


class Words(Dataset[torch.Tensor]):
    """Samples of words drawn at random; reading one may take a while."""

    def __init__(self, settings: Settings, samples: int) -> None:
        self.settings, self.samples = settings, samples
        self.random = torch.Generator().manual_seed(settings.seed)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, place: int) -> torch.Tensor:
        if self.settings.loader_ms:
            time.sleep(self.settings.loader_ms / 1000 / self.settings.batch)
        return torch.randint(0, WORDS, (self.settings.length,), generator=self.random)


def keep_freed_memory() -> None:
    """Let malloc keep what is freed: whether large tensors take fresh pages is luck otherwise, and costs milliseconds."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**25)
        mallopt(_TRIM_THRESHOLD, 2**30)


def train(settings: Settings, out: Path, steps: int, rank: int = 0, port: int = 0) -> None:
    """Record so many steps of a version."""
    keep_freed_memory()
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    if settings.reduced:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    dtype = getattr(torch, settings.dtype)
    layers = nn.ModuleList([Layer(settings) for _ in range(settings.layers)]).to(dtype)
    embedding, head = nn.Embedding(WORDS, settings.width).to(dtype), nn.Linear(settings.width, WORDS).to(dtype)
    model = nn.ModuleList([embedding, *layers, head])
    ways = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    optimizer = getattr(torch.optim, settings.optimizer)(model.parameters(), lr=1e-4, **ways[settings.way])
    if settings.hook_ms:
        head.register_forward_pre_hook(lambda *_: time.sleep(settings.hook_ms / 1000))
    scores = torch.randn(max(settings.sorted_scores, 1))
    scores = scores.sort().values if settings.is_sorted else scores
    kept: list[torch.Tensor] = []
    shared = torch.ones(max(settings.reduced, 1))
    loader = DataLoader(Words(settings, settings.batch * (steps + WAIT + WARM_UP + 2)), batch_size=settings.batch)
    with recording(settings, out, steps) as profiler:
        for words in loader:
            x = embedding(words)
            for layer in layers:
                x = checkpoint(layer, x, use_reentrant=False) if settings.recompute else layer(x)
            if settings.sorted_scores:
                scores.sort()
            scores_of_words = head(x).flatten(0, 1)
            losses = nn.functional.cross_entropy(scores_of_words, words.flatten(), reduction="none")
            if settings.read_loss:
                read = losses.detach()
                for place in range(settings.read_loss):
                    read[place % len(read)].item()
            if settings.kept:
                kept.append(scores_of_words)
                del kept[: -settings.kept]
            loss = losses.mean()
            if settings.twice:
                loss.backward(retain_graph=True)
            loss.backward()
            if settings.reduced:
                time.sleep(settings.late_ms / 1000 * rank)
                dist.all_reduce(shared)
            optimizer.step()
            optimizer.zero_grad(set_to_none=settings.set_to_none)
            if settings.logging:
                ", ".join(f"{number / 7:.5f}" for number in range(settings.logging))
            profiler.step()
    if settings.reduced:
        dist.destroy_process_group()


@contextlib.contextmanager
def recording(settings: Settings, out: Path, steps: int) -> Iterator[Any]:
    """The profiler of a run."""
    with steplens.profile(
        activities=[steplens.ProfilerActivity.CPU],
        schedule=steplens.schedule(wait=WAIT, warmup=WARM_UP, active=steps, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(str(out), analyse_flag=False),
        record_shapes=True,
        with_modules=settings.modules,
        profile_memory=settings.memory,
    ) as profiler:
        yield profiler
