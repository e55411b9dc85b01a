"""Filter, sort and page a table; its rows as JSON or CSV."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

import msgspec
import polars as pl
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from steplens.server.http.errors import Refusal
from steplens.server.tables import columns
from steplens.server.tables.columns import Column
from steplens.server.tables.tables import ORIGIN, Table
from steplens.writers.common.text import guarded_header, names

MOST_ROWS = 1000
#: more than any page asks for; each condition looks at all rows
MOST_CONDITIONS = 100
MOST_ORDERS = 20
MOST_VALUES = 10_000
LONGEST_TEXT = 10_000
_CSV_ROWS = 50_000
#: what a 64-bit integer holds
_INT64 = (1 << 63) - 1

Scalar = bool | int | float | str


Given = TypeVar("Given", str, list[Scalar])


def _of_characters(given: Given) -> Given:
    """What a question holds, if its texts are short and made of characters: JSON can also hold halves of surrogate pairs."""
    texts = [given] if isinstance(given, str) else [one for one in given if isinstance(one, str)]
    if any(len(one) > LONGEST_TEXT for one in texts):
        raise ValueError(f"a text has at most {LONGEST_TEXT} characters")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no character") from None
    return given


Text = Annotated[str, AfterValidator(_of_characters)]


class Condition(BaseModel):
    """What a column of a shown row has to satisfy; all that is given at once.

    Attributes:
        column: its name.
        contains: text that the value holds, in either case of letters; of lists, in their JSON.
        one_of: the values it may have.
        at_least: the smallest value; moments count from the origin of the run.
        at_most: the largest value.
        missing: whether it has no value.
    """

    model_config = ConfigDict(extra="forbid")

    column: Text
    contains: Text | None = None
    one_of: Annotated[list[Scalar], Field(max_length=MOST_VALUES), AfterValidator(_of_characters)] | None = None
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    missing: bool | None = None


class Order(BaseModel):
    """A column to sort by."""

    model_config = ConfigDict(extra="forbid")

    column: Text
    descending: bool = False


class Query(BaseModel):
    """Which rows of a table, in which order.

    Attributes:
        trace: only of this trace; all of them by default.
        where: conditions that all hold.
        sort: columns to sort by, the first first; without any the table's own order. What has no value comes last.
        offset: rows to leave out.
        limit: how many to give.
    """

    model_config = ConfigDict(extra="forbid")

    trace: int | None = None
    where: Annotated[list[Condition], Field(max_length=MOST_CONDITIONS)] = []
    sort: Annotated[list[Order], Field(max_length=MOST_ORDERS)] = []
    offset: Annotated[int, Field(ge=0, le=1 << 40)] = 0
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 100


class TablePage(BaseModel):
    """A part of a table.

    Attributes:
        name: of the table.
        title: for people.
        columns: see ``Column``.
        rows: the cells of each row, in the order of ``columns``.
        matching: how many rows satisfy the conditions.
        total: how many rows the table has.
        empty: names of the columns that say nothing, whatever the conditions: no row has a value, or every amount is 0; only the
            page at offset 0 says them.
    """

    name: str
    title: str
    columns: list[Column]
    rows: list[list[Any]]
    matching: int
    total: int
    empty: list[str]


def table_page(rows: pl.LazyFrame, table: Table, query: Query) -> dict[str, Any]:
    """One page of a table, as ``TablePage`` has it; ``rows`` are told from an origin."""
    told, found = _matching_rows(rows, table, query)
    # every column is read for it: once per table, not for each page that somebody scrolls to
    counted = rows.select(pl.len(), *([] if query.offset else [_count_empty(column, table) for column in told]))
    total, *nulls = counted.collect().row(0)
    matching = found.select(pl.len()).collect().item() if query.where else total
    # polars counts rows in 32 bits and panics over a larger place
    part = columns.names_as_text(found.slice(min(query.offset, matching), query.limit).drop(ORIGIN, strict=False)).collect()
    return {
        "name": table.name,
        "title": table.title,
        "columns": [column.model_dump() for column in told],
        "rows": columns.json_rows(part),
        "matching": matching,
        "total": total,
        "empty": [column.name for column, count in zip(told, nulls, strict=False) if 0 < total == count],
    }


def _count_empty(column: Column, table: Table) -> pl.Expr:
    """How many rows say nothing in a column; what was recorded may be millions of rows, whose amounts are not looked at."""
    value = pl.col(column.name)
    is_amount = column.unit not in (None, "moment") and column.type in ("integer", "number") and not table.recorded
    return (value.is_null() | (value == 0)).sum() if is_amount else value.null_count()


def csv_pieces(rows: pl.LazyFrame, table: Table, query: Query) -> Iterator[bytes]:
    """All matching rows as CSV, in pieces; times are Unix ns again. What a spreadsheet would take for a formula is quoted."""
    told, found = _matching_rows(rows, table, query)
    moments = [column.name for column in told if column.unit == "moment"]
    frame = found.with_columns(pl.col(moments) + pl.col(ORIGIN)).drop(ORIGIN).collect()
    lists = [column.name for column in told if column.type == "list"]
    texts = [column.name for column in told if column.type == "text"]
    for start in range(0, max(frame.height, 1), _CSV_ROWS):
        part = frame.slice(start, _CSV_ROWS)
        part = part.with_columns(
            pl.Series(name, [_list_as_json(value) for value in part[name]], dtype=pl.String) for name in lists
        )
        part = part.with_columns(names(part[name]).alias(name) for name in texts)
        yield guarded_header(part).write_csv(include_header=start == 0, line_terminator="\r\n").encode()


def _matching_rows(rows: pl.LazyFrame, table: Table, query: Query) -> tuple[list[Column], pl.LazyFrame]:
    """The columns of a table, and its rows that satisfy the conditions, sorted."""
    schema = {name: dtype for name, dtype in rows.collect_schema().items() if name != ORIGIN}
    told = columns.describe_columns(schema, table.units)
    return told, _sort_rows(_filter_rows(rows, told, query), told, query)


def _list_as_json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(columns.json_value(list(value))).decode()


def _filter_rows(rows: pl.LazyFrame, told: list[Column], query: Query) -> pl.LazyFrame:
    distinct: Distinct = {}
    expressions = []
    for condition in query.where:
        expressions += _condition_expressions(rows, _column_of_name(told, condition.column), condition, distinct)
    return rows.filter(*expressions) if expressions else rows


#: the names of a column that holds few, each once, by the column
Distinct = dict[str, pl.DataFrame]


def _condition_expressions(rows: pl.LazyFrame, column: Column, condition: Condition, distinct: Distinct) -> list[pl.Expr]:
    value = pl.col(column.name)
    found = []
    if condition.missing is not None:
        found.append(value.is_null() if condition.missing else value.is_not_null())
    if condition.contains is not None:
        found.append(_contains_expression(rows, column, condition.contains, distinct))
    if condition.one_of is not None:
        found.append(_one_of(column, condition.one_of))
    for bound, above in ((condition.at_least, True), (condition.at_most, False)):
        if bound is None:
            continue
        if column.type not in ("integer", "number"):
            raise Refusal(422, "only numbers can be compared", column.name, "Use contains or one_of")
        limit: float | int = bound
        if column.type == "integer":
            # compared as integers: as doubles large ones would be equal that are not
            limit = math.ceil(bound) if above else math.floor(bound)
            if abs(limit) > _INT64:
                found.append(pl.lit((limit < 0) == above))
                continue
        found.append(value >= limit if above else value <= limit)
    return found


def _contains_expression(rows: pl.LazyFrame, column: Column, text: str, distinct: Distinct) -> pl.Expr:
    value = pl.col(column.name)
    if column.type == "list":
        return (
            value.list.eval(pl.element().cast(pl.String))
            .list.join(",")
            .str.to_lowercase()
            .str.contains(text.lower(), literal=True)
        )
    held = value.cast(pl.String).str.to_lowercase().str.contains(text.lower(), literal=True)
    if rows.collect_schema()[column.name] != pl.Categorical:
        return held
    # a name occurs in thousands of rows: look at each once, whatever other conditions there are
    if column.name not in distinct:
        distinct[column.name] = rows.select(value.unique()).collect()
    return value.is_in(distinct[column.name].filter(held)[column.name].implode())


def _one_of(column: Column, values: list[Scalar]) -> pl.Expr:
    value = pl.col(column.name)
    if column.type == "text":
        return value.cast(pl.String).is_in([str(one) for one in values])
    if column.type == "list":
        raise Refusal(422, "lists cannot be compared with values", column.name, "Use contains")
    if column.type == "boolean":
        return value.is_in([one for one in values if isinstance(one, bool)])
    numbers = [one for one in values if isinstance(one, (int, float)) and not isinstance(one, bool)]
    if len(numbers) < len(values):
        raise Refusal(422, "the column holds numbers", column.name, "Give numbers in one_of")
    if column.type == "number":
        # integers beyond all doubles are in no table
        return value.is_in([float(one) for one in numbers if isinstance(one, float) or abs(one) <= sys.float_info.max])
    whole = [int(one) for one in numbers if abs(one) <= _INT64 and one == int(one)]
    return value.is_in(pl.Series(whole, dtype=pl.Int64).implode())


def _sort_rows(rows: pl.LazyFrame, told: list[Column], query: Query) -> pl.LazyFrame:
    keys = []
    for order in query.sort:
        column = _column_of_name(told, order.column)
        key = pl.col(order.column)
        keys.append(key.list.len() if column.type == "list" else key.cast(pl.String) if column.type == "text" else key)
    if not keys:
        return rows
    return rows.sort(keys, descending=[order.descending for order in query.sort], nulls_last=True, maintain_order=True)


def _column_of_name(told: list[Column], name: str) -> Column:
    columns_by_name = {column.name: column for column in told}
    if name not in columns_by_name:
        raise Refusal(422, "the table has no such column", name, f"Its columns are {', '.join(columns_by_name)}")
    return columns_by_name[name]
