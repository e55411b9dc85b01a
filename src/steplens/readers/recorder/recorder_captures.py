"""Which files are of the recorder of operators, outside of a run directory; what reads one is imported when one is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from steplens.readers.contents import is_recording
from steplens.readers.reader import Capture, Reader

if TYPE_CHECKING:
    from steplens.trace.trace import Trace


class RecorderReader(Reader[Path]):
    """Files of the recorder of operators."""

    name = "steplens recording"

    def find_file(self, path: Path, start: bytes) -> Capture[Path] | None:
        """Any file that begins as one."""
        return Capture(path, self, path, "it is a file of steplens's recorder") if is_recording(start) else None

    def read(self, where: Path, *, allow_msprof: bool = False) -> Trace:
        """See ``recorder_file.read_recording``."""
        from steplens.readers.recorder import recorder_file

        return recorder_file.read_recording(where)

    def sources(self, where: Path) -> list[Path]:
        """The file."""
        return [where]


READER = RecorderReader()
