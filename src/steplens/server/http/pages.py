"""The files of the built front end, as they are answered: from memory, in pieces.

Whoever asks gets them without the token, as they hold nothing of any run. So they cost no thread, no file and no more memory than
a piece of each, however many ask and however slowly they read.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
from pathlib import Path

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

#: the path of the page itself
PAGE = "/"
_PIECE_BYTES = 64 << 10
#: The build puts a hash of their content into the names of files in this folder. A browser that has one does not ask again,
#: and keeps what it compiled of it; the page itself, which names them, is asked for each time.
_HASHED = "/assets/"
_KEPT = {"Cache-Control": "private, max-age=31536000, immutable"}


class PageFile(Response):
    """A file of the front end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with it; each piece waits until the one before is on its way."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for begin in range(0, len(self.body), _PIECE_BYTES):
            piece = bytes(self.body[begin : begin + _PIECE_BYTES])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            # others have their turn, and that the connection has ended is heard before more is written to it
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


def read_page_files(folder: Path) -> dict[str, PageFile]:
    """The files below a folder by the paths of requests; no path but these leads to one, and none to what links lead to outside.

    Args:
        folder: of the built front end; need not exist.
    """
    files, top = {}, folder.resolve()
    for place, _, names in os.walk(folder):
        for file in (Path(place, name) for name in names):
            if not file.is_file() or not file.resolve().is_relative_to(top):
                continue
            kind = mimetypes.guess_type(file.name)[0]
            path = f"/{file.relative_to(folder).as_posix()}"
            files[path] = PageFile(file.read_bytes(), headers=_KEPT if path.startswith(_HASHED) else None, media_type=kind)
    # under one path: a query with a wrong token is refused there
    if (page := files.pop("/index.html", None)) is not None:
        files[PAGE] = page
    return files
