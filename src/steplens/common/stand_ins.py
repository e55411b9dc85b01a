"""Local folders that stand in for places elsewhere, such as a bucket: whoever tells a user a path below one tells the URL.

``steplens.common.storage`` makes them; where there are none, all of this costs a look at an empty dictionary.
"""

from __future__ import annotations

import os

#: local folder with a separator at its end -> the beginning of the URLs that paths below it stand for
_TOLD: dict[str, str] = {}


def stand_in(folder: str, url: str) -> None:
    """From now on paths below ``folder`` are told as URLs.

    Args:
        folder: a local folder.
        url: what its path is replaced by; without user, password and other secrets.
    """
    _TOLD[folder.rstrip(os.sep) + os.sep] = url


def told_path(path: str | os.PathLike[str]) -> str:
    """A path as a user knows it: the path itself, or the URL that it stands for."""
    text = str(path)
    for folder, url in _TOLD.items():
        if text.startswith(folder):
            return url + text[len(folder) :]
    return text


def told_in(text: str) -> str:
    """A text, with URLs in place of the paths that stand for them."""
    for folder, url in _TOLD.items():
        text = text.replace(folder, url)
    return text
