"""The addresses of the tables: what there is, a page of one, and all of one as CSV."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import polars as pl
from fastapi import Path
from fastapi import Query as Parameter
from pydantic import BaseModel, ValidationError
from starlette.responses import Response, StreamingResponse

from steplens.server.http.errors import Refusal
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen, attachment_headers, json_response
from steplens.server.tables import query, tables
from steplens.server.tables.query import Query, TablePage

router = create_router("/api/runs/{run}", "tables")

TableName = Annotated[str, Path(pattern="^[a-z_]{1,64}$", description="one of GET /api/runs/{run}/tables")]


class TableShown(BaseModel):
    """A table that can be asked for.

    Attributes:
        name: in addresses.
        title: for people.
        recorded: whether it holds what was recorded, as it is.
        per_trace: whether it can be asked of one trace.
    """

    name: str
    title: str
    recorded: bool
    per_trace: bool


@router.get("/tables")
def list_tables(chosen: Chosen) -> list[TableShown]:
    """Every table of this run; of recorded tables only those that it has."""
    present = {f"recorded_{name}" for trace in chosen.run.traces for name in trace}
    kept = pl.concat([trace.required("source_tables").select(pl.col("table").cast(pl.String)) for trace in chosen.run.traces])
    present |= {tables.STORED_PREFIX + name for name in kept.unique().collect()["table"]}
    return [
        TableShown(name=one.name, title=one.title, recorded=one.recorded, per_trace=one.of_trace is not None)
        for one in tables.every_table().values()
        if not (one.recorded or one.name.startswith(tables.STORED_PREFIX)) or one.name in present
    ]


@router.post("/tables/{table}", response_model=TablePage)
def read_page(chosen: Chosen, table: TableName, wanted: Query) -> Any:
    """Rows of a table that satisfy conditions, sorted, one page of them."""
    found = tables.find_table(table)
    return json_response(query.table_page(tables.table_rows(chosen, found, wanted.trace, told=True), found, wanted))


_CSV: dict[int | str, Any] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


@router.get("/tables/{table}/csv", responses=_CSV, response_class=StreamingResponse)
def read_csv(
    chosen: Chosen,
    table: TableName,
    wanted: Annotated[
        str, Parameter(alias="query", description="the body of a page's request, as JSON; offset and limit do not matter")
    ] = "{}",
) -> Response:
    """All rows of a table that satisfy conditions, as a CSV file; moments are Unix times in ns."""
    try:
        asked = Query.model_validate_json(wanted)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refusal(422, first["msg"], "query", "Give the body of a page's request") from None
    found = tables.find_table(table)
    rows = query.csv_pieces(tables.table_rows(chosen, found, asked.trace, told=True), found, asked)
    # the first piece is made here, so that a wrong condition is answered as one
    pieces = itertools.chain([next(rows)], rows)
    return StreamingResponse(
        pieces, media_type="text/csv; charset=utf-8", headers=attachment_headers(chosen, f"{found.name}.csv")
    )
