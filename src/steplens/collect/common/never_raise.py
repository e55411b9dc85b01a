"""The rule that nothing in the profiler raises into training, as a decorator for its public methods.

What the program's own handlers of signals raise is no exception of the profiler, and reaches the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from steplens.collect.common import interrupts

_Method = TypeVar("_Method", bound=Callable[..., Any])


def never_raise(method: _Method) -> _Method:
    """Make a public method catch every exception of ours and hand it to ``self._health``, which prints one line."""

    @functools.wraps(method)
    def call_safely(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as exception:  # the boundary to the training
            if interrupts.of_the_program(exception):
                raise
            self._health.report_failure(method.__name__, exception)
            return None

    return cast(_Method, call_safely)
