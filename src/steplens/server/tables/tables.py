"""Every table that the web UI can show, sort, filter and export: those of the catalogue, stored and recorded ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import polars as pl

from steplens.analysis.catalogue import Analysis, analyses
from steplens.analysis.operators.operator_tables import stored_table
from steplens.run import Run, Source
from steplens.server.http.errors import Refusal
from steplens.server.runs import OpenedRun
from steplens.timeline.layout import SAME_CLOCK_NS
from steplens.trace.columns import MOMENT, recorded_units, unit_of
from steplens.trace.schema import SCHEMA
from steplens.trace.trace import Trace

#: column of rows that are told from an origin
ORIGIN = "_origin_ns"


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: in addresses.
        title: for people.
        of_trace: its rows for one trace.
        of_run: its rows for the whole run, in place of ``of_trace``, or where no trace is chosen.
        units: of columns whose name does not tell; see ``trace.columns.unit_of``.
        recorded: whether it holds what was recorded, as it is: such a table may have millions of rows and stays on disk.
        aliases: earlier names.
    """

    name: str
    title: str
    of_trace: Callable[[Trace], pl.DataFrame] | None = None
    of_run: Callable[[Run], pl.DataFrame] | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    recorded: bool = False
    aliases: tuple[str, ...] = ()


#: behind the names of tables whose rows are of a step instead of the whole recording
PER_STEP = "_per_step"


def _table_of_analysis(analysis: Analysis, name: str, by: str | None, *, per_step: bool = False) -> Table:
    options = {"per_step": True} if per_step else {}

    def of_trace(trace: Trace) -> pl.DataFrame:
        return analysis.answer(Run(trace.source, [(Source(trace.source), trace)], []), by, **options)

    def of_run(run: Run) -> pl.DataFrame:
        return analysis.answer(run, by, **options)

    if per_step:
        table = _table_of_analysis(analysis, name, by)
        whole = of_run if table.of_run is not None else None
        title = f"{table.title}, per step"
        return replace(table, name=name + PER_STEP, title=title, of_trace=of_trace, of_run=whole, aliases=())
    return Table(
        name,
        analysis.title_of(by),
        of_trace if analysis.scope != "run" else None,
        of_run if analysis.scope != "trace" or analysis.windows else None,
        analysis.units,
        aliases=tuple(alias for alias, group in analysis.aliases.items() if group == by),
    )


#: what MindSpore's profiler stores of operators of the host and of GPUs: name in the source -> title
_STORED = {
    "cpu_op_type_info": "Stored: host CPU operators by type",
    "cpu_op_detail_info": "Stored: host CPU operators",
    "gpu_op_type_info": "Stored: GPU operators by type",
    "gpu_op_detail_info": "Stored: GPU operators",
    "gpu_activity_data": "Stored: GPU kernels",
}
STORED_PREFIX = "stored_"


def _recorded_rows(name: str, trace: Trace) -> pl.DataFrame:
    return trace.required(name).collect()


@functools.cache
def every_table() -> dict[str, Table]:
    """Every table by its name."""
    tables = [_table_of_analysis(analysis, name, by) for analysis in analyses() for name, by in analysis.tables()]
    tables += [
        _table_of_analysis(analysis, name, by, per_step=True)
        for analysis in analyses()
        for name, by in analysis.tables()
        if analysis.has_step_rows(by)
    ]
    tables += [Table(STORED_PREFIX + name, title, partial(stored_table, name=name)) for name, title in _STORED.items()]
    tables += [
        Table(
            f"recorded_{name}",
            f"Recorded: {name}",
            partial(_recorded_rows, name),
            units=recorded_units(name),
            recorded=True,
        )
        for name in SCHEMA
        if name != "health"
    ]
    return {table.name: table for table in tables}


def find_table(name: str) -> Table:
    """A table by its name, or an earlier one.

    Raises:
        Refusal: there is none (404).
    """
    found = every_table().get(name) or next((table for table in every_table().values() if name in table.aliases), None)
    if found is None:
        raise Refusal(404, "there is no table of this name", name, "GET /api/runs/0/tables lists them")
    return found


def table_rows(shown: OpenedRun, chosen: Table, trace: int | None, *, told: bool = False) -> pl.LazyFrame:
    """The rows of a table of a run.

    Args:
        library: keeps them.
        shown: the run.
        chosen: the table.
        trace: only of this trace; None is all of them.
        told: whether moments count from the origin of their trace, which the column ``ORIGIN`` then has, instead of Unix time;
            rows on another clock have none, and 0 there.
    """
    every = shown.run.traces
    if trace is None and len(every) == 1:
        trace = 0
    if trace is not None and chosen.of_trace is not None:
        return _of_trace(shown, chosen, trace, told)
    if chosen.of_run is not None:
        if trace is not None:
            shown.trace(trace)
        make = partial(chosen.of_run, shown.run)
        whole = shown.frame(("table", chosen.name), make)
        return _from_origin(whole.lazy(), whole.columns, chosen, shown.origin_ns) if told else whole.lazy()
    frames = [
        _of_trace(shown, chosen, number, told).select(
            pl.lit(number, dtype=pl.Int64).alias("trace"), pl.lit(one.rank, dtype=pl.Int64).alias("rank"), pl.all()
        )
        for number, one in enumerate(every)
        if not chosen.recorded or _recorded_name(chosen) in one
    ]
    if frames:
        return pl.concat(frames, how="diagonal_relaxed")
    schema = SCHEMA[_recorded_name(chosen)]
    nothing = pl.LazyFrame(schema=schema)
    return _from_origin(nothing, list(schema), chosen, shown.origin_ns) if told else nothing


def table_frame(shown: OpenedRun, name: str, trace: int | None = None) -> pl.DataFrame:
    """A whole table, told from the origin."""
    return table_rows(shown, find_table(name), trace, told=True).drop(ORIGIN, strict=False).collect()


def _of_trace(shown: OpenedRun, chosen: Table, number: int, told: bool) -> pl.LazyFrame:
    trace = shown.trace(number)
    if chosen.recorded:
        found, names = trace.required(_recorded_name(chosen)), list(SCHEMA[_recorded_name(chosen)])
    else:
        assert chosen.of_trace is not None
        whole = shown.frame(("table", chosen.name, number), partial(chosen.of_trace, trace))
        found, names = whole.lazy(), whole.columns
    return _from_origin(found, names, chosen, shown.origins[number]) if told else found


def _from_origin(found: pl.LazyFrame, names: Sequence[str], chosen: Table, origin_ns: int) -> pl.LazyFrame:
    moments = [name for name in names if unit_of(name, chosen.units) == MOMENT]
    # rows on another clock, such as samples that count from the start of their sampling, are told as they are
    elsewhere = pl.any_horizontal(pl.lit(False), *((pl.col(name) - origin_ns).abs() > SAME_CLOCK_NS for name in moments))
    own = pl.when(elsewhere.fill_null(False)).then(0).otherwise(origin_ns).cast(pl.Int64)
    return found.with_columns(own.alias(ORIGIN)).with_columns(pl.col(moments) - pl.col(ORIGIN))


def _recorded_name(chosen: Table) -> str:
    return chosen.name.removeprefix("recorded_")
