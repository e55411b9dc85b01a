"""What a report holds: named pieces of data, compressed, within a limit of size, and what did not fit."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from steplens.common.errors import SteplensError


@dataclass(frozen=True)
class LeftOut:
    """Something that a report has only in part, or not at all.

    Attributes:
        what: "table", "answers", "timeline", "details", "curves", "arrows", "events", "shapes", "strategy" or "plans".
        run: number of the run.
        trace: number of its trace; None for all of them.
        name: of the table or address, the level of shapes, the number of the stage; empty where there is none.
        shown: how many rows, answers, events ... the report has.
        of: how many there are.
        why: "rows" (the limit of rows), "size" (the limit of size) or "many".
    """

    what: str
    run: int
    trace: int | None
    name: str
    shown: int
    of: int
    why: str


@dataclass
class Parts:
    """The pieces of a report.

    Attributes:
        limit_bytes: what they may take together, compressed.
        pieces: name -> compressed data (zlib).
        left_out: what is not in them.
        is_full: whether something did not fit.
    """

    limit_bytes: int
    pieces: dict[str, bytes] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    is_full: bool = False

    @property
    def size_bytes(self) -> int:
        """What the pieces take together, compressed."""
        return sum(map(len, self.pieces.values()))

    def add(self, name: str, data: bytes | Any) -> bool:
        """Add a piece, bytes as they are and anything else as JSON; False where it does not fit."""
        raw = data if isinstance(data, bytes) else msgspec.json.encode(data)
        packed = zlib.compress(raw, 6)
        if self.size_bytes + len(packed) > self.limit_bytes:
            self.is_full = True
            return False
        self.pieces[name] = packed
        return True

    def add_some(self, piece: str, data: Any, what: str, run: int, trace: int | None, name: str, shown: int, of: int) -> None:
        """Add a piece that has some of all that there is, and note what is not in it; see ``LeftOut``."""
        fits = self.add(piece, data)
        shown = shown if fits else 0
        if shown < of:
            self.lost(what, run, trace, name, shown, of, "many" if fits else "size")

    def take(self, pieces: Mapping[str, bytes], left_out: Sequence[LeftOut]) -> bool:
        """Take over compressed pieces that another process made, and what it left out; False, and nothing, if they do not fit."""
        if self.size_bytes + sum(map(len, pieces.values())) > self.limit_bytes:
            return False
        self.pieces |= pieces
        self.left_out += left_out
        return True

    def require(self, name: str, data: bytes | Any) -> None:
        """Add a piece without which no page can be shown.

        Raises:
            SteplensError: it does not fit.
        """
        if not self.add(name, data):
            limit = self.limit_bytes >> 20
            raise SteplensError(f"a report of this run does not fit into {limit} MiB; allow more with --limit, or choose a rank")

    def lost(self, what: str, run: int, trace: int | None, name: str, shown: int, of: int, why: str) -> None:
        """Note that something is not, or not whole, in the report."""
        self.left_out.append(LeftOut(what, run, trace, name, shown, of, why))

    def told(self) -> list[dict[str, Any]]:
        """What is left out, for the page that lists it."""
        return [asdict(item) for item in self.left_out]
