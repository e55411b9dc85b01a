"""Symbolic links that lead nowhere: nothing exists there, and yet a name that a user sees."""

from __future__ import annotations

import errno
from pathlib import Path


def dead_link(path: Path) -> tuple[Path, str] | None:
    """What is the matter with the first part of ``path`` that is a link without an end; None where no part is."""
    for part in (*reversed(path.parents), path):
        try:
            if not part.is_symlink():
                continue
            part.stat()
        except RuntimeError:
            # of pathlib, before Python 3.13
            return part, "is a link that leads round in circles"
        except OSError as error:
            if error.errno == errno.ELOOP:
                return part, "is a link that leads round in circles"
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return part, "is a link to a place that does not exist"
    return None
