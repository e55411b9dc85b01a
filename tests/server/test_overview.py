"""What the first page says of a data pipeline."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from steplens.server import overview

from ..advice.test_loader_rules import trace_of, waits


def pipeline_of(folder: Path, got: Any) -> list[dict[str, Any]]:
    trace = trace_of(folder, got)
    shown: Any = SimpleNamespace(trace=lambda number: trace)
    return overview._pipeline_bottlenecks(shown, 0)


def test_the_stage_that_holds_up_a_loader_is_named_and_not_the_end_of_its_queue(tmp_path: Path) -> None:
    (row,) = pipeline_of(tmp_path, waits(5))
    assert (row["trace"], row["id"], row["usage"]) == (0, 0, None)
    assert row["type"].startswith("fetch of DataLoader(")


def test_a_loader_that_keeps_up_is_not_named(tmp_path: Path) -> None:
    assert pipeline_of(tmp_path, waits(0)) == []
