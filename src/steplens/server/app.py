"""The application: its addresses in one visible list, behind the guard."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from steplens.server import advice, captures, download, overview, search, session, step_trace, trends
from steplens.server.cluster import cluster, communication, links, marey, side_by_side, strategy
from steplens.server.comparison import aligned_steps, compare, history
from steplens.server.http import error_answers, pages, tickets
from steplens.server.http.built_pages import STATIC as STATIC
from steplens.server.http.built_pages import how_to_build
from steplens.server.http.errors import Refusal
from steplens.server.http.security import Guard
from steplens.server.many import first_answers
from steplens.server.memory import memory, memory_plans
from steplens.server.operators import flops, shapes, user_ranges
from steplens.server.pipeline import pipeline, pipeline_batches, processors
from steplens.server.runs import RunLibrary
from steplens.server.tables import table_routes
from steplens.server.timeline import routes as timeline_routes

#: what answers, in the order in which addresses are documented
AREAS = (
    session, captures, overview, step_trace, trends, advice, table_routes, timeline_routes, memory, memory_plans, user_ranges,
    flops, shapes, pipeline, pipeline_batches, processors, communication, links, cluster, side_by_side, marey, strategy, search,
    compare, aligned_steps, history, download, tickets,
)  # fmt: skip
_TITLE = "steplens view"

ROUTERS: tuple[APIRouter, ...] = tuple(area.router for area in AREAS)


class Api(FastAPI):
    """An application whose OpenAPI document is made once in a process: all of them have the same addresses."""

    def openapi(self) -> dict[str, Any]:
        """The document; who asks for it must not change it."""
        return _describe_addresses()


@functools.cache
def _describe_addresses() -> dict[str, Any]:
    return get_openapi(title=_TITLE, version=session.VERSION, routes=[route for router in ROUTERS for route in router.routes])


def create_api(library: RunLibrary) -> FastAPI:
    """Everything that is answered about some runs, for whoever may ask: without the guard and without pages."""
    # no /docs: it would load its scripts from elsewhere
    app = Api(
        title=_TITLE,
        version=session.VERSION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.library = library
    app.state.tickets = tickets.Tickets()
    library.answer_ahead = functools.partial(first_answers.answer_ahead, app)
    error_answers.register(app)
    for router in ROUTERS:
        # not include_router, which makes the models of every address anew for each application
        app.router.routes.extend(router.routes)
    return app


def create_app(
    library: RunLibrary,
    token: str,
    host: str = "127.0.0.1",
    static: Path = STATIC,
    control: captures.Control | None = None,
) -> ASGIApp:
    """The application over some runs.

    Args:
        library: the runs; opened elsewhere.
        token: what every request for data has to bring.
        host: that it will be bound to.
        static: folder of the built front end; need not exist.
        control: asks trainings that run for captures; without it none can be asked.
    """
    app = create_api(library)
    app.state.captures = control

    files = pages.read_page_files(static)

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return files.get(pages.PAGE) or PlainTextResponse(_not_built(app, static))

    @app.get("/{path:path}", include_in_schema=False)
    async def asset(path: str) -> Response:
        file = files.get(f"/{path}")
        if file is None:
            raise Refusal(404, "there is no such address", path, "GET /api/openapi.json describes all of them")
        return file

    # outermost, so that it also covers answers about errors
    return Guard(app, token, host, open_to_all=frozenset(files), tickets=app.state.tickets)


def _not_built(app: FastAPI, static: Path) -> str:
    """What the first page says in a checkout whose front end was not built."""
    addresses = sorted(
        f"{', '.join(sorted(route.methods or ()))} {route.path}  {(route.description or '').splitlines()[0]}"
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
    )
    lines = [
        "steplens view runs, and its pages have not been built: a released package has them, a checkout builds them.",
        "",
        f"Expected: {static / 'index.html'}",
        f"{how_to_build(static)}; then start steplens view again",
        "",
        "The addresses below answer already; /api/openapi.json describes them.",
        "",
        *addresses,
    ]
    return "\n".join(lines) + "\n"
