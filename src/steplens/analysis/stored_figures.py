"""A capture's own tables as a check: its step times and operator statistics beside those computed from its events.

The profiler that made a capture added its figures up before it wrote the events, so where both differ, one of them has lost or
misjudged something, and nobody should rest on either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import polars as pl

from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.analysis.tools.once import once_per_trace
from steplens.formats import ascend_results as results
from steplens.formats.ascend_database import STEP_TABLE, TIME_TABLE
from steplens.trace.health import COMMUNICATION_TIMES, KERNEL_TIMES, OVERLAP, STEP_DEVICE_TIMES, WARNING, HealthFinding, finding
from steplens.trace.schema import KIND_COMPUTE
from steplens.trace.trace import Trace

#: the name of the finding
CONTRADICTED = "contradicted_figures"
#: a difference that matters: this share of the larger figure
_SHARE = 0.01

#: figures of a step that every version of the format defines alike, and their columns here
_FIGURES = {results.STEP_PARTS[part][0]: f"{part}_ns" for part in ("computing", "communication", "communication_not_overlapped")}
#: a text file charges what is free across the end of a step to the step where it begins, a database does not
_FIGURES_OF_DATABASES = {**_FIGURES, **{results.STEP_PARTS[part][0]: f"{part}_ns" for part in ("free", "stage")}}
#: text files count us since 1970 in doubles, a quarter of a us each
_ROUNDING_US = 0.5

#: durations are rounded one by one before they are added up
_ROUNDING_PER_TASK_US = 0.005


class _Pair(NamedTuple):
    """A figure as a capture says it, as its events or another of its tables give it, and what rounding may make of it; us."""

    figure: str
    stored: float
    computed: float
    rounding: float


def is_contradiction(stored: pl.Expr, computed: pl.Expr, rounding: pl.Expr) -> pl.Expr:
    """Whether two values of one figure contradict each other: by more than 1 % of the larger one, and more than rounding."""
    difference = (stored - computed).abs()
    return (difference > rounding) & (difference > _SHARE * pl.max_horizontal(stored.abs(), computed.abs()))


def stored_steps(trace: Trace) -> tuple[str, pl.DataFrame] | None:
    """The step times that the capture brought along: their name and rows (texts) under the titles of the text file."""
    table = trace.source_table(results.STEP_TRACE_TABLE)
    if table is not None:
        return f"{results.STEP_TRACE_TABLE}.csv", table
    table = trace.source_table(STEP_TABLE)
    return None if table is None else (STEP_TABLE, _rename_to_titles(table))


def _rename_to_titles(table: pl.DataFrame) -> pl.DataFrame:
    """The step times of a database under the titles of the text file."""
    return table.rename({column: title for title, column in results.STEP_COLUMNS.items() if column in table.columns})


@once_per_trace
def find_contradictions(trace: Trace) -> tuple[HealthFinding, ...]:
    """Findings about a capture's own figures that its events contradict; none where it has no tables of its own.

    Step by step are compared: computing, communication and what of it nothing overlaps; of databases free and stage, too. Of
    the statistics of operators: the time of every type, and of all together. Where both a text file and a database hold the step
    times, these are compared with each other, too, and so is the time of the collectives of each step. Sources: ``steps``,
    ``kernels``, ``communication``, ``communication_times`` and ``source_tables``.
    """
    findings = []
    steps = stored_steps(trace)
    # of results alone there are no events that could contradict them
    if steps is not None and not trace.is_results_only and ("kernels" in trace or "communication" in trace):
        findings += _report_differences(steps[0], _of_steps(trace, *steps), STEP_DEVICE_TIMES, OVERLAP)
    text, database = trace.source_table(results.STEP_TRACE_TABLE), trace.source_table(STEP_TABLE)
    if text is not None and database is not None:
        pairs = _pairs_between_tables(text, _rename_to_titles(database))
        findings += _report_differences(
            f"{results.STEP_TRACE_TABLE}.csv", pairs, STEP_DEVICE_TIMES, OVERLAP, other="its analysis.db"
        )
    collectives = trace.source_table(TIME_TABLE)
    if collectives is not None and "communication_times" in trace:
        pairs = _of_collectives(trace, collectives)
        findings += _report_differences(results.COMMUNICATION, pairs, COMMUNICATION_TIMES, other="its analysis.db")
    statistic = trace.source_table(results.OP_STATISTIC_TABLE)
    if statistic is not None and "kernels" in trace:
        findings += _report_differences(
            f"{results.OP_STATISTIC_TABLE}.csv", _of_types(trace, statistic), KERNEL_TIMES, STEP_DEVICE_TIMES, OVERLAP
        )
    return tuple(findings)


def _report_differences(table: str, pairs: Iterable[_Pair], *unsafe: str, other: str = "its events") -> list[HealthFinding]:
    schema = {"figure": pl.String, "stored": pl.Float64, "computed": pl.Float64, "rounding": pl.Float64}
    figures = pl.DataFrame(list(pairs), schema=schema, orient="row")
    different = figures.filter(is_contradiction(pl.col("stored"), pl.col("computed"), pl.col("rounding")))
    if different.is_empty():
        return []
    worst = different.sort((pl.col("stored") - pl.col("computed")).abs(), descending=True, maintain_order=True).row(0, named=True)
    message = (
        f"the capture's own {table} says {worst['stored'] / 1000:,.3f} ms of {worst['figure']} and {other} "
        f"{worst['computed'] / 1000:,.3f} ms: one of them is wrong"
    )
    return [finding(CONTRADICTED, WARNING, different.height, message, *unsafe)]


def _with_steps(trace: Trace) -> Trace:
    """The trace, with the steps that its tasks name where nothing else names them: a list of kernels without a timeline."""
    tables = {name: frame for name in ("kernels", "communication") if (frame := trace.lazy(name)) is not None}
    if "steps" in trace or not tables:
        return trace
    rows = pl.concat([frame.select("step", "start_ns", "end_ns") for frame in tables.values()]).drop_nulls("step")
    steps = rows.group_by(id="step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns").collect()
    if not steps.height:
        return trace
    nobody = pl.lit(None, dtype=pl.Int64)
    return Trace(trace.source, {**tables, "steps": steps.with_columns(pid=nobody, tid=nobody)})


def _of_steps(trace: Trace, name: str, stored: pl.DataFrame) -> Iterator[_Pair]:
    if results.STEP not in stored.columns or (results.DEVICE in stored.columns and stored[results.DEVICE].n_unique() > 1):
        return
    # as the format of these files defines their times
    computed_steps = ascend_step_times(_with_steps(trace), whole_trace_without_steps=True)
    computed = {row["step"]: row for row in computed_steps.iter_rows(named=True)}
    for row in stored.iter_rows(named=True):
        step = _parse_number(row[results.STEP])
        computed_row = computed.get(None if step is None else int(step))
        if computed_row is None:
            continue
        for title, column in (_FIGURES_OF_DATABASES if name == STEP_TABLE else _FIGURES).items():
            said, length = _parse_number(row.get(title)), computed_row[column] / 1000
            if said is not None:
                yield _Pair(title if step is None else f"{title} in step {int(step)}", said, length, _ROUNDING_US)


def _pairs_between_tables(text: pl.DataFrame, database: pl.DataFrame) -> Iterator[_Pair]:
    """The figures that both tables have of a step of a device."""
    keys = [key for key in (results.DEVICE, results.STEP) if key in text.columns and key in database.columns]
    rows_by_key = {_row_key(row, keys): row for row in database.iter_rows(named=True)}
    if results.STEP not in keys or len(rows_by_key) < database.height:
        return
    for row in text.iter_rows(named=True):
        other_row = rows_by_key.get(_row_key(row, keys))
        for title in _FIGURES if other_row is not None else ():
            value, same = _parse_number(row.get(title)), _parse_number((other_row or {}).get(title))
            if value is not None and same is not None:
                yield _Pair(f"{title} in step {row[results.STEP]}" if row[results.STEP] else title, value, same, _ROUNDING_US)


def _row_key(row: dict[str, object], keys: Sequence[str]) -> tuple[object, ...]:
    """What a row is about; numbers are written as such in one table and as texts in the other."""
    return tuple(number if (number := _parse_number(row[key])) is not None else "" for key in keys)


def _of_collectives(trace: Trace, database: pl.DataFrame) -> Iterator[_Pair]:
    """How long the collectives of a step took together, by the text file and by the database."""
    rows = trace.required("communication_times").drop_nulls(["step", "elapse_ms"])
    sums = rows.group_by("step").agg(us=pl.col("elapse_ms").sum() * 1000).sort("step").collect()
    elapsed_of = {_parse_number(row["step"]): _parse_number(row["elapse_time"]) for row in database.iter_rows(named=True)}
    for step, us in sums.iter_rows():
        if (ms := elapsed_of.get(float(step))) is not None:
            yield _Pair(f"collectives in step {step}", us, ms * 1000, _ROUNDING_US)


def _of_types(trace: Trace, stored: pl.DataFrame) -> Iterator[_Pair]:
    if not {results.OP_TYPE, results.TOTAL_TIME} <= set(stored.columns):
        return
    stored_of: dict[str, float] = defaultdict(float)
    for type_, time in stored.select(results.OP_TYPE, results.TOTAL_TIME).iter_rows():
        stored_of[str(type_)] += _parse_number(time) or 0.0
    computing = trace.required("kernels").filter(pl.col("kind").cast(pl.String) == KIND_COMPUTE)
    # tasks of a CPU lie in one another, and count with their own time
    length = pl.coalesce("self_ns", pl.col("end_ns") - pl.col("start_ns")).sum() / 1000
    types = computing.group_by(pl.col("type").cast(pl.String)).agg(pl.len(), length=length).collect()
    both = types.filter(pl.col("type").is_in(list(stored_of)))
    for type_, count, computed in both.iter_rows():
        yield _Pair(f"operators of type {type_}", stored_of[type_], computed, max(_ROUNDING_US, count * _ROUNDING_PER_TASK_US))
    total, everything = sum(stored_of.values()), float(types["length"].sum())
    yield _Pair("operators", total, everything, max(_ROUNDING_US, int(types["len"].sum()) * _ROUNDING_PER_TASK_US))


def _parse_number(text: object) -> float | None:
    """A number from a cell, None from one that holds none."""
    try:
        number = float(str(text).strip(" \t\r'"))
    except ValueError:
        return None
    return number if abs(number) < float(1 << 62) else None
