"""``steplens table``: any table of a run, in the terminal, as CSV or as one JSON document."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steplens.cli.line.arguments import CsvFile, Json, OptionalPath, Rank, Scheduler
from steplens.cli.line.ending import next_commands, say_next
from steplens.cli.opening import keep_timelines, open_with_progress, show_work
from steplens.cli.text.text import console, plain, print_json
from steplens.common.errors import InputError, SteplensError
from steplens.readers.glance import refuse_hopeless

if TYPE_CHECKING:
    import polars as pl

    from steplens.run import Run

#: rows in the terminal
SHOWN = 20
#: under an answer without rows
_NO_ROWS = "there is none of it, or what it is made of was not recorded: docs/analyses.md says what that is"


def table(
    path: OptionalPath = None,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Which table; without it the tables are listed.", show_default=False)
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="GROUP", help="What makes a row, where a table has several kinds.")] = None,
    top: Annotated[
        int | None, typer.Option(min=1, metavar="N", help=f"Only the first rows; {SHOWN} in the terminal by default.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A column to sort by, the largest first; with + in front the smallest.")
    ] = None,
    columns: Annotated[str | None, typer.Option(metavar="COLUMNS", help="Only these columns, with commas between.")] = None,
    rank: Rank = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Sums over the whole recording, instead of means over the steps that figures are of.")
    ] = False,
    scheduler: Scheduler = "",
    csv: CsvFile = None,
    json: Json = False,
) -> None:
    """Show or export any table of a run: operators, kernels, flops, memory_peak, communication, ranks ...

    Without NAME it lists the tables and what each may be grouped by. Times in files are nanoseconds, sizes bytes, percentages
    0 to 100; docs/analyses.md says what each column means.
    """
    if path is None or name is None:
        _list_tables(json=json)
        return
    from steplens.analysis.catalogue import recorded_table

    try:
        refuse_hopeless(path)
        _check_name(name, by)
        _check_columns(path, name, by, _asked_columns(columns, sort))
        if csv is not None:
            check_csv(csv)
        run = open_with_progress(path, rank, scheduler)
        with show_work("analysing"):
            _use_kept_answers(run)
            table_rows = rows_of_table(run, name, by=by, sort=sort, columns=columns, rank=rank, per_step=not whole)
            basis = "" if whole else basis_of_table(of_rank(run, rank), name, by)
    except SteplensError as error:
        if json:
            print_json({"path": str(path), "problem": str(error)})
        raise
    note = "nothing of it was recorded" if recorded_table(name) is not None else _NO_ROWS
    title = f"{name} by {by}" if by else name
    document = {"table": name, "by": by, "basis": basis or None}
    answer_rows(table_rows, path, document, f"{title}, {basis}" if basis else title, top=top, csv=csv, json=json, note=note)
    keep_timelines(run)


def _use_kept_answers(run: Run) -> None:
    """Let ranks answer what was worked out about them before."""
    if len(run.traces) > 1:
        from steplens.advice.prepare import use_kept_answers

        use_kept_answers(run)


def answer_rows(
    rows: pl.DataFrame,
    path: Path,
    asked: dict[str, Any],
    title: str,
    *,
    top: int | None,
    csv: Path | None,
    json: bool,
    note: str = "",
) -> None:
    """Show rows in the terminal, as a JSON document or as a CSV file.

    Args:
        rows: all of them.
        path: of the run.
        asked: what was asked, for the document.
        title: what was asked, for people.
        top: only so many of the first rows.
        csv: the file to write instead of showing them.
        json: print a document.
        note: what to say in the terminal where there are no rows.
    """
    import polars as pl

    rows = rows.with_columns(pl.col(pl.Categorical).cast(pl.String))
    first_rows = rows.head(top) if top else rows
    if csv is not None:
        _write_csv(first_rows, csv)
    if json:
        types = {column: str(dtype) for column, dtype in rows.schema.items()}
        print_json({"path": str(path), **asked, "of": rows.height, "columns": types, "rows": first_rows.to_dicts()})
    elif csv is not None:
        console().print(plain(f"{csv}: {first_rows.height} rows"), soft_wrap=True)
    else:
        from steplens.cli.text.table_text import show_table

        show_table(console(), rows, top or SHOWN, title)
        if not rows.height and note:
            console().print(plain(note, "dim"), soft_wrap=True)
        say_next(next_commands(path))


def of_rank(run: Run, rank: int | None) -> Run:
    """The traces of one rank, as a run; the run itself where none is given.

    Raises:
        InputError: there is no such rank.
    """
    from steplens.readers.common.rank_names import rank_of_path
    from steplens.run import Run

    if rank is None:
        return run
    run.trace(rank)
    own_traces = [(source, trace) for source, trace in zip(run.sources, run.traces, strict=True) if trace.rank == rank]
    return Run(run.path, own_traces, [error for error in run.unreadable if rank_of_path(error.path) in (None, rank)])


def check_csv(path: Path) -> None:
    """Whether a CSV file may be written there, before anything is read for it.

    Raises:
        InputError: its folder is not there.
    """
    if not path.parent.is_dir():
        raise InputError(path, "lies in a folder that does not exist", "Make it first")
    if path.is_dir():
        raise InputError(path, "is a folder", "Give the file to write")


def _check_name(name: str, by: str | None) -> None:
    from steplens.analysis.catalogue import check_table

    try:
        check_table(name, by)
    except ValueError as error:
        raise SteplensError(str(error)) from error


def _asked_columns(columns: str | None, sort: str | None) -> list[str]:
    return [*(columns.split(",") if columns is not None else ()), *((sort.removeprefix("+"),) if sort else ())]


def _check_columns(path: Path, name: str, by: str | None, asked: Iterable[str]) -> None:
    """Refuse a column that a table never has, before anything is read for it."""
    from steplens.analysis.answer_columns import OF_SEVERAL, columns_of_table, is_of_one_trace

    columns = columns_of_table(name, by)
    if columns is None:
        return
    of_several = [column for column in OF_SEVERAL if is_of_one_trace(name) and column not in columns]
    for column in asked:
        if column not in columns and column not in of_several:
            more = f"; of several traces also {' and '.join(of_several)}" if of_several else ""
            raise _no_column(path, column, name, f"{', '.join(columns)}{more}")


def _no_column(path: Path, column: str, name: str, columns: str) -> InputError:
    return InputError(path, f"has no column {column!r} in {name}", f"Its columns are {columns}")


def rows_of_table(
    run: Run,
    name: str,
    *,
    by: str | None = None,
    sort: str | None = None,
    columns: str | None = None,
    rank: int | None = None,
    per_step: bool = False,
) -> pl.DataFrame:
    """A table of a run, names as text; with ``per_step`` of a step, where the table can be.

    Raises:
        SteplensError: there is no such table, group, column or rank; the message says what there is.
    """
    import polars as pl

    run = of_rank(run, rank)
    _check_name(name, by)
    rows = run.table(name, by, per_step=per_step).with_columns(pl.col(pl.Categorical).cast(pl.String))
    for column in _asked_columns(columns, sort):
        if column not in rows.columns:
            raise _no_column(run.path, column, name, ", ".join(rows.columns))
    if sort:
        rows = rows.sort(sort.removeprefix("+"), descending=not sort.startswith("+"), nulls_last=True, maintain_order=True)
    return rows.select(columns.split(",")) if columns is not None else rows


def basis_of_table(run: Run, name: str, by: str | None) -> str:
    """What the rows of a table are of, where they can be of a step: "per step (mean of steps 2-5)"; else empty."""
    from steplens.analysis.catalogue import find_analysis, recorded_table

    if recorded_table(name) is not None:
        return ""
    analysis, group = find_analysis(name)
    return run.step_basis(apart=analysis.scope == "trace") if analysis.has_step_rows(by or group) else ""


def _list_tables(*, json: bool) -> None:
    from steplens.analysis.catalogue import RECORDED_PREFIX, analyses, recorded_table
    from steplens.trace.names import RECORDED_TABLES

    recorded = [name if recorded_table(name) else f"{RECORDED_PREFIX}{name}" for name in RECORDED_TABLES]
    if json:
        tables = [{"name": one.name, "question": one.question, "by": list(one.groups)} for one in analyses()]
        print_json({"tables": tables, "recorded": recorded})
        return
    out = console()
    width = max(len(one.name) for one in analyses())
    for one in analyses():
        groups = f" (--by {', '.join(one.groups)})" if one.groups else ""
        out.print(plain(f"{one.name.ljust(width)}  {one.question}{groups}"), soft_wrap=True)
    out.print(plain(f"as recorded: {', '.join(recorded)}"), soft_wrap=True)
    out.print(plain("next: steplens table PATH NAME"), soft_wrap=True)


def _write_csv(found: pl.DataFrame, path: Path) -> None:
    import polars as pl

    from steplens.common import rundir
    from steplens.writers.common import text

    check_csv(path)
    flat: dict[str, Any] = {}
    for column, dtype in found.schema.items():
        if isinstance(dtype, pl.List):
            flat[column] = found[column].list.eval(pl.element().cast(pl.String)).list.join(" ")
        elif dtype == pl.String:
            flat[column] = text.names(found[column])
    try:
        with rundir.atomic_path(path) as temporary:
            text.write_csv(found.with_columns(**flat), temporary)
    except OSError as error:
        raise InputError(path, f"cannot be written: {error.strerror or error}", "Choose another file") from error
