"""Which folders may hold data of MindSpore; what finds and reads it is imported when one of them looks like it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from steplens.readers.mindspore.folders import is_promising
from steplens.readers.reader import Capture, Reader

if TYPE_CHECKING:
    from steplens.readers.mindspore.mindspore_find import MindSporeSource
    from steplens.trace.trace import Trace


class MindSporeReader(Reader["MindSporeSource"]):
    """The data of every rank and device in a folder."""

    name = "MindSpore"

    def find_in_folder(self, folder: Path, claimed: Collection[str]) -> list[Capture[MindSporeSource]]:
        """See ``mindspore_find.find_sources``."""
        if not is_promising(folder):
            return []
        from steplens.readers.mindspore.mindspore_find import find_sources

        return [self.capture_of(source) for source in find_sources(folder)]

    def capture_of(self, source: MindSporeSource) -> Capture[MindSporeSource]:
        """The data of one rank or device as something that can be opened."""
        return Capture(source.path, self, source, source.reason, source.ignored, str(source.number), source.claimed)

    def read(self, where: MindSporeSource, *, allow_msprof: bool = False) -> Trace:
        """See ``MindSporeSource.read``."""
        return where.read()

    def sources(self, where: MindSporeSource) -> list[Path]:
        """See ``MindSporeSource.sources``."""
        return where.sources()

    def format_of(self, where: MindSporeSource) -> str:
        """By its kind."""
        return where.format


READER = MindSporeReader()
