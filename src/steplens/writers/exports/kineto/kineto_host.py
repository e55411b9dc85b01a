"""The host's layers of a file of Kineto: operator calls, annotations, Python frames, runtime calls, memory, arrows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl

from steplens.formats import kineto
from steplens.formats.ascend_terms import CALL_PREFIXES, NODE
from steplens.trace.schema import BLOCK_FREE, KIND_COPY, OPTIMIZER_STEP_PREFIX, SCOPE_MODULE, SCOPE_USER, STEP_PREFIX
from steplens.writers.common.json_events import number_member, text_member
from steplens.writers.common.links import forward_backward
from steplens.writers.common.output import NPU
from steplens.writers.common.rows import ROWS_PER_CHUNK, Member, write_rows
from steplens.writers.common.text import render_distinct
from steplens.writers.exports.kineto.kineto_links import Twin, event_heads, event_start

#: by these names alone HolisticTraceAnalysis knows what launches
_LAUNCH, _COPY = "cudaLaunchKernel", "cudaMemcpyAsync"

#: other accelerators count as CUDA's
_DEVICE_TYPES = {name: number for number, name in kineto.DEVICE_TYPES.items() if name in ("CPU", "CUDA", "HIP", "XPU", "NPU")}


def _write_operators(twin: Twin) -> None:
    ops = twin.trace.ops
    if ops is None:
        return
    ops = ops.with_columns(external_id=twin.external_ids, launch=twin.launching_calls)
    # a file with Python frames says by them where calls come from
    frames = "python" in twin.trace
    modules = bool((ops["scope"] == SCOPE_MODULE).any())
    name = pl.col("name").cast(pl.String)
    annotates = pl.col("scope").is_in([SCOPE_USER, SCOPE_MODULE])
    annotates |= name.str.starts_with(STEP_PREFIX) | name.str.starts_with(OPTIMIZER_STEP_PREFIX)
    for part in ops.iter_slices(ROWS_PER_CHUNK):
        operator, annotation = (event_heads(part["name"], category) for category in (kineto.OPERATOR, kineto.ANNOTATION))
        twin.calls(
            part,
            pl.when(annotates.fill_null(False)).then(annotation).otherwise(operator),
            pl.col("pid"),
            pl.col("tid"),
            (kineto.EXTERNAL_ID, pl.col("external_id")),
            number_member(kineto.OPERATOR_MEMBERS["sequence"], "sequence", part),
            number_member(kineto.OPERATOR_MEMBERS["forward_tid"], "forward_tid", part),
            text_member(kineto.OPERATOR_MEMBERS["input_shapes"], part["input_shapes"], shapes_json),
            text_member(kineto.OPERATOR_MEMBERS["input_types"], part["input_types"], types_json),
            "" if frames else text_member(kineto.OPERATOR_MEMBERS["stack"], part["stack"]),
            "" if modules else text_member(kineto.OPERATOR_MEMBERS["module"], part["module"]),
            number_member("flops", "flops", part),
            number_member("correlation", "launch", part),
            ("Ev Idx", pl.col("id")),
        )


def _write_steps(twin: Twin) -> None:
    """The steps of a source that has no range around each of them."""
    steps = twin.trace.steps
    ops = twin.trace.required("ops").select(pl.col("name").cat.starts_with(STEP_PREFIX).any()).collect().item()
    if steps is None or ops:
        return
    twin.calls(
        steps,
        # not pl.format: only since some version of polars it takes two braces for one
        pl.concat_str(pl.lit(f',\n{{"ph":"X","cat":"{kineto.ANNOTATION}","name":"{STEP_PREFIX}'), "id", pl.lit('","pid":')),
        pl.col("pid").fill_null(twin.pid),
        pl.col("tid").fill_null(twin.pid),
        ',"args":{',
    )


def _write_python_calls(twin: Twin) -> None:
    frames = twin.trace.python
    if frames is None:
        return
    for part in frames.iter_slices(ROWS_PER_CHUNK):
        twin.calls(
            part,
            event_heads(part["name"], kineto.PYTHON),
            pl.col("pid").fill_null(twin.pid),
            pl.col("tid"),
            (kineto.PYTHON_MEMBERS["id"], pl.col("id")),
            (kineto.PYTHON_MEMBERS["parent"], pl.when(pl.col("parent") >= 0).then("parent")),
            number_member(kineto.PYTHON_MEMBERS["module_id"], "module_id", part),
        )


def _runtime_calls(twin: Twin) -> None:
    calls = twin.trace.api
    if calls is None:
        return
    layer, name = pl.col("layer").cast(pl.String), pl.col("name").cast(pl.String).fill_null("")
    if twin.device_kind == NPU:
        prefix = layer.replace_strict(CALL_PREFIXES, default="", return_dtype=pl.String)
        calls = calls.with_columns(
            category=pl.lit(kineto.RUNTIME), called=pl.concat_str(prefix, name), launches=_launch_names(twin, calls)
        )
    else:
        missing = pl.lit(None, dtype=pl.String)
        calls = calls.with_columns(category=layer.fill_null(kineto.RUNTIME), called=name, launches=missing)
    calls = calls.with_columns(head=pl.concat_str("category", pl.lit("\0"), pl.coalesce("launches", "called")))
    for part in calls.iter_slices(ROWS_PER_CHUNK):
        renamed = part.select(pl.when(pl.col("launches").is_not_null()).then("called")).to_series()
        arguments = (
            number_member(kineto.EXTERNAL_ID, "external_id", part),
            number_member("correlation", "correlation", part),
            text_member("name", renamed),
        )
        present = [pl.lit(cell) if isinstance(cell, pl.Series) else cell for cell in arguments if not isinstance(cell, str)]
        # each begins with a comma, which the first one must not have
        members = pl.concat_str(present).str.slice(1) if present else ""
        head = render_distinct(part["head"], lambda text: event_start(*text.split("\0", 1)))
        twin.calls(part, head, pl.col("pid").fill_null(twin.pid), pl.col("tid").fill_null(0), ',"args":{', members)


def _launch_names(twin: Twin, calls: pl.DataFrame) -> pl.Series:
    """What the tools call a call of CANN that launched a task; null for the others.

    Of the calls of several layers with one correlation it is the launch itself ("node"), or else the first one.
    """
    tasks = pl.concat([twin.tasks.select("link", "kind"), twin.collectives.select("link", "kind")], how="vertical_relaxed")
    kinds = tasks.drop_nulls("link").unique("link", keep="first", maintain_order=True)
    copies = pl.col("kind").cast(pl.String) == KIND_COPY
    launch_kinds = kinds.select(correlation="link", launches=pl.when(copies).then(pl.lit(_COPY)).otherwise(pl.lit(_LAUNCH)))
    rows = calls.select("correlation", row=pl.int_range(pl.len()), other=pl.col("layer").cast(pl.String) != NODE)
    first = rows.drop_nulls("correlation").sort("other", "row").unique("correlation", keep="first", maintain_order=True)
    launching = first.join(launch_kinds, on="correlation", maintain_order="left")
    names: pl.Series = pl.Series("launches", [None], dtype=pl.String).new_from_index(0, calls.height)
    return names.scatter(launching["row"], launching["launches"]) if launching.height else names


def _write_memory_events(twin: Twin) -> None:
    memory = twin.trace.memory
    if memory is None:
        return
    # memory that goes back to the pool was freed before
    events = memory.filter(pl.col("bytes").is_not_null() & pl.col("event").cast(pl.String).ne_missing(BLOCK_FREE))
    number = pl.col("device_type").cast(pl.String).replace_strict(_DEVICE_TYPES, default=1, return_dtype=pl.Int64)
    for part in events.iter_slices(ROWS_PER_CHUNK):
        write_rows(
            twin.handle,
            part,
            ',\n{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":',
            pl.col("pid").fill_null(twin.pid),
            ("tid", pl.col("tid").fill_null(0)),
            ("ts", twin.ts("time_ns")),
            ',"args":{"Bytes":',
            pl.col("bytes"),
            number_member("Addr", "address", part),
            number_member(kineto.MEMORY_MEMBERS["allocated"], "allocated", part),
            number_member(kineto.MEMORY_MEMBERS["reserved"], "reserved", part),
            (kineto.MEMORY_MEMBERS["device_type"], number),
            (kineto.MEMORY_MEMBERS["device"], pl.when(number == 0).then(-1).otherwise(pl.col("device").fill_null(0))),
            "}}",
        )


def _forward_backward(twin: Twin) -> None:
    """An arrow from a forward call to its backward call: the source's own, or those that its sequence numbers give."""
    recorded = twin.trace.required("flows").filter(pl.col("kind").cast(pl.String) == kineto.FORWARD_BACKWARD).collect()
    if recorded.is_empty():
        pairs = forward_backward(twin.trace)
        recorded = pairs.select("from_ns", from_pid="pid", from_tid="from_tid", to_ns="start_ns", to_pid="pid", to_tid="tid")
    _write_arrows(twin, recorded.with_columns(id=pl.int_range(1, pl.len() + 1)), kineto.FORWARD_BACKWARD)


def _write_launch_arrows(twin: Twin) -> None:
    """An arrow from each call that launched a task to the first task that it launched."""
    if twin.device_kind == "CPU":
        # a call that is its own task needs no arrow
        return
    api = twin.trace.required("api").drop_nulls("correlation").unique("correlation", keep="first", maintain_order=True)
    places = [api.select(pl.col("correlation").alias("id"), from_ns="start_ns", from_pid="pid", from_tid="tid")]
    ops = twin.trace.required("ops").select("start_ns", "pid", "tid").collect().with_columns(id=twin.launching_calls)
    places.append(ops.lazy().drop_nulls("id").select("id", from_ns="start_ns", from_pid="pid", from_tid="tid"))
    tasks = pl.concat([frame.select("link", "start_ns", "device", "stream") for frame in (twin.tasks, twin.collectives)])
    first = tasks.drop_nulls("link").sort("start_ns", maintain_order=True).unique("link", keep="first", maintain_order=True)
    ends = first.select(id="link", to_ns="start_ns", to_pid=pl.col("device").cast(pl.Int64), to_tid="stream")
    pairs = pl.concat(places).collect().join(ends, on="id", maintain_order="left")
    _write_arrows(twin, pairs, kineto.LAUNCH)


def _write_arrows(twin: Twin, pairs: pl.DataFrame, category: str) -> None:
    """Both ends of every arrow: id, from_ns, from_pid, from_tid, to_ns, to_pid, to_tid."""
    cells: list[Member] = []
    for phase, end in (("s", "from"), ("f", "to")):
        cells += [f',\n{{"ph":"{phase}","cat":"{category}","name":"{category}"', ("id", pl.col("id"))]
        cells += [("pid", pl.col(f"{end}_pid").fill_null(twin.pid)), ("tid", pl.col(f"{end}_tid").fill_null(0))]
        cells += [("ts", twin.ts(f"{end}_ns")), ',"bp":"e"}' if phase == "f" else "}"]
    for part in pairs.iter_slices(ROWS_PER_CHUNK):
        write_rows(twin.handle, part, *cells)


def shapes_json(text: str) -> str | None:
    """``Input Dims`` of a text of shapes: ``2,3;;[4;5]`` becomes ``[[2, 3], [], [[4], [5]]]``; None where the text is none."""
    try:
        return json.dumps([_parse_shape(item) for item in _split_list(text)])
    except (ValueError, RecursionError):
        return None


def types_json(text: str) -> str | None:
    """``Input type`` of a text of types."""
    try:
        return json.dumps([_parse_type(item) for item in _split_list(text)], ensure_ascii=False)
    except (ValueError, RecursionError):
        return json.dumps(text.split(";"), ensure_ascii=False)


def _parse_shape(item: str) -> list[Any]:
    if item.startswith("["):
        return [_parse_shape(inner) for inner in _split_list(_strip_brackets(item))]
    return [int(size) for size in item.split(",")] if item else []


def _parse_type(item: str) -> Any:
    return [_parse_type(inner) for inner in _split_list(_strip_brackets(item))] if item.startswith("[") else item


def _strip_brackets(item: str) -> str:
    if not item.endswith("]"):
        raise ValueError(f"unbalanced brackets in {item!r}")
    return item[1:-1]


def _split_list(text: str) -> list[str]:
    """The parts between the semicolons that are in no brackets."""
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == ";" and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
    if depth:
        raise ValueError(f"unbalanced brackets in {text!r}")
    return [*parts, text[begin:]]


LAYERS: tuple[Callable[[Twin], None], ...] = (
    _write_operators,
    _write_steps,
    _write_python_calls,
    _runtime_calls,
    _write_memory_events,
    _forward_backward,
    _write_launch_arrows,
)
