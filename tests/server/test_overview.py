"""What the first page says of a data pipeline, and of savings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steplens.advice.finding import Finding, Saving
from steplens.server import advice, overview

from ..advice.test_loader_rules import trace_of, waits


def pipeline_of(folder: Path, got: Any) -> list[dict[str, Any]]:
    trace = trace_of(folder, got)
    shown: Any = SimpleNamespace(trace=lambda number: trace)
    return overview._pipeline_bottlenecks(shown, 0)


def test_the_stage_that_holds_up_a_loader_is_named_and_not_the_end_of_its_queue(tmp_path: Path) -> None:
    (row,) = pipeline_of(tmp_path, waits(5))
    assert (row["trace"], row["id"], row["usage"]) == (0, 0, None)
    assert row["name"].startswith("fetch of DataLoader(")


def test_a_loader_that_keeps_up_is_not_named(tmp_path: Path) -> None:
    assert pipeline_of(tmp_path, waits(0)) == []


def _finding(number: int, high_ns: float | None, **more: Any) -> Finding:
    saving = None if high_ns is None else Saving(0.0, high_ns, high_ns)
    return Finding("rule", 1.0, (), saving, subject=str(number), **more)


@pytest.mark.parametrize(
    ("highs", "together_ns", "said"),
    [
        ((), 0.0, ""),
        ((None, 10.0), 10.0, ""),
        ((10.0, 20.0), 30.0, ""),
        ((10.0, 20.0), 29.8, ""),
        ((10.0, 20.0), 29.6, "bounded"),
        # the first three do not overlap, which the first page shows; the last one does
        ((10.0, 10.0, 10.0, 10.0), 31.0, "bounded"),
    ],
)
def test_what_findings_save_together_is_decided_from_all(highs: tuple[float | None, ...], together_ns: float, said: str) -> None:
    findings = [_finding(number, high) for number, high in enumerate(highs)]
    assert advice.together_of(findings, together_ns) == said


def test_a_finding_that_is_not_among_the_first_tells_of_overlaps_and_of_what_is_at_stake() -> None:
    alone = [_finding(number, 10.0) for number in range(3)]
    assert advice.together_of([*alone, _finding(3, 5.0, overlaps=("rule:0",))], 35.0) == "overlap"
    assert advice.together_of([*alone, _finding(3, 5.0, after_ns={"rule:0": 2.0})], 35.0) == "bounded"
    stake = _finding(3, 90.0, at_stake=True)
    # what is at stake is no part of the sum
    assert advice.together_of([*alone, stake], 30.0) == ""
    assert advice.any_at_stake([*alone, stake]) and not advice.any_at_stake(alone)
