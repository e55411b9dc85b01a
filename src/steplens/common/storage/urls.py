"""URLs as users give them: what is one, and what of it may be shown."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(::[^:]+)*://")
#: what ``pathlib`` makes of a URL
_URL_AS_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+(?:::[A-Za-z0-9+.\-]+)*):/(?!/)")
#: user and password in front of a host
_CREDENTIALS = re.compile(r"//[^/@]*@")
#: of the web: addresses of files alone, which have secrets behind a question mark, where elsewhere names may hold one
_WEB = ("http", "https")
_HIDDEN = "***"


def is_url(text: str) -> bool:
    """Whether ``text`` is a URL and no path."""
    return _URL.match(text) is not None


def as_url(text: str) -> str:
    """A URL that was made a path, which takes two slashes for one, as it was; anything else as it is."""
    return _URL_AS_PATH.sub(r"\1://", text, count=1)


def local_path_of(url: str) -> str | None:
    """The path that a URL of this machine says; None of any other."""
    return unquote(urlsplit(url).path) if urlsplit(url).scheme == "file" else None


def without_credentials(text: str) -> str:
    """A URL, or a text with some, without user and password."""
    return _CREDENTIALS.sub(f"//{_HIDDEN}@", text)


def shown_url(url: str) -> str:
    """A URL as it may be printed and kept: without password and user, and without what the web has behind a question mark."""
    if is_web(url):
        return without_credentials(url.partition("?")[0]).rstrip("/")
    # what stands alone in front of a host is no secret: abfs://container@account/folder
    secret = _CREDENTIALS.search(url)
    return (without_credentials(url) if secret and ":" in secret[0] else url).rstrip("/")


def protocol_of(url: str) -> str:
    """What stands in front of ``://``."""
    return url.partition("://")[0]


def is_web(url: str) -> bool:
    """Whether it is an address of the web, which is of a file alone."""
    return protocol_of(url).rpartition("::")[2] in _WEB


def without_secrets(text: str, url: str) -> str:
    """A text of a foreign library, such as an error, without the secrets of a URL.

    Args:
        text: what it says.
        url: what it was given.
    """
    for credentials in _CREDENTIALS.findall(url):
        user, _, password = credentials[2:-1].partition(":")
        for secret in (f"{user}:{password}", password, unquote(password)):
            text = text.replace(secret, _HIDDEN) if secret.strip(":") else text
    query = url.partition("?")[2] if is_web(url) else ""
    return without_credentials(text.replace(query, _HIDDEN) if query else text)
