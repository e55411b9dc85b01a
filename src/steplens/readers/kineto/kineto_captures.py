"""Which files are traces of Kineto; what reads one is imported when one is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from steplens.formats.kineto import SUFFIXES
from steplens.readers.reader import Capture, Reader

if TYPE_CHECKING:
    from steplens.trace.trace import Trace


def detect(path: Path) -> bool:
    """Whether ``path`` may be a Kineto trace: a file whose name ends as one."""
    return path.is_file() and path.name.endswith(SUFFIXES)


class KinetoReader(Reader[Path]):
    """Trace files of Kineto, and of whatever writes the same events."""

    name = "Kineto trace"

    def find_file(self, path: Path, start: bytes) -> Capture[Path] | None:
        """Any file that is called as a trace is."""
        return Capture(path, self, path, "it is a trace file") if detect(path) else None

    def read(self, where: Path, *, allow_msprof: bool = False) -> Trace:
        """See ``kineto.read``."""
        from steplens.readers.kineto import kineto

        return kineto.read(where)

    def sources(self, where: Path) -> list[Path]:
        """The file."""
        return [where]

    def timeline(self, where: Path) -> tuple[Path, Callable[[Path], Trace]]:
        """The file."""
        return where, self.read


READER = KinetoReader()
