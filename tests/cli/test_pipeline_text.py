"""The data pipeline in ``steplens summary``."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from steplens.cli.text.pipeline_text import pipeline_rows, show_pipeline
from steplens.readers.steplens_run import loaders
from steplens.trace.building.build import build_trace
from steplens.trace.health import HealthLog

from ..readers.loader_files import write


def shown(folder: Path, **options: Any) -> list[str]:
    write(folder, **options)
    trace = build_trace(folder, loaders.tables(folder, HealthLog()), HealthLog())
    rows: list[dict[str, Any]] = pipeline_rows(SimpleNamespace(traces=[trace]))  # type: ignore[arg-type]
    assert json.loads(json.dumps(rows)) == rows
    text = io.StringIO()
    show_pipeline(Console(file=text, width=200), rows)
    return text.getvalue().strip().splitlines()


def test_a_loader_with_workers(tmp_path: Path) -> None:
    assert shown(tmp_path) == [
        "Data pipeline",
        "  DataLoader(Images, id=0): 2 workers, busy 55 %, 10 % of a processor each, queue 30 % full; "
        "the loop waits 11.9 % of its time",
        "    fetch: 4.00 ms a batch (P90 4.00 ms), 41 % of all stages; it holds up the loop",
        "    transform: 2.00 ms a batch (P90 2.00 ms), 21 % of all stages",
        "    collate: 3.00 ms a batch (P90 3.00 ms), 31 % of all stages",
        "    transfer: 750.00 us a batch (P90 750.00 us), 8 % of all stages",
    ]


def test_a_loader_without_workers(tmp_path: Path) -> None:
    lines = shown(tmp_path, workers=0)
    assert lines[1] == "  DataLoader(Images, id=0): no workers; the loop spends 23.8 % of its time on loading"
    assert [line.split(":")[0].strip() for line in lines[2:]] == ["fetch", "transform", "collate"]


@pytest.mark.parametrize("batches", [0, 1])
def test_too_few_batches_for_a_verdict(tmp_path: Path, batches: int) -> None:
    assert shown(tmp_path, batches=batches) == []
