"""Why something could not be done, in words for a message."""

from __future__ import annotations

import errno
import resource


def text_of(exception: BaseException) -> str:
    """An exception in words; one without any by its name."""
    text = str(exception) or type(exception).__name__
    limit = largest_file()
    if limit is not None and isinstance(exception, OSError) and exception.errno == errno.EFBIG:
        text += limit_text(limit)
    return text


def largest_file() -> int | None:
    """Bytes that a file of this process may have; None where there is no limit."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def limit_text(limit: int) -> str:
    """That a file has reached its limit in bytes."""
    return f": a file of this process may have {limit} bytes (ulimit -f)"
