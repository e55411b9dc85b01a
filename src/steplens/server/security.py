"""Who may ask: requests with the token, from this server's own pages, to a name of this machine.

Any page in the user's browser can send requests to a port of the machine, and a foreign domain can be made to point at it
(DNS rebinding); other users of the machine can connect to it. So every request needs the token, a ``Host`` that is an address
or a name of this machine, and, where the browser tells, the server's own origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterator
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from steplens.server.connections import SHOWN
from steplens.server.error_answers import response
from steplens.server.errors import Problem

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
#: of all cookies of a request, in bytes; where there are more, none is looked at
_MOST_COOKIES = 128 << 10
_PLAIN = "GET /api/openapi.json describes all addresses; they answer plain requests"


class Guard:
    """ASGI middleware that lets only permitted requests through.

    The token comes in the query of the link that is opened first (``/?token=...``), which also sets a cookie for the page's own
    requests and for reloads, or as ``Authorization: Bearer ...``. The cookie is named after the port, because cookies of one
    host are shared between its ports.

    Args:
        app: what is guarded.
        token: the secret.
        port: of the server.
        host: that the server is bound to; a name in it is allowed too.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, host: str = "127.0.0.1") -> None:
        self._app = app
        self._token = token
        self._cookie = f"steplens_{port}"
        self._names = {"localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        problem = self._problem(headers, scope)
        if problem is None:
            # so that its connection is kept; a server without such connections tells nothing
            scope.get(SHOWN, _nothing)()
            if "websocket" in headers.get("upgrade", "").lower():
                problem = 400, Problem(problem="there are no WebSockets here", where=scope["path"], remedy=_PLAIN)

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer.setdefault(name, value)
                if problem is not None:
                    # nothing more is read from whoever was refused
                    answer["Connection"] = "close"
                if self._in_query(scope) and problem is None:
                    answer.append("Set-Cookie", f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict")
            await send(message)

        if problem is None:
            await self._app(scope, receive, secured)
        else:
            status, body = problem
            await response(status, body)(scope, receive, secured)

    def _problem(self, headers: Headers, scope: Scope) -> tuple[int, Problem] | None:
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._is_ours(host):
            return 403, Problem(problem="the Host of the request is not this machine", where=host, remedy=_REMEDY)
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return 403, Problem(problem="the request comes from another site", where=origin, remedy=_REMEDY)
        site = headers.get("sec-fetch-site", "none")
        # a link on another page may lead here; what it shows still needs the token
        if site not in _SAFE_SITES and headers.get("sec-fetch-mode") != "navigate":
            return 403, Problem(problem="the request comes from another site", where=site, remedy=_REMEDY)
        if not any(hmac.compare_digest(given.encode(), self._token.encode()) for given in self._given(headers, scope)):
            return 401, Problem(problem="the token is missing or wrong", where=scope["path"], remedy=_REMEDY)
        return None

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

    def _given(self, headers: Headers, scope: Scope) -> list[str]:
        """The tokens that a request carries."""
        found = self._in_query(scope)
        authorization = headers.get("authorization", "")
        if authorization.lower().startswith("bearer "):
            found.append(authorization[len("bearer ") :].strip())
        found.extend(_of_cookie(self._cookie, headers.getlist("cookie")))
        return found

    def _in_query(self, scope: Scope) -> list[str]:
        """Tokens in the query; only the page itself takes one, so that no other address with a token is ever made."""
        if scope["path"] != "/":
            return []
        return parse_qs(scope["query_string"].decode("latin-1")).get("token", [])


def _of_cookie(wanted: str, lines: list[str]) -> Iterator[str]:
    """Every value of one cookie, as it was sent.

    Cookies of all programs on the host come along, whatever their ports, in forms that no grammar allows: what is not asked for
    is passed over and not understood. A token needs no quotes, so none are taken off: undoing escapes is what made the standard
    library's parser quadratic (CVE-2024-7592).
    """
    if sum(map(len, lines)) > _MOST_COOKIES:
        return
    for line in lines:
        for part in line.split(";"):
            name, _, value = part.partition("=")
            if name.strip() == wanted:
                yield value.strip()


def _nothing() -> None:
    return None
