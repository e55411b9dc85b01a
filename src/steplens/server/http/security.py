"""Who may ask: requests with the token, from this server's own pages, to a name of this machine.

Any page in the user's browser can send requests to a port of the machine, and a foreign domain can be made to point at it
(DNS rebinding); other users of the machine can connect to it. So every request needs a ``Host`` that is an address or a name of
this machine, where the browser tells the server's own origin, and for all that is said of a run the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from steplens.server.http.connections import SHOWN
from steplens.server.http.error_answers import problem_response
from steplens.server.http.errors import Problem
from steplens.server.http.pages import PAGE
from steplens.server.http.tickets import AT, Tickets

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # charts place their labels with style attributes; that allows no <style> element and no stylesheet
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SAFE_SITES = ("same-origin", "none")
_REMEDY = "Open the link that steplens view printed; it holds the token"
#: of a request's body, in bytes; the largest that the pages send has some conditions
_MOST_BODY = 1 << 20
_TOO_LARGE = f"the body of the request has more than {_MOST_BODY} bytes"
_PLAIN = "GET /api/openapi.json describes all addresses; they answer plain requests"


class Guard:
    """ASGI middleware that lets only permitted requests through.

    The token comes as ``Authorization: Bearer ...``, or in the query of the link that is opened first (``/?token=...``). Nothing
    that a browser adds by itself counts: it would add it for every port of the host, and so for servers of other users. What is
    open to all is answered without the token, but not with a wrong one.

    Args:
        app: what is guarded.
        token: the secret.
        host: that the server is bound to; a name in it is allowed too.
        open_to_all: paths of answers that hold nothing of any run.
        tickets: that were given out, each in place of the token for one address.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        host: str = "127.0.0.1",
        open_to_all: Collection[str] = (),
        tickets: Tickets | None = None,
    ) -> None:
        self._app = app
        self._token = token
        self._names = {"localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
        self._open = open_to_all
        self._tickets = tickets or Tickets()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        problem = self._from_elsewhere(headers, scope)
        socket_wanted = "websocket" in headers.get("upgrade", "").lower()
        is_known = False
        if problem is None:
            scope, is_known = self._let_in(headers, scope)
            if is_known:
                # so that its connection is kept; a server without such connections tells nothing
                scope.get(SHOWN, lambda: None)()
                if socket_wanted:
                    problem = 400, Problem(problem="there are no WebSockets here", where=scope["path"], remedy=_PLAIN)
                elif int(headers.get("content-length", "0")) > _MOST_BODY:
                    problem = 413, Problem(problem=_TOO_LARGE, where=scope["path"])
            elif (
                self._tokens_of_request(headers, scope)
                or scope["path"] not in self._open
                or scope["method"] != "GET"
                or socket_wanted
            ):
                problem = 401, Problem(problem="the token is missing or wrong", where=scope["path"], remedy=_REMEDY)

        came = 0

        async def receive_bounded() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > _MOST_BODY:
                # of a length that was not told
                raise HTTPException(413, _TOO_LARGE)
            return message

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer.setdefault(name, value)
                if problem is not None or not is_known or came > _MOST_BODY:
                    # nothing more is read from whoever was refused, or has not shown the token
                    answer["Connection"] = "close"
            await send(message)

        if problem is None:
            await self._app(scope, receive_bounded, send_secured)
        else:
            status, body = problem
            await problem_response(status, body)(scope, receive, send_secured)

    def _from_elsewhere(self, headers: Headers, scope: Scope) -> tuple[int, Problem] | None:
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._is_ours(host):
            return 403, Problem(problem="the Host of the request is not this machine", where=host, remedy=_REMEDY)
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return 403, Problem(problem="the request comes from another site", where=origin, remedy=_REMEDY)
        site = headers.get("sec-fetch-site", "none")
        # a link on another page may lead to the page, and to nothing else
        if site not in _SAFE_SITES and (headers.get("sec-fetch-mode") != "navigate" or scope["path"] != PAGE):
            return 403, Problem(problem="the request comes from another site", where=site, remedy=_REMEDY)
        return None

    def _let_in(self, headers: Headers, scope: Scope) -> tuple[Scope, bool]:
        """What a request asks for, and whether it may: it brings the token, or a ticket, which stands for another address."""
        if scope["method"] == "GET" and scope["path"].startswith(AT):
            address = self._tickets.spend(scope["path"].removeprefix(AT))
            if address is not None:
                path, _, query = address.partition("?")
                return {**scope, "path": path, "raw_path": path.encode(), "query_string": query.encode()}, True
        secret = self._token.encode()
        return scope, any(hmac.compare_digest(token.encode(), secret) for token in self._tokens_of_request(headers, scope))

    def _is_ours(self, host: str) -> bool:
        name = host.lower().rsplit(":", 1)[0] if not host.endswith("]") else host.lower()
        if name in self._names:
            return True
        try:
            # no foreign domain can be an address
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True

    def _tokens_of_request(self, headers: Headers, scope: Scope) -> list[str]:
        """The tokens that a request carries, right or wrong."""
        tokens = []
        # only of the page itself, so that no other address with a token is ever made
        if scope["path"] == PAGE:
            tokens += parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        authorization = headers.get("authorization", "")
        if authorization.lower().startswith("bearer "):
            tokens.append(authorization[len("bearer ") :].strip())
        return tokens
