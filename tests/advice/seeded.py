"""A small training in which one fault at a time is switched on: ``python seeded.py FAULT OUT``; "none" is the healthy one.

Prints the median length of the recorded steps in ns, as JSON, measured by the loop itself.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time

import torch

import steplens

STEPS = 12


class Samples(torch.utils.data.Dataset):
    """Samples that take a while to read: a sleep, so that workers are of use on any number of processors."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 8 * 64

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((64,), float(index))


def main(fault: str, out: str) -> None:
    """Train, record twelve steps after two that warm up, and print how long a step took."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 4))
    many = [torch.nn.Parameter(torch.zeros(16)) for _ in range(120 if fault in ("optimizer", "fused") else 0)]
    optimizer = torch.optim.Adam([*model.parameters(), *many], lr=1e-4, fused=fault != "optimizer")
    workers = 0 if fault == "workers" else 2
    seconds = {"workers": 0.004, "source": 0.02}.get(fault, 0.0005)
    loader = iter(
        torch.utils.data.DataLoader(Samples(seconds), batch_size=8, num_workers=workers, prefetch_factor=2 if workers else None)
    )
    kept: list[torch.Tensor] = []
    lengths: list[int] = []
    gc.collect()
    gc.freeze()
    # objects that the program made after its start, such as an index of its data
    index = [[number] for number in range(100_000 if fault == "collections" else 0)]
    with steplens.profile(
        schedule=steplens.schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        profile_memory=fault in ("leak", "none"),
        with_stack=False,
        experimental_config=steplens._ExperimentalConfig(gc_detect_threshold=0.0),
        on_trace_ready=steplens.tensorboard_trace_handler(out, analyse_flag=False),
    ) as prof:
        for step in range(STEPS + 2):
            begin = time.perf_counter_ns()
            batch = next(loader)
            # the work of a larger model, without taking a processor from the workers
            time.sleep(0.02)
            loss = model(batch).square().mean()
            for parameter in many:
                loss = loss + 0.0 * parameter[0]
            if fault == "loop":
                loss = loss + sum_by_elements(batch)
            if fault == "items":
                for _ in range(3000):
                    float(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if fault == "collections":
                gc.collect()
            if fault == "leak":
                kept.append(model(batch.repeat(64, 1)))
            if step >= 2:
                lengths.append(time.perf_counter_ns() - begin)
            prof.step()
    assert len(index) in (0, 100_000)
    print(json.dumps(statistics.median(lengths)))


def sum_by_elements(batch: torch.Tensor) -> torch.Tensor:
    """What batch.sum() does."""
    total = torch.zeros(())
    for row in batch.detach():
        for column in range(64):
            total = total + row[column]
    return total * 0


if __name__ == "__main__":
    main(*sys.argv[1:])
