"""Runs the server until Ctrl-C: a socket, a token, a link, and a browser."""

from __future__ import annotations

import contextlib
import logging
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from steplens.server.app import create_app
from steplens.server.captures import Control
from steplens.server.http import connections
from steplens.server.http.address import in_link
from steplens.server.http.browser import open_in_browser
from steplens.server.runs import RunLibrary

#: how long answers that are under way may take when the server ends
_GRACE_S = 2


def serve_runs(
    library: RunLibrary,
    bound: socket.socket,
    host: str,
    browser: bool,
    say: Callable[[str], None],
    control: Control | None = None,
) -> None:
    """Show some runs until Ctrl-C.

    Args:
        library: what to show; it is opened in the background, so that the page is there at once.
        bound: listens at ``host``; closed at the end.
        host: what the user calls the address.
        browser: whether to open the link.
        say: prints a line for the user.
        control: asks trainings that run for captures.
    """
    with bound:
        port = bound.getsockname()[1]
        token = secrets.token_urlsafe(32)
        link = f"http://{in_link(host)}:{port}/?token={token}"
        app = create_app(library, token, host, control=control)
        server = connections.create_server(app, timeout_graceful_shutdown=_GRACE_S)

        # that answers were given up with the server is what the user wanted, and no failure
        def quiet(record: logging.LogRecord) -> bool:
            return not server.should_exit

        logging.getLogger("uvicorn.error").addFilter(quiet)
        # whoever reads the link may end the server at once, long before it listens to signals itself
        with _ended_by_ctrl_c(server):
            say(link)
            with open_in_browser(link) if browser else contextlib.nullcontext():
                server.run(sockets=[bound])
        logging.getLogger("uvicorn.error").removeFilter(quiet)


@contextlib.contextmanager
def _ended_by_ctrl_c(server: uvicorn.Server) -> Iterator[None]:
    """Ctrl-C ends the server wherever the program is, instead of raising an exception there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop_server(number: int, frame: object) -> None:
        server.should_exit = True

    before = signal.signal(signal.SIGINT, stop_server)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
