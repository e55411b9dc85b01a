"""Addresses whose answers about a run of many ranks are kept: worked out once, and sent compressed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from steplens.server.http.errors import Refusal
from steplens.server.http.page_store import is_many, pack_page, unpack_page
from steplens.server.http.routing import create_router
from steplens.server.runs import OpenedRun, RunLibrary

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def leave_unkept(request: Request) -> None:
    """Say while answering that the answer is not the last word, and worked out again the next time."""
    request.state.is_unfinished = True


def page_name(path: str, query: str) -> str:
    """What an answer is kept under: its address below that of the run, and what was asked."""
    return f"{path}?{query}"


class KeptRoute(APIRoute):
    """An address below that of a run; of few ranks it is as any other."""

    def get_route_handler(self) -> Handler:
        """What answers: what is known, or what the address itself says."""
        answer = super().get_route_handler()

        async def answer_once(request: Request) -> Response:
            run_of_many = _many_ranks(request)
            if run_of_many is None or request.method != "GET":
                return await answer(request)
            name = page_name(request.url.path.split("/", 4)[-1], request.url.query)
            generation = run_of_many.generation
            packed = run_of_many.kept_page(name)
            if packed is None:
                response = await answer(request)
                if response.status_code != 200 or getattr(request.state, "is_unfinished", False):
                    return response
                packed = await asyncio.to_thread(pack_page, bytes(response.body))
                run_of_many.add_page(name, generation, packed)
            if any("gzip" in accepted for accepted in request.headers.getlist("accept-encoding")):
                headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
                return Response(packed, media_type="application/json", headers=headers)
            body = unpack_page(packed)
            return await answer(request) if body is None else Response(body, media_type="application/json")

        return answer_once


def kept_router(prefix: str, tag: str) -> APIRouter:
    """Like ``create_router``, of addresses whose answers about many ranks are kept."""
    router = create_router(prefix, tag)
    router.route_class = KeptRoute
    return router


def _many_ranks(request: Request) -> OpenedRun | None:
    """The run that is asked about, where it has many ranks and is open."""
    library: RunLibrary = request.app.state.library
    try:
        opened = library.shown(int(request.path_params["run"]))
    except (Refusal, ValueError, KeyError):
        # the address itself says what is wrong
        return None
    return opened if opened.opened is not None and is_many(opened.opened.run) else None
