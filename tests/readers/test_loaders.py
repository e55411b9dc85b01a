"""What is recorded of data loaders: whole, cut off, damaged and hostile."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from steplens.readers.steplens_run import loaders, run_files
from steplens.trace.health import CONCLUSIONS, HealthLog
from steplens.trace.schema import SCHEMA

from .loader_files import MS, START, stage, write


def read(folder: Path) -> tuple[dict[str, pl.DataFrame], list[tuple[str, int]]]:
    health = HealthLog()
    tables = loaders.tables(folder, health)
    for name, frame in tables.items():
        assert frame.height
        assert set(frame.columns) <= set(SCHEMA[name])
    for finding in health.findings:
        assert set(finding.conclusions()) <= set(CONCLUSIONS) | {"options of the run"}
    return tables, [(item.check, item.count) for item in health.findings]


def test_nothing_recorded(tmp_path: Path) -> None:
    assert run_files.loader_files(tmp_path) == []
    assert read(tmp_path) == ({}, [])


def test_a_loader_with_workers(tmp_path: Path) -> None:
    write(tmp_path)
    tables, findings = read(tmp_path)
    assert findings == []
    tasks = tables["pipeline_tasks"]
    assert tasks["batch"].to_list() == [0, 1, 2, 3, 4, 5]
    assert tasks["worker"].to_list() == [0, 1, 0, 1, 0, 1]
    assert tasks["pid"].to_list() == [500, 501, 500, 501, 500, 501]
    # the processor time of a worker is a running sum; per batch it is what was added
    assert tasks["cpu_ns"].to_list() == [None, None, *[2 * MS] * 4]
    assert tasks["pin_end_ns"].null_count() == 6
    assert tasks["ready"].to_list() == [0, 1, 2, 0, 1, 2]
    assert tables["pipeline_epochs"].row(0) == (0, 0, START, START + 5 * MS, START + 12 * MS)
    (loader,) = tables["pipeline_loaders"].to_dicts()
    assert (loader["dataset"], loader["workers"], loader["queue_capacity"], loader["transform"]) == ("Images", 2, 4, True)
    tree = tables["pipeline_ops"].select(pl.col("type").cast(pl.String), "id", "parent", "workers", "queue_capacity")
    assert tree.rows() == [
        ("Iterator", 0, None, 1, None),
        ("Transfer", 2, 0, 1, None),
        ("Collate", 3, 2, 2, 4),
        ("Transform", 4, 3, 2, None),
        ("Fetch", 5, 4, 2, None),
    ]
    assert tables["pipeline_samples"]["value"].to_list() == [0, 1, 2, 0, 1, 2]
    batches = tables["pipeline_batches"]
    assert batches["wait_ns"].to_list() == tasks["wait_ns"].to_list()
    assert batches["queue_capacity"].to_list() == [4] * 6


def test_the_loop_that_loads(tmp_path: Path) -> None:
    write(tmp_path, workers=0)
    tables, findings = read(tmp_path)
    assert findings == []
    assert tables["pipeline_tasks"]["worker"].null_count() == 6
    # all that the process did from one batch to the next
    assert tables["pipeline_tasks"]["cpu_ns"].to_list() == [None, 0, 2 * MS, 0, 2 * MS, 0]
    assert tables["pipeline_ops"]["type"].cast(pl.String).to_list() == ["Iterator", "Collate", "Transform", "Fetch"]


def test_batches_that_nobody_is_known_to_have_made(tmp_path: Path) -> None:
    write(tmp_path, without=(0, 3, 4))
    tables, findings = read(tmp_path)
    # the first came before any record; the others should have one
    assert findings == [("loader_reached_late", 1), ("loader_records_missing", 2)]
    assert tables["pipeline_tasks"]["start_ns"].null_count() == 3


def test_short_transforms_that_were_not_timed_are_unknown(tmp_path: Path) -> None:
    write(tmp_path, change=lambda row: {**row, "transforms": -1, "transform_ns": 0} if row["batch"] % 2 else row)
    tables, findings = read(tmp_path)
    assert findings == []
    assert tables["pipeline_tasks"]["transforms"].to_list() == [4, None, 4, None, 4, None]
    assert tables["pipeline_tasks"]["transform_ns"].null_count() == 3


def test_a_batch_that_failed_was_never_collated(tmp_path: Path) -> None:
    write(tmp_path, change=lambda row: {**row, "failed": 1, "collate_ns": 0} if row["batch"] == 5 else row)
    tables, findings = read(tmp_path)
    assert findings == []
    assert tables["pipeline_tasks"]["failed"].to_list() == [False] * 5 + [True]
    assert tables["pipeline_tasks"]["collate_ns"].null_count() == 1


@pytest.mark.parametrize(
    "change",
    [
        {"start_ns": 0},
        {"start_ns": -5},
        {"end_ns": 1 << 62},
        {"collate_ns": START + 10_000 * MS},
        {"transform_ns": 1 << 60},
        {"transform_ns": -1},
        {"worker": -7},
        {"worker": 1 << 40},
        {"loader": 3},
        {"epoch": -1},
        {"batch": -1},
        {"failed": 2},
        {"cpu_ns": -1},
        {"pid": -1},
        {"batch": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_row_that_makes_no_sense_is_left_out(tmp_path: Path, change: dict[str, int]) -> None:
    write(tmp_path, change=lambda row: {**row, **change} if row["batch"] == 2 else row)
    tables, findings = read(tmp_path)
    assert findings == [("damaged_side_file", 1), ("loader_records_missing", 1)]
    assert tables["pipeline_tasks"]["batch"].to_list() == [0, 1, 2, 3, 4, 5]


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    write(tmp_path)
    rows = tmp_path / "loaders.bin"
    whole = rows.read_bytes()
    for size in (len(whole) - 1, len(whole) - 8 * len(loaders.BATCH_COLUMNS) * 2, 100, 0):
        rows.write_bytes(whole[:size])
        _, findings = read(tmp_path)
        assert "truncated_side_file" in dict(findings)


@pytest.mark.parametrize(
    "change",
    [
        {"stages": -1},
        {"stages": 1 << 61},
        {"stages": True},
        {"batches": "6"},
        {"stage_columns": ["loader"]},
        {"batch_columns": None},
    ],
    ids=str,
)
def test_a_description_that_does_not_fit(tmp_path: Path, change: dict[str, Any]) -> None:
    write(tmp_path)
    path = tmp_path / "loaders.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert read(tmp_path) == ({}, [("damaged_side_file", 1)])


def test_hostile_descriptions(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "loaders.json"
    good = json.loads(path.read_text())
    bad_loaders = [7, {"loader": 0, "workers": 1}, {"loader": "0", "workers": 1}, {"loader": 1, "workers": 1 << 70}]
    bad_epochs = [*good["epochs"], [0, 1, 2], [0, 1, 2, 3, -4], None, [9, 0, START, 0, 0]]
    path.write_text(json.dumps({**good, "loaders": [*good["loaders"], *bad_loaders], "epochs": bad_epochs}))
    tables, findings = read(tmp_path)
    assert findings == [("damaged_side_file", 4), ("damaged_side_file", 4)]
    assert tables["pipeline_loaders"].height == tables["pipeline_epochs"].height == 1
    path.write_text(json.dumps({**good, "loaders": {}, "epochs": 3}))
    tables, findings = read(tmp_path)
    assert tables == {}


def test_any_bytes_are_read_or_refused(tmp_path: Path) -> None:
    numbers = random.Random(5)
    write(tmp_path)
    rows = tmp_path / "loaders.bin"
    whole = np.frombuffer(rows.read_bytes(), dtype="<i8")
    for _ in range(200):
        changed = whole.copy()
        for _ in range(numbers.randrange(1, 6)):
            changed[numbers.randrange(len(changed))] = numbers.choice([0, -1, 1, START, 1 << 62, -(1 << 63), (1 << 63) - 1, 7])
        rows.write_bytes(changed.tobytes())
        read(tmp_path)


def test_columns_are_those_that_are_written() -> None:
    from steplens.collect.loaders import loader
    from steplens.collect.loaders.loader_ring import BATCH_COLUMNS

    assert list(loader._FILE_COLUMNS) == loaders.STAGE_COLUMNS == list(stage(0))
    assert list(BATCH_COLUMNS) == loaders.BATCH_COLUMNS
