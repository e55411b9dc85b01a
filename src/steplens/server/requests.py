"""What the addresses have in common: the run, the trace, and how answers are encoded."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import Depends, Path, Query, Request
from starlette.responses import Response

from steplens.server.http.errors import path_text
from steplens.server.runs import OpenedRun, RunLibrary

#: times are ns from the origin of a run; no trace is longer than 146 years
FAR = 1 << 62

RunNumber = Annotated[int, Path(ge=0, le=1 << 31, description="number of the run, in the order of the command line")]
TraceNumber = Annotated[int, Query(ge=0, le=1 << 31, description="number of the trace (rank or window) of the run")]
Moment = Annotated[int, Query(ge=-FAR, le=FAR, description="ns from the origin of the run")]
Points = Annotated[int, Query(ge=1, le=20_000)]


async def library_of_server(request: Request) -> RunLibrary:
    """The runs of this server."""
    run_library: RunLibrary = request.app.state.library
    return run_library


async def run_by_number(run: RunNumber, runs: Annotated[RunLibrary, Depends(library_of_server)]) -> OpenedRun:
    """The run that an address names."""
    return runs.shown(run)


async def as_read(run: Annotated[OpenedRun, Depends(run_by_number)]) -> OpenedRun:
    """The same as it was read last: an answer is of one reading, though the run may be read again meanwhile."""
    return dataclasses.replace(run)


Runs = Annotated[RunLibrary, Depends(library_of_server)]
Chosen = Annotated[OpenedRun, Depends(as_read)]
#: for what is asked about the reading itself
Living = Annotated[OpenedRun, Depends(run_by_number)]


def json_response(value: Any) -> Response:
    """An answer as JSON, for those that are too long to be checked against their model one cell at a time."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def attachment_headers(chosen: OpenedRun, told: str) -> dict[str, str]:
    """Headers of an answer that is a file of its own: it is named after the run, and by what is told of it."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(f'{path_text(chosen.path.resolve().name)}_{told}')}"}
