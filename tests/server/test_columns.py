"""Units of columns, as their names tell them."""

from __future__ import annotations

import polars as pl
import pytest

from steplens.analysis.cluster import communication_operations
from steplens.analysis.operators import flops
from steplens.server.tables import columns


@pytest.mark.parametrize(
    ("table", "units"),
    [
        (flops.COLUMNS, {"flops": "FLOP", "flops_per_second": "FLOP/s", "flops_per_byte": "", "flops_percent": "percent"}),
        (communication_operations.OPERATIONS, {"bytes_per_second": "B/s", "transfer_ns": "ns", "bytes": "bytes"}),
    ],
)
def test_rates_are_told_with_their_units(table: dict[str, pl.DataType], units: dict[str, str]) -> None:
    told = {column.name: column.unit for column in columns.describe_columns(table, {})}
    assert {name: told[name] for name in units} == units
