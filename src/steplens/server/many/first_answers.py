"""What the pages of a run of many ranks ask first, answered before somebody asks, and kept for the next time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI

from steplens.server.http.page_store import write_pages
from steplens.server.many.kept_route import page_name
from steplens.server.runs import OpenedRun

_LOG = logging.getLogger("steplens.server")

#: below the address of a run, as the pages ask, the quickest first; advice before the overview, which has some of it
_FIRST = (
    ("cluster/side-by-side", ""),
    ("cluster/rank-steps", ""),
    ("ranks", ""),
    ("advice", ""),
    ("overview", ""),
    ("timeline/opening", ""),
    ("health", ""),
    ("communication", ""),
    ("cluster/heat", ""),
    ("cluster/steps", "sort=rank&descending=false&offset=0&limit=20"),
    ("communication/costs", ""),
    ("communication/links", "sort=time_ns&descending=true&limit=1000"),
    ("communication/links", "sort=time_ns&descending=true&offset=0&limit=20"),
)


def answer_ahead(app: FastAPI, shown: OpenedRun) -> None:
    """Ask what the pages ask first, as they do, and keep the answers; what fails is asked again by the pages, and fails there."""
    pages: dict[str, bytes] = {}
    for path, query in _FIRST:
        name = page_name(path, query)
        generation = shown.generation
        if shown.kept_page(name) is None:
            try:
                asyncio.run(_ask_address(app, f"/api/runs/{shown.id}/{path}", query))
            except Exception:  # the boundary of an address: the page that asks is told
                _LOG.exception("no answer about %s", shown.path)
        packed = shown.kept_page(name)
        if packed is not None and generation == shown.generation:
            pages[name] = packed
    if pages and shown.opened is not None:
        write_pages(shown.opened.run, pages)


async def _ask_address(app: FastAPI, path: str, query: str) -> None:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"accept-encoding", b"gzip")],
        "client": None,
        "server": None,
    }

    async def receive_nothing() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def leave_answer(_: MutableMapping[str, Any]) -> None:
        """Nobody reads the answer: it is kept."""

    await app(scope, receive_nothing, leave_answer)
