"""Train a small network under steplens and show where its steps went.

    python examples/demo.py [--out DIRECTORY] [--steps N]

The network is convolution + attention on images that the data set draws itself, loaded by two worker processes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import steplens

CLASSES = 4
SIZE = 32


class Stripes(Dataset[tuple[Tensor, int]]):
    """Noisy images with stripes in one of four directions; the class is the direction."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        """How many images there are."""
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Draw image ``index``: the same one every time."""
        generator = torch.Generator().manual_seed(index)
        label = index % CLASSES
        rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        phase = (rows, columns, rows + columns, rows - columns)[label] * 0.8
        image = torch.sin(phase + 6 * torch.rand((), generator=generator)) + 0.8 * torch.randn(3, SIZE, SIZE, generator=generator)
        return image, label


class Network(nn.Module):
    """Two convolutions make patches, attention relates them, a linear layer decides."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=4), nn.ReLU()
        )
        self.norm = nn.LayerNorm(64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.classify = nn.Linear(64, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """One score per class for each image."""
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        normed = self.norm(tokens)
        tokens = tokens + self.attention(normed, normed, normed, need_weights=False)[0]
        return self.classify(tokens.mean(1))


def train(out: Path, steps: int) -> float:
    """Train for ``steps`` steps, the last few of them recorded; the mean loss of the last five steps."""
    torch.manual_seed(0)
    batch = 32
    loader = DataLoader(Stripes(batch * steps), batch_size=batch, shuffle=True, num_workers=2)
    model = Network()
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []

    with steplens.profile(
        schedule=steplens.schedule(wait=2, warmup=2, active=min(5, steps - 5), repeat=1),
        # main() says what is next
        on_trace_ready=steplens.tensorboard_trace_handler(str(out), quiet=True),
        record_shapes=True,
        profile_memory=True,
        with_modules=True,
        experimental_config=steplens._ExperimentalConfig(
            profiler_level=steplens.ProfilerLevel.Level1, aic_metrics=steplens.AiCMetrics.AiCoreNone
        ),
    ) as profiler:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            profiler.step()
    return sum(losses[-5:]) / len(losses[-5:])


def main() -> int:
    """Train, analyse, print the summary, and say what to do next."""
    parser = argparse.ArgumentParser(description="Train a small network under steplens and show where its steps went.")
    parser.add_argument("--out", type=Path, default=Path("demo_result"), help="where the result goes; older runs there go")
    parser.add_argument("--steps", type=int, default=20, help="how many steps to train, at least 6")
    options = parser.parse_args()
    options.steps = max(options.steps, 6)
    forget(options.out)

    print(f"Training a small network (convolution + attention, two loader workers) for {options.steps} steps ...", flush=True)
    loss = train(options.out, options.steps)
    print(f"loss of the last steps: {loss:.3f}", flush=True)
    # waits for the analysis that the handler has started in another process
    steplens.analyse(str(options.out))
    command = [sys.executable, "-m", "steplens", "summary", str(options.out)]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        show_paths(options.out)
    return code


def forget(out: Path) -> None:
    """Remove the run directories of an earlier demo, and nothing else."""
    for old in out.glob("*_ascend_pt"):
        shutil.rmtree(old)


def show_paths(out: Path) -> None:
    """Where the results are and what opens them."""
    for run in sorted(out.glob("*_ascend_pt")):
        results = run / "ASCEND_PROFILER_OUTPUT"
        print(f"\nResults: {results} (named as the files of Ascend's profiler are, on every device)")
        for file in sorted(results.iterdir()):
            print(f"  {file.name}")
    print("\nNext commands:")
    for arguments in (
        f"view {out}",
        f"advise {out}",
        f"summary {out} --by module",
        f"summary {out} --by shape",
        "doctor",
        "run --out result YOUR_SCRIPT.py",
    ):
        print(f"  {Path(sys.executable).with_name('steplens')} {arguments}")


if __name__ == "__main__":
    sys.exit(main())
