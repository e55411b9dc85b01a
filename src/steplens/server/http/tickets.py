"""Tickets for files: what lets the browser itself fetch one, because it sends no headers of a page with what it saves."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from steplens.server.http.routing import create_router

#: where a ticket is shown
AT = "/tickets/"
#: what a ticket may be for: an address that answers with a file
_OF_A_FILE = r"^/api/runs/\d{1,9}/(download|tables/[a-z_]{1,64}/csv)(\?[!-~]*)?$"
_LONGEST = 1 << 16
#: a browser asks at once
_VALID_S = 60.0
#: tickets that wait to be shown; the oldest goes for a new one
_MOST = 64

router = create_router("/api/tickets", "download")


class Tickets:
    """Tickets that were given out: each for one address, for once, and for a minute.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: until when and for what, the oldest first
        self._held: dict[str, tuple[float, str]] = {}

    def make(self, address: str) -> str:
        """A ticket for an address, which has a path and perhaps a query."""
        while len(self._held) >= _MOST:
            del self._held[next(iter(self._held))]
        ticket = secrets.token_urlsafe(32)
        self._held[ticket] = self._clock() + _VALID_S, address
        return ticket

    def spend(self, ticket: str) -> str | None:
        """The address that a ticket is for; from now on it is for none."""
        until, address = self._held.pop(ticket, (0.0, ""))
        return address if address and self._clock() <= until else None


class FileWanted(BaseModel):
    """A file that a browser shall fetch.

    Attributes:
        address: of a ``GET`` that answers with a file, with its query.
    """

    model_config = ConfigDict(extra="forbid")

    address: str = Field(pattern=_OF_A_FILE, max_length=_LONGEST)


class Ticket(BaseModel):
    """Where a file can be had once.

    Attributes:
        address: that needs no token, for a minute.
    """

    address: str


@router.post("")
async def make_ticket(request: Request, wanted: FileWanted) -> Ticket:
    """An address at which a file can be had without the token: once, and within a minute."""
    held: Tickets = request.app.state.tickets
    return Ticket(address=AT + held.make(wanted.address))
