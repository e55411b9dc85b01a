"""Runs without the strings of their users: every table of every trace, before anything is asked about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens.common import json_text
from steplens.common.errors import InputError
from steplens.readers.steplens_run import memory_categories
from steplens.report.redaction import public
from steplens.report.redaction.pseudonyms import Pseudonyms, Replace
from steplens.run import Run, Source
from steplens.server.runs import Opened, OpenedRun
from steplens.trace.building.devices import NPU, device_kind
from steplens.trace.schema import SCHEMA, SCOPE_USER
from steplens.trace.trace import Trace

#: table -> column -> what its texts are, a method of ``Pseudonyms``
REPLACED: Mapping[str, Mapping[str, str]] = {
    "ops": {"stack": "stack", "module": "module", "input_shapes": "types", "input_types": "types", "arguments": "types"},
    "python": {"name": "frame"},
    "python_stacks": {"name": "frame"},
    "api": {"name": "call", "layer": "term"},
    "task_queue": {"name": "task"},
    "kernels": {"name": "task", "type": "device_type", "input_shapes": "types", "output_shapes": "types"},
    "kernel_metrics": {"name": "term"},
    "communication": {"name": "task", "operation": "term", "group": "group", "algorithm": "term", "dtype": "types"},
    "communication_times": {"name": "task", "group": "group"},
    "communication_bandwidth": {"name": "task", "group": "group"},
    "communication_matrix": {"name": "task", "op_name": "task", "group": "group"},
    "allocations": {"name": "task"},
    "step_collectives": {"name": "task"},
    "pipeline_ops": {"type": "pipeline_operator"},
    "pipeline_samples": {"scope": "term", "name": "term", "unit": "types"},
    "pipeline_batches": {"name": "class_name"},
    "pipeline_loaders": {"dataset": "class_name", "collate": "collate"},
    "marks": {"domain": "domain", "message": "record"},
    "counters": {"group": "term", "name": "term", "unit": "types"},
    "flows": {"kind": "term"},
    "threads": {"name": "thread"},
    "source_tables": {"table": "term", "record": "vendor_record"},
    "health": {"message": "words"},
}
#: texts that a source takes from a list of its own: kinds, types of data, units
KEPT = frozenset(
    (
        "kind", "category", "core", "task_type", "state", "hf32", "input_types", "input_formats", "output_types",
        "output_formats", "transport", "selection", "event", "device_type",
        "component", "start_method", "check", "severity", "unsafe",
    )
)  # fmt: skip
#: what devices and versions are called, which analyses look up
_KEPT_META = ("accelerator", "deviceProperties", "chip", "torch_version", "steplens_version", "cann_version", "source_format")


def redact_runs(runs: Sequence[OpenedRun]) -> None:
    """Replace the strings of users in opened runs, and their paths; nothing of them is left in the memory of the runs."""
    names = Pseudonyms()
    for shown in runs:
        opened = shown.opened
        assert opened is not None
        shown.path = names.path("run", shown.path)
        shown.opening.what = ""
        shown.opened = Opened(_redact_run(opened.run, names, shown.path), opened.origins, opened.generation, {})


def _redact_run(run: Run, names: Pseudonyms, path: Path) -> Run:
    traces = []
    for source, trace in zip(run.sources, run.traces, strict=True):
        run_path = names.path("run", source.path)
        traces.append((Source(run_path, source.format), _with_categories(trace_of(trace, names, run_path), trace, names)))
    unreadable = [
        InputError(names.path("run", one.path), names.words(one.problem), names.words(one.remedy)) for one in run.unreadable
    ]
    return Run(path, traces, unreadable)


def _with_categories(made: Trace, trace: Trace, names: Pseudonyms) -> Trace:
    """The categories of memory, which lie beside the tables: numbers and devices, in which no user has a word."""
    try:
        events = trace.once(memory_categories.of_trace)
    except InputError as error:
        problem = InputError(names.path("file", error.path), names.words(error.problem), names.words(error.remedy))

        def raise_problem(_: Trace) -> pl.DataFrame | None:
            raise problem

        made.instead(memory_categories.of_trace, raise_problem)
    else:
        redacted_events = None if events is None else events.with_columns(_replace_texts(events["device_type"], names.words))
        made.instead(memory_categories.of_trace, lambda _: redacted_events)
    return made


def trace_of(trace: Trace, names: Pseudonyms, source: Path) -> Trace:
    """The tables of a trace without the strings of its user; nothing else about them changes."""
    tables: dict[str, pl.DataFrame] = {}
    for name in trace:
        frame = trace.table(name)
        assert frame is not None
        if name == "ops":
            frame = _redact_operators(frame, names)
        if name == "meta":
            frame = _redact_meta(frame, names)
        for column, kind in REPLACED.get(name, {}).items():
            if kind == "task" and device_kind(trace) == NPU:
                kind = "npu_task"
            if kind == "device_type" and device_kind(trace) != NPU:
                kind = "category_or_task"
            frame = frame.with_columns(_replace_texts(frame[column], getattr(names, kind)))
        tables[name] = frame
    if "kernels" in tables and "ops" in tables:
        tables["kernels"] = _redact_tasks(trace, tables["kernels"], names)
    return Trace(source, tables)


def _redact_operators(frame: pl.DataFrame, names: Pseudonyms) -> pl.DataFrame:
    """Calls of the framework by their names; ranges that a user opened only where the framework opens such ones."""
    # where no scope was recorded, what a name looks like decides
    scope = (frame["scope"] == SCOPE_USER).fill_null(False)
    called, opened = (_replace_texts(frame["name"], replace).cast(pl.String) for replace in (names.operator, names.range))
    return frame.with_columns(pl.Series("name", opened.zip_with(scope, called)).cast(SCHEMA["ops"]["name"]))


def _redact_tasks(trace: Trace, frame: pl.DataFrame, names: Pseudonyms) -> pl.DataFrame:
    """Tasks of a CPU are calls, and have their names; their types are the names without a namespace."""
    before = trace.required("kernels").select(pl.col("name", "type", "core").cast(pl.String)).collect()
    on_cpu = (before["core"] == "CPU").fill_null(False)
    if not on_cpu.any():
        return frame
    redacted_names = _replace_texts(before["name"], names.operator)
    is_unchanged = redacted_names == before["name"]
    types = pl.Series(before["type"].zip_with(is_unchanged.fill_null(True), redacted_names))
    return frame.with_columns(
        redacted_names.zip_with(on_cpu, frame["name"].cast(pl.String)).cast(SCHEMA["kernels"]["name"]).alias("name"),
        types.zip_with(on_cpu, frame["type"].cast(pl.String)).cast(SCHEMA["kernels"]["type"]).alias("type"),
    )


def _redact_meta(frame: pl.DataFrame, names: Pseudonyms) -> pl.DataFrame:
    rows = [_told_meta(key, value, names) for key, value in frame.select("key", "value").iter_rows()]
    return pl.DataFrame(rows, schema=SCHEMA["meta"], orient="row")


def _told_meta(key: str, value: str, names: Pseudonyms) -> tuple[str, str]:
    if key == "deviceProperties" and isinstance(devices := _decode_json(value), list):
        return key, json.dumps([names.device(item) if isinstance(item, dict) else names.setting(key, item) for item in devices])
    if key in _KEPT_META:
        return key, public.BUILD.sub("", value)
    if key in public.META_KEYS:
        return key, json.dumps(names.setting(key, _decode_json(value)))
    # added by the script
    return names.name("key", key), json.dumps(names.values(_decode_json(value)))


def _decode_json(text: str) -> Any:
    try:
        return json_text.loads_stored(text)
    except ValueError:
        return text


def _replace_texts(column: pl.Series, replace: Replace) -> pl.Series:
    """A column with each distinct text replaced; its type stays."""
    texts = column.cast(pl.String)
    distinct = texts.unique().drop_nulls().to_list()
    replacements = texts.replace_strict(distinct, [replace(text) for text in distinct], default=None, return_dtype=pl.String)
    replaced: pl.Series = replacements.cast(column.dtype).alias(column.name)
    return replaced
