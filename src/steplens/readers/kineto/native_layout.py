"""The numbers and structures of the library ``native/decoder``: what its headers say, in Python."""

from __future__ import annotations

import ctypes
import enum

import msgspec

from steplens.readers.kineto.kineto_structs import CallArgs, MemoryArgs, OperatorArgs, PythonArgs, TaskArgs

#: of the interface (``steplens_decoder_version``)
VERSION = 2


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
DECODED, FOR_PYTHON, NEW_CATEGORIES = range(3)
#: settings of the library
LAUNCH_MARK, TASK_KEY, LAUNCH_KEY, KEPT_NAME, UNUSED_PHASES = range(5)
#: types of columns
INTEGERS, REALS, CODES, BOOLEANS, BLOBS = range(5)
#: types of members
_INTEGER, _TRUNCATED, _REAL, _TEXT, _RAW, _WANTED_RAW, _MARK = range(7)

#: members of arguments: field of the struct, its type, and the place of its number or text in a row (see ``make_tables``)
MEMBERS: tuple[tuple[type[msgspec.Struct], dict[str, tuple[int, int]]], ...] = (
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
TABLES: dict[str, tuple[str, ...]] = {
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
OPTIONAL = {
    "operators": ("sequence", "forward_tid", "input_shapes", "input_types", "arguments", "stack", "flops"),
    "tasks": ("launch",),
    "calls": ("launch",),
}
#: of copies, which have no launch
OF_COPIES = ("bytes", "bandwidth")
#: of halves, names are text yet
AS_TEXT = "halves"


class Span(ctypes.Structure):
    """A stretch of a piece."""

    _fields_ = (("row", ctypes.c_uint64), ("begin", ctypes.c_uint32), ("size", ctypes.c_uint32))


class PieceCounts(ctypes.Structure):
    """What a piece holds."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("events", "skipped", "metadata", "collectives", "new_categories")),
        ("has_coarse_times", ctypes.c_int32),
    )


class ColumnView(ctypes.Structure):
    """A column in memory of the library: no ``numbers`` where all are null, of integers no ``bytes`` where none is."""

    _fields_ = (
        ("type", ctypes.c_int32),
        *((name, ctypes.c_uint64) for name in ("rows", "null_count", "byte_count")),
        ("numbers", ctypes.c_void_p),
        ("bytes", ctypes.c_void_p),
    )


class TextView(ctypes.Structure):
    """All texts, one behind the other, and where each ends."""

    _fields_ = (("count", ctypes.c_uint64), ("bytes", ctypes.c_void_p), ("ends", ctypes.c_void_p))


def declare_functions(library: ctypes.CDLL) -> None:
    """Say which arguments the functions of the library take."""
    pointer, size, number = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int32
    for name, result, arguments in (
        ("new", pointer, ()),
        ("free", None, (pointer,)),
        ("set", number, (pointer, number, ctypes.c_char_p, size)),
        ("add_member", number, (pointer, number, ctypes.c_char_p, size, number, number)),
        ("intern", ctypes.c_uint32, (pointer, ctypes.c_char_p, size)),
        ("set_category", number, (pointer, ctypes.c_uint32, number)),
        ("decode", number, (pointer, pointer, size, number, ctypes.POINTER(PieceCounts))),
        ("metadata", ctypes.POINTER(Span), (pointer,)),
        ("collectives", ctypes.POINTER(Span), (pointer,)),
        ("new_categories", ctypes.POINTER(ctypes.c_uint32), (pointer,)),
        ("commit", number, (pointer,)),
        ("column", number, (pointer, number, number, ctypes.POINTER(ColumnView))),
        ("clear", None, (pointer, number, number)),
        ("texts", None, (pointer, ctypes.POINTER(TextView))),
    ):
        function = getattr(library, f"steplens_decoder_{name}")
        function.restype, function.argtypes = result, arguments
