"""Real training runs with one fault each that no other load on the machine hides: it is named, where it is, from one recording.

Prices, healthy runs and faults of a few percent are compared over many rounds on a machine that does nothing else, in
``test_seeded_faults.py`` (``make test-long``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .seeded_job import Trained, Trainer

pytest.importorskip("torch", reason="needs PyTorch")

pytestmark = pytest.mark.slow

#: what the loop sleeps through, counts or keeps, and what must say so
NAMED = {
    "workers": "loader_without_workers",
    "python": "python_in_the_loop",
    "shapes": "changing_shapes",
    "recompilation": "recompilation",
    "leak": "memory_growth",
    "optimizer": "single_tensor_optimizer",
}
RECORDED_STEPS = set(range(2, 14))


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    with Trainer() as trainer:
        yield trainer


def rules(trained: Trained) -> list[str]:
    return [finding.rule for finding in trained.advice.findings]


@pytest.mark.parametrize("fault", NAMED)
def test_a_fault_is_named(trainer: Trainer, tmp_path: Path, fault: str) -> None:
    trained = trainer.train(fault, tmp_path / fault)
    assert NAMED[fault] in rules(trained)
    finding = next(finding for finding in trained.advice.findings if finding.rule == NAMED[fault])
    assert set(finding.evidence[0].steps) <= RECORDED_STEPS
    if fault == "leak":
        assert finding.evidence[0].value == (1 << 13) * 64 * 4
        assert "aten::clamp_min" in finding.evidence[0].places


@pytest.mark.parametrize(
    ("cured", "rule"),
    [
        ("padded", "changing_shapes"),
        # of other rules the same; all are compared with their faults in test_seeded_faults.py
        pytest.param("compiled", "recompilation", marks=pytest.mark.long),
        pytest.param("fused", "single_tensor_optimizer", marks=pytest.mark.long),
    ],
)
def test_a_cured_fault_is_not(trainer: Trainer, tmp_path: Path, cured: str, rule: str) -> None:
    assert rule not in rules(trainer.train(cured, tmp_path / cured))
