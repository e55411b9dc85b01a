"""MindSpore's sums by operator: what MindInsight's parameters of a recording make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.trace.building.build import build_trace
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError
from steplens.writers.mindspore.mindspore_operators import detail_table, operator_times, type_table

LAUNCHES = [
    ("Default/net/MatMul-op0", "MatMul", 0, 600),
    ("Default/net/ReLU-op0", "ReLU", 700, 800),
    ("Gradients/Default/net/MatMul-op1", "MatMul", 900, 1100),
    ("Default/net/Variable-op2", "Variable", 1200, 1300),
]


def recorded(**config: Any) -> Trace:
    kernels = pl.DataFrame(LAUNCHES, schema=["name", "type", "start_ns", "end_ns"], orient="row")
    kernels = kernels.with_columns(core=pl.lit("CPU"), kind=pl.lit("compute"), device=pl.lit(0), stream=pl.lit(0))
    meta = pl.DataFrame({"key": ["config"], "value": [json.dumps(config)]})
    return build_trace(Path("made"), {"kernels": kernels, "meta": meta}, HealthLog(), cpu_is_device=False)


@pytest.mark.parametrize(
    ("config", "types", "instances"),
    [
        ({}, {"MatMul": 0.8, "ReLU": 0.1, "Variable": 0.1}, 4),
        ({"optypes_not_deal": ["Variable"]}, {"MatMul": 0.888888889, "ReLU": 0.111111111}, 3),
        ({"optypes_to_deal": "ReLU, MatMul", "optypes_not_deal": "ReLU"}, {"MatMul": 1.0}, 2),
        ({"optypes_to_deal": ["ReLU"]}, {"ReLU": 1.0}, 1),
        ({"subgraph": "Gradients"}, {"MatMul": 1.0}, 1),
        ({"subgraph": "Default"}, {"MatMul": 0.75, "ReLU": 0.125, "Variable": 0.125}, 3),
    ],
)
def test_types_and_subgraphs_that_count(config: dict[str, Any], types: dict[str, float], instances: int) -> None:
    trace = recorded(**config)
    assert dict(type_table(trace).select("op_type", "percent").iter_rows()) == types
    assert detail_table(trace, 1).height == instances


def test_instances_and_their_paths() -> None:
    assert "MatMul-op0" in detail_table(recorded(), 1)["op_name"].to_list()
    assert "Default/net/MatMul-op0" in detail_table(recorded(is_show_op_path=True), 1)["op_name"].to_list()
    assert type_table(recorded(is_detail=False)).height == 3
    with pytest.raises(NothingToWriteError, match="is_detail"):
        detail_table(recorded(is_detail=False), 1)
    with pytest.raises(NothingToWriteError, match="subgraph"):
        type_table(recorded(optypes_to_deal="Conv2D"))


def test_operators_without_recorded_shapes_have_none() -> None:
    (found,) = json.loads(operator_times(recorded(), ["ReLU"], 0))["ReLU"]
    assert found["input_shape"] == ""
