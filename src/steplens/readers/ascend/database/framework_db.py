"""Reads the framework half of a profiler database: the tables that the Ascend PyTorch Profiler adds to CANN's."""

from __future__ import annotations

import polars as pl

from steplens.formats.ascend_database import ALLOCATION_TOTALS
from steplens.formats.ascend_terms import CANN_PREFIX, DEQUEUE, ENQUEUE, GE, PTA, PTA_AND_GE
from steplens.readers.ascend.ascend_link import scope_of
from steplens.readers.ascend.database.cann_names import ProfilerDatabase, Texts, thread_of
from steplens.readers.common.trace_rows import NO_THREAD
from steplens.trace import health as conclusions
from steplens.trace.building.nesting import lane_numbers, nest_calls
from steplens.trace.building.stacks import STACK_LIMIT
from steplens.trace.health import CALL_STACKS, FLOWS, MEMORY, OPERATOR_DEVICE_TIMES, WARNING
from steplens.trace.schema import NAME, STEP_PREFIX

_OP, _QUEUE, _PYTHON, _MARK = "op", "queue", "trace", "mstx"
_NPU = "NPU"


def framework_tables(database: ProfilerDatabase) -> dict[str, pl.DataFrame]:
    """The framework half of an open database as raw tables of a trace; a table without rows is left out.

    Besides the tables of a trace there is ``connections``: ``correlation``, the connection of a device task, and
    ``external_id``, the operator call that it belongs to.
    """
    calls, texts = _read_calls(database), database.texts
    pairs = database.whole_table("CONNECTION_IDS").drop_nulls()
    ops = _operator_calls(calls.filter(pl.col("kind").is_in([_OP, _MARK])), texts)
    if ops.height:
        stacks = _read_stacks(database, calls["callchainId"].drop_nulls().unique())
        ops = ops.join(stacks, on="callchainId", how="left", maintain_order="left") if stacks.height else ops
    tables = {
        "ops": ops.drop("callchainId", strict=False),
        "python": _python_frames(calls.filter(pl.col("kind") == _PYTHON), texts),
        "task_queue": _task_queue(calls.filter(pl.col("kind") == _QUEUE), pairs, database),
        "flows": _backward_flows(ops, pairs),
        "connections": _launch_connections(ops, pairs),
        "memory": _read_allocator_totals(database),
        "steps": _step_ranges(database, ops),
        "gc": _read_garbage_collections(database),
    }
    memory = tables["memory"]
    with_graph_engine = "NPU_OP_MEM" in database or (memory.height > 0 and GE in memory["component"].cast(pl.String))
    tables["allocations"] = _read_allocations(database, with_graph_engine)
    return {name: frame for name, frame in tables.items() if frame.height}


def _read_calls(database: ProfilerDatabase) -> pl.DataFrame:
    """PYTORCH_API with ``pid``, ``tid``, ``text`` (the name) and ``kind`` ("op", "queue", "trace", "mstx")."""
    rows = database.whole_table("PYTORCH_API")
    # build_trace counts operator calls that end before they start
    possible = database.in_time(rows.drop_nulls("globalTid"), ["startNs", "endNs"], "PYTORCH_API", conclusions.OPERATOR_TIMES)
    return possible.with_columns(
        text=database.texts.names_of(possible["name"]),
        kind=database.enums.of("ENUM_API_TYPE", possible["type"]).cast(pl.String),
        **thread_of("globalTid"),
    )


def _operator_calls(calls: pl.DataFrame, texts: Texts) -> pl.DataFrame:
    name = pl.col("text").cast(pl.String)
    return calls.with_columns(shapes=texts.lists(calls["inputShapes"]), types=texts.lists(calls["inputDtypes"])).select(
        name="text",
        start_ns="startNs",
        end_ns="endNs",
        pid="pid",
        tid="tid",
        scope=scope_of(name, pl.col("fwdThreadId")),
        sequence=pl.when(pl.col("sequenceNumber") >= 0).then("sequenceNumber"),
        forward_tid="fwdThreadId",
        external_id="connectionId",
        input_shapes="shapes",
        input_types="types",
        callchainId="callchainId",
    )


def _read_stacks(database: ProfilerDatabase, used: pl.Series) -> pl.DataFrame:
    """``callchainId`` and ``stack``: frames joined by ";", innermost first. Equal stacks become text once."""
    frames = database.whole_table("PYTORCH_CALLCHAINS").drop_nulls(["id", "stack"])
    lost = int((~used.is_in(frames["id"].unique().implode())).sum())
    if lost and "PYTORCH_CALLCHAINS" in database:
        message = "call stacks of operators are not in PYTORCH_CALLCHAINS"
        database.health.add("missing_stacks", WARNING, lost, message, CALL_STACKS)
    if not frames.height:
        return pl.DataFrame()
    frames = frames.sort("id", "stackDepth", maintain_order=True)
    chains = frames.group_by("id", maintain_order=True).agg(key=pl.col("stack").head(STACK_LIMIT).cast(pl.String).str.join(";"))
    distinct = chains.unique("key", keep="first").select("key", "id")
    frames_used = frames.filter(pl.col("id").is_in(distinct["id"].implode()))
    text = database.texts.names_of(frames_used["stack"]).cast(pl.String).str.replace_all(";", ",")
    frame_texts = frames_used.with_columns(text=text)
    joined = frame_texts.group_by("id").agg(stack=pl.col("text").head(STACK_LIMIT).str.join(";"))
    stacks = distinct.join(joined, on="id").select("key", pl.col("stack").cast(NAME))
    return chains.join(stacks, on="key").select("stack", callchainId="id")


def _python_frames(calls: pl.DataFrame, texts: Texts) -> pl.DataFrame:
    """Frames in order of thread and start; ids count them, and the caller is the frame around."""
    if not calls.height:
        return pl.DataFrame()
    frames = calls.select(name="text", start_ns="startNs", end_ns=pl.max_horizontal("startNs", "endNs"), pid="pid", tid="tid")
    frames = frames.sort("pid", "tid", "start_ns", "end_ns", descending=[False, False, False, True], maintain_order=True)
    lane = lane_numbers(frames["pid"].to_numpy(), frames["tid"].to_numpy())
    parent = pl.Series(nest_calls(lane, frames["start_ns"].to_numpy(), frames["end_ns"].to_numpy()).parent)
    return frames.with_columns(id=pl.int_range(pl.len(), dtype=pl.Int64), parent=parent.set(parent < 0, None))


def _task_queue(calls: pl.DataFrame, pairs: pl.DataFrame, database: ProfilerDatabase) -> pl.DataFrame:
    """Enqueues and dequeues that share a connection; their names tell them apart, and without names their order does."""
    if not calls.height:
        return pl.DataFrame()
    name = pl.col("text").cast(pl.String)
    shared = pairs.unique("id", keep="first").select(connectionId="id", shared="connectionId")
    rows = calls.sort("startNs", maintain_order=True).join(shared, on="connectionId", how="left", maintain_order="left")
    rows = rows.with_columns(correlation=pl.coalesce("shared", "connectionId"))
    is_even = pl.int_range(pl.len()).over("pid", "correlation") % 2 == 0
    by_order = pl.when(is_even).then(pl.lit(ENQUEUE)).otherwise(pl.lit(DEQUEUE))
    rows = rows.with_columns(
        side=pl.coalesce(name.str.extract(f"^({ENQUEUE}|{DEQUEUE})"), by_order),
        # Dequeue@<operator>
        task=name.str.extract(r"^\w+queue@(.*)$"),
    )
    # a repeated connection pairs first with first, second with second
    rows = rows.with_columns(nth=pl.int_range(pl.len()).over("side", "pid", "correlation"))
    keys = ["pid", "correlation", "nth"]
    sides = {}
    for side in (ENQUEUE, DEQUEUE):
        of_side = rows.filter((pl.col("side") == side) & pl.col("correlation").is_not_null())
        columns = {"tid": "tid", "start_ns": "startNs", "end_ns": "endNs", "task": "task"}
        sides[side] = of_side.select(*keys, **{f"{side.lower()}_{new}": old for new, old in columns.items()})
    joined = sides[ENQUEUE].join(sides[DEQUEUE], on=keys, how="full", coalesce=True)
    halves = int((joined["enqueue_tid"].is_null() | joined["dequeue_tid"].is_null()).sum()) + rows["correlation"].null_count()
    if halves:
        message = "tasks of the queue were recorded on one of its two sides only"
        database.health.add("half_queued_tasks", WARNING, halves, message, (OPERATOR_DEVICE_TIMES, FLOWS))
    return joined.sort(pl.coalesce("enqueue_start_ns", "dequeue_start_ns"), maintain_order=True).select(
        pl.exclude("nth", "enqueue_task", "dequeue_task"), name=pl.coalesce("dequeue_task", "enqueue_task").cast(NAME)
    )


def _backward_flows(ops: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Arrows from forward to backward calls: operator calls of both kinds that share a connection."""
    if not ops.height or not pairs.height:
        return pl.DataFrame()
    is_linked = pl.col("external_id").is_not_null()
    ends = ops.filter(is_linked).join(pairs, left_on="external_id", right_on="id", how="inner", maintain_order="left")
    backward = pl.col("forward_tid").fill_null(0) > 0
    point = {"ns": "start_ns", "pid": "pid", "tid": "tid"}
    first = ends.filter(~backward).select("connectionId", **{f"from_{name}": column for name, column in point.items()})
    last = ends.filter(backward).select("connectionId", **{f"to_{name}": column for name, column in point.items()})
    joined = first.unique("connectionId", keep="first", maintain_order=True).join(last, on="connectionId", maintain_order="left")
    return joined.select(pl.exclude("connectionId"), kind=pl.lit("fwdbwd", dtype=NAME), flow_id="connectionId").sort("from_ns")


def _launch_connections(ops: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    if not ops.height or not pairs.height:
        return pl.DataFrame()
    of_ops = pairs.filter(pl.col("id").is_in(ops["external_id"].drop_nulls().unique().implode()))
    return of_ops.unique("connectionId", keep="first", maintain_order=True).select(external_id="id", correlation="connectionId")


def _read_allocator_totals(database: ProfilerDatabase) -> pl.DataFrame:
    """Totals of the allocators after each of their events. Sums of two allocators follow from these and are left out."""
    rows = database.in_time(database.whole_table("MEMORY_RECORD"), ["timestamp"], "MEMORY_RECORD", MEMORY)
    if not rows.height:
        return pl.DataFrame()
    rows = rows.with_columns(component=database.texts.of(rows["component"]).cast(pl.String).fill_null(PTA))
    return rows.filter(pl.col("component") != PTA_AND_GE).select(
        time_ns="timestamp",
        allocated="totalAllocated",
        reserved="totalReserved",
        active="totalActive",
        **NO_THREAD,
        device_type=pl.lit(_NPU, dtype=NAME),
        device=pl.col("deviceId").cast(pl.Int32, strict=False),
        stream="streamPtr",
        component=pl.col("component").cast(NAME),
    )


def _read_allocations(database: ProfilerDatabase, with_graph_engine: bool) -> pl.DataFrame:
    """Allocations with their releases; those of the graph engine have no stream and no active totals."""
    rows = database.in_time(database.whole_table("OP_MEMORY"), ["allocationTime"], "OP_MEMORY", MEMORY)
    if not rows.height:
        return pl.DataFrame()
    name = pl.col("name").cast(pl.String).fill_null("")
    graph_engine = name.str.starts_with(CANN_PREFIX)
    if with_graph_engine:
        graph_engine |= pl.col("streamPtr").is_null() & pl.col("allocationTotalActive").is_null()
    return rows.with_columns(name=database.texts.of(rows["name"])).select(
        name=pl.when(graph_engine).then(pl.lit(CANN_PREFIX) + name.str.strip_prefix(CANN_PREFIX)).otherwise("name").cast(NAME),
        bytes="size",
        allocation_ns="allocationTime",
        release_ns="releaseTime",
        active_release_ns="activeReleaseTime",
        **{total: pl.col(column) for column, total in ALLOCATION_TOTALS.items()},
        stream="streamPtr",
        device_type=pl.lit(_NPU, dtype=NAME),
        device=pl.col("deviceId").cast(pl.Int32, strict=False),
        component=pl.when(graph_engine).then(pl.lit(GE)).otherwise(pl.lit(PTA)).cast(NAME),
    )


def _step_ranges(database: ProfilerDatabase, ops: pl.DataFrame) -> pl.DataFrame:
    """Steps that are not among the operator calls as ranges of their own."""
    rows = database.valid_ranges("STEP_TIME", conclusions.STEP_TIMES, database.whole_table("STEP_TIME").drop_nulls("id"))
    if not rows.height:
        return pl.DataFrame()
    names = ops["name"].cast(pl.String) if ops.height else pl.Series([], dtype=pl.String)
    ranges = ops.filter(names.str.starts_with(STEP_PREFIX)) if ops.height else ops
    recorded = names.filter(names.str.starts_with(STEP_PREFIX)).str.slice(len(STEP_PREFIX)).cast(pl.Int64, strict=False)
    if set(rows["id"]) <= set(recorded):
        return pl.DataFrame()
    thread = _stepping_thread(ranges if ranges.height else ops)
    return rows.select("id", start_ns="startNs", end_ns="endNs", **thread).sort("start_ns", maintain_order=True)


def _stepping_thread(ops: pl.DataFrame) -> dict[str, pl.Expr]:
    """The thread that steps: that of the step ranges, or else the busiest one."""
    pid = tid = None
    if ops.height:
        busiest = ops.group_by("pid", "tid").len().sort("len", "tid", descending=[True, False])
        pid, tid = busiest["pid"][0], busiest["tid"][0]
    return {"pid": pl.lit(pid, dtype=pl.Int64), "tid": pl.lit(tid, dtype=pl.Int64)}


def _read_garbage_collections(database: ProfilerDatabase) -> pl.DataFrame:
    return database.valid_ranges("GC_RECORD", conclusions.GARBAGE_COLLECTION).select(
        start_ns="startNs", end_ns="endNs", **thread_of("globalTid")
    )
