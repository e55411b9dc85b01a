"""Decoding of JSON with msgspec, in the same guarded way as ``json_text``: large files, events, typed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from steplens.common.json_text import TooDeepError, UnreadableJsonError, check_levels

Text = str | bytes | bytearray | memoryview
Value = TypeVar("Value")


class Decoder(Generic[Value]):
    """Decodes JSON texts into values of one type.

    Args:
        kind: the type; with ``Any`` values come as they are, and are nested at most ``json_text.MOST_LEVELS`` deep.
        float_hook: makes a value of a number with a fraction for which ``kind`` asks no type.
    """

    def __init__(self, kind: Any = Any, *, float_hook: Callable[[str], Any] | None = None) -> None:
        self._decode: Callable[[Any], Value] = msgspec.json.Decoder(kind, float_hook=float_hook).decode
        self._is_any = kind is Any

    def decode(self, text: Text) -> Value:
        """The value in a text.

        Raises:
            UnreadableJsonError: it is no JSON, of another type, or nested deeper than any profiler does.
        """
        try:
            value = self._decode(text)
        except RecursionError:
            raise TooDeepError from None
        # older versions of msgspec have errors that are no ValueError
        except (ValueError, ArithmeticError, msgspec.MsgspecError) as error:
            raise UnreadableJsonError(str(error)) from None
        if self._is_any:
            check_levels(value)
        return value


_ANY: Decoder[Any] = Decoder()


def decode(text: Text) -> Any:
    """The value in a JSON text; see ``Decoder.decode``."""
    return _ANY.decode(text)
