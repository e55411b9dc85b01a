"""Small answers about a trace as bytes and back: frames, arrays, plain values, and the dataclasses and named tuples of steplens
that hold them.

Nothing is executed to read them: a dataclass is named by its place in steplens and is made from its fields.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import sys
from typing import Any

import msgspec
import polars as pl

_PLAIN = (type(None), bool, int, float, str, bytes)
_FRAME, _SERIES, _ARRAY, _OBJECT, _DICT, _TREE = "frame", "series", "array", "object", "dict", "tree"
_SEQUENCES: dict[str, type[tuple[Any, ...] | list[Any] | set[Any] | frozenset[Any]]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
}
_PACKAGE = "steplens."
#: an answer takes no more
MOST_BYTES = 64 << 20
#: kinds of arrays: truth values, whole and floating point numbers
_ARRAY_KINDS = "biuf"


def encode_answer(value: Any) -> bytes | None:
    """An answer as bytes; None where it is of a kind that is not kept, such as one that holds functions."""
    try:
        return msgspec.msgpack.encode(_as_plain(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def estimate_bytes(value: Any) -> int:
    """About how many bytes an answer takes at least as it is encoded, without encoding it."""
    if isinstance(value, pl.DataFrame | pl.Series):
        return int(value.estimated_size())
    if _is_array(value):
        return int(value.nbytes)
    names = _field_names(type(value))
    if names is not None:
        return sum(estimate_bytes(getattr(value, name)) for name in names)
    return len(value) if isinstance(value, (str, bytes, dict, list, tuple, set, frozenset)) else 1


def decode_answer(content: bytes) -> Any:
    """An answer from its bytes.

    Raises:
        ValueError: it is none.
    """
    try:
        return _from_plain(msgspec.msgpack.decode(content))
    except (
        msgspec.DecodeError,
        pl.exceptions.PolarsError,
        ImportError,
        AttributeError,
        TypeError,
        ValueError,
        LookupError,
    ) as error:
        raise ValueError(f"no answer that was kept: {error}") from error


def _as_plain(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if _is_number_of_numpy(value):
        return value.item()
    if isinstance(value, pl.DataFrame):
        return [_FRAME, _as_stream(value)]
    if isinstance(value, pl.Series):
        return [_SERIES, _as_stream(value.to_frame())]
    if _is_array(value):
        if value.dtype.kind not in _ARRAY_KINDS or value.ndim not in (1, 2):
            raise TypeError(f"an array of {value.dtype} in {value.ndim} dimensions is not kept")
        return [_ARRAY, value.dtype.str, value.tobytes(), *value.shape[1:]]
    if type(value) in (dict, list) and _is_tree(value):
        return [_TREE, value]
    for kind, sequence in _SEQUENCES.items():
        if type(value) is sequence:
            return [kind, [_as_plain(item) for item in value]]
    if type(value) is dict:
        return [_DICT, [[_as_plain(key), _as_plain(item)] for key, item in value.items()]]
    kind_of_value = type(value)
    if kind_of_value.__module__.startswith(_PACKAGE) and (names := _field_names(kind_of_value)) is not None:
        fields = {name: _as_plain(getattr(value, name)) for name in names}
        return [_OBJECT, kind_of_value.__module__, kind_of_value.__qualname__, fields]
    raise TypeError(f"a {type(value).__name__} is not kept")


def _is_array(value: Any) -> bool:
    # nobody has one who has not imported what makes it, which takes as long as the rest of a command
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_number_of_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.bool_, numpy.integer, numpy.floating))


def _is_tree(value: Any) -> bool:
    """Whether a value is made of dictionaries by name, lists and plain values alone, as what comes from JSON."""
    if type(value) is dict:
        return all(type(key) is str and _is_tree(item) for key, item in value.items())
    return type(value) in _PLAIN or (type(value) is list and all(map(_is_tree, value)))


def _field_names(made: type) -> tuple[str, ...] | None:
    """The fields of a dataclass or a named tuple; None of any other type."""
    if dataclasses.is_dataclass(made):
        return tuple(field.name for field in dataclasses.fields(made))
    return getattr(made, "_fields", None) if issubclass(made, tuple) else None


def _as_stream(frame: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    # texts one behind the other: where polars leaves those that its views show depends on how they were made
    frame.write_ipc_stream(content, compat_level=pl.CompatLevel.oldest())
    return content.getvalue()


def _from_plain(plain: Any) -> Any:
    if not isinstance(plain, list):
        return plain
    kind, *parts = plain
    if kind in (_FRAME, _SERIES):
        frame = pl.read_ipc_stream(io.BytesIO(parts[0]))
        return frame if kind == _FRAME else frame.to_series()
    if kind == _TREE:
        return parts[0]
    if kind == _ARRAY:
        import numpy as np

        dtype = np.dtype(parts[0])
        if dtype.kind not in _ARRAY_KINDS:
            raise ValueError(f"an array of {dtype} is not kept")
        # of two dimensions, where the length of the second one is told
        return np.frombuffer(parts[1], dtype).reshape((-1, *parts[2:])) if parts[2:] else np.frombuffer(parts[1], dtype)
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](map(_from_plain, parts[0]))
    if kind == _DICT:
        return {_from_plain(key): _from_plain(item) for key, item in parts[0]}
    if kind == _OBJECT:
        return _make_object(*parts)
    raise ValueError(f"of no kind that is kept: {kind}")


def _make_object(module: str, name: str, fields: dict[str, Any]) -> Any:
    if not module.startswith(_PACKAGE) or "." in name:
        raise ValueError(f"{module}:{name} is no dataclass of steplens")
    made = getattr(importlib.import_module(module), name)
    if not isinstance(made, type) or _field_names(made) is None:
        raise ValueError(f"{module}:{name} has no fields")
    return made(**{key: _from_plain(value) for key, value in fields.items()})
