"""What observing a DataLoader costs: epochs with and without it, in turns within one process.

Usage: ``python benchmarks/loader.py [--rounds 40] [--json FILE]``

Nothing but the observation differs: no profiler of PyTorch records. Workers are kept between epochs, and each round runs one
epoch of small batches with it and one without, in an order that changes. The loop does nothing but take batches, so the loader is
at its limit and its throughput is all there is. The processor time of the loop and of all workers is compared, the mean of the
quietest quarter of the rounds, and the wall time, the median of the rounds' ratios, which sees everything else on the machine.
"augmented" is what the usual recipe for CIFAR-10 does: 128 images of 3 x 32 x 32 bytes in a batch, each cropped at random out of
itself with 4 pixels of padding, flipped one time in two and normalised, with PyTorch's operations. "images" are only turned into
floats and normalised, 32 in a batch. "numbers" are eight floats without a transform, 32 in a batch: nobody needs a loader for
them, and they show the cost per batch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from steplens.collect.loaders import loader

WORKERS = (0, 2, 4)
WARMUP = 20


class Normalise:
    """A transform as torchvision has them: an object that is called per sample."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return (image.float() / 255 - 0.5) / 0.25


class Augment:
    """Random crop with padding, random flip, normalisation per channel."""

    def __init__(self) -> None:
        self.mean = torch.tensor((0.4914, 0.4822, 0.4465)).view(3, 1, 1)
        self.deviation = torch.tensor((0.2470, 0.2435, 0.2616)).view(3, 1, 1)

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
        top, left = torch.randint(0, 9, (2,)).tolist()
        image = padded[:, top : top + 32, left : left + 32]
        if torch.rand(1) < 0.5:
            image = image.flip(-1)
        return image.float().div_(255).sub_(self.mean).div_(self.deviation)


class Images(Dataset[torch.Tensor]):
    """Images in memory."""

    def __init__(self, count: int, transform: Any) -> None:
        self.data = torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8)
        self.count = count
        self.transform = transform

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(self.data[index % 256])


class Numbers(Dataset[torch.Tensor]):
    """Rows of a tensor."""

    def __init__(self, count: int) -> None:
        self.data = torch.randn(256, 8)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.data[index % 256]


def cpu_ns(workers: list[Any]) -> int:
    """Processor time of this process and of workers so far."""
    return time.process_time_ns() + sum(
        int(Path(f"/proc/{worker.pid}/schedstat").read_text().split()[0]) for worker in workers if worker.is_alive()
    )


def epoch(batches: Any) -> tuple[float, float]:
    """Seconds and ns of processor time per batch of an epoch, without its first batches, in which workers are told."""
    iterator = iter(batches)
    for _ in range(WARMUP):
        next(iterator)
    workers = getattr(iterator, "_workers", [])
    used, begin, count = cpu_ns(workers), time.perf_counter(), 0
    for _ in iterator:
        count += 1
    return (time.perf_counter() - begin) / count, (cpu_ns(workers) - used) / count


def observed_epoch(batches: Any) -> tuple[float, float]:
    """The same, observed."""
    loader.profiler_starts()
    try:
        return epoch(batches)
    finally:
        loader.profiler_stops()


def compare(dataset: Any, batch: int, workers: int, rounds: int) -> dict[str, Any]:
    """Milliseconds per batch without observation, and the shares that it adds to processor time and to wall time."""
    batches = DataLoader(dataset, batch_size=batch, num_workers=workers, persistent_workers=workers > 0)
    epoch(batches)
    parts = {epoch: [], observed_epoch: []}  # type: ignore[var-annotated]
    for number in range(rounds):
        for part in list(parts)[:: 1 if number % 2 else -1]:
            parts[part].append(part(batches))
    (off_wall, off_cpu), (on_wall, on_cpu) = (list(zip(*parts[part], strict=True)) for part in (epoch, observed_epoch))
    ratios = [on / off for on, off in zip(on_wall, off_wall, strict=True)]
    return {
        "off_ms": 1e3 * statistics.median(off_wall),
        "cpu_us": quietest(off_cpu) / 1e3,
        "cpu_added_us": (quietest(on_cpu) - quietest(off_cpu)) / 1e3,
        "wall": statistics.median(ratios) - 1,
        "wall_quartiles": [value - 1 for value in statistics.quantiles(ratios, n=4)],
        "batches": (len(batches) - WARMUP) * rounds,
    }


def quietest(values: Any) -> float:
    """The mean of the lowest quarter: what disturbs a measurement only adds to it."""
    lowest = sorted(values)[: max(len(values) // 4, 1)]
    return statistics.fmean(lowest)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batches", type=int, default=120)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    head = ("samples", "workers", "processor time of a batch", "added", "share", "wall time added (quartiles)", "batches each")
    print(f"| {' | '.join(head)} |")
    print("|---|---|---|---|---|---|---|")
    for name, batch, dataset in (
        ("augmented", 128, Images(128 * given.batches, Augment())),
        ("images", 32, Images(32 * given.batches, Normalise())),
        ("numbers", 32, Numbers(32 * given.batches)),
    ):
        for workers in WORKERS:
            result = found[f"{name}, {workers}"] = compare(dataset, batch, workers, given.rounds)
            low, _, high = result["wall_quartiles"]
            used, added = result["cpu_us"], result["cpu_added_us"]
            shown = f"{used:.0f} us | {added:.1f} us | {added / used:.1%} | {result['wall']:.1%} ({low:.1%} to {high:.1%})"
            print(f"| {name} | {workers} | {shown} | {result['batches']:,} |", flush=True)
    print(f"\nLoad of the machine {os.getloadavg()[0]:.1f}.")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
