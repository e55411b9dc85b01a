"""The callback for the Trainer of Hugging Face, against the real package and against a plain loop."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import steplens

torch = pytest.importorskip("torch")
# importing them takes seconds, in every worker that collects this module
for name in ("transformers", "accelerate"):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}", allow_module_level=True)

from .conftest import COMPARED, Data, Recorded, network  # noqa: E402

pytestmark = pytest.mark.slow


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        found = self.network(x)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


def train(folder: Path, *, epochs: int, accumulate: int = 1, **options: Any) -> Any:
    import transformers

    from steplens.integrations.huggingface import SteplensCallback

    handler = steplens.tensorboard_trace_handler(folder, analyse_flag=False)
    callback = SteplensCallback(on_trace_ready=handler, **options)
    model = Model()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder.parent / "output"),
        num_train_epochs=epochs,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=accumulate,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        max_grad_norm=0.0,
        dataloader_pin_memory=False,
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=Data(),
        eval_dataset=Data(),
        callbacks=[callback],
        optimizers=(torch.optim.SGD(model.parameters(), lr=0.01), None),
    )
    trainer.train()
    return callback


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, Recorded]:
    """Steps 4 to 12 of two epochs of ten: the second epoch, and the evaluation between, lie in them."""
    from .conftest import plain_loop

    schedule = steplens.schedule(wait=3, warmup=1, active=9, repeat=1)
    folder = tmp_path_factory.mktemp("huggingface")
    train(folder / "ours", epochs=2, schedule=schedule)
    return Recorded(folder / "ours"), plain_loop(folder / "plain", epochs=2, schedule=schedule)


def test_steps_and_operators_are_those_of_a_plain_loop(both: tuple[Recorded, Recorded]) -> None:
    ours, plain = both
    assert ours.steps["step"].to_list() == plain.steps["step"].to_list() == list(range(4, 13))
    for name in COMPARED:
        # evaluation computes the loss too, which the plain loop does not
        steps = [step for step in range(4, 13) if step != 10 or not name.startswith("aten::mse_loss")]
        assert [ours.calls(name)[step] for step in steps] == [plain.calls(name)[step] for step in steps], name
    assert ours.calls("aten::mse_loss")[10] == 11
    assert ours.calls("validation") == {step: int(step == 10) for step in range(4, 13)}


def test_data_wait_optimizer_and_phases(both: tuple[Recorded, Recorded]) -> None:
    ours, _ = both
    # one batch is fetched ahead, so the last step of an epoch fetches none
    assert [ours.starting("enumerate(DataLoader)#")[step] for step in (4, 5, 6, 7, 11, 12)] == [1] * 6
    assert set(ours.starting("Optimizer.step#").values()) == {1}
    for row in ours.steps.iter_rows(named=True):
        for phase in ("forward_ns", "backward_ns", "optimizer_ns"):
            assert row[phase] > 0, (row["step"], phase)
        if row["step"] in (4, 5, 6, 7, 11, 12):
            assert row["data_wait_ns"] > 0


def test_accumulated_batches_are_one_step(tmp_path: Path, plain: Any) -> None:
    schedule = steplens.schedule(wait=1, warmup=0, active=3, repeat=1)
    train(tmp_path / "ours", epochs=1, accumulate=2, schedule=schedule)
    ours, expected = Recorded(tmp_path / "ours"), plain(tmp_path / "plain", epochs=1, accumulate=2, schedule=schedule)
    assert ours.steps["step"].to_list() == expected.steps["step"].to_list() == [1, 2, 3]
    assert ours.calls("aten::relu") == expected.calls("aten::relu") == {1: 2, 2: 2, 3: 2}
    assert ours.starting("Optimizer.step#") == {1: 1, 2: 1, 3: 1}


def test_without_transformers_it_says_what_is_missing() -> None:
    code = "import sys; sys.modules['transformers'] = None; import steplens.integrations.huggingface"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: steplens.integrations.huggingface needs Transformers: pip install transformers accelerate" in done.stderr
