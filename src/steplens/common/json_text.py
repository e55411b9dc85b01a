"""The one way JSON becomes values: what cannot be read is a ``ValueError``, whatever is wrong with it.

Python's parser raises ``RecursionError`` where brackets are nested deep enough, which nobody expects of bad input; and what
it reads just before that depth ends whoever walks through the values. So there is a bound, far above what profilers write.
Standard library only: the collector reads files, too. Readers decode events and large files with ``readers.json_decoder``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

#: objects and lists inside each other; profilers need about ten
MOST_LEVELS = 100
#: of what steplens itself wrote, with values of files that it read somewhere inside
OWN_LEVELS = 2 * MOST_LEVELS


class UnreadableJsonError(ValueError):
    """Text is no JSON, or nested deeper than any profiler does; the message says which."""


class TooDeepError(UnreadableJsonError):
    """Text is nested deeper than any profiler does."""

    def __init__(self, levels: int = MOST_LEVELS) -> None:
        super().__init__(f"nested more than {levels} levels deep")


def loads(
    text: str | bytes | bytearray,
    *,
    levels: int = MOST_LEVELS,
    parse_float: Callable[[str], Any] | None = None,
    parse_int: Callable[[str], Any] | None = None,
) -> Any:
    """The value in a JSON text.

    Args:
        text: the text; bytes in UTF-8, 16 or 32.
        levels: how many objects and lists may be inside each other.
        parse_float: makes a value of a number with a fraction; ``float`` by default.
        parse_int: makes a value of another number; ``int`` by default.

    Raises:
        UnreadableJsonError: it is no JSON, or nested deeper.
    """
    try:
        value = json.loads(text, parse_float=parse_float, parse_int=parse_int)
    except RecursionError:
        raise TooDeepError(levels) from None
    except (ValueError, ArithmeticError) as error:
        raise UnreadableJsonError(str(error)) from None
    check_levels(value, levels)
    return value


def check_levels(value: Any, levels: int = MOST_LEVELS) -> None:
    """Whether at most so many objects and lists of a decoded value are inside each other.

    Raises:
        TooDeepError: there are more.
    """
    # level by level: a walk that calls itself would end where it is meant to protect others
    level = [value]
    for _ in range(levels):
        members: list[Any] = []
        for item in level:
            if item.__class__ is dict:
                members += item.values()
            elif item.__class__ is list:
                members += item
        level = [item for item in members if item.__class__ is dict or item.__class__ is list]
        if not level:
            return
    raise TooDeepError(levels)


def loads_stored(text: str | bytes) -> Any:
    """The value in a JSON text that steplens wrote, into a table for instance; see ``loads``."""
    return loads(text, levels=OWN_LEVELS)
