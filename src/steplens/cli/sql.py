"""``steplens sql``: any question about a run, in SQL over what was recorded and over the answers of steplens."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steplens.cli.line.arguments import CsvFile, InputPath, Json, Rank
from steplens.cli.opening import keep_timelines, open_with_progress, show_work
from steplens.cli.table import SHOWN, answer_rows, check_csv, of_rank
from steplens.cli.text.text import console, plain, print_json
from steplens.common.errors import InputError, SteplensError
from steplens.readers.glance import refuse_hopeless

if TYPE_CHECKING:
    from steplens.run import Run


def answer_sql(
    path: InputPath,
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="SELECT ...; without it the tables are listed.", show_default=False)
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, metavar="N", help=f"Only the first rows; {SHOWN} in the terminal by default.")
    ] = None,
    rank: Rank = None,
    csv: CsvFile = None,
    json: Json = False,
) -> None:
    """Answer a SQL query (SELECT) over the tables of a run.

    Tables are what was recorded (ops, kernels, marks, memory ...) and the answers of steplens table (operators, idle ...; where
    both have a name, analysis_kernels is the answer). Times are nanoseconds, sizes bytes. Rows of several ranks have the columns
    rank and window. Nothing is written.

      steplens sql result "SELECT name, count(*) AS n FROM ops GROUP BY name ORDER BY n DESC"
    """
    try:
        refuse_hopeless(path)
        if csv is not None:
            check_csv(csv)
        if query is not None:
            _check_columns(path, query)
        run = of_rank(open_with_progress(path, rank), rank)
        if query is None:
            _list_tables(run, path, json=json)
            return
        with show_work("answering"):
            rows = run.sql(query)
    except SteplensError as error:
        if json:
            print_json({"path": str(path), "problem": str(error)})
        raise
    answer_rows(rows, path, {"query": query}, "answer", top=top, csv=csv, json=json)
    keep_timelines(run)


def _check_columns(path: Path, query: str) -> None:
    """Refuse a column that a table never has, before anything is read for it."""
    from steplens.analysis.queries import QueryError, check_columns

    try:
        check_columns(query)
    except QueryError as error:
        raise InputError(path, error.problem, error.remedy) from error


def _list_tables(run: Run, path: Path, *, json: bool) -> None:
    import polars as pl

    from steplens.analysis.queries import table_names
    from steplens.trace.schema import SCHEMA

    recorded = []
    for name in SCHEMA:
        frames = [frame for trace in run.traces if (frame := trace.lazy(name)) is not None]
        rows = sum(frame.select(pl.len()).collect().item() for frame in frames)
        if rows:
            recorded.append({"name": name, "rows": rows, "columns": frames[0].collect_schema().names()})
    answers = [name for name in table_names() if name not in SCHEMA]
    if json:
        print_json({"path": str(path), "recorded": recorded, "answers": answers})
        return
    out = console()
    for table in recorded:
        out.print(plain(f"{table['name']}: {table['rows']} rows", "bold"), soft_wrap=True)
        out.print(plain(f"  {', '.join(table['columns'])}"))
    out.print(plain("answers", "bold"))
    out.print(plain(f"  {', '.join(answers)}"))
    out.print(plain(f'next: steplens sql {shlex.quote(str(path))} "SELECT ..."'), soft_wrap=True)
