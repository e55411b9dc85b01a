"""MindSpore's files of the data pipeline that are computed: ``minddata_pipeline_raw`` and ``minddata_pipeline_summary``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import polars as pl

from steplens.analysis.data_loading.data_pipeline import operations
from steplens.analysis.data_loading.pipeline_verdict import held_up_by
from steplens.formats.mindspore import PIPELINE_RAW_COLUMNS
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.text import write_json

#: in place of what an operation does not have
_NONE = -1
_ADVICE = {
    "Batch": "Try a larger prefetch_size, and a larger num_parallel_workers.",
    "Generator": "Try a larger num_parallel_workers, a faster generator, or MindRecordDataset in place of GeneratorDataset.",
    "Map": "Try a larger num_parallel_workers, and faster operations: what runs in Python can be optimised or replaced.",
}
_OTHER_ADVICE = "Try a larger num_parallel_workers."
_WORKER_LESS = {"Barrier", "Concat", "EpochCtrl", "Rename", "Repeat", "Shuffle", "Skip", "Take", "Zip"}
#: % of one core
_BUSY, _IDLE = 75.0, 20.0
#: % points between the queue before an operation and the one behind it
_HOLDS_UP = 50.0


def write_raw(output: Output, path: Path) -> None:
    """Write minddata_pipeline_raw_<rank>.csv: the operations that have a queue; usage rates are 0 to 1."""
    table = operations(output.trace)
    if table.is_empty():
        raise NothingToWriteError("no data pipeline was recorded")
    interval = output.trace.meta_value("pipeline_sampling_interval_ms")
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(PIPELINE_RAW_COLUMNS)
    for row in table.iter_rows(named=True):
        sizes = [_drop_zero_fraction(size) for size in row["queue_sizes"] or []]
        queue = (json.dumps(sizes), row["mean_size"], row["queue_capacity"], row["usage"]) if sizes else ("", "", "", "")
        children = json.dumps(row["children"]) if row["children"] else ""
        rows.writerow(
            (row["id"], row["type"], row["workers"], *queue, _format_cell(interval), _format_cell(row["parent"]), children)
        )
    path.write_text(text.getvalue(), encoding="utf-8")


def _drop_zero_fraction(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _format_cell(value: Any) -> Any:
    return "" if value is None else _drop_zero_fraction(value) if isinstance(value, float) else value


def summary(trace: Trace) -> dict[str, Any]:
    """What minddata_pipeline_summary has: one list per key in the order of operations' ids, -1 for what one does not have.

    ``queue_utilization_pct`` and ``queue_empty_freq_pct`` are percent of the samples, ``avg_cpu_pct`` percent of one core, times
    per batch ms without the first batch. The bottleneck is what the advice names, too:
    ``analysis.data_loading.pipeline_verdict.held_up_by``.
    """
    pipeline_ops = trace.pipeline_ops
    if pipeline_ops is None or pipeline_ops.is_empty():
        raise NothingToWriteError("no data pipeline was recorded")
    queued = {row["id"]: row for row in operations(trace).iter_rows(named=True)}
    rows = pipeline_ops.with_columns(pl.col("type").cast(pl.String)).sort("id").to_dicts()
    short = {row["id"]: str(row["type"]).removesuffix("Op") for row in rows}
    cpu = _mean_cpu_use(trace)
    children: dict[int, list[int]] = {row["id"]: [] for row in rows}
    for row in rows:
        if row["parent"] is not None and row["parent"] in children:
            children[row["parent"]].append(row["id"])

    def queue_value(number: int, key: str, factor: float) -> float:
        value = queued.get(number, {}).get(key)
        return _NONE if value is None else round(value * factor, 2)

    result: dict[str, Any] = {
        "pipeline_ops": [f"{short[row['id']]}(id={row['id']})" for row in rows],
        "op_names": [short[row["id"]] for row in rows],
        "op_ids": [row["id"] for row in rows],
        "num_workers": [row["workers"] if row["workers"] is not None else _NONE for row in rows],
        "queue_average_size": [queue_value(row["id"], "mean_size", 1) for row in rows],
        "queue_utilization_pct": [queue_value(row["id"], "usage", 100) for row in rows],
        "queue_empty_freq_pct": [queue_value(row["id"], "empty_share", 100) for row in rows],
        "children_ids": [children[row["id"]] for row in rows],
        "parent_id": [row["parent"] if row["parent"] is not None else _NONE for row in rows],
    }
    if cpu:
        result["avg_cpu_pct"] = [round(cpu.get(row["id"], 0.0), 2) for row in rows]
    batches = _batches_after_first(trace)
    for key, column in (("per_batch_time", "total_ns"), ("per_pipeline_time", "get_ns"), ("per_push_queue_time", "push_ns")):
        mean = batches[column].mean() if batches.height else None
        result[key] = [round(float(mean) / 1e6, 3) if isinstance(mean, (int, float)) else _NONE]
    if cpu:
        workers = {row["id"]: max(row["workers"] or 1, 1) for row in rows}
        per_worker = {row["id"]: cpu.get(row["id"], 0.0) / workers[row["id"]] for row in rows}
        result["avg_cpu_pct_per_worker"] = [round(per_worker[row["id"]], 2) for row in rows]
        result["cpu_analysis_details"] = [text for row in rows if (text := _cpu_text(row, short, per_worker))]
    if texts := _queue_texts(queued, short):
        result["queue_analysis_details"] = texts
    if held_up := held_up_by(trace):
        result["bottleneck_warning"] = [f"{short[number]}(id={number})" for number in held_up]
        result["bottleneck_suggestion"] = [_ADVICE.get(short[number], _OTHER_ADVICE) for number in held_up]
    return result


def _mean_cpu_use(trace: Trace) -> dict[int, float]:
    """Mean CPU use of every operation, % of one core: user and system."""
    name = pl.col("name").cast(pl.String)
    rows = (
        trace.required("pipeline_samples")
        .filter((pl.col("scope").cast(pl.String) == "op") & name.is_in(["user_utilization", "sys_utilization"]))
        .group_by("op", "name")
        .agg(pl.col("value").mean())
        .group_by("op")
        .agg(pl.col("value").sum())
        .drop_nulls()
        .collect()
    )
    return dict(rows.iter_rows())


def _batches_after_first(trace: Trace) -> pl.DataFrame:
    kind = pl.col("kind").cast(pl.String)
    rows = trace.required("pipeline_batches").filter(kind.is_in(["iterate", "send"])).sort("batch").collect()
    return rows.tail(-1) if rows.height > 1 else rows


def _cpu_text(row: dict[str, Any], short: dict[int, str], per_worker: dict[int, float]) -> str:
    number, use = row["id"], per_worker[row["id"]]
    name = f"{short[number]}(id={number}) uses {use:.2f} % of a core per worker"
    if short[number] in _WORKER_LESS:
        return ""
    if use > _BUSY:
        return f"{name}; more than num_parallel_workers={row['workers']} may help."
    if use < _IDLE and (row["workers"] or 1) > 1:
        return f"{name}; num_parallel_workers={row['workers']} may not bring much."
    return ""


def _queue_texts(queued: dict[int, dict[str, Any]], short: dict[int, str]) -> list[str]:
    texts = []
    for number, row in queued.items():
        for child in row["children"]:
            before, behind = queued[child]["usage"], row["usage"]
            if before is not None and behind is not None and 100 * (before - behind) > _HOLDS_UP:
                texts.append(
                    f"{short[number]}(id={number}) takes its input more slowly than {short[child]}(id={child}) makes it: "
                    f"the queue before it is {100 * before:.2f} % full, the one behind it {100 * behind:.2f} %."
                )
    return texts


def write_summary_json(output: Output, path: Path) -> None:
    """Write minddata_pipeline_summary_<rank>.json."""
    write_json(summary(output.trace), path)


def write_summary_csv(output: Output, path: Path) -> None:
    """Write minddata_pipeline_summary_<rank>.csv: one key per line, followed by its values."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    for key, values in summary(output.trace).items():
        rows.writerow((key, *(json.dumps(value) if isinstance(value, list) else value for value in values)))
    path.write_text(text.getvalue(), encoding="utf-8")
