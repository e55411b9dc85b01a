"""Who may keep a connection, and for how long: whoever has shown the token is never dropped for others.

Anybody who can reach the port can connect to it and say nothing. A connection that has not shown the token has a few seconds for
its request, is closed with the answer that refuses it, and counts to a bound: when that is reached, the oldest such connection is
dropped for the new one. So files for the owner's connections and for captures stay free, however many others connect.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

#: where a request tells its connection that it brought the token
SHOWN = "steplens.token_shown"

#: connections without the token that are held at most, and the part of the process's file descriptors that they may be
_STRANGERS = 128
_PART_OF_FILES = 8
#: connections taken from the queue before the loop does anything else; that many may exist beyond the bound for a moment
_AT_ONCE = 16
#: connections that wait in the kernel's queue: whoever finds it full tries again only after a second
_QUEUE = 1024

_LATE = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Limits:
    """How long and how many.

    Attributes:
        head_s: for a request's first line and headers, from the connection or from the first byte that follows an answer.
        body_s: for a request's body.
        idle_s: between an answer and the next request of a connection that has shown the token.
        strangers: connections that have not shown it.
    """

    head_s: float = 5.0
    body_s: float = 30.0
    idle_s: int = 60
    strangers: int = field(default_factory=lambda: strangers_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def strangers_of(files: int) -> int:
    """The bound on connections without the token in a process that may have so many open files; -1 is any number."""
    return _STRANGERS if files < 0 else max(1, min(_STRANGERS, files // _PART_OF_FILES))


def server(app: ASGIApp, limits: Limits | None = None, **settings: Any) -> uvicorn.Server:
    """A server of the application with bounded connections.

    Args:
        app: what answers; it calls what a request's scope has under ``SHOWN`` when the request brought the token.
        limits: of connections.
        settings: further ones of ``uvicorn.Config``.
    """
    limits = limits or Limits()
    kind = type("Connection", (_Connection,), {"limits": limits, "strangers": {}})
    config = uvicorn.Config(
        app,
        # what strangers send is nothing to tell the owner about
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        # what follows relies on these implementations, whatever else is installed
        loop="asyncio",
        http=kind,
        ws="none",
        timeout_keep_alive=limits.idle_s,
        backlog=_AT_ONCE,
        **settings,
    )
    return _Server(config)


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            # asyncio has one number for the queue and for how many it takes at once
            one.listen(_QUEUE)


class _Connection(H11Protocol):
    """One connection. ``strangers`` are those of one server that have not shown the token, oldest first."""

    limits: Limits
    strangers: dict[_Connection, None]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.app = _telling(self.app, self._known)
        self._waits_for = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.strangers[self] = None
        if len(self.strangers) > self.limits.strangers:
            oldest = next(iter(self.strangers))
            oldest.drop()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.strangers.pop(self, None)
        self._stop()
        # its own closes the timer of idle connections only where the other end said goodbye
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def drop(self) -> None:
        """End the connection at once, whatever it still has to send."""
        self.strangers.pop(self, None)
        self._stop()
        self.transport.abort()

    def _known(self) -> None:
        """A request has brought the token."""
        self.strangers.pop(self, None)

    def _watch(self) -> None:
        """Give what the connection has to send next its time; bytes that trickle in do not lengthen it."""
        if self.transport.is_closing():
            # what is left to send must find a reader, or a stranger's connection would never end
            waits_for, limit_s = ("end", self.limits.head_s) if self in self.strangers else ("", 0.0)
        elif self.conn.their_state is h11.SEND_BODY:
            waits_for, limit_s = "body", self.limits.body_s
        elif self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            waits_for, limit_s = "head", self.limits.head_s
        else:
            waits_for, limit_s = "", 0.0
        if waits_for == self._waits_for:
            return
        self._stop()
        self._waits_for = waits_for
        if waits_for:
            self._timer = self.loop.call_later(limit_s, self._late)

    def _stop(self) -> None:
        self._waits_for = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        told = self.conn.trailing_data[0] or self.conn.their_state is h11.SEND_BODY
        if told and not begun and not self.transport.is_closing():
            self.transport.write(_LATE)
            if self.transport.get_write_buffer_size() == 0:
                self._stop()
                self.transport.close()
                return
        self.drop()


def _telling(app: ASGIApp, known: Callable[[], None]) -> ASGIApp:
    """The application, told by each request's scope whom to tell that it brought the token."""

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, SHOWN: known}, receive, send)

    return told
