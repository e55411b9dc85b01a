"""Where the host and device time of operator calls went, by name, category, input shape, call stack, line or module."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import polars as pl

from steplens.analysis.tools.source_lines import source_line
from steplens.trace.building.classify import category_of
from steplens.trace.schema import SCOPE_MODULE, STEP_PREFIX
from steplens.trace.trace import Trace

_KEYS: dict[str, list[str]] = {
    "name": ["name"],
    "category": ["name"],
    "shape": ["name", "input_shapes"],
    "stack": ["name", "stack"],
    "line": ["name", "stack"],
    "module": ["module"],
}
ALL_STEPS = "ProfilerStep*"
_SUMS = ("self_ns", "total_ns", "device_self_ns", "device_total_ns")
_PERCENT = {"self_percent": "self_ns", "device_percent": "device_self_ns"}


def operators(trace: Trace, by: str = "name", steps: Collection[int] | None = None) -> pl.DataFrame:
    """Operator calls in groups, the one with the most self time first.

    Columns: the group (``name`` and ``input_shapes`` or ``stack``; ``category`` as in ``trace.building.classify``; ``line``, the
    innermost
    frame of the user's own code, null where there is none; for modules ``name`` is the module path), ``calls``, and, in ns and
    from the operator ranges of the source:

    * ``self_ns``: duration minus that of the direct children on the same thread;
    * ``total_ns``: duration, so nested calls of one group count more than once, as in PyTorch's own sums; an only
      child with its parent's name (an operator calling its ``out=`` variant) is one call with its parent, also as there;
    * ``device_self_ns``, ``device_total_ns``: device tasks that the calls launched themselves / with all below them;
    * ``self_percent``, ``device_percent``: share of the ``self_ns`` / ``device_self_ns`` of all rows, null where that is 0.

    For modules, ``self_ns`` is the self time of all calls whose innermost module it is, backward calls included, and
    ``total_ns`` that of the module and the modules inside it; ``calls`` counts forward calls.

    Args:
        trace: one rank.
        by: what makes a group.
        steps: only calls that began in one of these steps; all calls by default.

    Raises:
        ValueError: ``by`` is none of them.
    """
    if by not in _KEYS:
        raise ValueError(f"operators(by={by!r}): by must be one of {', '.join(_KEYS)}")
    if by == "name" and steps is None:
        return trace.once(operators_by_name)
    counted = pl.lit(True) if steps is None else pl.col("step").is_in(list(steps))
    if by == "module":
        return _with_percentages(_group_modules(trace, counted))
    if by in ("category", "line"):
        return _regroup_sums(_group_calls(trace, _KEYS[by], counted), by)
    return _with_percentages(_group_calls(trace, _KEYS[by], counted))


def operators_by_name(trace: Trace) -> pl.DataFrame:
    """``operators`` by name, of all calls."""
    return _with_percentages(_group_calls(trace, _KEYS["name"], pl.lit(True)))


def operators_of_traces(traces: Sequence[Trace], by: str = "name") -> pl.DataFrame:
    """``operators`` of several traces, added up; percentages are shares of all of them."""
    if len(traces) == 1:
        return operators(traces[0], by)
    frame = pl.concat([operators(trace, by) for trace in traces])
    sums = ("calls", *_SUMS)
    keys = [name for name in frame.columns if name not in sums and name not in _PERCENT]
    added = frame.group_by(keys).agg(pl.col(*sums).sum())
    return _with_percentages(added.sort(["self_ns", *keys], descending=[True, *([False] * len(keys))]))


def _with_percentages(groups: pl.DataFrame) -> pl.DataFrame:
    """Groups of ``operators``, or sums of them over ranks, with their shares of all rows."""
    return groups.with_columns(
        **{name: pl.when(pl.col(part).sum() > 0).then(pl.col(part) * 100 / pl.col(part).sum()) for name, part in _PERCENT.items()}
    )


def _regroup_sums(groups: pl.DataFrame, by: str) -> pl.DataFrame:
    """Groups of names as groups of categories, groups of stacks as groups of lines."""
    if by == "category":
        key = pl.Series(by, [category_of(name) for name in groups["name"].to_list()], dtype=pl.String)
    else:
        key = source_line(groups["stack"])
    sums = groups.with_columns(key).group_by(by).agg(pl.col("calls", *_SUMS).sum())
    return _with_percentages(sums.sort("self_ns", by, descending=[True, False]))


def _group_calls(trace: Trace, keys: list[str], counted: pl.Expr) -> pl.DataFrame:
    """Sums per group of ``keys``, the name and one more, of the calls that ``counted`` says."""
    counts = pl.col("counted_as") == pl.col("id")
    return (
        trace.required("ops")
        .select(
            "name",
            *(pl.col(key).gather(pl.col("counted_as")) for key in keys[1:]),
            "scope",
            "step",
            "self_ns",
            "device_self_ns",
            calls=counts.cast(pl.Int64),
            total_ns=pl.when(counts).then(pl.col("end_ns") - pl.col("start_ns")).otherwise(0),
            device_total_ns=pl.when(counts).then("device_total_ns").otherwise(0),
        )
        .filter(pl.col("scope") != SCOPE_MODULE, counted)
        .group_by(keys)
        .agg(pl.col("calls", *_SUMS).sum())
        .with_columns(pl.col(*keys).cast(pl.String))
        # the ranges of the steps are one row, as in PyTorch's table; the regular grouping has made them few by now
        .with_columns(
            pl.when(pl.col("name").str.starts_with(STEP_PREFIX)).then(pl.lit(ALL_STEPS)).otherwise("name").alias("name")
        )
        .group_by(keys)
        .agg(pl.col("calls", *_SUMS).sum())
        .sort(["self_ns", *keys], descending=[True, *([False] * len(keys))])
        .collect()
    )


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
