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
from steplens.common.worker_processes import map_in_two_threads
from steplens.readers.common.json_events import Piece
from steplens.readers.kineto import kineto_frames as frames
from steplens.readers.kineto import native_layout as layout
from steplens.readers.kineto.kineto_structs import OTHER_PHASES, CollectiveArgs
from steplens.trace.schema import NAME

LIBRARY = NativeLibrary("decoder")
#: of so many rows a column takes longer to copy than a thread to start
_MANY_ROWS = 1 << 20


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
        has_rows: rows wait for ``take_frames``.
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
        self.has_rows = False
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
        self.has_rows = True
        return True

    def take_collectives(self) -> list[tuple[int, CollectiveArgs]]:
        """Calls that are described as communication, by their row among the operators; they are forgotten here."""
        described, self._collectives = self._collectives, []
        return described

    def take_texts(self) -> tuple[list[str], pl.Series]:
        """The texts of rows by their number, and the names that they are; the rows are to be taken now."""
        self.has_rows = False
        self._read_texts()
        if len(self._names) < len(self._texts):
            more = pl.Series(self._texts[len(self._names) :], dtype=pl.String).cast(NAME)
            self._names = pl.concat([self._names, more], rechunk=True)
        return self._texts, self._names

    def view_column(self, table: int, index: int) -> layout.ColumnView:
        """A column of the rows so far; valid until the next piece, or until it is forgotten."""
        view = layout.ColumnView()
        self._library.steplens_decoder_column(self._handle, table, index, ctypes.byref(view))
        return view

    def forget_column(self, table: int, index: int) -> None:
        """Let go of a column."""
        self._library.steplens_decoder_clear(self._handle, table, index)

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
        ends = _joined_numbers([(view.ends + 8 * (read_before - 1), view.count - read_before + 1)], np.uint64).tolist()
        first = ends[0]
        texts = ctypes.string_at(view.bytes + first, ends[-1] - first)
        self._texts += [texts[begin - first : end - first].decode() for begin, end in itertools.pairwise(ends)]


def take_frames(decoders: Sequence[NativeDecoder]) -> dict[str, list[pl.DataFrame]]:
    """The rows of some decoders by kind, in the order of the decoders and of their pieces; they are forgotten there."""
    filled = [decoder for decoder in decoders if decoder.has_rows]
    if not filled:
        return {}
    row_source = _TakenRows(filled)
    frames_by_kind = {
        kind: [frame]
        for table, (kind, columns) in enumerate(layout.TABLES.items())
        if (frame := row_source.make_frame(table, kind, columns)) is not None
    }
    first_row = 0
    for decoder, rows_of_table in zip(filled, row_source.operator_rows, strict=True):
        if described := decoder.take_collectives():
            rows = [first_row + row for row, _ in described]
            frame = frames.collective_frame([args for _, args in described], frames_by_kind["operators"][0][rows])
            frames_by_kind.setdefault("collectives", []).append(frame)
        first_row += rows_of_table
    return frames_by_kind


class _TakenRows:
    """Makes frames of the rows of some decoders, of which each has texts with numbers of its own.

    Attributes:
        operator_rows: how many operators each decoder has, once their frame is made.
    """

    def __init__(self, decoders: Sequence[NativeDecoder]) -> None:
        self._decoders = decoders
        self.operator_rows = [0] * len(decoders)
        texts = [decoder.take_texts() for decoder in decoders]
        names = [its_names for _, its_names in texts]
        self._texts = [text for its_texts, _ in texts for text in its_texts]
        self._names = names[0] if len(names) == 1 else pl.concat(names, rechunk=True)
        # the number that the first text of each has among all of them
        self._first_texts = [0, *itertools.accumulate(len(its_texts) for its_texts, _ in texts[:-1])]

    def make_frame(self, table: int, kind: str, columns: tuple[str, ...]) -> pl.DataFrame | None:
        """The rows of a table; None where there are none."""
        optional = layout.OPTIONAL.get(kind, ())
        rows = 0
        wanted_columns: list[int] = []
        has_copies = False
        for index, name in enumerate(columns):
            views = [decoder.view_column(table, index) for decoder in self._decoders]
            rows = sum(view.rows for view in views)
            if kind == "operators":
                self.operator_rows = [view.rows for view in views]
            null_count = sum(view.null_count for view in views)
            has_copies |= kind == "tasks" and name == "launch" and null_count > 0
            is_of_copies = kind == "tasks" and name in layout.OF_COPIES
            if has_copies if is_of_copies else null_count < rows or name not in optional:
                wanted_columns.append(index)

        def take_column(index: int) -> pl.Series:
            views = [decoder.view_column(table, index) for decoder in self._decoders]
            column = self._make_column(columns[index], views, as_text=kind == layout.AS_TEXT)
            for decoder in self._decoders:
                decoder.forget_column(table, index)
            return column

        made = (
            map_in_two_threads(take_column, wanted_columns)
            if rows >= _MANY_ROWS
            else [*map(take_column, wanted_columns)]
            if rows
            else []
        )
        for decoder in self._decoders:
            for index in range(len(columns)):
                decoder.forget_column(table, index)
        return pl.DataFrame(made) if rows else None

    def _make_column(self, name: str, views: Sequence[layout.ColumnView], *, as_text: bool) -> pl.Series:
        kind = views[0].type
        if kind == layout.BLOBS:
            return pl.Series(name, [text for view in views for text in _split_blobs(view)], dtype=pl.Binary)
        if kind == layout.BOOLEANS:
            return pl.Series(name, _joined_numbers([(view.bytes, view.rows) for view in views], np.bool_))
        rows, null_count = (sum(getattr(view, total) for view in views) for total in ("rows", "null_count"))
        if kind == layout.CODES and as_text:
            return pl.Series(name, [self._texts[code] for code in self._join_codes(views).tolist()], dtype=pl.String)
        if null_count == rows:
            dtype = NAME if kind == layout.CODES else pl.Int64 if kind == layout.INTEGERS else pl.Float64
            null_column: pl.Series = pl.Series(name, [None], dtype=dtype).new_from_index(0, rows)
            return null_column
        if kind == layout.CODES:
            name_column: pl.Series = self._names.gather(pl.Series(self._join_codes(views))).alias(name)
            return name_column
        number: type[Any] = np.int64 if kind == layout.INTEGERS else np.float64
        column = pl.Series(name, _joined_numbers([(view.numbers, view.rows) for view in views], number))
        if null_count:
            are_null = _joined_numbers([(view.bytes, view.rows) for view in views], np.bool_)
            at = 0
            for view in views:
                if view.null_count == view.rows:  # no number is kept there
                    are_null[at : at + view.rows] = True
                at += view.rows
            column = column.zip_with(pl.Series(~are_null), pl.Series([None], dtype=column.dtype))
        return column

    def _join_codes(self, views: Sequence[layout.ColumnView]) -> npt.NDArray[np.uint32]:
        """Numbers of texts among those of all decoders."""
        codes = _joined_numbers([(view.numbers, view.rows) for view in views], np.uint32)
        at = 0
        for view, first in zip(views, self._first_texts, strict=True):
            if first:
                codes[at : at + view.rows] += np.uint32(first)
            at += view.rows
        return codes


def _split_blobs(view: layout.ColumnView) -> list[bytes]:
    ends = _joined_numbers([(view.numbers, view.rows)], np.int64).tolist()
    text = ctypes.string_at(view.bytes, view.byte_count) if view.byte_count else b""
    return [text[begin:end] for begin, end in itertools.pairwise([0, *ends])]


def _joined_numbers(parts: Sequence[tuple[int | None, int]], kind: type[Any]) -> npt.NDArray[Any]:
    """A copy of numbers of the library, address and count of each part; zeros where there is no address.

    Polars may keep the array that it is given.
    """
    numbers = np.empty(sum(count for _, count in parts), dtype=kind)
    at = 0
    for address, count in parts:
        part = numbers[at : at + count]
        if not address:
            part[:] = 0
        elif count:
            ctypes.memmove(part.ctypes.data, address, part.nbytes)
        at += count
    return numbers
