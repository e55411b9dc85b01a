"""Which folders hold raw data of the Ascend PyTorch Profiler; what reads it is imported when some is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from steplens.readers.ascend.capture import raw_files
from steplens.readers.contents import Contents
from steplens.readers.reader import Capture, Reader

if TYPE_CHECKING:
    from steplens.trace.trace import Trace


class AscendRawReader(Reader[Contents]):
    """Run directories with raw data of the host, of devices or of both."""

    name = "Ascend raw data"
    in_place = True

    def find_run(self, contents: Contents) -> Capture[Contents] | None:
        """Device data that CANN exported, raw data that results of steplens were made of, and raw data without results."""
        if contents.simplified or not contents.raw_names:
            return None
        ignored = contents.result_names
        if contents.exported:
            subject = "raw framework data and exported device data are" if contents.framework else "exported device data is"
            why = f"its {subject} there"
        elif contents.own:
            why = "its raw data is there, which the results were made from"
        elif contents.prefers_database or contents.text:
            return None
        else:
            why = "its raw data is there, the device part not exported" if contents.prof else "its raw framework data is there"
            ignored = ()
        return Capture(contents.path, self, contents, why, ignored)

    def read(self, where: Contents, *, allow_msprof: bool = False) -> Trace:
        """See ``ascend_raw.read_trace``; text results beside the raw data are compared with it."""
        from steplens.readers.ascend import conflicts
        from steplens.readers.ascend.capture import ascend_raw

        trace = ascend_raw.read_trace(where.path, allow_msprof=allow_msprof)
        return conflicts.with_findings(trace, where.results) if where.text else trace

    def sources(self, where: Contents) -> list[Path]:
        """See ``raw_files.sources``."""
        return raw_files.sources(where.path)

    def exports(self, where: Contents) -> bool:
        """Whether there is device data, and none of it was exported."""
        return bool(where.prof) and not where.exported


READER = AscendRawReader()
