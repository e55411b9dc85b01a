"""Events of Kineto's JSON to frames of columns, by the library ``native/decoder``: no object of Python per event.

The library reads a piece of JSON as a whole or not at all; what it does not take goes the way of ``kineto_structs``, which also
says what every member means. Both give the same rows. Times are integer ns here, as ``kineto_times`` makes them.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.common.native.libraries import NativeLibrary, load_built
from steplens.readers.common.json_events import Piece
from steplens.readers.kineto import kineto_frames as frames
from steplens.readers.kineto import native_layout as layout
from steplens.readers.kineto.kineto_structs import OTHER_PHASES, CollectiveArgs
from steplens.trace.schema import NAME

LIBRARY = NativeLibrary("decoder")


def load_library() -> ctypes.CDLL | None:
    """The library, where it is built already and wanted."""
    library = load_built(LIBRARY)
    if library is None or getattr(library, "steplens_decoder_version", lambda: 0)() != layout.VERSION:
        return None
    layout.declare_functions(library)
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

    def __init__(
        self, library: ctypes.CDLL, kind_of: Callable[[str], layout.CategoryKind], categories: Sequence[str] = ()
    ) -> None:
        self._library = library
        self._kind_of = kind_of
        self._handle = library.steplens_decoder_new()
        if not self._handle:
            raise MemoryError("the library has no memory for a decoder")
        self.counts = layout.PieceCounts()
        self._has_rows = False
        # texts by their number, of which the first is none, and those of them that names were made of
        self._texts: list[str] = [""]
        self._names = pl.Series([None], dtype=NAME)
        self._collectives: list[tuple[int, CollectiveArgs]] = []
        settings: list[tuple[int, bytes]] = [
            (layout.LAUNCH_MARK, frames.LAUNCH_BEGINS),
            (layout.UNUSED_PHASES, "".join(OTHER_PHASES).encode()),
            *((layout.TASK_KEY, key) for key in frames.OF_ONE_TASK),
            *((layout.LAUNCH_KEY, key) for key in frames.OF_LAUNCH),
            *((layout.KEPT_NAME, name.encode()) for name in frames.WITH_ARGUMENTS),
        ]
        for setting, text in settings:
            library.steplens_decoder_set(self._handle, setting, text, len(text))
        for number, (struct, members) in enumerate(layout.MEMBERS):
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

    def decode_piece(self, piece: Piece, *, text_times: bool) -> bool:
        """Read a piece; its rows wait for ``commit_piece`` then. False where Python has to read it."""
        decoded = self._call_decoder(piece, text_times)
        if decoded == layout.NEW_CATEGORIES:
            codes = self._library.steplens_decoder_new_categories(self._handle)
            new_categories = dict.fromkeys(codes[: self.counts.new_categories])
            self._read_texts()
            for code in new_categories:
                self._set_category(code, self._texts[code])
            decoded = self._call_decoder(piece, text_times)
        return bool(decoded == layout.DECODED)

    def metadata_text(self, piece: Piece) -> bytes:
        """JSON array text of the metadata events of the piece that was decoded; empty where it has none."""
        if not self.counts.metadata:
            return b""
        spans = self._library.steplens_decoder_metadata(self._handle)
        texts = [bytes(piece[span.begin : span.begin + span.size]) for span in spans[: self.counts.metadata]]
        return b"[" + b",".join(texts) + b"]"

    def commit_piece(self, piece: Piece) -> bool:
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
        self._read_texts()
        if len(self._names) < len(self._texts):
            more = pl.Series(self._texts[len(self._names) :], dtype=pl.String).cast(NAME)
            self._names = pl.concat([self._names, more], rechunk=True)
        frames_by_kind: dict[str, pl.DataFrame] = {}
        for table, (kind, columns) in enumerate(layout.TABLES.items()):
            frame = self._make_frame(table, kind, columns)
            self._library.steplens_decoder_clear(self._handle, table)
            if frame is not None:
                frames_by_kind[kind] = frame
        if self._collectives:
            rows = [row for row, _ in self._collectives]
            frames_by_kind["collectives"] = frames.collective_frame(
                [args for _, args in self._collectives], frames_by_kind["operators"][rows]
            )
            self._collectives = []
        return frames_by_kind

    def _make_frame(self, table: int, kind: str, columns: tuple[str, ...]) -> pl.DataFrame | None:
        optional = layout.OPTIONAL.get(kind, ())
        made: list[pl.Series] = []
        has_copies = False
        for index, name in enumerate(columns):
            view = layout.ColumnView()
            self._library.steplens_decoder_column(self._handle, table, index, ctypes.byref(view))
            if not view.rows:
                return None
            has_copies |= kind == "tasks" and name == "launch" and view.null_count > 0
            if name in layout.OF_COPIES and kind == "tasks":
                is_there = has_copies
            else:
                is_there = view.null_count < view.rows or name not in optional
            if is_there:
                made.append(self._make_column(name, view, as_text=kind == layout.AS_TEXT))
        return pl.DataFrame(made)

    def _call_decoder(self, piece: Piece, text_times: bool) -> int:
        if not len(piece):
            return layout.FOR_PYTHON
        text = np.frombuffer(piece, dtype=np.uint8)
        outcome: int = self._library.steplens_decoder_decode(
            self._handle, text.ctypes.data, len(text), text_times, ctypes.byref(self.counts)
        )
        return outcome

    def _set_category(self, code: int, category: str) -> None:
        self._library.steplens_decoder_set_category(self._handle, code, self._kind_of(category))

    def _read_texts(self) -> None:
        """Take over the texts that are new."""
        read_before = len(self._texts)
        view = layout.TextView()
        self._library.steplens_decoder_texts(self._handle, ctypes.byref(view))
        ends = _copy_numbers(view.ends + 8 * (read_before - 1), view.count - read_before + 1, np.uint64).tolist()
        first = ends[0]
        texts = ctypes.string_at(view.bytes + first, ends[-1] - first)
        self._texts += [texts[begin - first : end - first].decode() for begin, end in itertools.pairwise(ends)]

    def _make_column(self, name: str, view: layout.ColumnView, *, as_text: bool) -> pl.Series:
        rows = view.rows
        if view.type == layout.CODES:
            codes = _copy_numbers(view.numbers, rows, np.uint32)
            if as_text:
                return pl.Series(name, [self._texts[code] for code in codes.tolist()], dtype=pl.String)
            return self._names.gather(pl.Series(codes)).alias(name)
        if view.type == layout.BOOLEANS:
            return pl.Series(name, _copy_numbers(view.bytes, rows, np.bool_))
        if view.type == layout.BLOBS:
            ends = _copy_numbers(view.numbers, rows, np.int64).tolist()
            text = ctypes.string_at(view.bytes, view.byte_count)
            return pl.Series(name, [text[begin:end] for begin, end in itertools.pairwise([0, *ends])], dtype=pl.Binary)
        numbers = _copy_numbers(view.numbers, rows, np.int64 if view.type == layout.INTEGERS else np.float64)
        column = pl.Series(name, numbers)
        if view.null_count:
            are_known = pl.Series(~_copy_numbers(view.bytes, rows, np.bool_))
            column = column.zip_with(are_known, pl.Series([None], dtype=column.dtype))
        return column


def _copy_numbers(address: int | None, count: int, kind: type[Any]) -> npt.NDArray[Any]:
    """A copy of numbers of the library: polars may keep the array that it is given."""
    if not count or not address:
        return np.empty(0, dtype=kind)
    numbers = np.empty(count, dtype=kind)
    ctypes.memmove(numbers.ctypes.data, address, numbers.nbytes)
    return numbers
