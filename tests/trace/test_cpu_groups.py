"""Which process group the communication of the CPU belongs to: its libraries do not say."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from steplens.trace.building.cpu_device import only_group


def meta(job: Any) -> pl.DataFrame:
    return pl.DataFrame({"key": ["rank", "distributedInfo"], "value": ["0", json.dumps(job)]})


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (meta({"pg_config": [{"pg_name": "0", "pg_size": 4}]}), ("default_group", 4)),
        (meta({"pg_config": [{"pg_name": "0", "pg_size": 4}, {"pg_name": "1", "pg_size": 2}]}), (None, None)),
        (meta({"backend": "gloo", "world_size": 2}), ("default_group", None)),
        (meta({"pg_config": [{"pg_name": "0", "pg_size": -4}]}), ("default_group", None)),
        (meta({"pg_config": ["damaged"]}), ("default_group", None)),
        (meta({"pg_config": {"pg_name": "0"}}), ("default_group", None)),
        (meta(["damaged"]), ("default_group", None)),
        (pl.DataFrame({"key": ["distributedInfo"], "value": ["{damaged"]}), ("default_group", None)),
        (pl.DataFrame({"key": ["distributedInfo"], "value": ["[" * 100_000]}), ("default_group", None)),
        (None, ("default_group", None)),
    ],
)
def test_of_several_groups_none_is_named(rows: pl.DataFrame | None, expected: tuple[str | None, int | None]) -> None:
    assert only_group(rows) == expected
