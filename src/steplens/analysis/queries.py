"""SQL over the tables of a run: recorded ones, and answers of the catalogue, which are made only where a query names them."""

from __future__ import annotations

import difflib
import re

import polars as pl

from steplens.analysis.answer_columns import OF_SEVERAL, columns_of_table
from steplens.analysis.catalogue import RECORDED_PREFIX, TracesOfRun, analyses, find_analysis
from steplens.trace.schema import SCHEMA

#: before names of analyses, some of which a recorded table is called like
ANALYSIS_PREFIX = "analysis_"

_READING = ("select", "with", "from", "show", "explain", "values", "(")
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_TEXT = re.compile(r"'(?:[^']|'')*'")
_WORD = re.compile(r"[A-Za-z_]\w*")
_UNKNOWN_TABLE = re.compile(r"relation '(?P<name>[^']*)' was not found")
_UNKNOWN_COLUMN = re.compile(r'unable to find column "(?P<name>[^"]*)"(?:; valid columns: \[(?P<columns>[^\]]*)\])?')
#: columns that a sentence has room for
_NAMED = 12
#: characters of a message of polars
_LONGEST = 200


class QueryError(ValueError):
    """What is wrong with a query, in words that go on a sentence, and what to do."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(problem)


def check_statement(query: str) -> None:
    """Whether a text begins as a query does that only reads.

    Raises:
        QueryError: it does not.
    """
    text = _COMMENT.sub(" ", query).strip().lower()
    if not text.startswith(_READING):
        first = text.split(maxsplit=1)[0] if text else ""
        problem = f"begins with {first[:20].upper()}" if first else "is empty"
        raise QueryError(f"the query {problem}", "It only reads: begin it with SELECT or WITH")


def answer_query(run: TracesOfRun, query: str) -> pl.DataFrame:
    """The answer to a query.

    Args:
        run: whose tables are asked. The names of ``trace.schema.SCHEMA`` are the recorded tables, with ``recorded_`` in front as
            well; names of the catalogue that none of them has are its answers, all of which can be had with ``analysis_`` in
            front. Of several traces recorded tables have two more columns, ``rank`` and ``window``.
        query: one statement that reads.

    Raises:
        QueryError: it cannot be answered.
    """
    check_statement(query)
    context = pl.SQLContext()
    for word in _words_of(query):
        if (frame := _find_frame(run, word)) is not None:
            context.register(word, frame)
    try:
        answer: pl.DataFrame = context.execute(query, eager=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _in_words(str(error)) from error
    return answer


def check_columns(query: str) -> None:
    """Whether the columns of a query are those of its tables, which can be told before any run is read.

    What else is wrong with a query shows when it is answered: the types of answers are not known here.

    Raises:
        QueryError: there is no such column, in a run of one trace or of several.
    """
    check_statement(query)
    words = _words_of(query)
    refused = [problem for several in (False, True) if (problem := _column_problem(query, words, several=several)) is not None]
    if len(refused) == 2:
        raise refused[0]


def _column_problem(query: str, words: list[str], *, several: bool) -> QueryError | None:
    """What is wrong with the columns of a query over tables without rows; None where they are right, or something else is not."""
    context = pl.SQLContext()
    for word in words:
        try:
            frame = _empty_frame(word, several=several)
        except ValueError:
            continue
        if frame is None:
            return None
        context.register(word, frame)
    try:
        context.execute(query).collect_schema()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        return _in_words(str(error)) if _UNKNOWN_COLUMN.search(str(error)) else None
    return None


def _empty_frame(word: str, *, several: bool) -> pl.LazyFrame | None:
    """The table of a name, without rows; None where its columns are not known.

    Raises:
        ValueError: there is no such table.
    """
    recorded = word.removeprefix(RECORDED_PREFIX)
    if recorded in SCHEMA:
        schema, adds = dict(SCHEMA[recorded]), True
    else:
        name = word.removeprefix(ANALYSIS_PREFIX)
        analysis, _ = find_analysis(name)
        columns = columns_of_table(name)
        if columns is None:
            return None
        schema, adds = dict.fromkeys(columns, pl.Null()), analysis.scope == "trace"
    if several and adds:
        schema |= dict(zip(OF_SEVERAL, (pl.Int64(), pl.String()), strict=True))
    return pl.LazyFrame(schema=schema)


def _words_of(query: str) -> list[str]:
    """What may name a table in a query."""
    return sorted(set(_WORD.findall(_TEXT.sub("''", _COMMENT.sub(" ", query)))))


def table_names() -> list[str]:
    """What a query may name, but for prefixes: recorded tables, then answers."""
    return [*SCHEMA, *(name for analysis in analyses() for name in analysis.names() if name not in SCHEMA)]


def _find_frame(run: TracesOfRun, word: str) -> pl.LazyFrame | None:
    """The table of a name; None where there is none, or it was not recorded."""
    name = word.removeprefix(RECORDED_PREFIX)
    if name in SCHEMA:
        return _recorded_frame(run, name)
    try:
        analysis, group = find_analysis(word.removeprefix(ANALYSIS_PREFIX))
    except ValueError:
        return None
    return analysis(run, group).lazy()


def _recorded_frame(run: TracesOfRun, name: str) -> pl.LazyFrame | None:
    frames = [
        frame if len(run.traces) == 1 else frame.with_columns(rank=pl.lit(trace.rank), window=pl.lit(path.name))
        for trace, path in zip(run.traces, run.paths, strict=True)
        if (frame := trace.lazy(name)) is not None
    ]
    return pl.concat(frames) if frames else None


def _in_words(message: str) -> QueryError:
    if (unknown := _UNKNOWN_TABLE.search(message)) is not None:
        name = unknown["name"]
        if name.removeprefix(RECORDED_PREFIX) in SCHEMA:
            return QueryError(f"the table {name} was not recorded", "`steplens sql PATH` lists what was")
        near = difflib.get_close_matches(name, table_names(), n=3, cutoff=0.6)
        hint = f"; perhaps {' or '.join(map(repr, near))} is meant" if near else ""
        return QueryError(f"there is no table {name!r}{hint}", "`steplens sql PATH` lists the tables")
    if (unknown := _UNKNOWN_COLUMN.search(message)) is not None:
        columns = re.findall(r'"([^"]*)"', unknown["columns"] or "")
        near = difflib.get_close_matches(unknown["name"], columns, n=3, cutoff=0.6)
        if near:
            return QueryError(f"there is no column {unknown['name']!r}; perhaps {' or '.join(map(repr, near))} is meant")
        there = f"There is {', '.join(columns[:_NAMED])}{' ...' if len(columns) > _NAMED else ''}" if columns else ""
        return QueryError(f"there is no column {unknown['name']!r}", there)
    first = " ".join(message.strip().partition("\n")[0].split())
    return QueryError(f"the query cannot be answered: {first[:_LONGEST].rstrip(':')}")
