"""Which files are databases of profilers for Ascend; what reads one is imported when one is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from steplens.formats.ascend_database import ANALYSIS_DATABASE
from steplens.readers.ascend.database import database_files
from steplens.readers.contents import SIMPLIFIED_REASON, Contents, contents_around, is_database
from steplens.readers.reader import Capture, Reader

if TYPE_CHECKING:
    from steplens.trace.trace import Trace


class AscendDatabaseReader(Reader[Contents | Path]):
    """Result folders with a profiler database, and a database that lies alone."""

    name = "Ascend database"

    def find_run(self, contents: Contents) -> Capture[Contents | Path] | None:
        """Results that hold a database of a profiler."""
        if not contents.prefers_database:
            return None
        why = "it holds a database, which is exact to the nanosecond and keeps the links between events"
        why = SIMPLIFIED_REASON if contents.simplified else why
        return Capture(contents.path, self, contents, why, (*contents.raw_names, *contents.text_names))

    def find_file(self, path: Path, start: bytes) -> Capture[Contents | Path] | None:
        """Any database but the one that is part of somebody's analysis."""
        if not is_database(path, start):
            return None
        contents = contents_around(path)
        if contents is None:
            return Capture(path, self, path, "it is a database on its own")
        if path.name == ANALYSIS_DATABASE:
            return None
        return Capture(path, self, contents, "it is a result database, and what lies beside it completes it")

    def read(self, where: Contents | Path, *, allow_msprof: bool = False) -> Trace:
        """See ``ascend_db``; text files beside the database are compared with it."""
        from steplens.readers.ascend import conflicts
        from steplens.readers.ascend.database import ascend_db

        if isinstance(where, Path):
            return ascend_db.read_file_trace(where)
        trace = ascend_db.read_trace(where.results, where.path)
        return conflicts.with_findings(trace, where.results) if where.text else trace

    def sources(self, where: Contents | Path) -> list[Path]:
        """See ``database_files.sources``."""
        return [where] if isinstance(where, Path) else database_files.sources(where.results, where.path)


READER = AscendDatabaseReader()
