"""Values of a command line that nobody has to check.

typer has each value checked by a library that takes as long to import as typer itself (pydantic, since typer 0.2x). Most values
are what they have to be already: what nobody gave, text that is to be text, and what a parser of ours makes a path of.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args, get_origin


def spare_checks(params: Iterable[Any]) -> None:
    """Let parameters of click have such values as they are; versions of typer that check without a library stay as they are.

    Args:
        params: of a command.
    """
    for param in params:
        if hasattr(param, "type_descriptor") and not isinstance(param.process_value, functools.partial):
            param.process_value = functools.partial(_process_value, param, param.process_value)


def _process_value(param: Any, check: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """The value of a parameter, as the method of typer gives it, which is asked where there is something to check."""
    is_list = param.multiple or param.nargs == -1
    values = [] if value is None else value if is_list else [value]
    # what lacks is refused there, too
    as_they_are = None if param.required and not values else _values_as_they_are(values, param.type_descriptor)
    if as_they_are is None:
        return check(ctx, value)
    if is_list:
        processed: Any = as_they_are or ()
    else:
        processed = as_they_are[0] if as_they_are else None
    return processed if param.callback is None else param.callback(ctx, param, processed)


def _values_as_they_are(values: Sequence[Any], descriptor: Any) -> list[Any] | None:
    """Values that are of the type of a parameter, or text that our parser takes; None where one is to be checked."""
    annotation, parse = descriptor.annotation, descriptor.parameter_info.parser
    if parse is not None:
        return [parse(value) if isinstance(value, str) else value for value in values]
    kind = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    return list(values) if not values or (isinstance(kind, type) and all(isinstance(value, kind) for value in values)) else None
