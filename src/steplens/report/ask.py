"""Questions to the server's addresses without a server: the same functions, called in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

import msgspec
from fastapi import FastAPI

from steplens.readers.common import json_decoder
from steplens.server.app import create_api
from steplens.server.runs import RunLibrary

Query = Mapping[str, "str | int | bool | Sequence[str]"]


@dataclass(frozen=True)
class Answer:
    """What an address answered: its status and body."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether it is what was asked for, and not a problem."""
        return self.status == 200

    @property
    def json(self) -> Any:
        """The body."""
        return json_decoder.decode(self.body)


class InProcessClient:
    """Asks the addresses of some runs.

    Args:
        library: the runs, opened.
    """

    def __init__(self, library: RunLibrary) -> None:
        self.app: FastAPI = create_api(library)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> InProcessClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.run_until_complete(_cancel_the_others())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def get(self, path: str, query: Query | None = None) -> Answer:
        """What ``GET /api/path`` answers."""
        return self._loop.run_until_complete(self._call_application("GET", path, query or {}, b""))

    def post(self, path: str, body: Any) -> Answer:
        """What ``POST /api/path`` answers to a JSON body."""
        return self._loop.run_until_complete(self._call_application("POST", path, {}, msgspec.json.encode(body)))

    async def _call_application(self, method: str, path: str, query: Query, body: bytes) -> Answer:
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": f"/api/{path}",
            "raw_path": f"/api/{path}".encode(),
            "root_path": "",
            "query_string": urlencode(texts, doseq=True).encode(),
            "headers": [(b"content-type", b"application/json")] if body else [],
            "client": None,
            "server": None,
        }
        status = 500
        pieces: list[bytes] = []
        is_sent = False

        async def receive() -> dict[str, Any]:
            nonlocal is_sent
            if is_sent:
                # a streamed answer watches for the end of the connection, which never comes
                await asyncio.Event().wait()
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                pieces.append(message.get("body", b""))

        await self.app(scope, receive, send)
        return Answer(status, b"".join(pieces))


async def _cancel_the_others() -> None:
    """End the questions that Ctrl-C broke off: with them end the threads that work for them, for which the process would wait."""
    other_tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for question in other_tasks:
        question.cancel()
    await asyncio.gather(*other_tasks, return_exceptions=True)
