"""The host half of an Ascend timeline: operators, Python calls, the task queue, collections, CANN's calls."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from steplens.formats.ascend_terms import LAYERS, MARKER_EX, OLDER_LAYERS
from steplens.formats.kineto import FORWARD_BACKWARD, OPERATOR, PYTHON, PYTHON_MEMBERS
from steplens.formats.trace_view import COLLECTION, DEQUEUE, ENQUEUE
from steplens.readers.ascend.ascend_link import scope_of
from steplens.readers.common.trace_rows import optional_column
from steplens.trace.health import CALL_STACKS, FLOWS, INFO, OPERATOR_DEVICE_TIMES, WARNING, HealthLog
from steplens.trace.schema import MARK_KINDS, MARKER, NAME

#: kinds of marks -> ours
_MARK_KINDS = {**{kind: kind for kind in MARK_KINDS}, MARKER_EX: MARKER}
_LAYER_PREFIX = rf"^({'|'.join(LAYERS)})@(.+)$"


def host_tables(events: Mapping[str, pl.DataFrame], health: HealthLog) -> dict[str, pl.DataFrame]:
    """Raw tables of the host.

    Args:
        events: category (see ``formats.trace_view``) -> its events, with start_ns and end_ns; ``calls`` those of CANN,
            ``others`` of processes that are none of the known, ``forward`` and ``backward`` the two ends of arrows,
            ``threads`` the names of threads.
        health: gets what does not fit together.
    """
    tables = {"threads": events["threads"]}
    for category, table, make in (
        (OPERATOR, "ops", _operator_calls),
        (COLLECTION, "gc", _garbage_collections),
        ("calls", "api", _cann_calls),
        ("others", "marks", _user_marks),
    ):
        if events[category].height:
            tables[table] = make(events[category])
    if events[PYTHON].height:
        tables["python"] = _python_calls(events[PYTHON], health)
    tables["task_queue"] = _task_queue(events[ENQUEUE], events[DEQUEUE], health)
    tables["flows"] = _flow_arrows(events["forward"], events["backward"], FORWARD_BACKWARD, health)
    return tables


def _operator_calls(frame: pl.DataFrame) -> pl.DataFrame:
    forward_tid = pl.col("forward_tid") if "forward_tid" in frame.columns else pl.lit(0)
    lists = [
        _one_line(frame[column]).alias(column) for column in ("input_shapes", "input_types", "stack") if column in frame.columns
    ]
    frame = frame.with_columns(*lists, scope=scope_of(pl.col("name").cast(pl.String), forward_tid))
    if "sequence" in frame.columns:
        frame = frame.with_columns(sequence=pl.when(pl.col("sequence") >= 0).then("sequence"))
    return frame


def _one_line(values: pl.Series) -> pl.Series:
    """Lists without the line breaks that the files have behind every ``;``, null if empty; each distinct text once."""
    distinct = values.drop_nulls().unique()
    if not len(distinct):
        return values
    texts = distinct.cast(pl.String)
    plain = texts.str.replace_all(r";\r?\n", ";").replace({"": None})
    return values if plain.equals(texts) else values.replace_strict(distinct, plain.cast(NAME), default=None, return_dtype=NAME)


def _garbage_collections(frame: pl.DataFrame) -> pl.DataFrame:
    # the process id holds a layer and, without a device, is -1; the thread is the process
    return frame.select("start_ns", "end_ns", pid="tid", tid="tid")


def _cann_calls(frame: pl.DataFrame) -> pl.DataFrame:
    name = pl.col("name").cast(pl.String)
    prefix = name.str.extract(_LAYER_PREFIX, 1)
    layer = prefix.replace_strict(LAYERS, default=None, return_dtype=pl.String)
    if "level" in frame.columns:
        layer = pl.coalesce(pl.col("level").cast(pl.String).replace(OLDER_LAYERS), layer)
    # distinct names are few
    distinct_names = frame.select(pl.col("name").unique()).with_columns(
        plain=pl.coalesce(name.str.extract(_LAYER_PREFIX, 2), name).cast(NAME)
    )
    return frame.join(distinct_names, on="name", how="left", maintain_order="left").select(
        *("start_ns", "end_ns", "pid", "tid"),
        name="plain",
        layer=layer.cast(NAME),
        correlation=optional_column(frame, "connection_id"),
    )


def _user_marks(frame: pl.DataFrame) -> pl.DataFrame:
    """User marks (MsprofTx, mstx): events that say which kind of mark they are."""
    event_columns = [column for column in ("event", "event_old") if column in frame.columns]
    if not event_columns:
        return frame.clear()
    domains = [column for column in ("domain", "domain_old") if column in frame.columns]
    return frame.filter(pl.any_horizontal(pl.col(event_columns).is_not_null())).select(
        *("start_ns", "end_ns", "pid", "tid"),
        domain=pl.coalesce(*domains) if domains else pl.lit(None, dtype=NAME),
        message="name",
        stream=optional_column(frame, "stream"),
        correlation=optional_column(frame, "connection_id"),
        kind=pl.coalesce(event_columns)
        .cast(pl.String)
        .replace_strict(_MARK_KINDS, default=None, return_dtype=pl.String)
        .cast(NAME),
    )


def _python_calls(frame: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    """Python calls with ids that are unique in the run; null parents for calls that no other encloses.

    Some profilers number the calls of each thread from 0 and give a call without parent the parent 0: it has none unless
    call 0 of its thread is around it.
    """
    columns = {f"python_{column}": column for column in PYTHON_MEMBERS}
    frame = frame.rename({old: new for old, new in columns.items() if old in frame.columns})
    if "id" not in frame.columns or "parent" not in frame.columns:
        return frame.drop("id", "parent", strict=False)
    thread = ["pid", "tid"]
    first = frame.filter(pl.col("id") == 0).unique(thread, keep="first")
    frame = frame.join(first.select(*thread, _first="start_ns", _last="end_ns"), on=thread, how="left", maintain_order="left")
    is_inside = (pl.col("start_ns") >= pl.col("_first")) & (pl.col("end_ns") <= pl.col("_last"))
    rootless = (pl.col("parent") == pl.col("id")) | ((pl.col("parent") == 0) & ~is_inside.fill_null(False))
    frame = frame.with_columns(parent=pl.when(~rootless).then("parent")).drop("_first", "_last")
    if frame["id"].n_unique() < frame.height:
        repeated = frame.height - frame.select(pl.struct(*thread, "id").n_unique()).item()
        if repeated:
            health.add("repeated_python_ids", WARNING, repeated, "Python calls share their number with another", CALL_STACKS)
        number = pl.struct(thread).rank("dense").cast(pl.Int64) - 1
        stride = frame.select(pl.col("id").max()).item() + 1
        if 0 < stride < 1 << 40:
            shift = number * stride
            frame = frame.with_columns(id=pl.col("id") + shift, parent=pl.col("parent") + shift)
    return frame


_QUEUE_END = {"name": NAME, **dict.fromkeys(("pid", "correlation_id", "tid", "start_ns", "end_ns"), pl.Int64())}


def _task_queue(enqueue: pl.DataFrame, dequeue: pl.DataFrame, health: HealthLog) -> pl.DataFrame:
    """Both ends of every task of the queue, joined by their number; an end without the other stays, half null."""
    key = ["pid", "correlation_id"]
    ends = []
    repeated = 0
    for side, frame in ((ENQUEUE, enqueue), (DEQUEUE, dequeue)):
        if not frame.height or "correlation_id" not in frame.columns:
            frame = pl.DataFrame(schema=_QUEUE_END)
        once = frame.drop_nulls("correlation_id").unique(key, keep="first", maintain_order=True)
        repeated += frame.height - once.height
        ends.append(
            once.select(
                *key,
                pl.col("name").cast(pl.String).str.extract("^(?:En|De)queue@(.*)$", 1).alias(f"{side}_name"),
                pl.col("tid").alias(f"{side}_tid"),
                pl.col("start_ns").alias(f"{side}_start_ns"),
                pl.col("end_ns").alias(f"{side}_end_ns"),
            )
        )
    if repeated:
        message = "ends of the task queue share their number"
        health.add("repeated_queue_numbers", WARNING, repeated, message, OPERATOR_DEVICE_TIMES)
    joined = ends[0].join(ends[1], on=key, how="full", coalesce=True, maintain_order="left_right")
    unpaired = joined.filter(pl.col("enqueue_tid").is_null() | pl.col("dequeue_tid").is_null()).height
    if unpaired:
        message = "tasks of the queue were recorded on one of its two sides only"
        health.add("half_queued_tasks", WARNING, unpaired, message, (OPERATOR_DEVICE_TIMES, FLOWS))
    name = pl.coalesce("dequeue_name", "enqueue_name").cast(NAME)
    return joined.with_columns(name=name).rename({"correlation_id": "correlation"}).drop("enqueue_name", "dequeue_name")


def _flow_arrows(starts: pl.DataFrame, ends: pl.DataFrame, kind: str, health: HealthLog) -> pl.DataFrame:
    """The arrows of one kind, by the first start and the first end of each id, in order of start."""
    pairs = pair_arrow_ends(starts, ends)
    missing = starts.height + ends.height - 2 * pairs.height
    if missing:
        health.add("unmatched_flows", INFO, missing, f"ends of arrows ({kind}) have no other end or a repeated one", FLOWS)
    if not pairs.height:
        return pl.DataFrame()
    return pairs.select(
        kind=pl.lit(kind).cast(NAME),
        flow_id=pl.col("id").cast(pl.Int64, strict=False),
        from_ns="start_ns",
        from_pid="pid",
        from_tid="tid",
        to_ns="start_ns_to",
        to_pid="pid_to",
        to_tid="tid_to",
    ).sort("from_ns", maintain_order=True)


def pair_arrow_ends(starts: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """The earliest start and the earliest end of every id; the columns of the end carry the suffix ``_to``."""
    if not starts.height or not ends.height:
        return pl.DataFrame(schema={"id": pl.String})
    once = [
        frame.drop_nulls("id").sort("start_ns", maintain_order=True).unique("id", keep="first", maintain_order=True)
        for frame in (starts, ends)
    ]
    return once[0].join(once[1], on="id", how="inner", suffix="_to", maintain_order="left")
