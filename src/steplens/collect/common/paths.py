"""Paths that users give: what the Ascend PyTorch Profiler does not take is used here all the same, and said once."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from steplens.collect.common import log
from steplens.common.stand_ins import told_path

#: letters, digits, Chinese characters and what else the reference accepts without a word
_USUAL = re.compile(r"[A-Za-z0-9\u4e00-\u9fa5._\-~/ ]*")

_warned: set[str] = set()


def warn_if_unusual(path: str | os.PathLike[str], what: str) -> None:
    """Warn about a path that other tools refuse: one through a link, or with signs other than letters, digits and ``._-~/``.

    Args:
        path: as the user gave it; links in front of a relative path are nobody's choice.
        what: what it is the path of, at the beginning of the warning.
    """
    text = os.fspath(path)
    if told_path(text) != text:  # of a stand-in for a URL only its name is the user's
        return
    if text in _warned:
        return
    reasons = []
    if link := _link_on(text):
        reasons.append(f"leads through the link {link}, so that its files lie elsewhere, where others may be able to write")
    if strange := sorted(set(re.sub(_USUAL, "", text))):
        reasons.append(f"holds {' '.join(map(ascii, strange))}: other tools take only letters, digits, '_', '.', '-' and spaces")
    if reasons:
        _warned.add(text)
        log.warning(f"{what} {text!r} {' and '.join(reasons)}. It is used as it is.")


def _link_on(text: str) -> str:
    """The first part of a path that is a link, and leads somewhere; empty where there is none."""
    path = Path(os.path.expanduser(text))
    # what is no path at all is said when something is to be written there
    with contextlib.suppress(OSError, ValueError):
        return next((str(part) for part in (*reversed(path.parents), path) if part.is_symlink() and part.exists()), "")
    return ""
