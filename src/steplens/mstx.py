"""Marks and ranges of the user: ``from steplens import mstx``, then ``mstx.mark("epoch 3")``.

They are recorded while a profiler with ``mstx=True`` records, and cost next to nothing otherwise. Nothing here raises, except
out of the code that a range is around.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, overload

from steplens.collect.marks import marks

__all__ = ["annotate", "mark", "mstx_range", "range_end", "range_pop", "range_push", "range_start"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: what :func:`range_start` and what :func:`range_push` and :func:`range_pop` return when nothing was begun or ended
_NO_RANGE = 0
_NO_DEPTH = -1


def mark(message: str, stream: Any = None, domain: str = marks.DEFAULT_DOMAIN) -> None:
    """Mark this moment.

    Args:
        message: what happens; not empty.
        stream: a stream of the accelerator: also mark when it gets here.
        domain: a name by which marks can be told apart, and recorded or not (``mstx_domain_include``, ``mstx_domain_exclude``).
    """
    recorder = marks.recorder
    if recorder is not None:
        recorder.mark(message, stream, domain)


def range_start(message: str, stream: Any = None, domain: str = marks.DEFAULT_DOMAIN) -> int:
    """Begin a range, which may end in another function or thread and overlap others.

    Args:
        message: what happens; not empty.
        stream: a stream of the accelerator: also record when it gets to the begin and to the end.
        domain: see :func:`mark`.

    Returns:
        a number for :func:`range_end`; 0 when nothing is recorded.
    """
    recorder = marks.recorder
    return _NO_RANGE if recorder is None else recorder.start(message, stream, domain)


def range_end(range_id: int, domain: str = marks.DEFAULT_DOMAIN) -> None:
    """End a range.

    Args:
        range_id: what :func:`range_start` returned.
        domain: that of the range; the number alone tells which range is meant.
    """
    recorder = marks.recorder
    if recorder is not None:
        recorder.end(range_id)


def range_push(message: str, stream: Any = None, domain: str = marks.DEFAULT_DOMAIN) -> int:
    """Begin a range that ends with the matching :func:`range_pop` of the same thread and domain.

    Returns:
        how many ranges it lies in; -1 when nothing is recorded.
    """
    recorder = marks.recorder
    return _NO_DEPTH if recorder is None else recorder.push(message, stream, domain)


def range_pop(domain: str = marks.DEFAULT_DOMAIN) -> int:
    """End the range that this thread pushed last in a domain.

    Returns:
        how many ranges it lay in; -1 when there was none.
    """
    recorder = marks.recorder
    return _NO_DEPTH if recorder is None else recorder.pop(domain)


class annotate:
    """A range around a block or the calls of a function: ``with annotate("load"): ...`` or ``@annotate("load")``.

    A coroutine function is in its range until it returns, also while it waits.

    Args:
        message: what happens; not empty.
        stream: see :func:`range_start`.
        domain: see :func:`mark`.
    """

    __slots__ = ("_domain", "_message", "_open", "_stream")

    def __init__(self, message: str, stream: Any = None, domain: str = marks.DEFAULT_DOMAIN) -> None:
        self._message = message
        self._stream = stream
        self._domain = domain
        self._open: list[int] = []

    def __enter__(self) -> annotate:
        self._open.append(range_start(self._message, self._stream, self._domain))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        range_end(self._open.pop(), self._domain)

    def __call__(self, function: _Function) -> _Function:
        """Decorate a function."""
        message, stream, domain = self._message, self._stream, self._domain
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call_annotated_coroutine(*args: Any, **kwargs: Any) -> Any:
                opened = range_start(message, stream, domain)
                try:
                    return await function(*args, **kwargs)
                finally:
                    range_end(opened, domain)

            return call_annotated_coroutine  # type: ignore[return-value]

        @functools.wraps(function)
        def call_annotated(*args: Any, **kwargs: Any) -> Any:
            opened = range_start(message, stream, domain)
            try:
                return function(*args, **kwargs)
            finally:
                range_end(opened, domain)

        return call_annotated  # type: ignore[return-value]


@overload
def mstx_range(message: str, stream: Any = None, domain: str = marks.DEFAULT_DOMAIN) -> annotate: ...


@overload
def mstx_range(message: _Function) -> _Function: ...


def mstx_range(message: Any, stream: Any = None, domain: str = marks.DEFAULT_DOMAIN) -> Any:
    """A range around the calls of a function (``@mstx_range("step")``, or ``@mstx_range`` by its name) or around a block.

    Args:
        message: what happens; or the function itself.
        stream: see :func:`range_start`.
        domain: see :func:`mark`.
    """
    if callable(message):
        return annotate(getattr(message, "__qualname__", type(message).__name__), stream, domain)(message)
    return annotate(message, stream, domain)
