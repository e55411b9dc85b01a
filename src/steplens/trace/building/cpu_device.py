"""The CPU as a device: what of the operator calls is its device work when a run has no accelerator.

Every operator call is a *task* of the CPU, with the range of the call; the wrappers of autograd's engine are calls as well.
Its device time is the call's self time, so that over all calls device time is self time, and tasks of a thread nest as
their calls do: when the CPU computes is the union of their ranges, and nothing that an operator does is idle time. A call that
joins another one in PyTorch's statistics (``ops.counted_as``) is part of that one's task. User ranges and modules are no
computation, and communication has a table of its own; ``c10d::`` calls only hand it over, mostly inside of autograd's, and are
tasks as all others: without them device times would not add up to the time in which the CPU computes.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from steplens.common import json_text
from steplens.trace.building.communication_marks import CALLS_TO_PEERS, PEER_ARGUMENT, communication_kind
from steplens.trace.building.distinct import convert_distinct
from steplens.trace.building.nesting import Int64Array
from steplens.trace.schema import CORE_CPU, KIND_COMPUTE, NAME, SCHEMA, SCOPE_BACKWARD, SCOPE_FUNCTION

#: the group of a job that made no other
DEFAULT_GROUP = "default_group"
_COMMUNICATION = r"^(gloo|mpi|ucc):"
#: what a source may know of a task beside the call that it is
_TOLD = (
    "type", "device", "input_shapes", "input_types", "input_formats", "output_shapes", "output_types", "output_formats",
)  # fmt: skip


def communication_names(ops: pl.DataFrame) -> pl.Series:
    """The names of communication that the CPU itself ran; few traces have any."""
    names = ops["name"].unique()
    communicating: pl.Series = names.filter(names.cast(pl.String).str.contains(_COMMUNICATION).fill_null(False))
    return communicating


def tasks_of_calls(ops: pl.DataFrame, communication: pl.Series) -> Int64Array:
    """For each call the id of the call whose task it is part of (mostly its own); -1 for what does not compute.

    Args:
        ops: linked calls; id = row number.
        communication: of ``communication_names``.
    """
    computes = ops["scope"].is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    if len(communication):
        computes &= ~ops["name"].is_in(communication.implode()).fill_null(False)
    computing = computes.fill_null(False).to_numpy()
    joined = ops["counted_as"].to_numpy().astype(np.int64)
    # a call below a range of its own name is no part of a task: the range is none
    return np.where(computing, np.where(computing[joined], joined, np.arange(ops.height)), -1)


def cpu_tasks(ops: pl.DataFrame, task: Int64Array) -> pl.DataFrame:
    """The CPU's device tasks, as rows of ``kernels`` in the order of their calls: device 0, stream = thread id.

    Args:
        ops: linked calls, sorted by (pid, tid, start_ns, -end_ns).
        task: of ``tasks_of_calls``.
    """
    part = task >= 0
    self_ns = np.zeros(ops.height, dtype=np.int64)
    np.add.at(self_ns, task[part], ops["self_ns"].to_numpy()[part])
    columns = [column for column in ("input_shapes", "input_types") if column in ops.columns]
    tasks = ops.select("id", "name", "tid", "start_ns", "end_ns", "step", *columns, self_ns=pl.Series(self_ns))
    tasks = tasks.filter(pl.Series(task == np.arange(ops.height)))
    return tasks.select(
        id=pl.int_range(pl.len(), dtype=pl.Int32),
        name="name",
        type=convert_distinct(tasks["name"], lambda name: name.split("::")[-1]),
        kind=pl.lit(KIND_COMPUTE, dtype=NAME),
        core=pl.lit(CORE_CPU, dtype=NAME),
        device=pl.lit(0, dtype=pl.Int32),
        stream="tid",
        start_ns="start_ns",
        end_ns="end_ns",
        self_ns="self_ns",
        op="id",
        step="step",
        **{column: pl.col(column) for column in columns},
    )


def with_recorded(tasks: pl.DataFrame, recorded: pl.DataFrame) -> pl.DataFrame:
    """The CPU's tasks with what a source tells of them beside its calls, such as the types of MindSpore's operators.

    Result files list the calls a second time, as tasks, and place them as a device would run them, one after the other. A task
    of the source that belongs to none of its calls is kept as it is: its call was lost.

    Args:
        tasks: of ``cpu_tasks``.
        recorded: rows of ``kernels`` as the source has them, linked to calls.
    """
    call = ["op", "name"]
    types = {column: kind for column, kind in SCHEMA["kernels"].items() if column in recorded.columns}
    recorded = recorded.select(pl.col(column).cast(kind, strict=False) for column, kind in types.items())
    tasks = tasks.with_columns(pl.col("name").cast(NAME))
    columns = [column for column in _TOLD if column in recorded.columns]
    recorded_columns = recorded.drop_nulls("op").select(*call, *columns).unique(call, keep="first", maintain_order=True)
    joined = tasks.join(recorded_columns, on=call, how="left", suffix="_told", maintain_order="left")
    both = [column for column in columns if f"{column}_told" in joined.columns]
    joined = joined.with_columns(pl.coalesce(f"{column}_told", column).alias(column) for column in both)
    lost = recorded.filter(pl.col("op").is_null()).with_columns(self_ns=pl.col("end_ns") - pl.col("start_ns"))
    all_tasks = pl.concat([joined.drop(f"{column}_told" for column in both), lost], how="diagonal_relaxed")
    return all_tasks.with_columns(id=pl.int_range(pl.len(), dtype=pl.Int32))


def only_group(meta: pl.DataFrame | None) -> tuple[str | None, int | None]:
    """Name and size of the process group of every communication operation; None where it is not known.

    Gloo, MPI and UCC do not record the group. It is certain where the job has one group alone; among several it stays open.

    Args:
        meta: rows of ``meta``; ``distributedInfo`` lists the groups of the rank.
    """
    rows = meta.filter(pl.col("key").cast(pl.String) == "distributedInfo")["value"].to_list() if meta is not None else []
    try:
        job = json_text.loads_stored(rows[0]) if rows else None
    except ValueError:
        job = None
    groups = job.get("pg_config") if isinstance(job, dict) else None
    if not isinstance(groups, list) or not groups:
        return DEFAULT_GROUP, None
    if len(groups) > 1:
        return None, None
    size = groups[0].get("pg_size") if isinstance(groups[0], dict) else None
    return DEFAULT_GROUP, size if type(size) is int and 0 < size < 1 << 31 else None


def cpu_communication(ops: pl.DataFrame, meta: pl.DataFrame | None = None) -> pl.DataFrame:
    """Collectives and point-to-point operations that the CPU runs itself (gloo, MPI, UCC), as ``communication`` rows.

    Size and type are those of the tensors given to the operation, where their shapes were recorded; the group is that of
    ``only_group``.
    """
    group, ranks = only_group(meta)
    name = pl.col("name").cast(pl.String)
    op_columns = set(ops.columns)
    operation = name.str.replace(_COMMUNICATION, "").str.replace_all("_", "").str.replace("^recv", "receive")
    shapes = pl.col("input_shapes") if "input_shapes" in op_columns else pl.lit(None, dtype=pl.String)
    types = pl.col("input_types") if "input_types" in op_columns else pl.lit(None, dtype=pl.String)
    calls = ops.filter(name.str.contains(_COMMUNICATION)).with_columns(
        operation=operation, shapes=shapes.cast(pl.String), types=types.cast(pl.String)
    )
    sizes = calls.select("shapes", "types").unique()
    sizes = sizes.with_columns(
        pl.Series("elements", [_count_elements(text) for text in sizes["shapes"]], dtype=pl.Int64),
        dtype=pl.col("types").str.split(";").list.unique().list.join(";"),
    )
    calls = calls.join(sizes, on=["shapes", "types"], how="left", nulls_equal=True, maintain_order="left")
    # a number in the group is the rank where the group is that of all
    calls = _with_peers(calls, ops) if group == DEFAULT_GROUP else calls.with_columns(peer=None)
    return calls.select(
        name="name",
        kind=communication_kind(pl.col("operation")).cast(NAME),
        operation=pl.col("operation").cast(NAME),
        group=pl.lit(group, dtype=NAME),
        ranks=pl.lit(ranks, dtype=pl.Int32),
        elements="elements",
        bytes=pl.col("elements") * pl.col("dtype").replace_strict(TYPE_BYTES, default=None, return_dtype=pl.Int64),
        dtype=pl.col("dtype").cast(NAME),
        start_ns="start_ns",
        end_ns="end_ns",
        device=pl.lit(0, dtype=pl.Int32),
        stream="tid",
        op="id",
        step="step",
        peer="peer",
    )


def _with_peers(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Sends and receives with the other rank (``peer``), as the call that asked for each says where arguments were recorded.

    A send begins with that call then: its event begins when the message was handed over already, and may do so after it arrived.
    """
    if "arguments" not in ops.columns:
        return calls.with_columns(peer=None)
    asking = ops.filter(pl.col("name").cast(pl.String).is_in(CALLS_TO_PEERS))
    arguments = asking["arguments"].cast(pl.String)
    peer_of = {text: _peer_in(text) for text in arguments.unique() if text}
    asking = asking.select(
        "tid",
        asked_ns="start_ns",
        asked_end_ns="end_ns",
        is_send=pl.col("name").cast(pl.String) == CALLS_TO_PEERS[0],
        peer=arguments.replace_strict(peer_of, default=None, return_dtype=pl.Int32),
    ).sort("asked_ns")
    # the event outlives the call, so that it is not inside it
    matched = calls.with_row_index("_order").sort("start_ns")
    matched = matched.join_asof(asking, left_on="start_ns", right_on="asked_ns", by="tid", check_sortedness=False).sort("_order")
    is_send, is_receive = pl.col("operation") == "send", pl.col("operation") == "receive"
    is_asked = (pl.col("asked_end_ns") >= pl.col("start_ns")) & pl.col("peer").is_not_null()
    is_asked &= (is_send & pl.col("is_send")) | (is_receive & ~pl.col("is_send"))
    return matched.with_columns(
        peer=pl.when(is_asked).then("peer"),
        start_ns=pl.when(is_asked & is_send).then("asked_ns").otherwise("start_ns"),
    ).select(*calls.columns, "peer")


def _peer_in(arguments: str) -> int | None:
    try:
        peer = json_text.loads_stored(arguments)[PEER_ARGUMENT]
        return number if (number := int(peer)) >= 0 and number < 1 << 31 else None
    except (ValueError, IndexError, TypeError, KeyError):
        return None


#: element sizes by the C++ names that PyTorch records
TYPE_BYTES = {
    **dict.fromkeys(("unsigned char", "signed char", "bool", "c10::Float8_e4m3fn", "c10::Float8_e5m2"), 1),
    **dict.fromkeys(("c10::Half", "c10::BFloat16", "short int", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long int", "long", "c10::complex<float>"), 8),
}


def _count_elements(shapes: str | None) -> int | None:
    """How many elements the tensors of a shapes text ("2,3;4") have together; None where it does not say."""
    if not shapes:
        return None
    total = 0
    for shape in shapes.strip("[]").split(";"):
        sizes = shape.strip("[]").split(",")
        if not all(size.isdecimal() for size in sizes):
            return None
        total += math.prod(map(int, sizes))
    return total if total < _MOST_ELEMENTS else None


_MOST_ELEMENTS = 1 << 48
