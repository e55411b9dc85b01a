"""Which folders are run directories that steplens wrote; what reads one is imported when one is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from steplens.common import rundir
from steplens.readers.contents import Contents
from steplens.readers.kineto import kineto_captures
from steplens.readers.reader import Capture, Reader
from steplens.readers.steplens_run import run_files

if TYPE_CHECKING:
    from steplens.trace.trace import Trace


class RunDirectoryReader(Reader[Contents]):
    """Run directories that steplens recorded, with Kineto or its own recorder; beside it CANN may have recorded an NPU."""

    name = "steplens run"
    in_place = True

    def find_run(self, contents: Contents) -> Capture[Contents] | None:
        """Raw data of the framework, unless the device's part of it is left in complete results alone."""
        if not contents.kineto or contents.simplified:
            return None
        return Capture(contents.path, self, contents, "its raw data is there", contents.result_names)

    def read(self, where: Contents, *, allow_msprof: bool = False) -> Trace:
        """See ``run_directory.read``."""
        from steplens.readers.steplens_run import run_directory

        return run_directory.read(where.path, with_npu=bool(where.prof), allow_msprof=allow_msprof)

    def sources(self, where: Contents) -> list[Path]:
        """See ``run_files``."""
        return [*run_files.source_files(where.path), *(run_files.device_sources(where.path) if where.prof else [])]

    def exports(self, where: Contents) -> bool:
        """Whether there is device data, and none of it was exported."""
        return bool(where.prof) and not where.exported

    def timeline(self, where: Contents) -> tuple[Path, Callable[[Path], Trace]] | None:
        """Kineto's raw trace; the recorder's file is read as soon as a part of that would be."""
        path = rundir.raw_recording(where.path)
        return None if path is None or path.name != rundir.RAW_TRACE else (path, kineto_captures.READER.read)


READER = RunDirectoryReader()
