"""Reads what the data pipeline's monitor samples of the CPU: of the host, of the process, of every operation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common.storage.files import read_bytes
from steplens.readers.common import json_decoder
from steplens.readers.common.side_files import as_list, as_object
from steplens.trace.health import COUNTERS, STEP_PHASES, WARNING, HealthLog
from steplens.trace.schema import SCHEMA

_SIZE_LIMIT_BYTES = 512 << 20
_LATEST_MS = (1 << 61) // 1_000_000
_FLOAT_LIMIT = 1e300

_PROCESSES = ("runnable_process", "runable_processes", "runnable_processes")
_CUT = ("user_utilization", "sys_utilization")

#: scope, operation, name, unit and values of one row of samples
Sampled = tuple[str, int | None, str, str, pl.Series]


def json_object(path: Path, health: HealthLog) -> dict[str, Any]:
    """The object in a JSON file of the pipeline; empty, with a finding, where it cannot be used."""
    try:
        if path.stat().st_size > _SIZE_LIMIT_BYTES:
            raise ValueError(f"larger than {_SIZE_LIMIT_BYTES >> 20} MiB")
        value = json_decoder.decode(read_bytes(path))
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError) as error:
        health.add("unreadable_file", WARNING, 1, f"{path.name} cannot be used ({error})", STEP_PHASES)
        return {}
    return value


def number_column(values: Any) -> pl.Series:
    """A list of numbers as a column, null for what is none; empty where it is no list."""
    if not isinstance(values, list):
        return pl.Series(dtype=pl.Float64)
    floats = [float(v) if type(v) in (int, float) and -_FLOAT_LIMIT < v < _FLOAT_LIMIT else None for v in values]
    return pl.Series(floats, dtype=pl.Float64)


def sample_rows(rows: Sequence[Sampled], time_ns: pl.Series | None = None) -> pl.DataFrame:
    """Rows of ``pipeline_samples``; sample k of each has the k-th of the times, null where there is none."""
    frames = [pl.DataFrame(schema=SCHEMA["pipeline_samples"])]
    for scope, operation, name, unit, values in rows:
        count = pl.int_range(len(values), dtype=pl.Int32, eager=True)
        sample_times = pl.Series(dtype=pl.Int64) if time_ns is None else time_ns.head(len(values))
        frame = pl.DataFrame(
            {"sample": count, "time_ns": sample_times.extend_constant(None, len(values) - len(sample_times)), "value": values}
        )
        constants = {"scope": scope, "op": operation, "name": name, "unit": unit}
        frame = frame.with_columns(**{key: pl.lit(value) for key, value in constants.items()})
        frames.append(frame.select(pl.col(column).cast(dtype) for column, dtype in SCHEMA["pipeline_samples"].items()))
    return pl.concat(frames)


def cpu_samples(path: Path, health: HealthLog, clock_offset_ns: int = 0) -> tuple[pl.DataFrame, pl.Series, int | None]:
    """Samples of ``minddata_cpu_utilization_<rank>.json``.

    Newer versions of MindSpore write every value of the host twice and cut those of user and system time to half of that:
    every second value is taken then, and what was cut off is absent.

    Returns:
        rows of ``pipeline_samples`` without the missing values; the times of the samples (ns); the number of processors.
    """
    cpu_object = json_object(path, health)
    stamps = [
        int(value) * 1_000_000 + clock_offset_ns if type(value) in (int, float) and 0 <= value < _LATEST_MS else None
        for value in as_list(cpu_object.get("time_stamp"))
    ]
    time_ns = pl.Series("time_ns", stamps, dtype=pl.Int64)
    rows = _host_samples(cpu_object, len(stamps), health)
    rows += [("process", None, name, "%", values) for name, values in _section_columns(cpu_object, "process_info").items()]
    for scope, section in (("process", "process_memory_info"), ("host", "system_memory_info")):
        for name, values in _section_columns(cpu_object, section).items():
            rows.append((scope, None, name.removesuffix("_mbytes"), "MB", values))
    for operation in as_list(cpu_object.get("op_info")):
        number = operation.get("op_id") if isinstance(operation, dict) else None
        if type(number) is int and 0 <= number < 1 << 31:
            rows += [("op", number, name, "%", values) for name, values in _section_columns(operation, "metrics").items()]
    unequal = sum(1 for row in rows if row[0] != "host" and len(row[4]) != len(stamps))
    if unequal:
        message = f"rows of samples in {path.name} are not as long as its times"
        health.add("unequal_samples", WARNING, unequal, message, COUNTERS)
    processors = cpu_object.get("cpu_processor_num")
    sampled = sample_rows(rows, time_ns).drop_nulls("value")
    return sampled, time_ns, processors if type(processors) is int and 0 < processors < 1 << 31 else None


def _section_columns(whole: dict[str, Any], key: str) -> dict[str, pl.Series]:
    return {name: number_column(values) for name, values in as_object(whole.get(key)).items()}


def _host_samples(whole: dict[str, Any], count: int, health: HealthLog) -> list[Sampled]:
    section = _section_columns(whole, "device_info")
    longest = max((len(values) for values in section.values()), default=0)
    doubled = count > 1 and longest > 1.5 * count
    if doubled:
        lost = sum(count - len(values[2::2]) for name, values in section.items() if name in _CUT)
        message = "MindSpore wrote the host's samples twice and cut some off; the second halves of user and system time are lost"
        health.add("doubled_samples", WARNING, max(lost, 1), message, COUNTERS)
    rows: list[Sampled] = []
    for name, values in section.items():
        plain = "runnable_processes" if name in _PROCESSES else name
        unit = "%" if name.endswith("utilization") else "1"
        # the first pair is a baseline of zeros, one more than there are times
        rows.append(("host", None, plain, unit, values[2::2].head(count) if doubled else values))
    return rows
