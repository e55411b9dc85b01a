"""Who may keep a connection, and for how long: whoever has shown the token is never dropped for others.

Anybody who can reach the port can connect to it and say nothing. A connection that has not shown the token has a few seconds for
its request, is closed with its answer, a refusal or a file of the pages, and counts to a bound: when that is reached, the
oldest such connection is dropped for the new one. So files for the owner's connections and for captures stay free, however many
others connect. Until it sends something, a connection is a socket and a timer: whoever opens many has as much work with each as
the server. Of a request without the token the first line and headers are read, and nothing of its body: in chunks of a byte that
costs the server far more than the sender.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
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
#: until connections are taken again when there are no files for them
_RETRY_S = 0.2

#: header lines of a connection's first request, many times what browsers send; each costs the server more than its sender
_MOST_LINES = 200

#: of a request's head
_END = re.compile(rb"\n\r?\n")
_LATE = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Limits:
    """How long and how many.

    Attributes:
        head_s: for a request's first line and headers, from the connection or from the first byte that follows an answer.
        body_s: for a request's body.
        answer_s: for an answer to a request without the token, from the request on.
        idle_s: between an answer and the next request of a connection that has shown the token.
        strangers: connections that have not shown it.
    """

    head_s: float = 10.0
    body_s: float = 30.0
    answer_s: float = 60.0
    idle_s: int = 60
    strangers: int = field(default_factory=lambda: strangers_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def strangers_of(files: int) -> int:
    """The bound on connections without the token in a process that may have so many open files; -1 is any number."""
    return _STRANGERS if files < 0 else max(1, min(_STRANGERS, files // _PART_OF_FILES))


def create_server(app: ASGIApp, limits: Limits | None = None, **settings: Any) -> uvicorn.Server:
    """A server of the application with bounded connections.

    Args:
        app: what answers; it calls what a request's scope has under ``SHOWN`` when the request brought the token, and gets no
            body before.
        limits: of connections.
        settings: further ones of ``uvicorn.Config``.
    """
    limits = limits or Limits()
    config = uvicorn.Config(
        app,
        # what strangers send is nothing to tell the owner about
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        # what follows relies on these implementations, whatever else is installed
        loop="asyncio",
        http=_Connection,
        ws="none",
        timeout_keep_alive=limits.idle_s,
        **settings,
    )
    return _Server(config, limits)


class _Server(uvicorn.Server):
    """Takes connections itself, and makes HTTP connections of those that send something."""

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self.limits = limits
        #: connections that have not shown the token, oldest first
        self.strangers: dict[_Stranger, None] = {}
        self.opening: set[asyncio.Task[Any]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for listening in sockets or ():
            listening.listen(_QUEUE)
            # instead of asyncio, which makes a transport of each
            loop.add_reader(listening.fileno(), self._take, loop, listening)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for stranger in list(self.strangers):
            stranger.drop()
        await super().shutdown(sockets)

    def _take(self, loop: asyncio.AbstractEventLoop, bound: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, _address = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    return
                self._drop_oldest()
                # the socket would be reported again at once, for as long as nothing is free
                loop.remove_reader(bound.fileno())
                loop.call_later(_RETRY_S, self._take_again, loop, bound)
                return
            client.setblocking(False)
            self.strangers[_Stranger(self, loop, client)] = None
            if len(self.strangers) > self.limits.strangers:
                self._drop_oldest()

    def _take_again(self, loop: asyncio.AbstractEventLoop, bound: socket.socket) -> None:
        if bound.fileno() >= 0 and not self.should_exit:
            loop.add_reader(bound.fileno(), self._take, loop, bound)

    def _drop_oldest(self) -> None:
        if self.strangers:
            next(iter(self.strangers)).drop()

    def open(self, stranger: _Stranger, taken: socket.socket) -> None:
        """Make an HTTP connection of a socket that something has come from."""

        def make_connection() -> _Connection:
            connection: _Connection = self.config.http_protocol_class(  # type: ignore[assignment, call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=stranger.loop
            )
            connection.stranger = stranger
            return connection

        task = stranger.loop.create_task(_open_connection(stranger.loop, make_connection, taken))
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)


async def _open_connection(loop: asyncio.AbstractEventLoop, made: Callable[[], _Connection], taken: socket.socket) -> None:
    with contextlib.suppress(OSError):
        await loop.connect_accepted_socket(made, taken)


class _Stranger:
    """What has connected and not shown the token: first a socket, then an HTTP connection."""

    def __init__(self, server: _Server, loop: asyncio.AbstractEventLoop, taken: socket.socket) -> None:
        self.server = server
        self.loop = loop
        self.until = loop.time() + server.limits.head_s
        self.dropped = False
        self.connection: _Connection | None = None
        self._taken: socket.socket | None = taken
        self._timer = loop.call_at(self.until, self.drop)
        loop.add_reader(taken.fileno(), self._something_came)

    def _something_came(self) -> None:
        received = self._leave()
        if received is None:
            return
        try:
            ended = not received.recv(1, socket.MSG_PEEK)
        except OSError:
            ended = True
        if ended:
            received.close()
            self.forget()
        else:
            self.server.open(self, received)

    def _leave(self) -> socket.socket | None:
        """The socket, if there is no HTTP connection of it; it is no longer watched here."""
        received, self._taken = self._taken, None
        if received is not None:
            self._timer.cancel()
            self.loop.remove_reader(received.fileno())
        return received

    def forget(self) -> None:
        """It has ended, or shown the token."""
        self.server.strangers.pop(self, None)

    def drop(self) -> None:
        """End it at once, whatever it still has to send."""
        self.dropped = True
        self.forget()
        received = self._leave()
        if received is not None:
            received.close()
        elif self.connection is not None:
            self.connection.drop()


class _Reading(h11.Connection):
    """What HTTP says of the bytes that came: nothing about a body until its request has shown the token."""

    #: whether the request that is read has shown it
    shown = False
    #: line ends that came before there was a request
    _lines = 0
    _begun = False

    def receive_data(self, data: bytes) -> None:
        if not self._begun:
            self._lines += data.count(b"\n")
        super().receive_data(data)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if not self._begun and self._lines > _MOST_LINES:
            # those of a body may be among them
            head = _END.split(self.trailing_data[0], maxsplit=1)[0]
            if head.count(b"\n") > _MOST_LINES:
                raise h11.RemoteProtocolError("too many header lines", error_status_hint=431)
        if self.their_state is h11.SEND_BODY and not self.shown:
            # what has come stays as it is; a request that is refused ends the connection, and with it all of that
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.shown = False
            self._begun = True
        return event


class _Connection(H11Protocol):
    """An HTTP connection with a time for what is to come next."""

    stranger: _Stranger

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn: _Reading = _Reading(h11.SERVER)
        self.app = _with_token_callback(self.app, self._known)
        self._waits_for = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.stranger.connection = self
        if self.stranger.dropped:
            transport.abort()
        else:
            # the time of the first request began with the connection
            self._waits_for = "head"
            self._timer = self.loop.call_at(self.stranger.until, self._close_late_connection)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stranger.forget()
        self._stop()
        # its own closes the timer of idle connections only where the other end said goodbye
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def drop(self) -> None:
        """End the connection at once, whatever it still has to send."""
        self._stop()
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        if self.cycle is not None:
            # that was the answer: what the application still says finds nobody
            self.cycle.disconnected = True

    def _known(self) -> None:
        """The request that is read has brought the token."""
        self.stranger.forget()
        self.conn.shown = True
        self.handle_events()
        self._watch()

    def _watch(self) -> None:
        """Give what the connection has to send next its time; bytes that trickle in do not lengthen it."""
        limits = self.stranger.server.limits
        if self.transport.is_closing():
            # what is left to send must find a reader, or a stranger's connection would never end
            waits_for, limit_s = ("end", limits.head_s) if self.stranger in self.stranger.server.strangers else ("", 0.0)
        elif self.conn.their_state is h11.SEND_BODY:
            waits_for, limit_s = "body", limits.body_s
        elif self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            waits_for, limit_s = "head", limits.head_s
        elif self.conn.their_state is h11.DONE and self.stranger in self.stranger.server.strangers:
            # the pages are answered to all, and need not be taken
            waits_for, limit_s = "answer", limits.answer_s
        else:
            waits_for, limit_s = "", 0.0
        if waits_for == self._waits_for:
            return
        self._stop()
        self._waits_for = waits_for
        if waits_for:
            self._timer = self.loop.call_later(limit_s, self._close_late_connection)

    def _stop(self) -> None:
        self._waits_for = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_late_connection(self) -> None:
        begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        is_told = self.conn.trailing_data[0] or self.conn.their_state is h11.SEND_BODY
        if is_told and not begun and not self.transport.is_closing():
            self.transport.write(_LATE)
            if self.transport.get_write_buffer_size() == 0:
                self._stop()
                self.transport.close()
                return
        self.drop()


def _with_token_callback(app: ASGIApp, known: Callable[[], None]) -> ASGIApp:
    """The application, told by each request's scope whom to tell that it brought the token."""

    async def call_app(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, SHOWN: known}, receive, send)

    return call_app
