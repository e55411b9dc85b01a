"""The CPU as a device: which operator calls are its device work when a run has no accelerator.

A *task* is an operator call that does its work itself: it calls no other operator, or its own (self) time is at
least half of its duration. ``aten::addmm`` is one (it multiplies itself, after expanding the bias through other
operators); ``aten::linear`` is not (it only dispatches). Of nested tasks the outermost counts and owns what it calls,
so the tasks of a thread never overlap, their lengths add up, and a call is one task. Time that dispatching operators
spend themselves is host time, as it is on an accelerator.
"""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl

from steplens.trace.nesting import Int64Array, Nesting
from steplens.trace.schema import COLLECTIVE, CORE_CPU, KIND_COMPUTE, NAME, RECEIVE, SCOPE_BACKWARD, SCOPE_FUNCTION, SEND

#: the group of a job that made no other
DEFAULT_GROUP = "default_group"
_ENGINE_PREFIX = "autograd::engine::"
_COMMUNICATION = r"^(gloo|mpi|ucc):"


def cpu_tasks(ops: pl.DataFrame, nesting: Nesting, self_ns: Int64Array) -> pl.DataFrame:
    """The CPU's device tasks, as rows of ``kernels`` sorted by (stream, start): device 0, stream = thread id.

    Args:
        ops: linked calls, sorted by (pid, tid, start_ns, -end_ns).
        nesting: their nesting.
        self_ns: their self times, ns.
    """
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    # user ranges, the engine's wrappers and communication are not computation
    name = ops["name"].cast(pl.String)
    computes = ops["scope"].is_in([SCOPE_FUNCTION, SCOPE_BACKWARD]) & ~name.str.starts_with(_ENGINE_PREFIX)
    computes &= ~name.str.contains(_COMMUNICATION) & ~name.str.starts_with("c10d::") & (name != "record_param_comms")
    leaf = nesting.subtree_end == np.arange(1, len(start) + 1)
    candidate = computes.to_numpy() & (leaf | (2 * self_ns >= end - start))
    rows = np.flatnonzero(candidate)
    # a candidate below another candidate belongs to it: descendants are contiguous, so a running maximum finds them
    reach = np.maximum.accumulate(nesting.subtree_end[rows]) if len(rows) else rows
    outermost = np.r_[True, rows[1:] >= reach[:-1]] if len(rows) else np.empty(0, dtype=bool)
    rows = rows[outermost]
    tasks = ops[rows]
    columns = [column for column in ("input_shapes", "input_types") if column in ops.columns]
    return tasks.select(
        id=pl.int_range(pl.len(), dtype=pl.Int32),
        name="name",
        type=pl.col("name").cast(pl.String).str.split("::").list.last().cast(NAME),
        kind=pl.lit(KIND_COMPUTE, dtype=NAME),
        core=pl.lit(CORE_CPU, dtype=NAME),
        device=pl.lit(0, dtype=pl.Int32),
        stream="tid",
        start_ns="start_ns",
        end_ns="end_ns",
        op="id",
        step="step",
        **{column: pl.col(column) for column in columns},
    )


def only_group(meta: pl.DataFrame | None) -> tuple[str | None, int | None]:
    """Name and size of the process group of every communication operation; None where it is not known.

    Gloo, MPI and UCC do not record the group. It is certain where the job has one group alone; among several it stays open.

    Args:
        meta: rows of ``meta``; ``distributedInfo`` lists the groups of the rank.
    """
    rows = meta.filter(pl.col("key").cast(pl.String) == "distributedInfo")["value"].to_list() if meta is not None else []
    try:
        job = json.loads(rows[0]) if rows else None
    except (ValueError, RecursionError):
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
    known = set(ops.columns)
    operation = name.str.replace(_COMMUNICATION, "").str.replace_all("_", "").str.replace("^recv", "receive")
    shapes = pl.col("input_shapes") if "input_shapes" in known else pl.lit(None, dtype=pl.String)
    types = pl.col("input_types") if "input_types" in known else pl.lit(None, dtype=pl.String)
    calls = ops.filter(name.str.contains(_COMMUNICATION)).with_columns(
        operation=operation, shapes=shapes.cast(pl.String), types=types.cast(pl.String)
    )
    sizes = calls.select("shapes", "types").unique()
    sizes = sizes.with_columns(
        pl.Series("elements", [_elements(text) for text in sizes["shapes"]], dtype=pl.Int64),
        dtype=pl.col("types").str.split(";").list.unique().list.join(";"),
    )
    calls = calls.join(sizes, on=["shapes", "types"], how="left", nulls_equal=True, maintain_order="left")
    return calls.select(
        name="name",
        kind=pl.when(pl.col("operation").str.contains("receive"))
        .then(pl.lit(RECEIVE))
        .when(pl.col("operation").str.contains("send"))
        .then(pl.lit(SEND))
        .otherwise(pl.lit(COLLECTIVE))
        .cast(NAME),
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
    )


#: element sizes by the C++ names that PyTorch records
TYPE_BYTES = {
    **dict.fromkeys(("unsigned char", "signed char", "bool", "c10::Float8_e4m3fn", "c10::Float8_e5m2"), 1),
    **dict.fromkeys(("c10::Half", "c10::BFloat16", "short int", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long int", "long", "c10::complex<float>"), 8),
}


def _elements(shapes: str | None) -> int | None:
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
