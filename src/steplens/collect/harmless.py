"""The rule that nothing in the profiler raises into training, as a decorator for its public methods."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

_Method = TypeVar("_Method", bound=Callable[..., Any])


def harmless(method: _Method) -> _Method:
    """Make a public method catch every exception and hand it to ``self._call_failed``, which prints one line."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as exception:
            self._call_failed(method.__name__, exception)
            return None

    return cast(_Method, call)
