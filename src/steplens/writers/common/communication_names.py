"""What the clients know communication operations and their groups by, for runs whose library gives neither.

The clients match the operations of ranks by name and group, know point-to-point operations by the beginning of the name, and
take every name for another operation. Gloo, MPI and NCCL call all operations of a kind the same, so their operations are
called as an NPU's library calls its own: type, last digits of the group, and two numbers that tell them apart.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from steplens.analysis.cluster.measured_communication import elapsed_times, group_hash, is_measured, operation_type
from steplens.formats.ascend_terms import NO_NUMBER
from steplens.trace.schema import RECEIVE
from steplens.writers.common.output import NPU, Output, device_kind, has_rows, step_exists

#: how an NPU's library writes the types
_TYPES = {
    "allreduce": "allReduce", "allgather": "allGather", "reducescatter": "reduceScatter", "batchsendrecv": "batchSendRecv",
    "sendrecv": "batchSendRecv", "recv": RECEIVE,
}  # fmt: skip
_UNKNOWN = "unknown"
_NO_LETTER = re.compile(r"[^A-Za-z]")

#: words that name a type, of any library (HCCL alone: ``ascend_terms.HCCL_OPERATIONS``), the longer one before what it contains
_KNOWN = re.compile(
    "reducescatter|allreduce|allgather|alltoallv|alltoall|broadcast|batchsendrecv|sendrecv|"
    "scatter|gather|barrier|receive|recv|send|reduce"
)

_GROUPS = "parallel_group_info"


def named_communication(output: Output) -> pl.DataFrame:
    """``communication`` with the names of the clients.

    On an NPU operations have names of their own. Elsewhere an operation is ``hcom_<type>__<digits>_<step>_<number>``: the last
    three digits of its group's number, its step, and its number among the operations of the same type and group of that step,
    in order of start, so that it has the same name on every rank. Outside all steps the step is 4294967295, on a run without
    steps 0.

    Returns:
        the columns of ``communication`` in its order, with ``client_name``, ``group_id`` (text, "" where unknown: the key of
        ``parallel_group_info`` where the group is described there) and ``group_number`` (its ``group_hash`` as text).
    """
    calls = output.trace.required("communication").collect()
    group = calls.select(pl.col("group").cast(pl.String).fill_null("")).to_series()
    ids = group_ids(output, group.unique().to_list())
    numbers = {text: str(group_hash(text)) if text else "" for text in ids.values()}
    calls = calls.with_columns(group_id=group.replace_strict(ids, default="", return_dtype=pl.String)).with_columns(
        group_number=pl.col("group_id").replace_strict(numbers, default="", return_dtype=pl.String)
    )
    name = pl.col("name").cast(pl.String)
    if device_kind(output.trace) == NPU:
        return calls.with_columns(client_name=name)
    kinds = calls.select(pl.coalesce(pl.col("operation").cast(pl.String), name)).to_series()
    types = {kind: client_type(kind) for kind in kinds.unique().to_list()}
    step = pl.col("step").fill_null(NO_NUMBER if step_exists(output.trace) else 0)
    return (
        calls.with_columns(_type=kinds.replace_strict(types, default=_UNKNOWN, return_dtype=pl.String), _step=step)
        .with_row_index("_row")
        .sort("start_ns", "_row")
        .with_columns(_number=pl.int_range(pl.len()).over("_type", "group_id", "_step"))
        .sort("_row")
        .with_columns(
            client_name=pl.format(
                "hcom_{}__{}_{}_{}",
                "_type",
                pl.when(pl.col("group_number") == "").then(pl.lit("0")).otherwise(pl.col("group_number").str.tail(3)),
                "_step",
                "_number",
            )
        )
        .drop("_row", "_type", "_step", "_number")
    )


def client_type(operation: str | None) -> str:
    """The type of an operation as an NPU's library writes it: "gloo:all_reduce" and "allreducecoalesced" are "allReduce".

    Text that names no known type becomes its letters.
    """
    letters = _NO_LETTER.sub("", operation or "").lower()
    matched = _KNOWN.search(letters)
    word = matched.group() if matched else letters
    return _TYPES.get(word, word) or _UNKNOWN


def is_unmeasured(output: Output) -> bool:
    """Whether only lengths and sizes are known of the operations, as on a CPU or a GPU, also where its results are the source."""
    trace = output.trace
    return has_rows(trace, "communication") and device_kind(trace) != NPU and not is_measured(trace)


def unmeasured_times(output: Output) -> pl.DataFrame:
    """``analysis.cluster.measured_communication.elapsed_times`` with names and numbers of groups as the clients call them."""
    calls = named_communication(output)
    return elapsed_times(output.trace).with_columns(calls["client_name"].alias("name"), calls["group_number"].alias("group"))


def unmeasured_totals(times: pl.DataFrame) -> pl.DataFrame:
    """Sizes of ``unmeasured_times`` added up per step and kind: a sum is known where that of every operation with data is.

    Returns:
        step, kind, library, size_mb.
    """
    carrying = times.filter(~pl.col("name").str.contains("(?i)barrier"))
    has_all_sizes = pl.col("size_mb").null_count() == 0
    single = (pl.col("library").n_unique() == 1) & (pl.col("library").null_count() == 0)
    sums = carrying.group_by("step", "kind", maintain_order=True).agg(
        pl.col("library").first(), pl.col("size_mb").sum(), whole=has_all_sizes & single
    )
    return sums.filter("whole").drop("whole")


def own_links(output: Output) -> pl.DataFrame:
    """The rank's link to itself, per step, type and group: all that is known of links where nothing measured them.

    The clients tell by it which rank of a group this is.

    Returns:
        step, kind, type, group (its number) and rank (in the group), in order of appearance.
    """
    calls = named_communication(output)
    described = _described_groups(output)
    ranks = {group: _rank_in_group(described.get(group), output.trace.rank) for group in calls["group_id"].unique()}
    types = {name: operation_type(name) for name in calls["client_name"].unique().drop_nulls()}
    return (
        unmeasured_times(output)
        .with_columns(
            type=pl.col("name").replace_strict(types, default=None, return_dtype=pl.String),
            rank=calls["group_id"].replace_strict(ranks, default=None, return_dtype=pl.Int64),
        )
        .filter(pl.col("rank") >= 0)
        .unique(["step", "kind", "type", "group"], keep="first", maintain_order=True)
        .select("step", "kind", "type", "group", "rank")
    )


def _rank_in_group(group: Any, rank: int) -> int:
    """Place of a rank among those of a group; the rank itself where the group is not described."""
    number = group.get("group_rank") if isinstance(group, dict) else None
    return number if type(number) is int and 0 <= number < NO_NUMBER else rank


def _described_groups(output: Output) -> dict[str, Any]:
    described: Any = output.metadata.get(_GROUPS) or output.trace.meta_value(_GROUPS)
    return described if isinstance(described, dict) else {}


def group_ids(output: Output, groups: list[str]) -> dict[str, str]:
    """What identifies each group in the run's ``parallel_group_info``: a group may go by its id there, or by its name."""
    described = _described_groups(output)
    by_name: dict[str, list[str]] = {}
    for key, group in described.items():
        if isinstance(group, dict) and isinstance(name := group.get("group_name"), str):
            by_name.setdefault(name, []).append(key)
    # a name that several groups share identifies none of them
    names = {name: keys[0] for name, keys in by_name.items() if len(keys) == 1}
    return {group: group if group in described else names.get(group, group) for group in groups}
