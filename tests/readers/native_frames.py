"""Both ways from pieces of JSON to frames of columns, the library's and Python's, beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from steplens.readers.common.json_events import Piece
from steplens.readers.kineto.kineto_events import EventColumns


class Columns(EventColumns):
    """Counts how many pieces either way took.

    Args:
        native: let the library try first.
    """

    def __init__(self, *, native: bool) -> None:
        super().__init__()
        self.by_library = 0
        self.by_python = 0
        if native:
            assert self._native is not None, "the library is not built"
        else:
            self._native = None

    def _add_natively(self, piece: Any, native: Any) -> bool:
        taken = super()._add_natively(piece, native)
        self.by_library += taken
        self.by_python += not taken
        return taken


def read_pieces(pieces: Iterable[Piece], *, native: bool) -> Columns:
    """The events of pieces of JSON array text."""
    columns = Columns(native=native)
    for piece in pieces:
        columns.add(piece)
    return columns


def assert_same_columns(found: EventColumns, expected: EventColumns) -> None:
    """Whether both hold the same rows, of the same types, in the same order, and say the same about the rest."""
    for columns in (found, expected):
        columns.convert()
    for kind in expected.kinds:
        frames = [_comparable(columns.frame(kind)) for columns in (found, expected)]
        assert_frame_equal(*frames, check_column_order=False, check_exact=True)
    for name in ("count", "skipped", "damaged", "beyond", "timed", "unended", "unbegun"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("thread_names", "lane_names", "lane_texts", "process_labels"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert list(ours.items()) == list(theirs.items()), name


def _comparable(frame: pl.DataFrame) -> pl.DataFrame:
    """With names as text: the numbers of categories depend on what a process read before."""
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String)) if frame.width else frame
