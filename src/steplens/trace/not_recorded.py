"""What a run has nothing of, because it was not recorded: the pages that would be empty, and details that tables lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from steplens.trace.trace import Trace

#: what MindSpore's profiler stores of operators and of tasks without recording the calls
_STORED_TASKS = frozenset(
    {"aicore_intermediate_detail", "aicore_intermediate_type", "aicpu_intermediate", "gpu_activity_data"}
)  # fmt: skip
_STORED_OPERATORS = _STORED_TASKS | {
    "cpu_op_detail_info", "cpu_op_type_info", "flops", "flops_summary", "gpu_op_detail_info", "gpu_op_type_info",
}  # fmt: skip
_STORED_SHAPES = frozenset({"dynamic_shape_runs"})

#: part of a recording -> tables of which any has it, and tables of the source that do
_TABLES: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "steps": (frozenset({"steps"}), frozenset()),
    "operators": (frozenset({"ops"}), _STORED_OPERATORS),
    "kernels": (frozenset({"kernels"}), _STORED_TASKS),
    "memory": (frozenset({"memory", "allocations"}), frozenset({"memory_graphs"})),
    "pipeline": (frozenset({"pipeline_ops", "pipeline_batches", "pipeline_loaders", "pipeline_samples"}), frozenset()),
    "communication": (frozenset({"communication", "communication_times"}), frozenset()),
    "python": (frozenset({"python"}), frozenset()),
    "counters": (frozenset({"counters"}), frozenset()),
}
#: details of calls and tasks -> tables and their columns that tell them
_DETAILS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "shapes": (("ops", "input_shapes"), ("kernels", "input_shapes")),
    "stacks": (("ops", "stack"),),
    "modules": (("ops", "module"),),
}

#: every part, in the order in which it is told
PARTS = (
    "steps", "operators", "kernels", "shapes", "stacks", "modules", "python", "memory", "pipeline", "communication", "ranks",
    "counters",
)  # fmt: skip


def parts_not_recorded(traces: Sequence[Trace]) -> tuple[str, ...]:
    """The parts of ``PARTS`` that no trace of a run has; "ranks" where it has one rank only."""
    tables = {name for trace in traces for name in trace}
    stored = {name for trace in traces for name in trace.once(_stored_names)}
    missing = {part for part, (typed, untyped) in _TABLES.items() if not (typed & tables or untyped & stored)}
    missing |= _DETAILS.keys() - {part for trace in traces for part in recorded_details(trace)}
    if stored & _STORED_SHAPES:
        missing.discard("shapes")
    # traces whose rank nobody can tell may be of different ones
    if len({number if trace.rank < 0 else ~trace.rank for number, trace in enumerate(traces)}) < 2:
        missing.add("ranks")
    return tuple(part for part in PARTS if part in missing)


def _stored_names(trace: Trace) -> tuple[str, ...]:
    if "source_tables" not in trace:
        return ()
    tables = trace.required("source_tables").select(pl.col("table").cast(pl.String).unique()).collect()["table"]
    return tuple(sorted(tables.to_list()))


def recorded_details(trace: Trace) -> tuple[str, ...]:
    """Which details of calls and tasks a trace has: "shapes", "stacks", "modules"."""
    return trace.once(_recorded_details)


def _recorded_details(trace: Trace) -> tuple[str, ...]:
    return tuple(part for part, places in _DETAILS.items() if any(_has_values(trace, table, column) for table, column in places))


def _has_values(trace: Trace, table: str, column: str) -> bool:
    """Whether any row of a table says something in a column."""
    return table in trace and bool(trace.required(table).select(pl.col(column).is_not_null().any()).collect().item())
