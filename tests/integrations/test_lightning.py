"""The callback for Lightning, against the real package and against a plain loop."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens

torch = pytest.importorskip("torch")
if importlib.util.find_spec("lightning") is None:
    pytest.skip("needs Lightning", allow_module_level=True)

from .conftest import COMPARED, Recorded, loader, network  # noqa: E402

pytestmark = pytest.mark.slow


@functools.cache
def module_class() -> Any:
    """Made when a test asks for it: every worker that collects this module would import Lightning, which takes 3 s."""
    import lightning.pytorch as lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, fails_at: int = -1) -> None:
            super().__init__()
            self.network = network()
            self.fails_at = fails_at

        def training_step(self, batch: Any, number: int) -> Any:
            if number == self.fails_at:
                raise RuntimeError("out of luck")
            return torch.nn.functional.mse_loss(self.network(batch["x"]), batch["labels"])

        def validation_step(self, batch: Any, number: int) -> None:
            self.network(batch["x"])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Module


def fit(folder: Path, *, epochs: int, module: Any = None, accumulate: int = 1, **options: Any) -> Any:
    import lightning.pytorch as lightning

    from steplens.integrations.lightning import SteplensCallback

    handler = steplens.tensorboard_trace_handler(folder, analyse_flag=False)
    callback = SteplensCallback(on_trace_ready=handler, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            max_epochs=epochs,
            callbacks=[callback],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accumulate_grad_batches=accumulate,
            num_sanity_val_steps=2,
        )
        trainer.fit(module or module_class()(), loader(), loader())
    return callback


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, Recorded]:
    """Steps 4 to 12 of two epochs of ten: the second epoch, and the validation between, lie in them."""
    from .conftest import plain_loop

    schedule = steplens.schedule(wait=3, warmup=1, active=9, repeat=1)
    folder = tmp_path_factory.mktemp("lightning")
    fit(folder / "ours", epochs=2, schedule=schedule)
    return Recorded(folder / "ours"), plain_loop(folder / "plain", epochs=2, schedule=schedule)


def test_steps_and_operators_are_those_of_a_plain_loop(both: tuple[Recorded, Recorded]) -> None:
    ours, plain = both
    assert ours.steps["step"].to_list() == plain.steps["step"].to_list() == list(range(4, 13))
    for name in COMPARED:
        assert ours.calls(name) == plain.calls(name), name
    # the forward pass of ten batches of validation lies in the step after the epoch
    assert ours.calls("aten::relu")[10] == 11
    assert ours.calls("validation") == {step: int(step == 10) for step in range(4, 13)}


def test_data_wait_optimizer_and_phases(both: tuple[Recorded, Recorded]) -> None:
    ours, plain = both
    for prefix in ("enumerate(DataLoader)#", "Optimizer.step#"):
        trained = [step for step in range(4, 13) if step != 10]
        assert [ours.starting(prefix)[step] for step in trained] == [plain.starting(prefix)[step] for step in trained], prefix
    assert set(ours.starting("Optimizer.step#").values()) == {1}
    assert set(ours.calls("Optimizer.closure").values()) == {1}
    for recorded in both:
        table = recorded.steps.filter(pl.col("step") != 10)
        for phase in ("data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns"):
            assert table[phase].min() > 0, phase
    # the optimizer's share without the closure: forward and backward are not taken for it
    whole = ours.run.trace().ops.filter(pl.col("name").cast(pl.String).str.starts_with("Optimizer.step#"))
    whole = whole.collect() if isinstance(whole, pl.LazyFrame) else whole
    step_ns = dict(whole.select("step", (pl.col("end_ns") - pl.col("start_ns")).alias("ns")).iter_rows())
    for row in ours.steps.iter_rows(named=True):
        assert row["optimizer_ns"] + row["backward_ns"] < step_ns[row["step"]] * 1.2 + 1
        assert row["optimizer_ns"] < step_ns[row["step"]] - row["backward_ns"] * 0.9


def test_accumulated_batches_are_one_step(tmp_path: Path, plain: Any) -> None:
    schedule = steplens.schedule(wait=1, warmup=0, active=3, repeat=1)
    fit(tmp_path / "ours", epochs=1, accumulate=2, schedule=schedule)
    ours, expected = Recorded(tmp_path / "ours"), plain(tmp_path / "plain", epochs=1, accumulate=2, schedule=schedule)
    assert ours.steps["step"].to_list() == expected.steps["step"].to_list() == [1, 2, 3]
    assert ours.calls("aten::relu") == expected.calls("aten::relu") == {1: 2, 2: 2, 3: 2}
    assert ours.starting("Optimizer.step#") == {1: 1, 2: 1, 3: 1}


def test_an_exception_keeps_the_window(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="out of luck"):
        fit(
            tmp_path,
            epochs=1,
            module=module_class()(fails_at=6),
            schedule=steplens.schedule(wait=2, warmup=0, active=90, repeat=1),
        )
    assert Recorded(tmp_path).steps["step"].to_list()[:4] == [2, 3, 4, 5]


def test_options_reach_the_profiler_and_it_can_train_again(tmp_path: Path) -> None:
    callback = fit(tmp_path, epochs=1, record_shapes=True, max_seconds=600.0)
    assert callback.profiler.run_directory is not None
    recorded = Recorded(tmp_path)
    assert recorded.steps["step"].to_list() == [2, 3, 4]
    assert recorded.run.operators(by="shape").height > 0


def test_steplens_run_tells_the_optimizer_from_its_closure(tmp_path: Path) -> None:
    script = """
import torch
parameter = torch.nn.Parameter(torch.randn(64, 64))
optimizer = torch.optim.LBFGS([parameter], lr=0.1, max_iter=3)
def closure():
    optimizer.zero_grad()
    loss = (parameter @ parameter).square().mean()
    loss.backward()
    return loss
for _ in range(6):
    optimizer.step(closure)
"""
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "steplens", "run", "--no-analyse-flag", "train.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    steps = Recorded(tmp_path / "result").steps
    assert steps["step"].to_list() == [2, 3, 4]
    for row in steps.iter_rows(named=True):
        assert row["forward_ns"] > 0
        assert row["backward_ns"] > 0
        assert 0 < row["optimizer_ns"] < row["duration_ns"]


def test_without_lightning_it_says_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['lightning'] = sys.modules['pytorch_lightning'] = None; import steplens.integrations.lightning"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: steplens.integrations.lightning needs Lightning: pip install lightning" in done.stderr
