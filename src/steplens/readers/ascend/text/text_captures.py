"""Which folders and files are results of the Ascend PyTorch Profiler as text; what reads them is imported when some are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steplens.formats.ascend_capture import EXPORT_DIRECTORY
from steplens.formats.ascend_database import ANALYSIS_DATABASE
from steplens.formats.ascend_results import TRACE_VIEW
from steplens.readers.ascend.text import text_files
from steplens.readers.contents import SIMPLIFIED_REASON, Contents, contents_around, is_ascend_timeline, is_database
from steplens.readers.kineto import kineto_captures
from steplens.readers.reader import Capture, Reader

if TYPE_CHECKING:
    from steplens.trace.trace import Trace


class AscendTextReader(Reader[Contents | Path]):
    """Result folders with text files, and a timeline that lies alone."""

    name = "Ascend result files"

    def find_run(self, contents: Contents) -> Capture[Contents | Path]:
        """Whatever holds results; what no database and no raw data wins over."""
        why = "it holds what another analysis has computed"
        if contents.simplified:
            why = SIMPLIFIED_REASON
        elif contents.text:
            why = "it holds the result files of " + ("steplens" if contents.own else "another analysis")
            if contents.raw_names:
                why += f" and no exported device data (no {EXPORT_DIRECTORY})"
        return Capture(contents.path, self, contents, why, contents.raw_names)

    def find_file(self, path: Path, start: bytes) -> Capture[Contents | Path] | None:
        """The database with the results of another analysis, and an array of events with Ascend's processes."""
        if is_database(path, start):
            contents = contents_around(path) if path.name == ANALYSIS_DATABASE else None
            why = "it holds what another analysis has computed, and what lies beside it completes it"
            return None if contents is None else Capture(path, self, contents, why)
        if kineto_captures.detect(path) and is_ascend_timeline(path, start):
            return Capture(path, self, path, "it is an array of events with Ascend's processes")
        return None

    def read(self, where: Contents | Path, *, allow_msprof: bool = False) -> Trace:
        """See ``ascend_text``."""
        from steplens.readers.ascend.text import ascend_text

        if isinstance(where, Path):
            return ascend_text.read_timeline_trace(where)
        return ascend_text.read_trace(where.results, where.path)

    def sources(self, where: Contents | Path) -> list[Path]:
        """See ``text_files.sources``."""
        return [where] if isinstance(where, Path) else text_files.sources(where.results, where.path)

    def format_of(self, where: Contents | Path) -> str:
        """A timeline that lies alone has a name of its own."""
        return "Ascend timeline" if isinstance(where, Path) else self.name

    def dependencies(self, where: Contents | Path) -> Sequence[int]:
        """The rank in the names of the folders around the results."""
        rank = None if isinstance(where, Path) else text_files.rank_of_folder(where.path)
        return () if rank is None else (rank,)

    def timeline(self, where: Contents | Path) -> tuple[Path, Callable[[Path], Trace]]:
        """``trace_view.json``."""
        return where if isinstance(where, Path) else where.results / TRACE_VIEW, self.read


READER = AscendTextReader()
