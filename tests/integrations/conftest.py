"""The plain loop that the callbacks are compared with, and what is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens

torch = pytest.importorskip("torch")

#: operators of the network, its loss and the optimizer: all that a framework has no other use for
COMPARED = ("aten::addmm", "aten::mm", "aten::relu", "aten::threshold_backward", "aten::mse_loss", "aten::mse_loss_backward")


class Data(torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
    """Forty samples of a fixed function."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(8, generator=generator)
        return {"x": x, "labels": x.sum().reshape(1)}


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def loader() -> Any:
    return torch.utils.data.DataLoader(Data(), batch_size=4)


class Recorded:
    """What a training left in a folder."""

    def __init__(self, folder: Path) -> None:
        self.directories = sorted(folder.glob("*_ascend_pt"))
        self.run = steplens.open(str(folder))
        self.steps = self.run.steps().sort("step")

    def calls(self, name: str) -> dict[int, int]:
        """How often an operator was called in each step."""
        ops = self.run.trace().ops.filter(pl.col("name").cast(pl.String) == name)
        table = ops.group_by("step").len().collect() if isinstance(ops, pl.LazyFrame) else ops.group_by("step").len()
        found = dict(table.iter_rows())
        return {step: found.get(step, 0) for step in self.steps["step"].to_list()}

    def starting(self, prefix: str) -> dict[int, int]:
        """How often calls whose names begin so are in each step."""
        ops = self.run.trace().ops.filter(pl.col("name").cast(pl.String).str.starts_with(prefix))
        table = ops.group_by("step").len().collect() if isinstance(ops, pl.LazyFrame) else ops.group_by("step").len()
        found = dict(table.iter_rows())
        return {step: found.get(step, 0) for step in self.steps["step"].to_list()}


def plain_loop(folder: Path, *, epochs: int, accumulate: int = 1, **options: Any) -> Recorded:
    """The training that the frameworks are asked for, written out."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handler = steplens.tensorboard_trace_handler(folder, analyse_flag=False)
    with steplens.profile(on_trace_ready=handler, **options) as profiler:
        for _ in range(epochs):
            for number, batch in enumerate(loader()):
                (torch.nn.functional.mse_loss(model(batch["x"]), batch["labels"]) / accumulate).backward()
                if (number + 1) % accumulate == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    profiler.step()
            with torch.no_grad(), torch.autograd.profiler.record_function("validation"):
                for batch in loader():
                    model(batch["x"])
    return Recorded(folder)


@pytest.fixture
def plain() -> Any:
    return plain_loop
