"""Reads ``parallel_strategy_<rank>.json``: how MindSpore spread a network over devices, operator by operator.

The file has ``config`` (rankId, stageId, parallelType, stageDevices: per stage ``dim``, a list of ``size``, the ranks) and
``graph``: ``node`` (name, fullName, opType, scope, instanceName, input, attribute, outputType), ``parameters`` and ``constVals``.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import json_text
from steplens.readers.common.side_files import as_list, as_object
from steplens.readers.common.trace_rows import as_text
from steplens.readers.mindspore.minddata_cpu import json_object
from steplens.trace.health import COMMUNICATION_VOLUME, INFO, WARNING, HealthLog

#: the table of ``source_tables`` that holds the operators
TABLE = "parallel_strategy"
#: longer values of attributes are left out
_LONGEST = 1024
_DEEPEST = 8
#: what an operator was put in for, by a word in the name of its instance
_ROLES = (("grad_mirror", "gradient_aggregation"), ("redistribution", "redistribution"))
#: attribute with the strategy; of two the first that is there
_STRATEGY = ("in_strategy", "gen_strategy")
_COLUMNS = ("node", "name", "type", "scope", "role", "inputs", "output_shape", "output_type", "strategy", "group", "group_ranks",
            "attributes")  # fmt: skip
_NUMBER = re.compile(r"^-?[0-9]{1,15}$")
#: fields of which one holds a plain value
_PLAIN = ("strVal", "intVal", "uintVal", "boolVal", "floatVal", "doubleVal")


def read_strategy(path: Path, health: HealthLog) -> tuple[dict[str, Any], pl.DataFrame]:
    """The job and the operators of one rank.

    Args:
        path: the file.
        health: gets what is wrong.

    Returns:
        parallel_type, stage and stage_devices (rank lists by stage), as far as the file has them; and a row per operator, in the
        order of the file: node (its id), name, type, scope, role ("gradient_aggregation", "redistribution" or ""), inputs
        (JSON list of ids), output_shape, output_type, strategy (JSON: for each input its cuts per dimension; "" without),
        group, group_ranks, attributes (JSON object of texts).
    """
    file = json_object(path, health)
    job = _job_values(file.get("config"))
    if not job:
        health.add("damaged_side_file", WARNING, 1, f"{path.name} names no parallel strategy", COMMUNICATION_VOLUME)
    rows = []
    nameless = long = 0
    for node in as_list(as_object(file.get("graph")).get("node")):
        if not isinstance(node, dict) or not _member_text(node, "name") or not _member_text(node, "fullName"):
            nameless += 1
            continue
        row, dropped = _operator_row(node)
        rows.append(row)
        long += dropped
    if nameless:
        message = f"{nameless} operators of {path.name} have no name and were left out"
        health.add("damaged_side_file", WARNING, nameless, message, COMMUNICATION_VOLUME)
    if long:
        message = f"{long} attributes of {path.name} are longer than {_LONGEST} characters and were left out"
        health.add("long_attributes", INFO, long, message)
    return job, pl.DataFrame(rows, schema=dict.fromkeys(_COLUMNS, pl.String), orient="row")


def _job_values(config: Any) -> dict[str, Any]:
    config = as_object(config)
    devices: dict[str, list[int]] = {}
    for number, stage in enumerate(as_list(config.get("stageDevices"))):
        sizes = [str(dim.get("size", "")) for dim in as_list(as_object(stage).get("dim")) if isinstance(dim, dict)]
        devices[str(number)] = [int(size) for size in sizes if size.isascii() and size.isdigit() and len(size) < 10]
    job_values: dict[str, Any] = {"stage_devices": devices} if devices else {}
    if isinstance(config.get("parallelType"), str):
        job_values["parallel_type"] = config["parallelType"]
    if type(config.get("stageId")) is int:
        job_values["stage"] = config["stageId"]
    return job_values


def _operator_row(node: dict[str, Any]) -> tuple[tuple[str, ...], int]:
    """One row, and how many attributes were too long for it."""
    attributes: dict[str, str] = {}
    strategy: dict[str, str] = {}
    dropped = 0
    for attribute in as_list(node.get("attribute")):
        if not isinstance(attribute, dict) or not _member_text(attribute, "name"):
            continue
        value = json.dumps(_typed_value(attribute.get("value"), 0), ensure_ascii=False)
        if len(value) > _LONGEST:
            dropped += 1
            continue
        name = _member_text(attribute, "name")
        attributes[name] = value
        if name in _STRATEGY:
            strategy[name] = value
    input_names = [_member_text(item, "name") for item in as_list(node.get("input")) if isinstance(item, dict)]
    instance = _member_text(node, "instanceName")
    kind, shape = _output_type_and_shape(node.get("outputType"), 0)
    return (
        _member_text(node, "name"),
        _member_text(node, "fullName"),
        _member_text(node, "opType"),
        _member_text(node, "scope"),
        next((role for word, role in _ROLES if word in instance), ""),
        json.dumps([name for name in input_names if name]),
        attributes.get("shapes") or (json.dumps(shape) if shape else ""),
        kind,
        next((strategy[name] for name in _STRATEGY if name in strategy), ""),
        _strip_quotes(attributes.get("group", "")),
        _strip_quotes(attributes.get("group_ranks", "")),
        json.dumps({as_text(name): as_text(value) for name, value in attributes.items()}, ensure_ascii=False),
    ), dropped


def _member_text(node: dict[str, Any], name: str) -> str:
    value = node.get(name)
    return as_text(value) if isinstance(value, str) else ""


def _strip_quotes(value: str) -> str:
    """A JSON text without its quotes."""
    decoded = json_text.loads(value) if value else ""
    return decoded if isinstance(decoded, str) else value


def _typed_value(value: Any, depth: int) -> Any:
    """A typed value of the file as JSON has it."""
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    if isinstance(value.get("values"), list) or value.get("dtype") in ("DT_TUPLE", "DT_LIST"):
        return [_typed_value(item, depth + 1) for item in value.get("values") or []]
    if isinstance(value.get("typeVal"), dict):
        return value["typeVal"].get("dataType")
    text = next((value[name] for name in _PLAIN if name in value), None)
    dtype = str(value.get("dtype"))
    if dtype.startswith(("DT_INT", "DT_UINT", "DT_FLOAT")):
        try:
            number = float(str(text))
            # JSON has no numbers that are not finite
            if not math.isfinite(number):
                return str(text)
            return int(number) if number.is_integer() and abs(number) < 1 << 53 else number
        except ValueError:
            return text
    if dtype == "DT_BOOL":
        return str(text) not in ("0", "False", "false", "None")
    return text if isinstance(text, (str, int, float)) else None


def _output_type_and_shape(value: Any, depth: int) -> tuple[str, list[Any]]:
    """Type and shape of what an operator gives: "DT_FLOAT32" and [32, 64], or of several outputs a list of both."""
    if not isinstance(value, dict) or depth > _DEEPEST:
        return "", []
    tensor, sequence = value.get("tensorType"), value.get("sequenceType")
    if isinstance(tensor, dict):
        dims = as_list(as_object(tensor.get("shape")).get("dim"))
        sizes = [str(dim.get("size")) for dim in dims if isinstance(dim, dict)]
        return _member_text(tensor, "elemType"), [int(size) if _NUMBER.match(size) else size for size in sizes]
    if isinstance(sequence, dict) and isinstance(sequence.get("elemTypes"), list):
        parts = [_output_type_and_shape(item, depth + 1) for item in sequence["elemTypes"]]
        return ", ".join(kind for kind, _ in parts), [shape for _, shape in parts if shape]
    return _member_text(value, "dataType"), []
