"""``steplens table``: any table of a run, in the terminal, as CSV or as one JSON document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steplens.cli.opening import keep_timelines, open_with_progress
from steplens.cli.text.text import console, plain, print_json
from steplens.common.errors import InputError, SteplensError

if TYPE_CHECKING:
    import polars as pl

    from steplens.run import Run

_SHOWN = 20


def table(
    path: Annotated[
        Path | None, typer.Argument(help="Anything: a trace file, a run directory, a folder of them.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Which table; without it the tables are listed.", show_default=False)] = None,
    by: Annotated[str | None, typer.Option(help="What makes a row, where a table has several kinds.")] = None,
    top: Annotated[int | None, typer.Option(min=1, help=f"Only the first rows; {_SHOWN} in the terminal by default.")] = None,
    sort: Annotated[
        str | None, typer.Option(help="A column to sort by, the largest first; with + in front the smallest.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Only these columns, with commas between.")] = None,
    rank: Annotated[int | None, typer.Option(help="Only the traces of this rank.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write a CSV file instead of showing the rows.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Show or export any table of a run: operators, kernels, flops, memory_peak, communication, ranks ...

    Without NAME it lists the tables and what each may be grouped by. Times in files are nanoseconds, sizes bytes, percentages
    0 to 100; docs/analyses.md says what each column means.
    """
    if path is None or name is None:
        _list_tables(json=json)
        return
    try:
        run = open_with_progress(path)
        table_rows = rows_of_table(run, name, by=by, sort=sort, columns=columns, rank=rank)
        if csv is not None:
            _write_csv(table_rows.head(top) if top else table_rows, csv)
    except SteplensError as error:
        if json:
            print_json({"path": str(path), "problem": str(error)})
        raise
    first_rows = table_rows.head(top) if top else table_rows
    if json:
        types = {column: str(dtype) for column, dtype in table_rows.schema.items()}
        print_json(
            {"path": str(path), "table": name, "by": by, "of": table_rows.height, "columns": types, "rows": first_rows.to_dicts()}
        )
    elif csv is not None:
        console().print(plain(f"{csv}: {first_rows.height} rows"), soft_wrap=True)
    else:
        from steplens.cli.text.table_text import show_table

        show_table(console(), table_rows, top or _SHOWN, f"{name} by {by}" if by else name)
    keep_timelines(run)


def rows_of_table(
    run: Run, name: str, *, by: str | None = None, sort: str | None = None, columns: str | None = None, rank: int | None = None
) -> pl.DataFrame:
    """A table of a run, names as text.

    Raises:
        InputError: there is no such table, group, column or rank; the message says what there is.
    """
    import polars as pl

    from steplens.run import Run

    if rank is not None:
        run.trace(rank)
        own_traces = [(source, trace) for source, trace in zip(run.sources, run.traces, strict=True) if trace.rank == rank]
        run = Run(run.path, own_traces, run.unreadable)
    try:
        found = run.table(name, by)
    except ValueError as error:
        raise InputError(run.path, f"cannot be shown like that: {error}", "`steplens table` lists the tables") from error
    found = found.with_columns(pl.col(pl.Categorical).cast(pl.String))
    wanted = columns.split(",") if columns is not None else found.columns
    for column in [*wanted, *([sort.removeprefix("+")] if sort else [])]:
        if column not in found.columns:
            raise InputError(run.path, f"has no column {column!r} in {name}", f"Its columns are {', '.join(found.columns)}")
    if sort:
        found = found.sort(sort.removeprefix("+"), descending=not sort.startswith("+"), nulls_last=True, maintain_order=True)
    return found.select(wanted)


def _list_tables(*, json: bool) -> None:
    from steplens.analysis.catalogue import analyses

    if json:
        print_json({"tables": [{"name": one.name, "question": one.question, "by": list(one.groups)} for one in analyses()]})
        return
    out = console()
    width = max(len(one.name) for one in analyses())
    for one in analyses():
        groups = f" (--by {', '.join(one.groups)})" if one.groups else ""
        out.print(plain(f"{one.name.ljust(width)}  {one.question}{groups}"), soft_wrap=True)
    out.print(plain("next: steplens table PATH NAME"), soft_wrap=True)


def _write_csv(found: pl.DataFrame, path: Path) -> None:
    import polars as pl

    from steplens.common import rundir
    from steplens.writers.common import text

    if not path.parent.is_dir():
        raise InputError(path, "lies in a folder that does not exist", "Make it first")
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
