"""Where the host and device time of operator calls went, by name, category, input shape, call stack, line or module."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from steplens.analysis.steps.basis import divide_by_steps, step_basis, with_steps
from steplens.analysis.tools.groups import first_rows, number_groups
from steplens.analysis.tools.joined_rows import join_rows
from steplens.analysis.tools.once import once_per_trace
from steplens.analysis.tools.outermost import is_outermost
from steplens.analysis.tools.overlap import Int64Array
from steplens.analysis.tools.source_lines import source_line
from steplens.trace.building.classify import category_of
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_MODULE, STEP_PREFIX
from steplens.trace.trace import Trace

#: group -> the columns that tell a call's, and those that the table has
_KEYS: dict[str, tuple[list[str], list[str]]] = {
    "name": (["name"], ["name"]),
    "category": (["name"], ["category"]),
    "shape": (["name", "input_shapes"], ["name", "input_shapes"]),
    "stack": (["name", "stack"], ["name", "stack"]),
    "line": (["stack"], ["line"]),
    "module": (["module"], ["name"]),
}
ALL_STEPS = "ProfilerStep*"
_HOST_SUMS = ("calls", "self_ns", "total_ns")
_DEVICE_SUMS = ("device_self_ns", "device_total_ns")
_SUMS = ("self_ns", "total_ns", *_DEVICE_SUMS)
_PERCENT = {"self_percent": "self_ns", "device_percent": "device_self_ns"}


def operators(
    trace: Trace,
    by: str = "name",
    steps: Collection[int] | None = None,
    *,
    annotations: bool = False,
    per_step: bool = False,
) -> pl.DataFrame:
    """Operator calls in groups, the one with the most self time first.

    Ranges that somebody marked are no operators: those of steps, of ``record_function()``, optimizers and data loaders, and of
    collectives on a thread of their own. Their self time is that of the Python in them, and that of whatever runs meanwhile.

    Columns: the group (``name`` and ``input_shapes`` or ``stack``; ``category`` as in ``trace.building.classify``; ``line``, the
    innermost
    frame of the user's own code, null where there is none; for modules ``name`` is the module path), ``calls``, and, in ns and
    from the operator ranges of the source:

    * ``self_ns``: duration minus that of the direct children on the same thread;
    * ``total_ns``: duration of the calls that lie in no other call of their group, so that no time counts twice; an only
      child with its parent's name (an operator calling its ``out=`` variant) is one call with its parent, as in PyTorch;
    * ``device_self_ns``, ``device_total_ns``: device tasks that the calls launched themselves / with all below them, the latter
      of the same calls as ``total_ns``;
    * ``self_percent``, ``device_percent``: share of the ``self_ns`` / ``device_self_ns`` of all rows, null where that is 0.

    For modules, ``self_ns`` is the self time of all calls whose innermost module it is, backward calls included, and
    ``total_ns`` that of the module and the modules inside it; ``calls`` counts forward calls.

    Args:
        trace: one rank.
        by: what makes a group.
        steps: only calls that began in one of these steps; all calls by default.
        annotations: with the ranges that somebody marked as well, as in PyTorch's own table, all ranges of steps as one row.
        per_step: of a step, as a mean over the chosen steps (``analysis.steps.basis``) instead of sums over the recording; what
            ``steps`` says does not matter then. Of a trace without steps they stay sums.

    Raises:
        ValueError: ``by`` is none of them.
    """
    if by not in _KEYS:
        raise ValueError(f"operators(by={by!r}): by must be one of {', '.join(_KEYS)}")
    if per_step and by == "name" and not annotations:
        return trace.once(operators_of_step)
    if per_step:
        basis = step_basis(trace)
        sums = operators(trace, by, basis.steps or None, annotations=annotations)
        means = divide_by_steps(divide_by_steps(sums, _HOST_SUMS, len(basis.steps)), _DEVICE_SUMS, len(basis.device_steps))
        return _with_percentages(means)
    if by == "name" and steps is None and not annotations:
        return trace.once(operators_by_name)
    counted = pl.lit(True) if steps is None else pl.col("step").is_in(list(steps))
    if by == "module":
        return _with_percentages(_group_modules(trace, counted))
    return _with_percentages(_group_calls(trace, by, counted, annotations=annotations))


@once_per_trace
def filled_columns(trace: Trace) -> tuple[str, ...]:
    """The columns in which any call of a trace has something, of those that tell calls and their groups apart."""
    columns = ("id", "module", "input_shapes", "stack")
    filled = trace.required("ops").select(pl.col(column).is_not_null().any() for column in columns).collect()
    return tuple(column for column in columns if filled[column][0])


def operators_by_name(trace: Trace) -> pl.DataFrame:
    """``operators`` by name, of all calls."""
    return _no_operators() if "ops" not in trace else _operators_by_name(trace)


@functools.cache
def _no_operators() -> pl.DataFrame:
    return _operators_by_name(Trace(Path(), {}))


def _operators_by_name(trace: Trace) -> pl.DataFrame:
    return _with_percentages(_group_calls(trace, "name", pl.lit(True), annotations=False))


def operators_of_step(trace: Trace) -> pl.DataFrame:
    """``operators`` by name, per step."""
    basis = step_basis(trace)
    sums = operators(trace, "name", basis.steps or None)
    means = divide_by_steps(divide_by_steps(sums, _HOST_SUMS, len(basis.steps)), _DEVICE_SUMS, len(basis.device_steps))
    return _with_percentages(means)


def operators_of_traces(
    traces: Sequence[Trace], by: str = "name", *, annotations: bool = False, per_step: bool = False
) -> pl.DataFrame:
    """``operators`` of several traces, added up; per step their mean. Percentages are shares of all of them."""
    if len(traces) == 1:
        return operators(traces[0], by, annotations=annotations, per_step=per_step)
    counted = with_steps(traces) if per_step else traces
    filled = 0

    def rows_of_traces() -> Iterator[pl.DataFrame]:
        nonlocal filled
        for trace in counted:
            rows = operators(trace, by, annotations=annotations, per_step=per_step)
            filled += rows.height > 0
            yield rows

    frame = join_rows(rows_of_traces())
    sums = ("calls", *_SUMS)
    keys = [name for name in frame.columns if name not in sums and name not in _PERCENT]
    added = frame.group_by(keys).agg(pl.col(*sums).sum())
    if per_step and step_basis(counted[0]).steps:
        added = divide_by_steps(added, sums, filled)
    return _with_percentages(added.sort(["self_ns", *keys], descending=[True, *([False] * len(keys))]))


def _with_percentages(groups: pl.DataFrame) -> pl.DataFrame:
    """Groups of ``operators``, or sums of them over ranks, with their shares of all rows."""
    # real numbers add up to the last digit as they lie in memory, which is another matter with each number of threads
    return groups.rechunk().with_columns(
        **{name: pl.when(pl.col(part).sum() > 0).then(pl.col(part) * 100 / pl.col(part).sum()) for name, part in _PERCENT.items()}
    )


def _group_calls(trace: Trace, by: str, counted: pl.Expr, *, annotations: bool) -> pl.DataFrame:
    """Sums per group of the calls that ``counted`` says."""
    keys, columns = _KEYS[by]
    joins_another = pl.col("counted_as") != pl.col("id")
    is_operator = pl.col("scope") != SCOPE_MODULE if annotations else pl.col("scope").is_in([SCOPE_FUNCTION, SCOPE_BACKWARD])
    calls = (
        trace.required("ops")
        .select(
            *(pl.col(key) if key == "name" else pl.col(key).gather(pl.col("counted_as")) for key in keys),
            *("self_ns", "device_self_ns", "device_total_ns", "parent"),
            total_ns=pl.col("end_ns") - pl.col("start_ns"),
            joins=joins_another,
            counts=(is_operator & counted).fill_null(False),
        )
        .collect()
    )
    group, labels = _number_calls(calls, keys, by)
    group = np.where(calls["counts"].to_numpy(), group, -1)
    parent = calls["parent"].fill_null(-1).cast(pl.Int64).to_numpy()
    total = pl.col("outermost") & ~pl.col("joins")
    return (
        calls.lazy()
        .with_columns(group=pl.Series(group), outermost=pl.Series(is_outermost(parent, group)))
        .filter(pl.col("group") >= 0)
        .group_by("group")
        .agg(
            calls=(~pl.col("joins")).sum().cast(pl.Int64),
            self_ns=pl.col("self_ns").sum(),
            total_ns=pl.col("total_ns").filter(total).sum(),
            device_self_ns=pl.col("device_self_ns").sum(),
            device_total_ns=pl.col("device_total_ns").filter(total).sum(),
        )
        .join(labels.lazy().with_row_index("group").with_columns(pl.col("group").cast(pl.Int64)), on="group")
        .sort(["self_ns", *columns], descending=[True, *([False] * len(columns))])
        .select(*columns, "calls", *_SUMS)
        .collect()
    )


def _number_calls(calls: pl.DataFrame, keys: list[str], by: str) -> tuple[Int64Array, pl.DataFrame]:
    """The group of each call, from 0, and what each group is called."""
    number, count = number_groups(calls, keys)
    first = first_rows(number, count)
    labels = calls.select(keys)[first[first >= 0]].with_columns(pl.col(keys).cast(pl.String))
    number = (np.cumsum(first >= 0) - 1)[number]
    if by == "category":
        labels = pl.DataFrame({by: pl.Series([category_of(name) for name in labels["name"].to_list()], dtype=pl.String)})
    elif by == "line":
        labels = source_line(labels["stack"]).to_frame()
    else:
        # the ranges of the steps are one row, as in PyTorch's table
        name = pl.when(pl.col("name").str.starts_with(STEP_PREFIX)).then(pl.lit(ALL_STEPS)).otherwise("name")
        labels = labels.with_columns(name=name)
    distinct = labels.unique(maintain_order=True)
    place = labels.join(distinct.with_row_index("place"), on=labels.columns, how="left", nulls_equal=True, maintain_order="left")
    return place["place"].cast(pl.Int64).to_numpy()[number], distinct


def _group_modules(trace: Trace, counted: pl.Expr) -> pl.DataFrame:
    self_rows = (
        trace.required("ops")
        .filter(pl.col("module").is_not_null(), counted)
        .group_by("module")
        .agg((pl.col("scope") == SCOPE_MODULE).sum().cast(pl.Int64).alias("calls"), pl.col("self_ns", "device_self_ns").sum())
        .select(pl.col("module").cast(pl.String).alias("name"), "calls", "self_ns", "device_self_ns")
        .collect()
    )
    if not self_rows.height:
        return pl.DataFrame(schema={"name": pl.String, **dict.fromkeys(("calls", *_SUMS), pl.Int64)})
    # the total of a module adds up the modules whose path lies below its own
    total_rows = (
        self_rows.with_columns(pl.col("name").str.split(".").alias("parts"))
        .with_columns(pl.int_ranges(1, pl.col("parts").list.len() + 1).alias("length"))
        .explode("length")
        .with_columns(pl.col("parts").list.head(pl.col("length")).list.join(".").alias("above"))
        .group_by("above")
        .agg(pl.col("self_ns").sum().alias("total_ns"), pl.col("device_self_ns").sum().alias("device_total_ns"))
    )
    return (
        self_rows.join(total_rows, left_on="name", right_on="above", how="left")
        .select("name", "calls", "self_ns", "total_ns", "device_self_ns", "device_total_ns")
        .sort("self_ns", "name", descending=[True, False])
    )
