"""Events of Kineto's JSON to frames of columns, by the library ``native/decoder``: no object of Python per event.

The library reads a piece of JSON as a whole or not at all; what it does not take goes the way of ``kineto_structs``, which also
says what every member means. Both give the same rows. Times are integer ns here, as ``kineto_times`` makes them.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.common.native.libraries import NativeLibrary, load_built
from steplens.readers.common.json_events import Piece
from steplens.readers.kineto import kineto_frames as frames
from steplens.readers.kineto.kineto_structs import (
    OTHER_PHASES,
    CallArgs,
    CollectiveArgs,
    MemoryArgs,
    OperatorArgs,
    PythonArgs,
    TaskArgs,
)
from steplens.trace.schema import NAME

LIBRARY = NativeLibrary("decoder")
_VERSION = 1


class CategoryKind(enum.IntEnum):
    """Where the events of a category go, in the numbers of the library (``tables.h``)."""

    OPERATOR = 0
    ANNOTATION = 1
    KERNEL = 2
    COPY = 3
    CALL = 4
    DEVICE_RANGE = 5
    PYTHON = 6
    UNPLACED = 7
    IGNORED = 8


#: what became of a piece
_DECODED, _FOR_PYTHON, _NEW_CATEGORIES = range(3)
#: settings of the library
_LAUNCH_MARK, _TASK_KEY, _LAUNCH_KEY, _KEPT_NAME, _UNUSED_PHASES = range(5)
#: types of columns
_INTEGERS, _REALS, _CODES, _BOOLEANS, _BLOBS = range(5)
#: types of members
_INTEGER, _TRUNCATED, _REAL, _TEXT, _RAW, _WANTED_RAW, _MARK = range(7)

#: members of arguments: field of the struct, its type, and the place of its number or text in a row (``make_tables`` in tables.cpp)
_MEMBERS: tuple[tuple[type[msgspec.Struct], dict[str, tuple[int, int]]], ...] = (
    (
        OperatorArgs,
        {
            "external_id": (_INTEGER, 0),
            "sequence": (_INTEGER, 1),
            "forward_tid": (_INTEGER, 2),
            "flops": (_TRUNCATED, 3),
            "input_shapes": (_RAW, 0),
            "input_types": (_RAW, 1),
            "arguments": (_WANTED_RAW, 2),
            "stack": (_TEXT, 3),
            "collective": (_MARK, 0),
        },
    ),
    (
        TaskArgs,
        {
            "external_id": (_INTEGER, 0),
            "device": (_INTEGER, 1),
            "context": (_INTEGER, 2),
            "stream": (_INTEGER, 3),
            "correlation": (_INTEGER, 4),
            "bytes": (_INTEGER, 5),
            "bandwidth": (_REAL, 6),
        },
    ),
    (CallArgs, {"external_id": (_INTEGER, 0), "correlation": (_INTEGER, 1)}),
    (PythonArgs, {"id": (_INTEGER, 0), "parent": (_INTEGER, 1), "module_id": (_INTEGER, 2)}),
    (
        MemoryArgs,
        {
            "address": (_INTEGER, 0),
            "bytes": (_INTEGER, 1),
            "allocated": (_INTEGER, 2),
            "reserved": (_INTEGER, 3),
            "device": (_INTEGER, 4),
            "device_type": (_INTEGER, 5),
        },
    ),
)

_CALL_COLUMNS = ("name", "pid", "tid", "category", "external_id")
_TIMES = ("start_ns", "end_ns")
_FLOW_COLUMNS = ("category", "id", "pid", "tid", "time_ns")
_TASK_COLUMNS = (*_CALL_COLUMNS, "device", "context", "stream", "correlation", "launch")
#: tables of the library, each with its columns
_TABLES: dict[str, tuple[str, ...]] = {
    "operators": ("name", "pid", "tid", "annotation", "external_id", "sequence", "forward_tid",
                  "input_shapes", "input_types", "arguments", "stack", "flops", *_TIMES),
    "tasks": (*_TASK_COLUMNS, "bytes", "bandwidth", *_TIMES),
    "calls": (*_CALL_COLUMNS, "correlation", "launch", *_TIMES),
    "device_ranges": (*_CALL_COLUMNS, "correlation", *_TIMES),
    "python": ("name", "pid", "tid", "id", "parent", "module_id", *_TIMES),
    "unplaced": (*_TASK_COLUMNS, *_TIMES),
    "memory": ("pid", "tid", "address", "bytes", "allocated", "reserved", "device", "device_type", "time_ns"),
    "flow_starts": _FLOW_COLUMNS,
    "flow_ends": _FLOW_COLUMNS,
    "halves": ("begins", "name", "category", "pid", "tid", "time_ns", "args"),
}  # fmt: skip
#: columns that are left out where no row has them
_OPTIONAL = {
    "operators": ("sequence", "forward_tid", "input_shapes", "input_types", "arguments", "stack", "flops"),
    "tasks": ("launch",),
    "calls": ("launch",),
}
#: of copies, which have no launch
_OF_COPIES = ("bytes", "bandwidth")
#: of halves, names are text yet
_AS_TEXT = "halves"


class _Span(ctypes.Structure):
    _fields_ = (("row", ctypes.c_uint64), ("begin", ctypes.c_uint32), ("size", ctypes.c_uint32))


class _PieceCounts(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("events", "skipped", "metadata", "collectives", "new_categories")),
        ("has_coarse_times", ctypes.c_int32),
    )


class _ColumnView(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32),
        *((name, ctypes.c_uint64) for name in ("rows", "null_count", "byte_count")),
        ("numbers", ctypes.c_void_p),
        ("bytes", ctypes.c_void_p),
    )


class _TextView(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint64), ("bytes", ctypes.c_void_p), ("ends", ctypes.c_void_p))


def _declare_functions(library: ctypes.CDLL) -> None:
    pointer, size, number = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int32
    for name, result, arguments in (
        ("new", pointer, ()),
        ("free", None, (pointer,)),
        ("set", number, (pointer, number, ctypes.c_char_p, size)),
        ("add_member", number, (pointer, number, ctypes.c_char_p, size, number, number)),
        ("intern", ctypes.c_uint32, (pointer, ctypes.c_char_p, size)),
        ("set_category", number, (pointer, ctypes.c_uint32, number)),
        ("decode", number, (pointer, pointer, size, number, ctypes.POINTER(_PieceCounts))),
        ("metadata", ctypes.POINTER(_Span), (pointer,)),
        ("collectives", ctypes.POINTER(_Span), (pointer,)),
        ("new_categories", ctypes.POINTER(ctypes.c_uint32), (pointer,)),
        ("commit", number, (pointer,)),
        ("column", number, (pointer, number, number, ctypes.POINTER(_ColumnView))),
        ("clear", None, (pointer, number)),
        ("texts", None, (pointer, ctypes.POINTER(_TextView))),
    ):
        function = getattr(library, f"steplens_decoder_{name}")
        function.restype, function.argtypes = result, arguments


def load_library() -> ctypes.CDLL | None:
    """The library, where it is built already and wanted."""
    library = load_built(LIBRARY)
    if library is None or getattr(library, "steplens_decoder_version", lambda: 0)() != _VERSION:
        return None
    _declare_functions(library)
    return library


class NativeDecoder:
    """Collects the events of pieces as columns. One thread at a time may use it.

    Args:
        library: see ``load_library``.
        kind_of: says of which kind a category is.
        categories: categories that are likely to occur.

    Attributes:
        counts: of the piece that was decoded last: its events, those that are skipped, and whether any of its first calls has a
            time that a double is too coarse for.
    """

    def __init__(self, library: ctypes.CDLL, kind_of: Callable[[str], CategoryKind], categories: Sequence[str] = ()) -> None:
        self._library = library
        self._kind_of = kind_of
        self._handle = library.steplens_decoder_new()
        if not self._handle:
            raise MemoryError("the library has no memory for a decoder")
        self.counts = _PieceCounts()
        self._has_rows = False
        self._collectives: list[tuple[int, CollectiveArgs]] = []
        settings: list[tuple[int, bytes]] = [
            (_LAUNCH_MARK, frames.LAUNCH_BEGINS),
            (_UNUSED_PHASES, "".join(OTHER_PHASES).encode()),
            *((_TASK_KEY, key) for key in frames.OF_ONE_TASK),
            *((_LAUNCH_KEY, key) for key in frames.OF_LAUNCH),
            *((_KEPT_NAME, name.encode()) for name in frames.WITH_ARGUMENTS),
        ]
        for setting, text in settings:
            library.steplens_decoder_set(self._handle, setting, text, len(text))
        for number, (struct, members) in enumerate(_MEMBERS):
            for field in msgspec.structs.fields(struct):
                if field.name in members:
                    key = field.encode_name.encode()
                    library.steplens_decoder_add_member(self._handle, number, key, len(key), *members[field.name])
        for category in categories:
            text = category.encode()
            self._set_category(library.steplens_decoder_intern(self._handle, text, len(text)), category)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._library.steplens_decoder_free(handle)

    def decode(self, piece: Piece, *, text_times: bool) -> bool:
        """Read a piece; its rows wait for ``commit`` then. False where Python has to read it."""
        decoded = self._decode(piece, text_times)
        if decoded == _NEW_CATEGORIES:
            found = self._library.steplens_decoder_new_categories(self._handle)
            texts = self._texts()
            for code in dict.fromkeys(found[: self.counts.new_categories]):
                self._set_category(code, texts[code])
            decoded = self._decode(piece, text_times)
        return bool(decoded == _DECODED)

    def metadata_texts(self, piece: Piece) -> list[bytes]:
        """JSON text of the metadata events of the piece that was decoded."""
        spans = self._library.steplens_decoder_metadata(self._handle)
        return [bytes(piece[span.begin : span.begin + span.size]) for span in spans[: self.counts.metadata]]

    def commit(self, piece: Piece) -> bool:
        """Add the rows of the piece that was decoded; False where there is no memory for them."""
        spans = self._library.steplens_decoder_collectives(self._handle)[: self.counts.collectives]
        described = [(span.row, bytes(piece[span.begin : span.begin + span.size])) for span in spans]
        if not self._library.steplens_decoder_commit(self._handle):
            return False
        if described:
            args = frames.decode_collectives([text for _, text in described])
            self._collectives += zip([row for row, _ in described], args, strict=True)
        self._has_rows = True
        return True

    def take_frames(self) -> dict[str, pl.DataFrame]:
        """The rows so far by kind, in the order of the file; they are forgotten here."""
        if not self._has_rows:
            return {}
        self._has_rows = False
        texts = self._texts()
        text_column = pl.Series("text", texts, dtype=pl.String).set(pl.Series(np.arange(len(texts)) == 0), None)
        names = text_column.cast(NAME)
        taken: dict[str, pl.DataFrame] = {}
        for table, (kind, columns) in enumerate(_TABLES.items()):
            frame = self._table(table, kind, columns, text_column if kind == _AS_TEXT else names)
            self._library.steplens_decoder_clear(self._handle, table)
            if frame is not None:
                taken[kind] = frame
        if self._collectives:
            rows = [row for row, _ in self._collectives]
            taken["collectives"] = frames.collective_frame([args for _, args in self._collectives], taken["operators"][rows])
            self._collectives = []
        return taken

    def _table(self, table: int, kind: str, columns: tuple[str, ...], texts: pl.Series) -> pl.DataFrame | None:
        optional = _OPTIONAL.get(kind, ())
        made: list[pl.Series] = []
        has_copies = False
        for index, name in enumerate(columns):
            view = _ColumnView()
            self._library.steplens_decoder_column(self._handle, table, index, ctypes.byref(view))
            if not view.rows:
                return None
            has_copies |= kind == "tasks" and name == "launch" and view.null_count > 0
            if name in _OF_COPIES and kind == "tasks":
                is_there = has_copies
            else:
                is_there = view.null_count < view.rows or name not in optional
            if is_there:
                made.append(_to_series(name, view, texts))
        return pl.DataFrame(made)

    def _decode(self, piece: Piece, text_times: bool) -> int:
        text = np.frombuffer(piece, dtype=np.uint8)
        outcome: int = self._library.steplens_decoder_decode(
            self._handle, text.ctypes.data, len(text), text_times, ctypes.byref(self.counts)
        )
        return outcome

    def _set_category(self, code: int, category: str) -> None:
        self._library.steplens_decoder_set_category(self._handle, code, self._kind_of(category))

    def _texts(self) -> list[str]:
        """All texts by their number."""
        view = _TextView()
        self._library.steplens_decoder_texts(self._handle, ctypes.byref(view))
        ends = _array(view.ends, view.count, np.uint64).tolist()
        texts = ctypes.string_at(view.bytes, ends[-1])
        return [texts[begin:end].decode() for begin, end in zip([0, *ends], ends, strict=False)]


def _array(address: int | None, count: int, kind: type[Any]) -> npt.NDArray[Any]:
    """A copy of numbers of the library: polars may keep the array that it is given."""
    if not count or not address:
        return np.empty(0, dtype=kind)
    numbers = np.empty(count, dtype=kind)
    ctypes.memmove(numbers.ctypes.data, address, numbers.nbytes)
    return numbers


def _to_series(name: str, view: _ColumnView, texts: pl.Series) -> pl.Series:
    rows = view.rows
    if view.type == _CODES:
        return texts.gather(pl.Series(_array(view.numbers, rows, np.uint32))).alias(name)
    if view.type == _BOOLEANS:
        return pl.Series(name, _array(view.bytes, rows, np.bool_))
    if view.type == _BLOBS:
        ends = _array(view.numbers, rows, np.int64).tolist()
        text = ctypes.string_at(view.bytes, view.byte_count)
        blobs = [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        return pl.Series(name, blobs, dtype=pl.Binary)
    column = pl.Series(name, _array(view.numbers, rows, np.int64 if view.type == _INTEGERS else np.float64))
    if view.null_count:
        column = column.set(pl.Series(_array(view.bytes, rows, np.bool_)), None)
    return column
