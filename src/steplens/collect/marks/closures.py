"""The closure of an optimizer step, which runs forward and backward inside ``Optimizer.step``, as a range of its own.

Lightning passes one to every optimizer, and algorithms such as LBFGS need one. Without the range the whole step would look like
the optimizer's work.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

#: name of the range; the analysis knows it as ``steplens.trace.schema.OPTIMIZER_CLOSURE``
RANGE = "Optimizer.closure"

_CLOSURE = "closure"


def with_range(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``Optimizer.step``, without the optimizer, with a range around the closure if there is one.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.
    """
    if args and callable(args[0]):
        return (_wrap_closure(args[0]), *args[1:]), kwargs
    if callable(kwargs.get(_CLOSURE)):
        return args, {**kwargs, _CLOSURE: _wrap_closure(kwargs[_CLOSURE])}
    return args, kwargs


def _wrap_closure(closure: Any) -> Any:
    record_function = sys.modules["torch"].autograd.profiler.record_function

    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(RANGE):
            return closure(*args, **kwargs)

    try:
        return functools.wraps(closure)(call)
    except AttributeError:  # an object that is called may have no name
        return call


def step_pre_hook(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """A hook for ``Optimizer.register_step_pre_hook``; PyTorch passes the optimizer in ``args`` as well."""
    del optimizer
    changed, more = with_range(args[1:], kwargs)
    return (args[0], *changed), more
