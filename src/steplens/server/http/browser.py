"""Opens the link in the browser, so that nobody else learns it.

Every user of a machine can read the command lines of all programs. So the browser is not told the link, which holds the token,
but a file that only this user can read and that leads there.
"""

from __future__ import annotations

import contextlib
import html
import logging
import os
import re
import secrets
import threading
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path

from steplens.common.storage.private_folder import RefusedError, open_private_folder
from steplens.trace.cache.secret import private_folders

#: how long the browser has for reading the file
_KEPT_S = 120.0
_NAME = re.compile(r"view-[0-9a-f]{16}\.html")
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>steplens view</title>
<p><a href="{link}">steplens view</a></p>
</html>
"""
_LOG = logging.getLogger("steplens")


@contextlib.contextmanager
def open_in_browser(link: str) -> Iterator[None]:
    """Open a link in the user's browser; where that cannot be done, one line says so and all else goes on.

    Args:
        link: an address that is a secret.
    """
    path = _write_redirect_page(link)
    if path is None:
        yield
        return
    ended = threading.Event()
    # a browser on a terminal would take it over, and some wait until they are closed
    threading.Thread(target=_open_page, args=(path, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        _remove_page(path)


def _write_redirect_page(link: str) -> Path | None:
    """A file that leads to a link, where there is a place for one."""
    reason: Exception | None = None
    for place in private_folders():
        try:
            folder = open_private_folder(place)
            try:
                _remove_stale_pages(folder)
                return place / _write_private_file(folder, _PAGE.format(link=html.escape(link)))
            finally:
                os.close(folder)
        except RefusedError as error:
            # what somebody prepared is nothing to look for another place for
            reason = error
            break
        except OSError as error:
            reason = reason or error
    _LOG.warning("steplens: no browser is opened, because no private file can be made for it: %s; open the link above", reason)
    return None


def _write_private_file(folder: int, text: str) -> str:
    name = f"view-{secrets.token_hex(8)}.html"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        os.unlink(name, dir_fd=folder)
        raise
    return name


def _remove_stale_pages(folder: int) -> None:
    """Remove what servers left that were killed; their tokens ended with them."""
    for name in filter(_NAME.fullmatch, os.listdir(folder)):
        with contextlib.suppress(OSError):
            if time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime > 2 * _KEPT_S:
                os.unlink(name, dir_fd=folder)


def _open_page(path: Path, ended: threading.Event) -> None:
    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(path.as_uri())
    ended.wait(_KEPT_S)
    _remove_page(path)


def _remove_page(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
