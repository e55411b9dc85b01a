"""Texts for messages: why something could not be done, and what the program gives for a text.

A class of the program may raise in every method, and lie in all of them.
"""

from __future__ import annotations

import errno
import resource


def describe_exception(exception: BaseException) -> str:
    """An exception by its name and in words. Never raises, whatever the exceptions of the program do."""
    return f"{type(exception).__name__}: {_exception_message(exception)}"


def _exception_message(exception: BaseException) -> str:
    try:
        return plain_text(str(exception)) or ""
    except Exception as error:  # the boundary to an exception of the program
        return f"it has no text, making it raises {type(error).__name__}"


def text_of(exception: BaseException) -> str:
    """An exception in words; one without any by its name. Never raises, like :func:`named`."""
    text = _exception_message(exception) or type(exception).__name__
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


def plain_text(value: object) -> str | None:
    """A text without what a subclass of ``str`` adds to it; None for what is no text. Runs no code of the program."""
    if type(value) is str:
        return value
    # not isinstance(), which asks the object
    return str.__str__(value) if issubclass(type(value), str) else None
