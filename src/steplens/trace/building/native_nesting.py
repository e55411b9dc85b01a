"""Call nesting by the library ``native/nesting``, where it is built: a pass over a million calls takes milliseconds.

``steplens.trace.building.nesting`` does the same without it, and says what the numbers mean.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from steplens.common.native.build import build_in_background
from steplens.common.native.libraries import NativeLibrary, load_built

Int64Array = npt.NDArray[np.int64]
IntegerArray = npt.NDArray[np.signedinteger[Any]]

LIBRARY = NativeLibrary("nesting")
#: with fewer calls nothing is gained by looking for the library
_LEAST_CALLS = 1 << 14
#: with so many it is worth building, for the next time
_WORTH_BUILDING = 1 << 18
_VERSION = 1


def load_library(count: int) -> ctypes.CDLL | None:
    """The library for so many calls; None where it is not worth it, or not built yet."""
    if count < _LEAST_CALLS:
        return None
    library = load_built(LIBRARY)
    if library is None and count >= _WORTH_BUILDING:
        _build_once()
    return library if library is not None and library.steplens_nesting_version() == _VERSION else None


@functools.lru_cache(maxsize=1)
def _build_once() -> None:
    build_in_background(LIBRARY.name)


def nest_sorted(
    library: ctypes.CDLL, lane: IntegerArray, start: IntegerArray, end: IntegerArray
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Parent, depth and end of the subtree of each call: ``nesting.nest_calls``."""
    count = len(start)
    columns = [_as_column(values) for values in (lane, start, end)]
    parent, depth, subtree_end = (np.empty(count, dtype=np.int64) for _ in range(3))
    library.steplens_nest_calls(ctypes.c_int64(count), *map(_address_of, (*columns, parent, depth, subtree_end)))
    return parent, depth, subtree_end


def innermost_of_sorted(
    library: ctypes.CDLL, start: IntegerArray, end: IntegerArray, parent: IntegerArray, time: IntegerArray
) -> Int64Array:
    """What ``nesting.innermost_calls`` gives, for times that do not fall."""
    columns, times = [_as_column(values) for values in (start, end, parent)], _as_column(time)
    innermost = np.empty(len(time), dtype=np.int64)
    library.steplens_innermost_calls(
        ctypes.c_int64(len(start)), *map(_address_of, columns), ctypes.c_int64(len(time)), *map(_address_of, (times, innermost))
    )
    return innermost


def _as_column(values: IntegerArray) -> Int64Array:
    """The same values as the library reads them; no copy is made of those of a table."""
    return np.ascontiguousarray(values, dtype=np.int64)


def _address_of(column: Int64Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(column.ctypes.data)
